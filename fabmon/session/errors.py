"""Exit statuses, and the errors that a command reports in one line.

UsageError      a file or an option is wrong
OutputError     a file or standard output cannot be written
"""

from __future__ import annotations

import enum
import errno
import shlex
from pathlib import Path

from fabmon.fabric.wording import file_error

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk, not of the name of a file."""


class Exit(enum.IntEnum):
    """Exit statuses; the help of `fabmon` has the same table. From 129 on: ended by a signal."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_NODE = 3
    SOME_NODES = 4
    FIX_NEEDED = 5
    NOT_UNDERSTOOD = 6
    HUNG_UP = 129
    INTERRUPTED = 130
    QUIT = 131
    TERMINATED = 143


class UsageError(Exception):
    """A file or an option is wrong; the message says where and what to do."""


class OutputError(Exception):
    """A file or standard output cannot be written; the message says which and why."""


def cannot_write(path: Path, error: OSError) -> UsageError | OutputError:
    """The error for a file that cannot be created: the name or the rights are wrong, it exists, or
    the disk has no room."""
    if isinstance(error, FileExistsError):
        return UsageError(f"{path}: this file exists already")
    if error.errno == errno.ENOENT and not path.parent.exists():
        make = f"make it first: mkdir -p {shlex.quote(str(path.parent))}"
        return UsageError(f"{path.parent}: no such directory; {make}")
    kind = OutputError if error.errno in NO_ROOM else UsageError
    return kind(f"{error.filename or path}: {file_error(error)}")
