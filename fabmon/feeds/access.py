"""Tokens, passwords and communities: each in a file that nobody else can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fabmon.feeds.errors import BadSecret

_LONGEST = 4096


def read_secret(path: str | Path, holds: str = "") -> str:
    """The one line of a secret's file, `~` allowed in the path. Blocks: it reads a file.

    `holds` says which key names it and what should be in it, for where it cannot be opened.

    Raises BadSecret, with what to do, for a file that cannot be read, that its group or others can
    read, that is no file, is empty, or holds more than one line of printable text.
    """
    file = Path(path).expanduser()
    try:
        # A pipe in the place of a file must not make anybody wait for its writer.
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadSecret(f"{file}: {error.strerror}{holds and f'; {holds}'}") from None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise BadSecret(f"{file}: not a file")
        if about.st_mode & 0o077:
            raise BadSecret(f"{file}: others can read it: chmod 600 {file}")
        data = os.read(fd, _LONGEST + 1)
    except OSError as error:
        raise BadSecret(f"{file}: {error.strerror}") from None
    finally:
        os.close(fd)
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    if not text:
        raise BadSecret(f"{file}: it is empty: write the secret into it, on one line")
    if len(data) > _LONGEST or not text.isprintable() or "\ufffd" in text:
        raise BadSecret(f"{file}: it must hold one line of text, the secret, and nothing else")
    return text


# Where an agent is, and where its token lies, unless it is told otherwise: for both its ends.


DEFAULT_AGENT_PORT = 9838
"""TCP port of an agent; none that IANA has given to anybody."""

AGENT_STREAM_TYPE = "application/x-ndjson"
"""Content type of `/stream`: by it an agent is told from other servers."""

AGENT_SOURCE = "agent"
"""The source in whose name an agent says the last line of a stream, which is a notice."""


def agent_token_file() -> Path:
    """Where a user's agent keeps its token: `$XDG_STATE_HOME/fabmon/agent.token`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "fabmon" / "agent.token"
