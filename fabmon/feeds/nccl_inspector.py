"""Reads the files of NCCL Inspector in a directory, again every ten seconds.

Only what was appended is read, in a thread of its own: a directory on a file system that hangs
costs its numbers, not a tick. Nothing is written, and files are not kept open.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import msgspec

from fabmon.fabric.jobs.collectives import Collective, CollectiveReport
from fabmon.fabric.jobs.inspector_records import (
    DROPPED,
    InspectorLog,
    Measured,
    Operation,
    of_metrics,
)
from fabmon.fabric.tick import Tick
from fabmon.fabric.wording import file_error
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.scrape.text_format import PageDecoder

_LOG = logging.getLogger("fabmon.feeds")

PERIOD_S = 10.0
_WINDOW_NS = 60 * 1_000_000_000
_SECOND_NS = 1_000_000_000
_TAIL_BYTES = 1 << 18
"""What is read of a file when it is first seen: its end."""
_MOST_BYTES = 4 << 20
_MOST_ROUND = 64 << 20
_MOST_LINE = 1 << 20
_MOST_FILES = 10_000
_MOST_KEPT = 1024
_MOST_REPORTED = 64
_MOST_HOSTS = 8
_LOG_NAME = re.compile(r".+-pid\d+\.log")
_METRICS_NAME = re.compile(r"nccl_inspector_metrics_.+\.prom")
_JOB_DIRECTORY = re.compile(r"nccl-inspector-(\d+)|(\d+)")


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
            if report.unread and (before is None or not before.unread):
                _LOG.warning("NCCL Inspector: lines or files that are none of its records")
            if not report.says_the_same(before):
                self._new = report
            self._last = report
            self._end.wait(self._period_s)


async def with_collectives(
    ticks: AsyncIterator[Tick], directory: Path | None
) -> AsyncIterator[Tick]:
    """The ticks, with what was read in a directory since the one before; unchanged without one."""
    if directory is None:
        async for tick in ticks:
            yield tick
        return
    async with NcclInspector(directory) as inspector:
        async for tick in ticks:
            report = inspector.take()
            yield tick if report is None else msgspec.structs.replace(tick, collectives=report)


class InspectorFiles:
    """The files of a directory and of those in it (one a job), and what was read of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, _LogFile] = {}
        self._metrics: dict[str, _MetricsFile] = {}
        self._means: dict[Operation, _Means] = {}
        self._failed: set[str] = set()
        self._gone_lost = self._gone_unread = 0
        self._begin_after = ""

    def report(self) -> CollectiveReport:
        """Read what is new, and report the last minute of each operation."""
        left = _MOST_ROUND
        try:
            found = list(self._names())
        except OSError as error:
            reason = f"{self._directory}: {file_error(error)}"
            return self._made(reason)
        found = _changed_last(found)
        self._drop({path for path, _ in found})
        # The first files of one round are not the first of the next: each gets its share.
        found.sort(key=lambda each: (each[0] <= self._begin_after, each[0]))
        for path, job in found:
            if left <= 0:
                break
            self._begin_after = path
            try:
                if path.endswith(".log"):
                    log = self._logs.setdefault(path, _LogFile(path, job))
                    records = log.read(min(left, _MOST_BYTES))
                    left = max(0, left - log.size_read)
                else:
                    records = self._metrics.setdefault(path, _MetricsFile(path)).read()
            except FileNotFoundError:
                continue
            except (OSError, Misbehaved):
                self._failed.add(path)
                continue
            for each in records:
                self._add(each, time.time_ns())
        self._forget()
        if not found:
            reason = f"{self._directory}: no file of NCCL Inspector (HOST-pidPID.log, or .prom)"
            return self._made(reason)
        return self._made("")

    def _names(self) -> Iterator[tuple[str, str]]:
        """The paths of files, with the number of their job. Raises OSError."""
        with os.scandir(self._directory) as entries:
            top = sorted(entries, key=lambda each: each.name)
        yield from self._files_of(top, self._directory.name)
        for entry in top:
            if entry.is_dir():
                with contextlib.suppress(OSError), os.scandir(entry.path) as inner:
                    yield from self._files_of(sorted(inner, key=lambda e: e.name), entry.name)

    def _files_of(
        self, entries: list[os.DirEntry[str]], directory: str
    ) -> Iterator[tuple[str, str]]:
        named = _JOB_DIRECTORY.fullmatch(directory)
        job = (named[1] or named[2]) if named is not None else ""
        for entry in entries:
            if _LOG_NAME.fullmatch(entry.name) or _METRICS_NAME.fullmatch(entry.name):
                yield entry.path, job

    def _drop(self, found: set[str]) -> None:
        """Forget files that are gone, as those of jobs that ended, but not what they lost."""
        for path in self._logs.keys() - found:
            log = self._logs.pop(path).log
            self._gone_lost += log.lost
            self._gone_unread += log.unread
        for path in self._metrics.keys() - found:
            self._gone_lost += self._metrics.pop(path).lost
        self._gone_unread += len(self._failed - found)
        self._failed &= found

    def _add(self, each: Measured, now_ns: int) -> None:
        """Add a record. One without a time, or of a clock that is ahead, is of now: the time of
        the last record would else hide those that follow it."""
        written_ns = each.written_ns if 0 < each.written_ns <= now_ns else now_ns
        self._means.setdefault(each.operation, _Means()).add(each, written_ns)

    def _forget(self) -> None:
        """Keep the operations that were recorded last."""
        if len(self._means) > _MOST_KEPT:
            newest = sorted(self._means, key=lambda each: -self._means[each].latest_ns)
            self._means = {each: self._means[each] for each in newest[:_MOST_KEPT]}

    def _made(self, reason: str) -> CollectiveReport:
        logs, metrics = self._logs.values(), self._metrics.values()
        found = [means.collective(operation) for operation, means in self._means.items()]
        found.sort(key=lambda each: -each.time_s * max(each.calls, 1))
        return CollectiveReport(
            read_ns=time.time_ns(),
            reason=reason,
            lost=self._gone_lost
            + sum(each.log.lost for each in logs)
            + sum(each.lost for each in metrics),
            unread=self._gone_unread + len(self._failed) + sum(each.log.unread for each in logs),
            collectives=tuple(found[:_MOST_REPORTED]),
        )


def _changed_last(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """As many files as are read: where there are more, those that were written to last."""
    if len(found) <= _MOST_FILES:
        return found

    def changed_ns(each: tuple[str, str]) -> int:
        with contextlib.suppress(OSError):
            return Path(each[0]).stat().st_mtime_ns
        return 0

    return sorted(found, key=changed_ns)[-_MOST_FILES:]


class _Means:
    """The records of an operation in its last minute, summed by second and host."""

    def __init__(self) -> None:
        self.latest_ns = 0
        self._sums: dict[tuple[int, str], list[float]] = {}

    def add(self, each: Measured, written_ns: int) -> None:
        self.latest_ns = max(self.latest_ns, written_ns)
        sums = self._sums.setdefault((written_ns // _SECOND_NS, each.host), [0.0, 0.0, 0.0])
        for place, value in enumerate((1.0, each.time_s, each.time_s * each.busbw)):
            sums[place] += value

    def collective(self, operation: Operation) -> Collective:
        """The means, weighted by time: bytes over seconds."""
        oldest_s = (self.latest_ns - _WINDOW_NS) // _SECOND_NS
        self._sums = {key: sums for key, sums in self._sums.items() if key[0] > oldest_s}
        by_host: dict[str, list[float]] = {}
        for (_, host), sums in self._sums.items():
            own = by_host.setdefault(host, [0.0, 0.0, 0.0])
            by_host[host] = [a + b for a, b in zip(own, sums, strict=True)]
        calls, time_s, weighted = (sum(each) for each in zip(*by_host.values(), strict=True))
        bandwidth = {host: sums[2] / sums[1] for host, sums in by_host.items() if sums[1] > 0}
        lowest = min(bandwidth, key=lambda host: bandwidth[host], default="")
        return Collective(
            job=operation.job,
            communicator=operation.communicator or operation.communicator_id,
            operation=operation.name,
            size=operation.size,
            ranks=operation.ranks,
            nodes=operation.nodes,
            calls=int(calls),
            time_s=time_s / calls,
            busbw=weighted / time_s if time_s > 0 else 0.0,
            lowest=bandwidth.get(lowest, 0.0),
            lowest_host=lowest,
            hosts=tuple(sorted(by_host)[:_MOST_HOSTS]),
            latest_ns=self.latest_ns,
        )


class _LogFile:
    """A file of JSON lines, and how much of it was read."""

    def __init__(self, path: str, job: str) -> None:
        self.log = InspectorLog(job)
        self.size_read = 0
        self._path = path
        self._job = job
        self._is_old = True
        self._offset = 0
        self._rest = b""
        self._inode = 0

    def read(self, most: int) -> list[Measured]:
        """The records that were appended, at most so many bytes of them. Raises OSError."""
        self.size_read = 0
        with _opened(self._path) as stream:
            status = os.fstat(stream)
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._begin(status)
            if status.st_size == self._offset or most <= 0:
                return []
            data = os.pread(stream, most, self._offset)
        self.size_read = len(data)
        is_cut = self._offset > 0 and self._is_old and not self._rest
        self._offset += len(data)
        if is_cut:
            data = data.partition(b"\n")[2]
        self._is_old = False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            self._rest, self.log.unread = b"", self.log.unread + 1
        return list(self.log.records(lines))

    def _begin(self, status: os.stat_result) -> None:
        """Begin at the start of a file that took the place of another; of the first, at its end."""
        lost, unread = self.log.lost, self.log.unread
        self._is_old = self._is_old and status.st_size > _TAIL_BYTES
        self.log = InspectorLog(self._job, is_cut=self._is_old)
        self.log.lost, self.log.unread = lost, unread
        self._offset = status.st_size - _TAIL_BYTES if self._is_old else 0
        self._inode, self._rest = status.st_ino, b""


class _MetricsFile:
    """A file of metrics, which is rewritten every 30 s."""

    def __init__(self, path: str) -> None:
        self.lost = 0
        self._path = path
        self._written_ns = 0
        self._dropped: dict[tuple[str, str], float] = {}

    def read(self) -> list[Measured]:
        """Its values, if they are new. Raises OSError, Misbehaved."""
        with _opened(self._path) as stream:
            status = os.fstat(stream)
            if status.st_mtime_ns == self._written_ns:
                return []
            page = os.pread(stream, _MOST_BYTES, 0)
        self._written_ns = status.st_mtime_ns
        decoded = PageDecoder().decode(page)
        before, self._dropped = self._dropped, {}
        series, values = decoded.layout.series(), decoded.values().tolist()
        samples = [(s.name, s.labels, value) for s, value in zip(series, values, strict=True)]
        for name, labels, value in samples:
            if name in DROPPED and 0 <= value < 1 << 53:
                key = (name, str(sorted(labels.items())))
                self.lost += max(0, int(value - before.get(key, value)))
                self._dropped[key] = value
        return of_metrics(samples, status.st_mtime_ns)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """A regular file, open for reading; nothing that could block or be read without end. Raises
    OSError."""
    stream = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(stream).st_mode):
            raise OSError(f"{path} is no file")
        yield stream
    finally:
        os.close(stream)
