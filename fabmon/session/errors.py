"""What a person can do wrong, and what fabmon exits with.

UsageError      a file or an option is wrong; the message says where and what to do
OutputError     what was asked for cannot be written
"""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """Exit statuses; the README has the same table."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_NODE = 3
    SOME_NODES = 4
    FIX_NEEDED = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    QUIT = 131
    TERMINATED = 143


class UsageError(Exception):
    """A file or an option is wrong."""


class OutputError(Exception):
    """Standard output, or a file, does not take what is written; the message says which and why."""
