"""`make score`: 200 random fabrics with every switch watched, 200 with hosts alone, and health.

python -m tests.score --seeds 200 --health-hours 24 --out docs/score.md
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.score import draw
from tests.score.match import Score, score
from tests.score.play import play
from tests.score.table import report


def one(job: tuple[int, str]) -> tuple[int, Score]:
    """The score of a seed."""
    seed, visible = job
    return seed, score(play(draw.scenario(seed, visible), draw.SECONDS))


def health(job: tuple[int, int]) -> tuple[int, Score]:
    """The score of healthy training of so many seconds."""
    seed, seconds = job
    return seconds, score(play(draw.healthy(seed), seconds))


def main() -> None:
    """Play, score, print, and write the report where asked."""
    ask = argparse.ArgumentParser(prog="python -m tests.score")
    ask.add_argument("--seeds", type=int, default=200)
    ask.add_argument("--first", type=int, default=8401, help="those below were tuned on, or seen")
    ask.add_argument("--health-hours", type=float, default=0.0)
    ask.add_argument("--out", type=Path)
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--only", choices=("all", "hosts"))
    ask.add_argument("--wrong", action="store_true", help="print what was wrong or missed")
    given = ask.parse_args()
    began = time.monotonic()
    seeds = range(given.first, given.first + given.seeds)
    with ProcessPoolExecutor(given.workers) as pool:
        views = {
            visible: list(pool.map(one, [(seed, visible) for seed in seeds], chunksize=4))
            for visible in ("all", "hosts")
            if given.only in (None, visible)
        }
        parts = int(given.health_hours * 2)
        healthy = list(pool.map(health, [(seed, 1800) for seed in range(1, parts + 1)]))
    if given.wrong:
        for visible, scores in views.items():
            for seed, each in scores:
                _print_wrong(visible, seed, each)
        for _, each in healthy:
            _print_wrong("healthy", 0, each)
    text = report(
        [each for _, each in views.get("all", [])],
        [each for _, each in views.get("hosts", [])],
        [(seconds, each) for seconds, each in healthy],
    )
    print(text)
    print(f"{time.monotonic() - began:.0f} s")
    if given.out is not None:
        given.out.write_text(text)


def _print_wrong(visible: str, seed: int, each: Score) -> None:
    for wrong in each.wrong:
        print(
            f"WRONG  {visible} {seed} @{wrong.second} {wrong.cause} {wrong.subject}: {wrong.text}"
        )
    for truth in each.expected:
        if truth.must and not truth.found:
            print(f"MISSED {visible} {seed} {truth.cause} {truth.place} {truth.onset_s:.1f}+")


if __name__ == "__main__":
    main()
