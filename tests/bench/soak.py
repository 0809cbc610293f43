"""Hours of fabmon as it is shipped, with nodes that restart: what grows is printed.

Every ten minutes a line of JSON: memory, open files and threads of the console, its CPU, and how
old the time on the screen was at most and at the 99th percentile of looks a second apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

from tests.bench.measure import about
from tests.bench.process import cpu_s, rss_mb
from tests.bench.shipped import lag_s, watched


def _count(pid: int, what: str) -> int:
    return sum(1 for _ in Path("/proc", str(pid), what).iterdir())


def main() -> None:
    """Run for `--minutes`, and print a line every `--every` minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--restart-s", type=float, default=5, help="of one node in 32")
    options = parser.parse_args()
    machine = about(os.getloadavg()[0])
    with watched(options.nodes, options.restart_s) as screen:
        screen.until(r"\d+/\d+ nodes")
        pid, begun_s = screen.pid, time.monotonic()
        while time.monotonic() - begun_s < options.minutes * 60:
            part_s, cpu_before_s, lags_s = time.monotonic(), cpu_s(pid), [0.0]
            sizes_mb: list[float] = []
            while time.monotonic() - part_s < options.every * 60:
                time.sleep(1.0)
                lags_s.append(lag_s(screen.text()) or 99.0)
                sizes_mb.append(rss_mb(pid))
            lags_s.sort()
            line = {
                "bench": "soak",
                "nodes": options.nodes,
                "minutes": round((time.monotonic() - begun_s) / 60),
                "rss_mb": round(statistics.median(sizes_mb), 1),
                "rss_most_mb": round(max(sizes_mb), 1),
                "files": _count(pid, "fd"),
                "threads": _count(pid, "task"),
                "cores": round((cpu_s(pid) - cpu_before_s) / (time.monotonic() - part_s), 3),
                "shown_time_p99_s": round(lags_s[int(len(lags_s) * 0.99)], 2),
                "shown_time_most_s": round(lags_s[-1], 2),
                **machine,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
