"""Measurements as JSON lines: when and where each was taken; CPU time of a piece of work."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence

from fabmon import __version__


def cpu_s(work: Callable[[], object], runs: int = 5) -> list[float]:
    """CPU seconds of this process for each run of `work`, a warm-up first."""
    work()
    taken = []
    for _ in range(runs):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return taken


def about(load_before: float) -> dict[str, object]:
    """When, of which commit and on what a measurement was taken.

    `load_before` is that of the machine before it: processes that want to run.
    """
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "version": __version__,
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": round(load_before, 1),
    }


def tell(name: str, figures: dict[str, object], runs: Sequence[float] = ()) -> None:
    """Print one line: the benchmark, its figures, the spread of its runs, when and where.

    The load is that of the minute before the line, the benchmark's own included.
    """
    spread: dict[str, float] = {}
    if runs:
        spread = {"min_s": min(runs), "median_s": statistics.median(runs), "max_s": max(runs)}
    spread = {key: round(value, 6) for key, value in spread.items()}
    print(json.dumps({"bench": name, **figures, **spread, **about(os.getloadavg()[0])}), flush=True)
