"""Where an agent is, and where its token lies, unless it is told otherwise: for both its ends."""

from __future__ import annotations

import os
from pathlib import Path

PORT = 9838
"""TCP port of an agent; none that IANA has given to anybody."""

STREAM_TYPE = "application/x-ndjson"
"""Content type of `/stream`: by it an agent is told from other servers."""

SOURCE = "agent"
"""The source in whose name an agent says the last line of a stream, which is a notice."""


def token_file() -> Path:
    """Where a user's agent keeps its token: `$XDG_STATE_HOME/fabmon/agent.token`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "fabmon" / "agent.token"
