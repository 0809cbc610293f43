"""`make score`: the detectors on random simulated fabrics, healthy and with faults.

python -m tests.score --healthy 100 --faults 100 --first 1 --workers 2 --out docs/score.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.score import revisions
from tests.score.match import Score, score
from tests.score.play import Reported, play
from tests.score.revisions import IN_USE
from tests.score.size import size
from tests.score.table import head, numbers, report
from tests.world.faults.registry import FAULTS
from tests.world.job_mixes import DAY, WORKLOADS
from tests.world.plans import Plan, draw_plan
from tests.world.truth import Truth

_HOUR_MARKS, _HOUR_SKEW_S = 0.01, 0.2
"""Background and skew of the hours of training, as healthy fabrics have them."""

_SHOWN = 3
"""Wrong findings of one cause and run that --list prints."""


def one(plan: Plan) -> Score:
    """The score of a plan."""
    return score(play(plan))


def code_digest() -> str:
    """A name for the code that a score depends on: another one has other scores."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    files = [root / "tests/builders.py"]
    for name in ("fabmon", "collectors", "tests/world", "tests/score", "config"):
        files += (path for path in (root / name).rglob("*") if path.suffix in (".py", ".toml"))
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def kept(directory: Path, plan: Plan) -> Score:
    """The score of a plan, computed unless `directory` has it."""
    # --only makes another plan of a seed.
    digest = hashlib.sha256(repr(plan).encode()).hexdigest()[:12]
    path = directory / f"{_name(plan)}-{digest}.pickle"
    if not path.exists():
        new = path.with_suffix(".new")
        new.write_bytes(pickle.dumps(one(plan)))
        new.replace(path)
    known: Score = pickle.loads(path.read_bytes())
    return known


def main() -> None:
    """Play, score, print, and write the report where asked."""
    prints = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    prints.add_argument("--out", type=Path)
    prints.add_argument("--json", type=Path, help="also the figures, as JSON")
    prints.add_argument("--list", action="store_true", help="print every wrong and missed finding")
    prints.add_argument("--explain", metavar="SEED", help="one run: 17 (a fault) or h17 (healthy)")
    prints.add_argument("--digest", action="store_true", help="print a name for this code")
    revisions.add_options(prints)
    ask = argparse.ArgumentParser("python -m tests.score", parents=[prints], allow_abbrev=False)
    _add_runs(ask)
    given = ask.parse_args()
    _, words = prints.parse_known_args()
    words += ["--keep", str(given.keep.absolute())] if given.keep else []
    if given.digest:
        print(code_digest())
        return
    if given.explain:
        _explain(_plan(given.explain, given.only))
        return
    began = time.monotonic()
    plans = _plans(given)
    judge: Callable[[Plan], Score] = one
    if given.keep is not None:
        directory = given.keep.absolute() / code_digest()
        directory.mkdir(parents=True, exist_ok=True)
        judge = partial(kept, directory)
    if given.workers > 1:
        with ProcessPoolExecutor(given.workers) as pool:
            runs = list(pool.map(judge, plans))
    else:
        runs = [judge(plan) for plan in plans]
    if given.pickle is not None:
        given.pickle.write_bytes(pickle.dumps((runs, size())))
        return
    judged = {IN_USE: (runs, size())}
    judged |= {name: revisions.scores_at(name, "tests.score", words) for name in given.beside}
    scores = {name: of for name, (of, _) in judged.items()}
    sizes = {name: of for name, (_, of) in judged.items()}
    tables = report(scores, sizes)
    print(tables)
    if given.list:
        for same in zip(*scores.values(), strict=True):
            for name, each in zip(scores, same, strict=True):
                _list(name, each)
    print(f"{time.monotonic() - began:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps(numbers(scores, sizes), indent=1))
    if given.out is not None:
        given.out.write_text(head(runs, given.first, code_digest()) + tables)


def _add_runs(ask: argparse.ArgumentParser) -> None:
    """The options that say which runs."""
    ask.add_argument("--healthy", type=int, default=20, help="healthy runs of 300 s")
    ask.add_argument("--faults", type=int, default=20, help="runs of 120 s with a fault")
    ask.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="CAUSE=N",
        help="more runs of a cause that few runs show, with the seeds after those of --faults",
    )
    ask.add_argument(
        "--hours",
        type=int,
        default=0,
        help="healthy training, in runs of an hour, at 1 %% marks and a skew of 0.2 s",
    )
    ask.add_argument("--first", type=int, default=1, help="the first seed")
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--only", help="only this cause (as a fault) or this workload")
    ask.add_argument(
        "--keep",
        type=Path,
        help="keep the score of each run here, and use those that it has, of the same code of"
        " fabmon and of the score",
    )


def _plans(given: argparse.Namespace) -> list[Plan]:
    seeds = range(given.first, given.first + max(given.healthy, given.faults))
    plans = [_plan(f"h{seed}", given.only) for seed in seeds[: given.healthy]]
    plans += [_plan(f"{seed}", given.only) for seed in seeds[: given.faults]]
    for cause, _, count in (each.partition("=") for each in given.also):
        first = given.first + given.faults
        plans += [_plan(f"{seed}", cause) for seed in range(first, first + int(count))]
    hours = range(given.first, given.first + given.hours)
    return plans + [
        replace(draw_plan(seed, "healthy", DAY), marks=_HOUR_MARKS, skew_s=_HOUR_SKEW_S)
        for seed in hours
    ]


def _plan(word: str, only: str | None) -> Plan:
    kind = "healthy" if word.startswith("h") else "fault"
    seed = int(word.removeprefix("h"))
    workload = only if only in WORKLOADS else ""
    fault = only if only in FAULTS else ""
    if only and not workload and not fault:
        raise SystemExit(
            f"--only {only}: causes are {', '.join(FAULTS)}; workloads {', '.join(WORKLOADS)}"
        )
    return draw_plan(seed, kind, workload or "", fault or "")


def _name(plan: Plan) -> str:
    return f"{'' if plan.fault else 'h'}{plan.seed}"


def _list(name: str, each: Score) -> None:
    plan = each.played.plan
    about = f"{plan.topology}, {plan.workload}, marks {plan.marks:.1%}, skew {plan.skew_s:g} s"
    seen: Counter[str] = Counter()
    for wrong in each.wrong:
        seen[wrong.cause] += 1
        if seen[wrong.cause] > _SHOWN:
            continue
        print(
            f"WRONG  {name} {_name(plan):>5} {wrong.opened_s:5.0f} s {wrong.cause} {wrong.subject}"
            f" ({wrong.confidence:.2f}): {wrong.text}  [{about}]"
        )
    for cause, count in seen.items():
        if count > _SHOWN:
            print(f"WRONG  {name} {_name(plan):>5}         {cause}: {count - _SHOWN} more")
    for truth in each.missed:
        print(
            f"MISSED {name} {_name(plan):>5} {truth.start_s:5.0f} s {truth.cause}"
            f" {_place(truth)} for {truth.active_s:.0f} s, lost {truth.lost:.0%}  [{about}]"
        )


def _place(truth: Truth) -> str:
    names = sorted(truth.ports) or sorted(truth.nodes)
    return " ".join(names[:4]) + (" ..." if len(names) > 4 else "")


def _explain(plan: Plan) -> None:
    result = one(plan)
    played = result.played
    print(
        f"run {_name(plan)}: {played.description}, workload {plan.workload},"
        f" marks {plan.marks:.1%}, skew {plan.skew_s:g} s, {plan.seconds} s,"
        f" fault {plan.fault or 'none'}"
    )
    print("\ntrue:" if played.truths else "\ntrue: nothing was wrong")
    for truth in sorted(played.truths, key=lambda t: t.start_s):
        state = "required" if truth.required else "not required"
        note = f" ({truth.note})" if truth.note else ""
        print(
            f"  {truth.start_s:5.0f} to {truth.end_s:5.0f} s  {truth.cause}{note} at"
            f" {_place(truth)}, showed for {truth.active_s:.1f} s, lost {truth.lost:.0%}, {state};"
            f" affects {' '.join(sorted(truth.affected)[:8])}"
        )
    wrong = {id(r) for r in result.wrong}
    print("\nreported:")
    for reported in played.reported:
        _print_finding("WRONG" if id(reported) in wrong else "right", reported)
    for truth in result.missed:
        print(f"  MISSED {truth.cause} at {_place(truth)}")
    print("\nsecond by second:")
    last = ""
    for second in range(1, played.plan.seconds + 1):
        true = [
            f"{t.cause}@{next(iter(sorted(t.ports or t.nodes)), '')}"
            for t in played.truths
            if t.start_s <= second <= t.end_s
        ]
        opened = [
            f"{r.causes[min(len(r.causes) - 1, int(second - r.opened_s))]}@{r.subject}"
            for r in played.reported
            if r.opened_s <= second and (r.closed_s is None or second < r.closed_s)
        ]
        line = f"true: {', '.join(true) or '-'} | reported: {', '.join(opened) or '-'}"
        if line != last:
            print(f"  {second:4d} s  {line}")
        last = line


def _print_finding(verdict: str, reported: Reported) -> None:
    until = "end" if reported.closed_s is None else f"{reported.closed_s:.0f} s"
    history = " > ".join(
        cause
        for place, cause in enumerate(reported.causes)
        if place == 0 or cause != reported.causes[place - 1]
    )
    print(
        f"  {verdict} {reported.opened_s:.0f} s to {until}: {history} {reported.subject},"
        f" confidence {reported.confidence:.2f}, lost {reported.lost:.0%}\n"
        f"      {reported.text}\n      evidence: {reported.evidence}\n"
        f"      ports: {' '.join(reported.ports[:8])}"
        + (f"\n      not observable: {reported.unseen}" if reported.unseen else "")
    )


if __name__ == "__main__":
    main()
