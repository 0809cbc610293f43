"""Time from the start of fabmon to the first counters of the lab's 14 nodes (needs root)."""

from __future__ import annotations

from tests.bench.measure import tell
from tests.lab import Lab, LabError
from tests.lab.watching import Watch

RUNS = 5


def main() -> None:
    """Print the time from the start to the first tick with counters of any and of all nodes."""
    try:
        with Lab(spines=4, leaves=2, hosts_per_leaf=4, rate_mbps=100) as lab:
            taken = [_first(lab) for _ in range(RUNS)]
    except LabError as error:
        tell("first_counters", {"skipped": str(error)})
        return
    tell("first_counters", {"nodes": 14, "of": "any"}, [any_s for any_s, _ in taken])
    tell("first_counters", {"nodes": 14, "of": "all"}, [all_s for _, all_s in taken])


def _first(lab: Lab) -> tuple[float, float]:
    with Watch(lab) as running:
        some = running.until(lambda line: line["type"] == "tick" and bool(line["links"]))
        every = running.until_all_up()
    return some["at_s"], every["at_s"]


if __name__ == "__main__":
    main()
