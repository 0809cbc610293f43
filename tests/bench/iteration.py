"""CPU time of a tick for the iterations of a thousand hosts' jobs."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import numpy as np

from fabmon.analysis.iteration.iteration_tracker import IterationTracker
from fabmon.fabric.model import HOST, RAIL
from tests.bench.measure import tell
from tests.tui.worlds import big
from tests.unit.iteration.waves import Wave

TICKS, WARM = 160, 40
JOBS = (1, 4, 30)


def main() -> None:
    """Print the CPU time of a tick, in ms, for 1,024 hosts x 8 rails in 1, 4 and 30 jobs."""
    for jobs in JOBS:
        _measure(jobs)


def _measure(jobs: int) -> None:
    base = big().scene(0).snapshot
    hosts = [node for node in base.fabric.nodes if node.role == HOST]
    rows = np.array([[port.row for port in node.ports if port.role == RAIL] for node in hosts])
    owner = np.arange(len(hosts)) * jobs // len(hosts)
    rng = np.random.default_rng(0)
    periods = rng.uniform(3.5, 20, jobs)
    curves = [Wave(float(period), 0.5, jitter=0.02).samples(TICKS, rng)[0] for period in periods]
    tracker = IterationTracker()
    taken = []
    for seq in range(TICKS):
        heat = np.zeros_like(base.heat)
        level = np.array([curve[seq] for curve in curves])[owner]
        heat[0, rows] = level[:, None] * 400e9 * (1 + 0.03 * rng.standard_normal(rows.shape))
        snapshot = replace(base, seq=seq, time_ns=base.time_ns + seq * 10**9, heat=heat)
        start = time.process_time()
        report, _ = tracker.accept(snapshot)
        taken.append(time.process_time() - start)
    steady = taken[WARM:]
    tell(
        "iteration",
        {
            "hosts": len(hosts),
            "rails": rows.size // len(hosts),
            "jobs": jobs,
            "found": len(report.jobs),
            "ms_a_tick": round(statistics.mean(steady) * 1e3, 2),
            "p99_ms": round(float(np.percentile(steady, 99)) * 1e3, 2),
        },
        steady,
    )


if __name__ == "__main__":
    main()
