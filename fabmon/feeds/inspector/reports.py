"""Reports of NCCL Inspector, added to ticks: of a directory here, and of the nodes' own files.

The directory is read again every ten seconds, only what was appended, in a thread of its own: a
file system that hangs costs its numbers, not a tick. Nothing is written, and files are not kept
open.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self

import msgspec

from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.tick import Tick
from fabmon.feeds.inspector.files import InspectorFiles
from fabmon.feeds.inspector.means import most_time_first
from fabmon.feeds.inspector.nodes import PERIOD_S, NodeCollectives

_LOG = logging.getLogger("fabmon.feeds")


class NcclInspector:
    """Reads while it is entered; `take` returns what is new."""

    def __init__(self, directory: Path, period_s: float = PERIOD_S) -> None:
        self._files = InspectorFiles(directory)
        self._period_s = period_s
        self._new: CollectiveReport | None = None
        self._last: CollectiveReport | None = None
        self._end = threading.Event()

    async def __aenter__(self) -> Self:
        # A daemon: a read of a file system that hangs must not hold the exit.
        threading.Thread(target=self._read_again, name="nccl-inspector", daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end.set()

    def take(self) -> CollectiveReport | None:
        """The last report, if it was not taken before."""
        new, self._new = self._new, None
        return new

    def _read_again(self) -> None:
        while not self._end.is_set():
            try:
                report = self._files.report()
            except Exception as error:
                _LOG.exception("internal error while reading files of NCCL Inspector")
                report = CollectiveReport(reason=f"internal error: {type(error).__name__}")
            before = self._last
            if report.reason and (before is None or report.reason != before.reason):
                _LOG.warning("NCCL Inspector: %s", report.reason)
            elif before is not None and before.reason and not report.reason:
                _LOG.warning("NCCL Inspector: its files are read again")
            if report.skipped and (before is None or not before.skipped):
                _LOG.warning("NCCL Inspector: files grow faster than they may be read: skipped")
            if report.unread and (before is None or not before.unread):
                _LOG.warning("NCCL Inspector: lines or files that are none of its records")
            if not report.says_the_same(before):
                self._new = report
            self._last = report
            self._end.wait(self._period_s)


async def with_collectives(
    ticks: AsyncIterator[Tick], directory: Path | None
) -> AsyncIterator[Tick]:
    """The ticks, with what was read since the one before: in a directory, if one is given, by the
    nodes, and by the feed itself."""
    nodes = NodeCollectives()
    reports: dict[str, CollectiveReport] = {}
    inspector = None if directory is None else NcclInspector(directory)
    async with inspector or contextlib.nullcontext():
        async for tick in ticks:
            found = {
                "feed": tick.collectives,
                "nodes": nodes.take(tick),
                "directory": None if inspector is None else inspector.take(),
            }
            new = {name: each for name, each in found.items() if each is not None}
            reports |= new
            yield msgspec.structs.replace(tick, collectives=_merged(reports)) if new else tick


def _merged(reports: Mapping[str, CollectiveReport]) -> CollectiveReport:
    """One report of several."""
    if len(reports) == 1:
        return next(iter(reports.values()))
    every = list(reports.values())
    return CollectiveReport(
        read_ns=max(each.read_ns for each in every),
        reason="; ".join(each.reason for each in every if each.reason),
        lost=sum(each.lost for each in every),
        unread=sum(each.unread for each in every),
        skipped=sum(each.skipped for each in every),
        collectives=most_time_first(found for each in every for found in each.collectives),
    )
