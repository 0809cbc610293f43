"""The console with a thousand nodes: wire decoding, rates, history, findings; without SSH."""

from __future__ import annotations

import statistics
import time

from fabmon.analysis.analyst import Analyst
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Hello, check, decode
from fabmon.history.history import History
from fabmon.session.config import load
from tests.bench.measure import tell
from tests.bench.synthetic import ticks

NODES, SERIES, TICKS = 1024, 650, 6


def main() -> None:
    """Print the share of a core that 1,024 nodes x 650 counters take at one tick a second."""
    taken: list[dict[str, float]] = []
    source = ticks(NODES, SERIES, TICKS)
    hello_lines = next(source)
    hosts = [Host(name=name) for name, _ in hello_lines]
    history, analyst = History(hosts), Analyst(load(None).thresholds)
    hellos = {
        name: message for name, line in hello_lines if isinstance(message := decode(line), Hello)
    }
    statuses = tuple(NodeStatus(name, NodeState.UP, 0) for name in hellos)
    start = time.process_time()
    history.accept(Tick(0, 0, hellos=tuple(hellos.items()), statuses=statuses))
    connect_s = time.process_time() - start
    for seq, lines in enumerate(source, start=1):
        start = time.process_time()
        frames = []
        for name, line in lines:
            message = decode(line)
            assert isinstance(message, Frame)
            check(message, hellos[name])
            frames.append((name, message))
        decoded = time.process_time()
        snapshot = history.accept(Tick(seq, seq * 1_000_000_000, frames=tuple(frames)))
        kept = time.process_time()
        analyst.accept(snapshot)
        done = time.process_time()
        taken.append(
            {"decode": decoded - start, "history": kept - decoded, "analysis": done - kept}
        )
    steady = taken[1:]
    parts = {key: statistics.median(each[key] for each in steady) for key in steady[0]}
    totals = [sum(each.values()) for each in steady]
    tell(
        "console",
        {
            "nodes": NODES,
            "series_per_node": SERIES,
            "cores_at_1hz": round(statistics.median(totals), 4),
            "us_per_node_tick": round(statistics.median(totals) / NODES * 1e6, 1),
            **{f"{key}_ms": round(value * 1e3, 1) for key, value in parts.items()},
            "all_hellos_ms": round(connect_s * 1e3, 1),
        },
        totals,
    )


if __name__ == "__main__":
    main()
