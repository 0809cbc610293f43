"""Says which file is waited for: a network file system may not answer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AFTER_S = 2.0


@contextmanager
def said_if_slow(file: Path) -> Iterator[None]:
    """Print to standard error that a file is waited for, once that has taken 2 s."""
    # What waits for a file system gets no ctrl+c, which is a signal that Python handles.
    text = f"fabmon: waiting for {file}: does its file system answer? ctrl+\\ ends fabmon"
    timer = threading.Timer(_AFTER_S, print, (text,), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
