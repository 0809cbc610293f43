"""Reports of NCCL Inspector, added to ticks: of a directory here, and of the nodes' own files.

The directory is read again every ten seconds, only what was appended, in a thread of its own: a
file system that hangs costs its numbers, not a tick. Nothing is written, and files are not kept
open.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

import msgspec

from collectors.inspector_records import (
    FILES,
    LOG_NAME,
    MOST_COUNT,
    MOST_OPERATIONS,
    OF_FILES,
    OF_OPERATION,
    OPERATION,
    LogFile,
    Measured,
    Operation,
    changed_last,
    files_below,
    opened,
    text_of,
)
from fabmon.fabric.jobs.collectives import CollectiveReport, DroppedRecords, of_metrics
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, ObjectInfo
from fabmon.fabric.wording import file_error
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.inspector.means import CollectiveMeans, most_time_first
from fabmon.feeds.scrape.text_format import PageDecoder

SOURCE = "nccl_inspector"
PERIOD_S = 10.0
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNT)]


class _Info(msgspec.Struct):
    """The facts of an operation, as a node reports them."""

    job: str = ""
    communicator_id: str = ""
    communicator: str = ""
    operation: str = ""
    size: str = ""
    ranks: _Count = 0
    nodes: _Count = 0


class NodeCollectives:
    """Collects what the frames of nodes say of collectives."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        """Reports are at least `period_s` apart: of 1,000 nodes one takes tenths of a second."""
        self._means = CollectiveMeans()
        self._nodes: dict[str, _Node] = {}
        self._period_s = period_s
        self._due_s = 0.0
        self._is_new = False

    def take(self, tick: Tick) -> CollectiveReport | None:
        """A report of all nodes, if there is anything new and it is due; None else."""
        for name, hello in tick.hellos:
            place = next((n for n, b in enumerate(hello.blocks) if b.source == SOURCE), None)
            if place is not None:
                self._nodes.setdefault(name, _Node(name)).use(hello, place)
            elif name in self._nodes:
                self._nodes[name].stop()
        if not self._nodes:
            return None
        self._means.forget_later(tick.time_ns)
        found = [
            self._nodes[name].take(frame, self._means, tick.time_ns)
            for name, frame in tick.frames
            if name in self._nodes
        ]
        self._is_new |= any(found)
        now_s = time.monotonic()
        if not self._is_new or now_s < self._due_s:
            return None
        self._is_new, self._due_s = False, now_s + self._period_s
        lost, unread, skipped = map(
            sum, zip(*(each.totals for each in self._nodes.values()), strict=True)
        )
        return CollectiveReport(
            read_ns=time.time_ns(),
            lost=lost,
            unread=unread,
            skipped=skipped,
            collectives=self._means.collectives(),
        )


class _Node:
    """The counters of one node; `totals` are lost and unread records, and skipped bytes."""

    def __init__(self, name: str) -> None:
        self.totals = [0, 0, 0]
        self._name = name
        self._block: int | None = None
        self._objects: list[tuple[str, int, Operation | None]] = []
        self._before: dict[str, Sequence[int]] = {}
        self._seq = -1

    def use(self, hello: Hello, place: int) -> None:
        """Read the frames that follow by this layout."""
        self._block, self._objects = place, []
        position = 1
        for item in hello.blocks[place].objects:
            operation = _operation(item)
            if len(self._objects) > MOST_OPERATIONS:
                break
            if operation is not None or (item.kind == FILES and item.metrics == OF_FILES):
                self._objects.append((item.id, position, operation))
            position += len(item.metrics)
        known = {each[0] for each in self._objects}
        self._before = {key: value for key, value in self._before.items() if key in known}

    def stop(self) -> None:
        """The node reports none any more."""
        self._block, self._objects, self._before = None, [], {}

    def take(self, frame: Frame, means: CollectiveMeans, time_ns: int) -> bool:
        """Add what its counters grew by until a time of the console, whose clock is that of all
        nodes here; whether any did."""
        if frame.seq <= self._seq:
            self._before.clear()  # A new probe counts from 0.
        self._seq = frame.seq
        block = frame.blocks[self._block] if self._block is not None else None
        if block is None:
            return False
        is_new = False
        for name, position, operation in self._objects:
            values = block[position : position + len(OF_OPERATION)]
            known = [value for value in values if value is not None]
            if len(known) != len(OF_OPERATION):
                continue
            before = self._before.get(name, (0, 0, 0))
            self._before[name] = known
            # A counter that is smaller than before has begun again.
            grown = [b - a if b >= a else b for a, b in zip(before, known, strict=True)]
            if operation is not None and grown[0]:
                calls, time_us, bus_bytes = grown
                means.add(operation, self._name, time_ns, (calls, time_us / 1e6, bus_bytes))
                is_new = True
            elif operation is None and any(grown):
                self.totals = [
                    min(MOST_COUNT, total + more)
                    for total, more in zip(self.totals, grown, strict=True)
                ]
                is_new = True
        return is_new


def _operation(item: ObjectInfo) -> Operation | None:
    """The operation that an object counts; None for another object."""
    if item.kind != OPERATION or item.metrics != OF_OPERATION:
        return None
    try:
        found = msgspec.convert(item.info, type=_Info)
    except msgspec.ValidationError:
        return None
    return Operation(
        text_of(found.job),
        text_of(found.communicator_id),
        text_of(found.communicator),
        text_of(found.operation),
        text_of(found.size),
        found.ranks,
        found.nodes,
    )


_MOST_BYTES = 4 << 20
"""What is read of one file at a time: of one that grows faster the end is read."""
_MOST_ROUND = 64 << 20
_MOST_FILES = 10_000
_NAME = re.compile(rf"{LOG_NAME.pattern}|nccl_inspector_metrics_.+\.prom")


class InspectorFiles:
    """The files of a directory and of those in it (one a job), and what was read of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, LogFile] = {}
        self._metrics: dict[str, _MetricsFile] = {}
        self._means = CollectiveMeans()
        self._failed: set[str] = set()
        self._gone_lost = self._gone_unread = self._gone_skipped = 0
        self._begin_after = ""

    def report(self) -> CollectiveReport:
        """Read what is new, and report the last minute of each operation."""
        left = _MOST_ROUND
        try:
            found = files_below(str(self._directory), _NAME)
        except OSError as error:
            reason = f"{self._directory}: {file_error(error)}"
            return self._made(reason)
        found = changed_last(found, _MOST_FILES)
        self._drop({path for path, _ in found})
        # The first files of one round are not the first of the next: each gets its share.
        found.sort(key=lambda each: (each[0] <= self._begin_after, each[0]))
        for path, job in found:
            if left <= 0:
                break
            self._begin_after = path
            try:
                if path.endswith(".log"):
                    log = self._logs.setdefault(path, LogFile(path, job))
                    records = log.read(min(left, _MOST_BYTES), _MOST_BYTES)
                    left = max(0, left - log.size_read)
                else:
                    records = self._metrics.setdefault(path, _MetricsFile(path)).read()
            except FileNotFoundError:
                continue
            except (OSError, Misbehaved):
                self._failed.add(path)
                continue
            self._means.add_records(records)
        if not found:
            reason = f"{self._directory}: no file of NCCL Inspector (HOST-pidPID.log, or .prom)"
            return self._made(reason)
        return self._made("")

    def _drop(self, found: set[str]) -> None:
        """Forget files that are gone, as those of jobs that ended, but not what they lost."""
        for path in self._logs.keys() - found:
            gone = self._logs.pop(path)
            self._gone_lost += gone.log.lost
            self._gone_unread += gone.log.unread
            self._gone_skipped += gone.skipped
        for path in self._metrics.keys() - found:
            self._gone_lost += self._metrics.pop(path).lost
        self._gone_unread += len(self._failed - found)
        self._failed &= found

    def _made(self, reason: str) -> CollectiveReport:
        logs, metrics = self._logs.values(), self._metrics.values()
        return CollectiveReport(
            read_ns=time.time_ns(),
            reason=reason,
            lost=self._gone_lost
            + sum(each.log.lost for each in logs)
            + sum(each.lost for each in metrics),
            unread=self._gone_unread + len(self._failed) + sum(each.log.unread for each in logs),
            skipped=self._gone_skipped + sum(each.skipped for each in logs),
            collectives=self._means.collectives(),
        )


class _MetricsFile:
    """A file of metrics, which is rewritten every 30 s."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._written_ns = 0
        self._dropped = DroppedRecords()

    @property
    def lost(self) -> int:
        """Records that its rings dropped since the first read."""
        return self._dropped.count

    def read(self) -> list[Measured]:
        """Its values, if they are new. Raises OSError, Misbehaved."""
        with opened(self._path) as stream:
            status = os.fstat(stream)
            if status.st_mtime_ns == self._written_ns:
                return []
            page = os.pread(stream, _MOST_BYTES, 0)
        self._written_ns = status.st_mtime_ns
        decoded = PageDecoder().decode(page)
        series, values = decoded.layout.series(), decoded.values().tolist()
        samples = [(s.name, s.labels, value) for s, value in zip(series, values, strict=True)]
        self._dropped.add(samples)
        return of_metrics(samples, status.st_mtime_ns)


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
