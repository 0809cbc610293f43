"""The metrics of NCCL Inspector for Prometheus, as records of collectives.

Source: README.md and inspector_prom.cc of NVIDIA/nccl, plugins/profiler/inspector (2.30.7).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from collectors.inspector_records import MOST_COUNT, Measured, Operation, text_of

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
    """What the metrics of a page say: pairs of bandwidth and time with the same labels."""
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
