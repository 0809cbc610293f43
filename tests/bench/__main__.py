"""`make bench`: every measurement behind the README's table, as JSON lines."""

from __future__ import annotations

import argparse
import sys

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

_PARTS = (
    console,
    prometheus,
    demo,
    iteration,
    analysis,
    ssh,
    first_counters,
    probe,
    wire,
    heatmap,
    exporters,
    recording,
)


def main() -> None:
    """Run the parts that are named, or all, one after the other: they would disturb each other."""
    parts = {part.__name__.rpartition(".")[2]: part for part in _PARTS}
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    wanted = parser.parse_args().parts or list(parts)
    unknown = [name for name in wanted if name not in parts]
    if unknown:
        parser.error(f"no such part: {' '.join(unknown)}")
    for name in wanted:
        sys.argv[1:] = []  # The part of SSH has options of its own.
        parts[name].main()


if __name__ == "__main__":
    main()
