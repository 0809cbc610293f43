"""Parses the JSON of NCCL Inspector, a record a line, and reads the files as they grow.

There are two layouts. Up to v4.2 each record has its communicator (`header`) and its process
(`metadata`). From v4.3 on a marker has both and the numbers of the records that follow it
(`dump_stats`), and a record is `coll_perf` or `p2p_perf` alone. Markers, also those of v4.2, say
how many records were lost because the ring of the communicator was full.

Source: README.md, inspector_json.cc and inspector_json_reader.py of NVIDIA/nccl,
plugins/profiler/inspector (2.30.7).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

LOG_NAME = re.compile(r".+-pid\d+\.log")
JOB_DIRECTORY = re.compile(r"nccl-inspector-(\d+)|(\d+)")
"""The directory of a job's files, with its number."""

MOST_COUNT = 1 << 53
OPERATION, FILES = "nccl_operation", "nccl_files"
OF_OPERATION = ("nccl_calls", "nccl_time_us", "nccl_bus_bytes")
OF_FILES = ("nccl_records_lost", "nccl_records_unread", "nccl_bytes_skipped")
"""Kinds of the objects in which a node reports what it read, and the metrics of each."""
MOST_OPERATIONS = 64
"""Operations that a node reports: those counted last."""
_GB = 1e9
_MOST_TEXT = 64
_MOST_LINE = 1 << 17
"""A record with its events has 20 KiB. A number of 1 MB takes Python before 3.11 seconds."""
_MOST_ENTRIES = 100_000
_TAIL_BYTES = 1 << 18
"""What is read of a file when it is first seen, and what of one that grows faster than it is read:
its end."""
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_UNKNOWN = ("", "unknown")
_COLLECTIVE = ("coll", "coll_msg_size_bytes", "coll_exec_time_us", "coll_busbw_gbs")
_POINT_TO_POINT = ("p2p", "p2p_msg_size_bytes", "p2p_exec_time_us", "p2p_busbw_gbs")

Context = Tuple[Dict[str, Any], Dict[str, Any]]


class Operation(NamedTuple):
    """What records have in common that are averaged. Texts are empty where unknown, `ranks` and
    `nodes` 0."""

    job: str
    communicator_id: str
    communicator: str
    name: str
    size: str
    ranks: int
    nodes: int


class Measured(NamedTuple):
    """A call of one rank, or a metric: `time_s`, bus bandwidth in bytes/s, and when it was written
    (ns, the node's wall clock; 0 unknown)."""

    operation: Operation
    host: str
    time_s: float
    busbw: float
    written_ns: int


class InspectorLog:
    """The records of one file, in order. `lost` and `unread` count records and lines since the
    first.

    A file that is read from its middle (`is_cut`) has records of the newer layout without their
    marker, until the first one: they are left out.
    """

    def __init__(self, job: str = "", *, is_cut: bool = False) -> None:
        """`job` is the number of the job that writes it, empty where unknown."""
        self.lost = 0
        self.unread = 0
        self._job = job
        self._is_cut = is_cut
        self._context: Optional[Context] = None
        self._left = 0

    def skip(self) -> None:
        """Lines were left out: the records that follow belong to no known marker."""
        self._is_cut, self._context, self._left = True, None, 0

    def records(self, lines: Iterable[bytes]) -> Iterator[Measured]:
        """The records of complete lines."""
        for line in lines:
            if not line.strip():
                continue
            try:
                if len(line) > _MOST_LINE:
                    raise Unusable("a line that is too long")
                found = self._record(_object(json.loads(line.decode("utf-8"))))
            except (ValueError, RecursionError):
                self.unread += 1
                continue
            if found is not None:
                yield found

    def _record(self, line: Dict[str, Any]) -> Optional[Measured]:
        """The record of a line; None of a marker and of other kinds. Raises ValueError."""
        header, metadata, stats, collective, sent = (
            None if line.get(key) is None else _object(line[key])
            for key in ("header", "metadata", "dump_stats", "coll_perf", "p2p_perf")
        )
        if stats is not None:
            records = count(stats["coll_records"]) + count(stats["p2p_records"])
            lost = count(stats.get("coll_dropped_since_last_dump", 0))
            lost += count(stats.get("p2p_dropped_since_last_dump", 0))
            self.lost = min(self.lost + lost, MOST_COUNT)
            self._left, self._is_cut = records, False
            self._context = (header or {}, metadata or {})
            return None
        keys, perf = _COLLECTIVE, collective
        if perf is None:
            keys, perf = _POINT_TO_POINT, sent
        if perf is None:
            return None
        if header is not None and metadata is not None:
            return self._measured([perf[key] for key in keys], (header, metadata))
        if self._context is None or self._left <= 0:
            if self._is_cut:
                return None
            raise Unusable("a record without its communicator")
        self._left -= 1
        return self._measured([perf[key] for key in keys], self._context)

    def _measured(self, values: List[Any], context: Context) -> Measured:
        name, size, time_us, busbw_gbs = values
        header, metadata = context
        if not (_is_number(time_us) and 0 <= time_us < 1e12):
            raise Unusable("a time out of range")
        if not (_is_number(busbw_gbs) and 0 <= busbw_gbs < 1e6):
            raise Unusable("a bandwidth out of range")
        operation = Operation(
            self._job,
            text_of(header.get("id", "")),
            text_of(header.get("comm_name", "")),
            text_of(name),
            _size(count(size)),
            count(header.get("n_ranks", 0)),
            count(header.get("nnodes", 0)),
        )
        written_ns = count(metadata.get("dump_timestamp_us", 0)) * 1000
        host = text_of(metadata.get("hostname", ""))
        return Measured(operation, host, time_us / 1e6, busbw_gbs * _GB, written_ns)


class Unusable(ValueError):
    """A line that is no record."""


def _object(value: Any) -> Dict[str, Any]:
    """A JSON object, whose missing keys raise Unusable. Raises Unusable for anything else."""
    if not isinstance(value, dict):
        raise Unusable("this is no object")
    return _Strict(value)


class _Strict(Dict[str, Any]):
    """A dictionary whose missing keys raise Unusable."""

    def __missing__(self, key: str) -> Any:
        raise Unusable(f"no {key}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def count(value: Any) -> int:
    """A number of things, 0 to 2**53. Raises Unusable."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT:
        return value
    raise Unusable("a count out of range")


def text_of(value: Any) -> str:
    """A name, without what does not print, at most 64 characters; empty for `unknown`. Raises
    Unusable."""
    if not isinstance(value, str):
        raise Unusable("a name that is no text")
    cleaned = "".join(filter(str.isprintable, value.strip()[: 4 * _MOST_TEXT]))[:_MOST_TEXT]
    return "" if cleaned in _UNKNOWN else cleaned


def _size(bytes_: int) -> str:
    """`16 GiB`, `1.5 MiB`, `9.77 KiB`: message sizes are mostly powers of two."""
    value, unit = float(bytes_), 0
    while value >= 1024 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_BINARY[unit]}"


class LogFile:
    """A file of JSON lines, and how much of it was read.

    `skipped` counts the bytes that were passed over since the first read because the file grows
    faster than it may be read.
    """

    def __init__(self, path: str, job: str, tail_bytes: int = _TAIL_BYTES) -> None:
        """Of a larger file the last `tail_bytes` are read at first."""
        self.log = InspectorLog(job)
        self.size_read = 0
        self.skipped = 0
        self._path = path
        self._job = job
        self._tail_bytes = tail_bytes
        self._is_first = True
        self._is_cut = False
        self._offset = 0
        self._rest = b""
        self._inode = 0

    def read(self, most: int, most_behind: int) -> List[Measured]:
        """The records in at most `most` bytes that were appended; where more than `most_behind`
        were, the end of them. Raises OSError."""
        self.size_read = 0
        if most <= 0:
            return []
        with opened(self._path) as stream:
            status = os.fstat(stream)
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._begin(status)
            if status.st_size - self._offset > most_behind:
                self._skip_to(status.st_size - min(most_behind, _TAIL_BYTES))
            if status.st_size == self._offset:
                return []
            data = os.pread(stream, most, self._offset)
        self.size_read = len(data)
        self._offset += len(data)
        if self._is_cut:
            _, end, data = data.partition(b"\n")
            self._is_cut = not end
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            self._rest, self._is_cut = b"", True
            self.log.unread += 1
        return list(self.log.records(lines))

    def _skip_to(self, offset: int) -> None:
        self.skipped += offset - self._offset
        self._offset, self._rest, self._is_cut = offset, b"", True
        self.log.skip()

    def _begin(self, status: os.stat_result) -> None:
        """Begin at the start of a file that took the place of another; of the first, at its end."""
        is_cut = self._is_first and status.st_size > self._tail_bytes
        lost, unread = self.log.lost, self.log.unread
        self.log = InspectorLog(self._job, is_cut=is_cut)
        self.log.lost, self.log.unread = lost, unread
        self._offset = status.st_size - self._tail_bytes if is_cut else 0
        self._inode, self._rest = status.st_ino, b""
        self._is_first, self._is_cut = False, is_cut


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """A regular file, open for reading; nothing that could block or be read without end.

    No link: its owner could have a device opened by an account that may. Raises OSError.
    """
    stream = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(stream).st_mode):
            raise OSError(f"{path} is no file")
        yield stream
    finally:
        os.close(stream)


def files_below(directory: str, is_wanted: "re.Pattern[str]") -> List[Tuple[str, str]]:
    """The paths of the files of a directory and of those in it whose name is wanted, by name, each
    with the number of its job; of the first 100,000 entries. Raises OSError where the directory
    cannot be read."""
    top = _entries(directory, _MOST_ENTRIES)
    left = _MOST_ENTRIES - len(top)
    found = _files_of(top, os.path.basename(directory.rstrip("/")), is_wanted)
    for entry in top:
        with contextlib.suppress(OSError):
            if left > 0 and entry.is_dir():
                own = _entries(entry.path, left)
                left -= len(own)
                found += _files_of(own, entry.name, is_wanted)
    return found


def _entries(directory: str, most: int) -> "List[os.DirEntry[str]]":
    with os.scandir(directory) as entries:
        return sorted(itertools.islice(entries, most), key=lambda each: each.name)


def changed_last(found: List[Tuple[str, str]], most: int) -> List[Tuple[str, str]]:
    """As many files as are read: where there are more, those that were written to last."""
    if len(found) <= most:
        return found
    return sorted(found, key=lambda each: changed_ns(each[0]))[-most:]


def changed_ns(path: str) -> int:
    """When a file was written to last, ns of the wall clock; 0 where that is not known."""
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def _files_of(
    entries: "List[os.DirEntry[str]]", directory: str, is_wanted: "re.Pattern[str]"
) -> List[Tuple[str, str]]:
    named = JOB_DIRECTORY.fullmatch(directory)
    job = (named.group(1) or named.group(2)) if named is not None else ""
    return [(each.path, job) for each in entries if is_wanted.fullmatch(each.name)]
