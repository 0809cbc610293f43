"""A progress bar, with pace and time left, for what takes more than a second."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_PATIENCE_S = 1.0


class Progress(Protocol):
    """Told how far the work is."""

    def __call__(self, done: float) -> None:
        """So much is done, of all that there is."""


@contextmanager
def progress(what: str, total: float, unit: str = "bytes") -> Iterator[Progress]:
    """Show on standard error how far some work is, once it takes longer than a second.

    `unit` is `bytes`, `s` for seconds of a recording, or `share` where all is 1. Nothing is shown
    where standard error is no terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Span(ProgressColumn):
        """How much of the recorded time is done."""

        def render(self, task: Task) -> Text:
            """As `0:04:10 of 0:30:00`."""
            parts = (datetime.timedelta(seconds=round(each)) for each in (task.completed, total))
            return Text(" of ".join(str(part) for part in parts))

    class Pace(ProgressColumn):
        """How fast it goes."""

        def render(self, task: Task) -> Text:
            """In recorded seconds a second."""
            return Text(f"{task.speed:.0f} x real time" if task.speed else "")

    columns = {
        "bytes": (DownloadColumn(), TransferSpeedColumn()),
        "s": (Span(), Pace()),
        "share": (TaskProgressColumn(),),
    }
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns[unit],
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
