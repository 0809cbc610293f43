"""Secret files, and the defaults by which a console finds and recognises a fabmon agent."""

from __future__ import annotations

import os
from pathlib import Path

from fabmon import secret_files
from fabmon.feeds.errors import BadSecret
from fabmon.secret_files import SecretError

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
    """The secret in a file, as `secret_files.read_secret`. Blocks. Raises BadSecret."""
    try:
        return secret_files.read_secret(path, hint)
    except SecretError as error:
        raise BadSecret(str(error)) from None
