"""Says which file is waited for: a network file system may not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabmon.session.stderr_lines import say

_AFTER_S = 2.0
_MOST_CPU_SHARE = 0.02
"""What a thread that waits uses of a core; one that parses a long file uses more, however many
others it shares the core with."""


@contextmanager
def said_if_slow(file: Path) -> Iterator[None]:
    """Print to standard error that a file is waited for, once nothing else was done for 2 s."""
    # What waits for a file system gets no ctrl+c, which is a signal that Python handles.
    text = f"waiting for {file}: does its file system answer? ctrl+\\ ends fabmon"
    clock = time.pthread_getcpuclockid(threading.get_ident())
    began_s = time.clock_gettime(clock)
    is_read = threading.Event()

    def report() -> None:
        used_s = began_s
        while not is_read.wait(_AFTER_S):
            before_s, used_s = used_s, time.clock_gettime(clock)
            if used_s - before_s <= _MOST_CPU_SHARE * _AFTER_S:
                say(text)
                return

    threading.Thread(target=report, daemon=True).start()
    try:
        yield
    finally:
        is_read.set()
