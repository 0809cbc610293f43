"""Dumps of PyTorch's Flight Recorder, as a job of some ranks writes them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from fabmon.analysis.flight_recorder.dumps import Dump, read_dump

SECOND_NS = 1_000_000_000
BEGIN_NS = 1_700_000_000 * SECOND_NS


class Job:
    """Ranks that enqueue the same all-reduce ten times, one a second; clocks are off by hours."""

    def __init__(self, ranks: int = 4, collectives: int = 10) -> None:
        self.entries = {
            rank: [entry(seq, rank) for seq in range(1, collectives + 1)] for rank in range(ranks)
        }

    def dumps(self, but: Sequence[int] = ()) -> list[Dump]:
        """Those of all ranks `but` some."""
        return [
            read_dump(pickle.dumps(self.content(rank)), f"rank_{rank}")
            for rank in self.entries
            if rank not in but
        ]

    def content(self, rank: int) -> dict[str, Any]:
        """What PyTorch writes of a rank."""
        config = {"name": "0", "desc": "default_pg", "ranks": str(list(self.entries))}
        return {"version": "2.10", "pg_config": {"0": config}, "entries": self.entries[rank]}

    def set_last(self, rank: int, **fields: object) -> None:
        """Change the last collective of a rank."""
        self.entries[rank][-1].update(fields)


def entry(seq: int, rank: int) -> dict[str, Any]:
    """A collective that completed."""
    created_ns = BEGIN_NS + seq * SECOND_NS + rank * 3600 * SECOND_NS
    return {
        "collective_seq_id": seq,
        "profiling_name": "nccl:all_reduce",
        "process_group": ("0", "default_pg"),
        "is_p2p": False,
        "state": "completed",
        "time_created_ns": created_ns,
        "time_discovered_started_ns": created_ns,
        "time_discovered_completed_ns": created_ns,
        "timeout_ms": 600_000,
        "input_sizes": [[1000, 8]],
        "output_sizes": [[1000, 8]],
        "input_dtypes": ["Float"],
        "frames": [
            {"filename": "/usr/lib/torch/distributed/distributed_c10d.py", "line": 1, "name": "a"},
            {"filename": "/home/user/train.py", "line": 70 + seq, "name": "step"},
        ],
    }
