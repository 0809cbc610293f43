"""What NCCL measured of its collectives: the files of NCCL Inspector in a directory of this node.

Read only where the console names the directory. Each operation (communicator, name, message size)
is an object with three counters: calls of all ranks on this node, the time that they took, and that
time multiplied by the bus bandwidth. The mean bandwidth of an interval is the quotient of the last
two. Of the 256 files that were written to last at most 1 MiB is read every tenth tick: of one
that grows faster the end, and the bytes left out are counted. Records that were written more than a
minute before the last read, as those of jobs that ended, are left out. A tree at another root
carries the files in `<root>/nccl_inspector`.

The format and its source: collectors/inspector_records.py.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, List, Optional, Tuple

from collectors import clock
from collectors.catalog import require
from collectors.hostfs import HostFS
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
    changed_ns,
    files_below,
)
from collectors.source import Faults, NoData, Source, from_oserror
from collectors.wire import Object

_MOST_BYTES = 1 << 20
"""What is read of all files together at a time: 2,000 records of 500 bytes, 40 ms of a core."""
_CAPTURE = "nccl_inspector"
_MOST_FILES = 256
_ANNOUNCE_NS = 60 * 1_000_000_000
"""A new operation changes the layout of the frames, which costs all rates of the node one tick:
after the first ones it is announced no sooner than this after the last announcement."""
_BITS = (1 << 64) - 1
_OLD_NS = 60 * 1_000_000_000
_LINE_END = 1
"""Bytes from which on a file of whole lines is read, so that the next line is the first."""

require(*OF_OPERATION, *OF_FILES)


class NcclInspector(Source):
    """The collectives in the files of a directory and of those in it, one a job."""

    name = "nccl_inspector"
    every = 10
    deadline_s = 1.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._files: Dict[str, LogFile] = {}
        self._counted: Dict[Operation, List[int]] = {}
        self._totals = [0, 0, 0]
        self._generation = self._announced = 0
        self._announced_ns = 0
        self._begin_after = ""
        self._read_ns = 0
        self._oldest_ns = 0
        self._shown: Tuple[Operation, ...] = ()

    def discover(self) -> List[Object]:
        """An object for the files, and one for each operation. Raises NoData
        without a directory, SourceError."""
        if self._path is None:
            raise NoData("no directory is named: nccl_inspector=/DIR in the hosts file")
        self._read_files()
        self._shown = tuple(sorted(self._counted))
        self._announced, self._announced_ns = self._generation, clock.monotonic_ns()
        files = Object("files", FILES, None, {}, OF_FILES)
        return [files, *(self._object(operation) for operation in self._shown)]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The counters, with what was appended since the last read."""
        self._read_files()
        values: List[Optional[int]] = list(self._totals)
        for operation in self._shown:
            values += self._counted.get(operation, [0, 0, 0])
        return values

    def signature(self) -> object:
        """Changes with the set of operations, and when the directory appears or disappears."""
        is_due = clock.monotonic_ns() - self._announced_ns >= _ANNOUNCE_NS
        if is_due or not self._shown:
            self._announced = self._generation
        return self._announced, self._path is not None and os.path.isdir(self._path)

    @property
    def _path(self) -> Optional[str]:
        """The directory; None where none is named."""
        if self.argument:
            return self.host.path(self.argument.lstrip("/"))
        captured = self.host.path(_CAPTURE)
        return captured if not self.host.is_live and os.path.isdir(captured) else None

    def _object(self, operation: Operation) -> Object:
        name = hashlib.sha256(repr(tuple(operation)).encode()).hexdigest()[:12]
        info: Dict[str, Any] = {
            "job": operation.job,
            "communicator_id": operation.communicator_id,
            "communicator": operation.communicator,
            "operation": operation.name,
            "size": operation.size,
            "ranks": operation.ranks,
            "nodes": operation.nodes,
        }
        return Object(f"operation/{name}", OPERATION, None, info, OF_OPERATION)

    def _read_files(self) -> None:
        """Read what was appended, of each file its share. Raises SourceError."""
        try:
            every = files_below(self._path or "", LOG_NAME)
        except OSError as error:
            raise from_oserror(error) from None
        now_ns = clock.time_ns()
        self._oldest_ns = min(now_ns, self._read_ns or now_ns) - _OLD_NS
        self._read_ns = now_ns
        found = changed_last(every, _MOST_FILES)
        # The first files of one round are not the first of the next.
        found.sort(key=lambda each: (each[0] <= self._begin_after, each[0]))
        for path in set(self._files) - {path for path, _ in found}:
            del self._files[path]
        left = _MOST_BYTES
        for path, job in found:
            if left <= 0:
                break
            self._begin_after = path
            left -= self._read_file(path, job, left)

    def _read_file(self, path: str, job: str, most: int) -> int:
        """Read one file; the bytes that were read. What cannot be read counts as one record."""
        known = self._files.get(path)
        file = self._new_file(path, job) if known is None else known
        before = (file.log.lost, file.log.unread, file.skipped)
        try:
            records = file.read(most, _MOST_BYTES)
        except OSError:
            if known is None:
                self._totals[1] += 1
            self._files[path] = file
            return 0
        self._files[path] = file
        after = (file.log.lost, file.log.unread, file.skipped)
        self._totals = [
            min(MOST_COUNT, total + now - then)
            for total, now, then in zip(self._totals, after, before)
        ]
        for each in records:
            self._count(each)
        return file.size_read

    def _new_file(self, path: str, job: str) -> LogFile:
        """A file that is first seen: of one of a job that ended nothing is read."""
        if self.host.is_live and changed_ns(path) < self._oldest_ns:
            return LogFile(path, job, _LINE_END)
        return LogFile(path, job)

    def _count(self, each: Measured) -> None:
        is_dated = self.host.is_live and each.written_ns > 0
        if is_dated and each.written_ns < self._oldest_ns:
            return
        counted = self._counted.get(each.operation)
        if counted is None:
            if len(self._counted) >= MOST_OPERATIONS:
                # Those counted last are at the end.
                del self._counted[next(iter(self._counted))]
            counted = [0, 0, 0]
            self._generation += 1
        else:
            del self._counted[each.operation]
        added = (1, round(each.time_s * 1e6), int(each.time_s * each.busbw))
        self._counted[each.operation] = [
            (total + min(more, MOST_COUNT)) & _BITS for total, more in zip(counted, added)
        ]
