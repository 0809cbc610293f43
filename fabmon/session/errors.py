"""Exit statuses, and the errors that a command reports in one line.

UsageError      a file or an option is wrong
OutputError     a file or standard output cannot be written
"""

from __future__ import annotations

import enum


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
