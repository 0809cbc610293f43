"""Where an agent listens and what protects it: the address, TLS beyond this machine, the token."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple

from fabmon.fabric.names import is_loopback
from fabmon.fabric.wording import file_error
from fabmon.feeds.access import DEFAULT_AGENT_PORT, read_secret
from fabmon.feeds.errors import BadSecret
from fabmon.private_files import make_directory

_TOKEN_BYTES = 32


class AgentError(Exception):
    """The agent cannot start: an option, a file or the address; the message says what to do."""


class ListenAddress(NamedTuple):
    """An address (or name) and a TCP port, 0 for any that is free."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_AGENT_PORT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """`ADDR:PORT`, an IPv6 address in brackets. Raises AgentError."""
    address, colon, port = text.rpartition(":")
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    is_bare_v6 = bare == address and ":" in address
    if not colon or not bare or is_bare_v6 or not port.isdecimal() or int(port[:6]) > 65535:
        raise AgentError(
            f"--listen {text!r}: write ADDR:PORT, as in 127.0.0.1:{DEFAULT_AGENT_PORT} or "
            f"[::1]:{DEFAULT_AGENT_PORT}"
        )
    return ListenAddress(bare, int(port))


def server_tls_context(
    address: ListenAddress, certificate: Path | None, key: Path | None, *, is_insecure: bool
) -> ssl.SSLContext | None:
    """The TLS context to listen with; None for no TLS, which beyond this machine needs consent.

    Raises AgentError, also for files that cannot be used. Blocks: it reads them.
    """
    if certificate is None and key is None:
        if is_loopback(address.host) or is_insecure:
            return None
        raise AgentError(
            f"{address} can be reached from other machines, and without TLS the token can be read "
            "on the network: give --tls-cert and --tls-key (or --insecure on a trusted network)"
        )
    if certificate is None or key is None:
        missing = "--tls-cert" if certificate is None else "--tls-key"
        raise AgentError(f"TLS takes a certificate and its key: {missing} is missing")
    for file in (certificate, key):
        try:
            if file.exists() and not file.is_file():  # TLS reads it twice: not a pipe.
                raise AgentError(f"{file}: not a file")
            file.open("rb").close()
        except OSError as error:
            raise AgentError(f"{file}: {file_error(error)}") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key with a passphrase is refused: the agent has no terminal to ask on.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        why = (error.reason or str(error)).replace("_", " ").lower()
        raise AgentError(
            f"{certificate}, {key}: not a certificate and its key in PEM ({why})"
        ) from None
    except OSError as error:
        raise AgentError(f"{certificate}, {key}: {file_error(error)}") from None
    return context


def explain_bind_error(error: OSError, address: ListenAddress) -> AgentError:
    """The AgentError for an address that cannot be listened on, with what to do."""
    reasons = {
        errno.EADDRINUSE: "is in use (by another agent?): choose another with --listen ADDR:PORT",
        errno.EADDRNOTAVAIL: "is not an address of this machine",
        errno.EACCES: "is not allowed for this user: choose a port above 1023",
    }
    what = reasons.get(error.errno or 0, f"cannot be listened on: {error.strerror or error}")
    return AgentError(f"{address} {what}")


def token_at(path: Path) -> str:
    """The token in the file `path`, which is created at the first start. Blocks.

    Only its owner can read the file. Raises AgentError for a file that cannot be used, or that
    others can read.
    """
    try:
        if not path.exists():
            _create_token(path)
        return read_secret(path)
    except BadSecret as error:
        raise AgentError(str(error)) from None
    except OSError as error:
        raise AgentError(f"{error.filename or path}: {file_error(error)}") from None


def _create_token(path: Path) -> None:
    """Write a token at once, so that no reader sees half of it; an existing one stays."""
    make_directory(path.parent)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".token", delete=True) as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
