"""What NCCL Inspector measured of collectives, and a report of the last of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import msgspec

from collectors.inspector_records import MOST_COUNT, Measured, Operation, text_of
from fabmon.fabric.time_wording import TimeNs

OPERATIONS = frozenset(
    {
        *("allreduce", "allgather", "reducescatter", "broadcast", "reduce"),
        *("alltoall", "gather", "scatter", "send", "recv", "sendrecv"),
    }
)
"""NCCL's names of operations, in small letters."""


class Collective(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A collective or point-to-point operation of one communicator and message size: the means of
    the last minute that was recorded of it.

    `job` is the number that Slurm gave, empty where unknown. `size` is a text, `16 GiB`, or a range
    as in `4-5GB`. `ranks` and `nodes` are those of the communicator, 0 where unknown. `calls` are
    records, one a rank and call, and of metrics one a GPU and page. `time_s` is a call's, `busbw`
    in bytes/s as nccl-tests defines it, `lowest` that of the slowest host. `hosts` are some that
    recorded it.
    """

    job: str = ""
    communicator: str = ""
    operation: str
    size: str = ""
    ranks: int = 0
    nodes: int = 0
    calls: int = 0
    time_s: float
    busbw: float
    lowest: float = 0.0
    lowest_host: str = ""
    hosts: tuple[str, ...] = ()
    latest_ns: TimeNs = 0


class CollectiveReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last minute of each operation, that with most time first.

    `lost` are records that the Inspector reports as lost, `unread` lines and files that could not
    be read, `skipped` bytes of files that grow faster than they are read, all since fabmon started.
    `reason` says why nothing can be read, empty where something can. `read_ns` is the console's
    wall clock.
    """

    read_ns: TimeNs = 0
    reason: str = ""
    lost: int = 0
    unread: int = 0
    skipped: int = 0
    collectives: tuple[Collective, ...] = ()

    def says_the_same(self, other: CollectiveReport | None) -> bool:
        """Whether only the time of the last read differs."""
        return other is not None and msgspec.structs.replace(other, read_ns=self.read_ns) == self


_GB = 1e9
_RANGE = re.compile(r"\d{1,6}-\d{1,6}[KMGT]?B|0B")

BANDWIDTH = {"nccl_bus_bandwidth_gbs": "collective", "nccl_p2p_bus_bandwidth_gbs": "p2p_operation"}
TIME = {
    "nccl_collective_exec_time_microseconds": "collective",
    "nccl_p2p_exec_time_microseconds": "p2p_operation",
}
"""Metric -> the label with its operation."""

DROPPED = ("nccl_collectives_dropped_total", "nccl_p2p_dropped_total")


Sample = tuple[str, Mapping[str, str], float]
"""A metric's name, its labels, its value."""


class DroppedRecords:
    """The `count` of records that were dropped since the first samples."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[tuple[str, str], float] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Add what the counters of a page grew by; one that is new counts from its first value."""
        now: dict[tuple[str, str], float] = {}
        for name, labels, value in samples:
            if name in DROPPED and 0 <= value < MOST_COUNT:
                key = (name, str(sorted(labels.items())))
                self.count += max(0, int(value - self._before.get(key, value)))
                now[key] = value
        self._before = now


def of_metrics(samples: Iterable[Sample], written_ns: int) -> list[Measured]:
    """What the metrics of a page say: pairs of bandwidth and time with the same labels.

    Source: README.md and inspector_prom.cc of NVIDIA/nccl, plugins/profiler/inspector (2.30.7).
    """
    bandwidth: dict[tuple[Operation, str], float] = {}
    time_s: dict[tuple[Operation, str], float] = {}
    for metric, labels, value in samples:
        into, of = (bandwidth, BANDWIDTH) if metric in BANDWIDTH else (time_s, TIME)
        if metric not in of or of[metric] not in labels:
            continue
        size = labels.get("message_size", "")
        operation = Operation(
            text_of(labels.get("slurm_job_id", "")),
            "",
            text_of(labels.get("comm_name", "")),
            text_of(labels[of[metric]]),
            size if _RANGE.fullmatch(size) else "",
            _integer(labels.get("nranks", "")),
            _integer(labels.get("n_nodes", "")),
        )
        # The GPUs of a node, and the algorithms, are averaged later.
        into[operation, f"{text_of(labels.get('node', ''))}\n{sorted(labels.items())}"] = value
    found = []
    for key, gbs in bandwidth.items():
        time_us = time_s.get(key, 0.0)
        if math.isfinite(gbs) and 0 <= gbs < 1e6 and math.isfinite(time_us) and time_us >= 0:
            host = key[1].partition("\n")[0]
            found.append(Measured(key[0], host, time_us / 1e6, gbs * _GB, written_ns))
    return found


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
