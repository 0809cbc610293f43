"""CPU time of a piece of work: medians of several runs, as JSON lines."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence


def cpu_s(work: Callable[[], object], runs: int = 5) -> list[float]:
    """CPU seconds of this process for each run of `work`, a warm-up first."""
    work()
    taken = []
    for _ in range(runs):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return taken


def tell(name: str, figures: dict[str, object], runs: Sequence[float] = ()) -> None:
    """Print one line: the benchmark, its figures, and the spread of its runs in seconds."""
    spread: dict[str, float] = {}
    if runs:
        spread = {"min_s": min(runs), "median_s": statistics.median(runs), "max_s": max(runs)}
    line = {"bench": name, **figures, **{key: round(value, 6) for key, value in spread.items()}}
    print(json.dumps(line), flush=True)
