"""`make bench`: every measurement behind the README's table, as JSON lines."""

from __future__ import annotations

from tests.bench import (
    analysis,
    console,
    demo,
    exporters,
    first_counters,
    heatmap,
    iteration,
    probe,
    prometheus,
    recording,
    ssh,
    wire,
)


def main() -> None:
    """Run them all, one after the other: they would disturb each other."""
    console.main()
    prometheus.main()
    demo.main()
    iteration.main()
    analysis.main()
    ssh.main()
    first_counters.main()
    probe.main()
    wire.main()
    heatmap.main()
    exporters.main()
    recording.main()


if __name__ == "__main__":
    main()
