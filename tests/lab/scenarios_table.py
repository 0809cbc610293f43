"""``python -m tests.lab.scenarios_table --runs 3``: every scenario, again and again, as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.lab import play
from tests.lab.netns import LabError
from tests.lab.play import Outcome
from tests.lab.playing import AT_ONCE, playing


def main(argv: Sequence[str] | None = None) -> int:
    """Play them, print what came of it; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.scenarios_table", description=__doc__
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="labs at a time")
    parser.add_argument("names", nargs="*", help="scenarios (all of them)")
    options = parser.parse_args(argv)
    known = [*play.paths(), *play.further_paths()]
    paths = [path for path in known if not options.names or path.stem in options.names]
    outcomes: dict[str, list[Outcome]] = {path.stem: [] for path in paths}
    for run in range(1, options.runs + 1):
        with playing(paths, at_once=options.at_once) as futures:
            for path, future in futures.items():
                try:
                    outcome = future.result()
                except (LabError, OSError, AssertionError) as problem:
                    print(f"run {run}, {path.stem}: {problem}", file=sys.stderr)
                    continue
                outcomes[path.stem].append(outcome)
                print(f"run {run}, {path.stem}: {_verdict(outcome)}", file=sys.stderr, flush=True)
    print("| scenario | fault, by the kernel's counters | reported after, s | correct |")
    print("|---|---|---|---|")
    for name, played in outcomes.items():
        print(_row(name, played, options.runs))
    right = [
        sum(_is_right(each[run]) for each in outcomes.values() if run < len(each))
        for run in range(options.runs)
    ]
    print(f"\nCorrect: {', '.join(f'{count} of {len(paths)}' for count in right)}.")
    return 0 if right == [len(paths)] * options.runs else 1


def _is_right(outcome: Outcome) -> bool:
    return outcome.happened and outcome.is_right


def _verdict(outcome: Outcome) -> str:
    return "right" if _is_right(outcome) else f"WRONG: {outcome.story}"


def _row(name: str, played: Sequence[Outcome], runs: int) -> str:
    wrong = sorted({str(each) for outcome in played for each in outcome.truth})
    after = [", ".join(f"{found.after_s:.1f}" for found in outcome.findings) for outcome in played]
    right = sum(map(_is_right, played))
    cells = (name, ", ".join(wrong) or "nothing", "; ".join(filter(None, after)))
    return f"| {' | '.join(cells)} | {right} of {runs} |"


if __name__ == "__main__":
    sys.exit(main())
