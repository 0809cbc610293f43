"""The files of NCCL Inspector in a directory, and what was read of them."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from collectors.inspector_records import (
    LOG_NAME,
    LogFile,
    Measured,
    changed_last,
    files_below,
    opened,
)
from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.jobs.inspector_metrics import DroppedRecords, of_metrics
from fabmon.fabric.wording import file_error
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.inspector.means import CollectiveMeans
from fabmon.feeds.scrape.text_format import PageDecoder

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
