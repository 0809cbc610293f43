"""Parses what NCCL Inspector writes: JSON, a record a line, and metrics for Prometheus.

Of JSON there are two layouts. Up to v4.2 each record has its communicator (`header`) and its
process (`metadata`). From v4.3 on a marker has both and the numbers of the records that follow it
(`dump_stats`), and a record is `coll_perf` or `p2p_perf` alone. Markers, also those of v4.2, say
how many records were lost because the ring of the communicator was full.

Source: README.md and inspector_json.cc, inspector_json_reader.py and inspector_prom.cc of
NVIDIA/nccl, plugins/profiler/inspector (2.30.7).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec

from fabmon.fabric.wire.messages import clean

_GB = 1e9
_MOST_TEXT = 64
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_RANGE = re.compile(r"\d{1,6}-\d{1,6}[KMGT]?B|0B")
_UNKNOWN = ("", "unknown")

BANDWIDTH = {"nccl_bus_bandwidth_gbs": "collective", "nccl_p2p_bus_bandwidth_gbs": "p2p_operation"}
TIME = {
    "nccl_collective_exec_time_microseconds": "collective",
    "nccl_p2p_exec_time_microseconds": "p2p_operation",
}
"""Metric -> the label with its operation."""

DROPPED = ("nccl_collectives_dropped_total", "nccl_p2p_dropped_total")

_MOST_COUNT = 1 << 53
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST_COUNT)]


class Operation(NamedTuple):
    """What records have in common that are averaged. Texts are empty where unknown."""

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


class _Header(msgspec.Struct):
    id: str = ""
    comm_name: str = ""
    n_ranks: Count = 0
    nnodes: Count = 0


class _Metadata(msgspec.Struct):
    dump_timestamp_us: Count = 0
    hostname: str = ""


class _Collective(msgspec.Struct, rename={"name": "coll"}):
    name: str
    coll_msg_size_bytes: Count
    coll_exec_time_us: float
    coll_busbw_gbs: float


class _PointToPoint(msgspec.Struct, rename={"name": "p2p"}):
    name: str
    p2p_msg_size_bytes: Count
    p2p_exec_time_us: float
    p2p_busbw_gbs: float


class _DumpStats(msgspec.Struct):
    coll_records: Count
    p2p_records: Count
    coll_dropped_since_last_dump: Count = 0
    p2p_dropped_since_last_dump: Count = 0


class _Line(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Collective | None = None
    p2p_perf: _PointToPoint | None = None
    dump_stats: _DumpStats | None = None


_DECODER = msgspec.json.Decoder(_Line)


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
        self._context: tuple[_Header, _Metadata] | None = None
        self._left = 0

    def records(self, lines: Iterable[bytes]) -> Iterator[Measured]:
        """The records of complete lines."""
        for line in lines:
            if not line.strip():
                continue
            try:
                found = self._record(_DECODER.decode(line))
            except (msgspec.DecodeError, RecursionError, ValueError):
                self.unread += 1
                continue
            if found is not None:
                yield found

    def _record(self, line: _Line) -> Measured | None:
        """The record of a line; None of a marker and of other kinds. Raises ValueError."""
        if line.dump_stats is not None:
            stats = line.dump_stats
            lost = stats.coll_dropped_since_last_dump + stats.p2p_dropped_since_last_dump
            self.lost = min(self.lost + lost, _MOST_COUNT)
            self._left = stats.coll_records + stats.p2p_records
            self._is_cut = False
            self._context = (line.header or _Header(), line.metadata or _Metadata())
            return None
        perf = line.coll_perf or line.p2p_perf
        if perf is None:
            return None
        if line.header is not None and line.metadata is not None:
            return self._measured(perf, line.header, line.metadata)
        if self._context is None or self._left <= 0:
            if self._is_cut:
                return None
            raise ValueError("a record without its communicator")
        self._left -= 1
        return self._measured(perf, *self._context)

    def _measured(
        self, perf: _Collective | _PointToPoint, header: _Header, metadata: _Metadata
    ) -> Measured:
        if isinstance(perf, _Collective):
            size, time_us = perf.coll_msg_size_bytes, perf.coll_exec_time_us
            busbw_gbs = perf.coll_busbw_gbs
        else:
            size, time_us, busbw_gbs = (
                perf.p2p_msg_size_bytes,
                perf.p2p_exec_time_us,
                perf.p2p_busbw_gbs,
            )
        _check(time_us, busbw_gbs)
        operation = Operation(
            self._job,
            _text(header.id),
            _text(header.comm_name),
            _text(perf.name),
            _size(size),
            header.n_ranks,
            header.nnodes,
        )
        written_ns = metadata.dump_timestamp_us * 1000
        host = _text(metadata.hostname)
        return Measured(operation, host, time_us / 1e6, busbw_gbs * _GB, written_ns)


def of_metrics(
    samples: Iterable[tuple[str, Mapping[str, str], float]], written_ns: int
) -> list[Measured]:
    """What the metrics of a page say: pairs of bandwidth and time with the same labels."""
    bandwidth: dict[tuple[Operation, str], float] = {}
    time_s: dict[tuple[Operation, str], float] = {}
    for metric, labels, value in samples:
        into, of = (bandwidth, BANDWIDTH) if metric in BANDWIDTH else (time_s, TIME)
        if metric not in of or of[metric] not in labels:
            continue
        size = labels.get("message_size", "")
        operation = Operation(
            _text(labels.get("slurm_job_id", "")),
            "",
            _text(labels.get("comm_name", "")),
            _text(labels[of[metric]]),
            size if _RANGE.fullmatch(size) else "",
            _integer(labels.get("nranks", "")),
            _integer(labels.get("n_nodes", "")),
        )
        # The GPUs of a node, and the algorithms, are averaged later.
        into[operation, f"{_text(labels.get('node', ''))}\n{sorted(labels.items())}"] = value
    found = []
    for key, gbs in bandwidth.items():
        time_us = time_s.get(key, 0.0)
        if math.isfinite(gbs) and 0 <= gbs < 1e6 and math.isfinite(time_us) and time_us >= 0:
            host = key[1].partition("\n")[0]
            found.append(Measured(key[0], host, time_us / 1e6, gbs * _GB, written_ns))
    return found


def _check(time_us: float, busbw_gbs: float) -> None:
    """Raise ValueError for numbers that nothing can have measured."""
    if not (0 <= time_us < 1e12 and 0 <= busbw_gbs < 1e6):
        raise ValueError("a time or bandwidth out of range")


def _text(text: str) -> str:
    cleaned = clean(text.strip())[:_MOST_TEXT]
    return "" if cleaned in _UNKNOWN else cleaned


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _size(count: int) -> str:
    """`16 GiB`, `1.5 MiB`, `9.77 KiB`: message sizes are mostly powers of two."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_BINARY[unit]}"
