"""Tracebacks of errors that nobody expected, appended to one file of the user's state directory."""

from __future__ import annotations

import datetime
import os
import traceback
from pathlib import Path

from fabmon import __version__
from fabmon.limited_thread import START_S, call_within
from fabmon.private_files import make_directory, open_own

_MOST_BYTES = 1 << 20
"""A log larger than this is started anew."""


def log_path() -> Path:
    """The path of the log: `$XDG_STATE_HOME/fabmon/errors.log`."""
    home = os.environ.get("XDG_STATE_HOME")
    state = Path(home) if home else Path("~/.local/state").expanduser()
    return state / "fabmon" / "errors.log"


def log_error(error: BaseException, where: str) -> str:
    """Append the traceback of `error`, without values of variables, to the log.

    Returns where it is, or why it could not be written, for a person.
    """
    lines = traceback.TracebackException.from_exception(error).format()
    now = datetime.datetime.now(datetime.UTC)
    text = f"{now:%Y-%m-%d %H:%M:%SZ} fabmon {__version__}: {where}\n{''.join(lines)}\n"
    try:
        path = log_path()
        call_within(START_S, _append, path, text)
    except (OSError, RuntimeError) as refused:
        return f"the traceback could not be written: {refused}"
    return f"traceback in {path}"


def _append(path: Path, text: str) -> None:
    make_directory(path.parent)
    is_full = path.exists() and path.stat().st_size > _MOST_BYTES
    flags = os.O_CREAT | os.O_WRONLY | (os.O_TRUNC if is_full else os.O_APPEND)
    with os.fdopen(open_own(path, flags), "w", encoding="utf-8") as file:
        file.write(text)


def summary(error: BaseException) -> str:
    """The kind of an error and the first line of its message: `KeyError: 'matrix'`."""
    message = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
