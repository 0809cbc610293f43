"""Secret files, and the defaults by which a console finds and recognises a fabmon agent."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fabmon.fabric.wording import file_error
from fabmon.feeds.errors import BadSecret

_MAX_SECRET_BYTES = 4096

DEFAULT_AGENT_PORT = 9838
"""TCP port of an agent; not assigned by IANA."""

AGENT_STREAM_TYPE = "application/x-ndjson"
"""Content type of `/stream`: it distinguishes an agent from other HTTP servers."""

AGENT_SOURCE = "agent"
"""Source name in the notice that an agent sends as the last line of a stream."""


def agent_token_file() -> Path:
    """Default path of the token of a user's agent: `$XDG_STATE_HOME/fabmon/agent.token`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "fabmon" / "agent.token"


def read_secret(path: str | Path, hint: str = "") -> str:
    """The token, password or community in a file that holds one line. Blocks: it reads the file.

    `~` is expanded in the path. `hint` says which configuration key names the file and what the
    file should hold; it is added to the message when the file cannot be opened.

    Raises BadSecret, which says what to do, when the path cannot be read or is not a regular file,
    when its group or others have access, and when it is empty or is not one line of printable text.
    """
    file = Path(path).expanduser()
    try:
        # O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadSecret(f"{file}: {file_error(error)}{hint and f'; {hint}'}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise BadSecret(f"{file}: not a regular file")
        if status.st_mode & 0o077:
            raise BadSecret(f"{file}: others can read it: chmod 600 {file}")
        data = os.read(fd, _MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise BadSecret(f"{file}: {error.strerror}") from None
    finally:
        os.close(fd)
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    if not text:
        raise BadSecret(f"{file}: the file is empty: write the secret into it, on one line")
    if len(data) > _MAX_SECRET_BYTES or not text.isprintable() or "\ufffd" in text:
        raise BadSecret(
            f"{file}: the file must hold one line of text, the secret, and nothing else"
        )
    return text
