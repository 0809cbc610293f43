"""The start and the end of the process: standard streams that are closed, signals, threads that
hang."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Collection
from types import FrameType
from typing import NoReturn

_END_SIGNALS = (signal.SIGHUP, signal.SIGTERM)
_LAST_WORK_S = 2.0
"""How long threads may take for what they have begun, such as writing a file of the state."""


def open_closed_streams() -> None:
    """Open the standard streams that this process was started without (`>&-`).

    The next file would take the descriptor, and what a library prints would get into a recording.
    Reading and printing fail then, with `Bad file descriptor`; errors go nowhere.
    """
    for number, wrong_way in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, wrong_way)  # The lowest free number: this one.
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def exit_at_signals() -> None:
    """Exit at SIGHUP and SIGTERM as ctrl+c does, so that files which are not finished are removed;
    one that is ignored (`nohup`) stays so."""
    for number in _END_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    # A terminal that closes sends two: the second one would cut off what the first one ends.
    for each in _END_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def name_home() -> None:
    """Name `/` as the home of a user who has none, such as a number in a container."""
    if os.path.expanduser("~") == "~":  # noqa: PTH111
        os.environ["HOME"] = "/"


def leave(status: int, others: Collection[threading.Thread]) -> NoReturn:
    """Exit. Threads are waited for, except `others` and daemons, but for 2 s only.

    Python waits without a limit, and so does a thread for a network file system or a name server
    that does not answer.
    """
    until_s = time.monotonic() + _LAST_WORK_S
    for thread in threading.enumerate():
        if thread in others or thread.daemon:
            continue
        thread.join(max(0.0, until_s - time.monotonic()))
        if thread.is_alive():
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(status)
    sys.exit(status)
