"""The rule for secrets: only their owner can read the file, and nobody can on the network."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from fabmon.fabric.names import is_loopback
from fabmon.fabric.wording import file_error

_MAX_SECRET_BYTES = 4096
LEAST_HIDDEN = 4
"""Characters of a secret that is hidden in a quoted text: a shorter one is part of plain words."""


class SecretError(Exception):
    """A secret cannot be used; the message says what to do, without the secret."""


def read_secret(path: str | Path, hint: str = "") -> str:
    """The token, password or community in a file that holds one line. Blocks: it reads the file.

    `~` is expanded in the path. `hint` says which configuration key names the file and what the
    file should hold; it is added to the message when the file cannot be opened.

    Raises SecretError when the path cannot be read or is not a regular file, when its group or
    others have access, and when it is empty or is not one line of printable text.
    """
    file = Path(path).expanduser()
    try:
        # O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"{file}: {file_error(error)}{hint and f'; {hint}'}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SecretError(f"{file}: not a regular file")
        if status.st_mode & 0o077:
            raise SecretError(f"{file}: others can read it: chmod 600 {file}")
        data = os.read(fd, _MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretError(f"{file}: {error.strerror}") from None
    finally:
        os.close(fd)
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    if not text:
        raise SecretError(f"{file}: the file is empty: write the secret into it, on one line")
    if len(data) > _MAX_SECRET_BYTES or not text.isprintable() or "\ufffd" in text:
        raise SecretError(
            f"{file}: the file must hold one line of text, the secret, and nothing else"
        )
    return text


def secrets_in(authorization: str) -> tuple[str, ...]:
    """What is secret in a value of the header Authorization: the token, or the password as it is
    sent and as it is written."""
    scheme, _, sent = authorization.partition(" ")
    if scheme != "Basic":
        return (sent,)
    try:
        pair = base64.b64decode(sent, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return (sent,)  # UFM takes a token in this way.
    return sent, pair.partition(":")[2]


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """What a server says, without the secrets that were sent to it and that it may quote."""
    for each in sorted(secrets, key=len, reverse=True):
        if len(each) >= LEAST_HIDDEN:
            text = text.replace(each, "\N{HORIZONTAL ELLIPSIS}")
    return text


def check_encrypted(url: str, *, is_insecure: bool) -> None:
    """Raise SecretError if a secret that is sent to a URL could be read on the network.

    It is not sent without TLS beyond this machine, unless `is_insecure` allows it.
    """
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_insecure and not is_loopback(parts.hostname or ""):
        raise SecretError(
            f"the secret would be sent to {parts.hostname} in clear text: use https, or insecure = "
            "true on a trusted network"
        )
