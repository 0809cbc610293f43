"""A progress bar, with pace and time left, for what takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_PATIENCE_S = 1.0


class Progress(Protocol):
    """Told how far the work is."""

    def __call__(self, done: float) -> None:
        """So many bytes are done, of all that there are."""


@contextmanager
def progress(what: str, total: float) -> Iterator[Progress]:
    """Show on standard error how far some bytes are, once it takes longer than a second.

    Nothing is shown where standard error is no terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=total)
    began_s = time.monotonic()
    shown = False

    def tell(done: float) -> None:
        nonlocal shown
        if not shown and time.monotonic() - began_s > _PATIENCE_S:
            bar.start()
            shown = True
        bar.update(task, completed=done)

    try:
        yield tell
    finally:
        if shown:
            bar.stop()
