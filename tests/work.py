"""What a piece of code costs, counted: the same on every machine, however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(slots=True)
class Work:
    """The lines of Python that were run; every pass of a loop counts."""

    lines: int = 0


@contextmanager
def counted(package: str = "") -> Iterator[Work]:
    """The work of the functions that are called inside, in this thread; with `package` only of its
    own, which is the same with every version of the libraries."""
    work = Work()

    def trace(frame: FrameType, event: str, _arg: object) -> Callable[..., Any] | None:
        if not frame.f_globals.get("__name__", "").startswith(package):
            return None
        work.lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield work
    finally:
        sys.settrace(before)
