"""The agent's token: made on the first start, in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from fabmon.agent.errors import AgentError
from fabmon.feeds.errors import BadSecret
from fabmon.feeds.secrets import token_from

_BYTES = 32


def token_at(path: Path) -> str:
    """The token in `path`, made now if there is no such file. Blocks.

    Raises AgentError for a file that cannot be used, or that others can read.
    """
    try:
        if not path.exists():
            _make(path)
        return token_from(path)
    except BadSecret as error:
        raise AgentError(str(error)) from None
    except OSError as error:
        raise AgentError(f"{error.filename or path}: {error.strerror}") from None


def _make(path: Path) -> None:
    """Write a token so that nobody ever sees half of it, nor one that is there replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".token", delete=True) as file:
        file.write(secrets.token_urlsafe(_BYTES) + "\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
