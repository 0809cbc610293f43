"""The score of many runs as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import mean, median
from typing import TypeVar

from fabmon.analysis.causes import CAUSES
from tests.score.asked import asked, asked_table
from tests.score.figures import (
    AXES,
    COLLISION,
    Figures,
    Runs,
    Scores,
    brier_score,
    by_value,
    calibration,
    causes,
    confidences,
    figures,
    health,
    hosts_alone,
    injected,
    is_training_hour,
    losses,
    points_more,
    share,
    watched,
    workload,
)
from tests.score.match import Score
from tests.score.size import Size
from tests.world.faults.registry import FAULTS

_Judged = TypeVar("_Judged")
Line = tuple[str, Mapping[str, _Judged]]
"""A name, and what a line is of, by the name of the commit."""

_HEAD = """# How good the findings are

Made by `make score` (`python -m tests.score`): {healthy} runs of healthy fabrics, {faults} with
an injected fault, {hours} hours of healthy training (1 % marks, skew 0.2 s); seeds from {first} on;
code {digest} (`python -m tests.score --digest` prints that of a checkout).
The simulator (`tests/world`) shares no code with the demo or the detectors. It was written from the
physics, without reading the detectors; these were written from what `--explain SEED` prints of runs
with other seeds. Their author has read most of the simulator since (flows, queues, signs at hosts,
jobs, what counts as true). The seeds of this page were used for nothing else.

## How it is measured

**The fabric.** A fluid model of bytes and queues: flows in collectives that move as fast as their
slowest flow, max-min fair shares at full links, ECN marks that grow with the number of flows at a
queue, pause (or missing credits) that spreads hop by hop from a full queue or a receiver that
does not drain, go-back-N on links that damage packets. RoCE with and without DCQCN, InfiniBand
with static or adaptive routing, TCP. Rail-optimised, leaf-spine and three-tier fabrics of 16 to
32 hosts with 2 to 8 rails, frontends, storage NICs, mixed speeds; all switches watched, or none.
Each cause is injected equally often, on every topology and transport that can have it, with every
background and skew equally often (`tests/world/plans.py`).

**What makes it hard.** Every run has a background: 0, 0.1, 1 or 5 % of packets marked
(InfiniBand: of time in `xmit_wait`; TCP: of packets sent again) on every loaded path; nodes are
sampled 0, 0.2 or 0.5 s apart, each with its own clock, some frames are late; rails are not in
step; loaded links are at 93 to 99 % of line rate. The switches of 60 % of the watched RoCE fabrics
count the packets that they mark; a tenth of the InfiniBand fabrics have 32-bit `xmit_wait`.
Healthy workloads are rings, trees,
hierarchical collectives, FSDP, all-to-all, pipelines, parameter servers, inference, several jobs
with checkpoints and loading of data, jobs that stop and hosts that join, elephants, leaves at 1:1
that are full, idle fabrics.

**Which commit.** *fabmon* is this tree. With `--beside COMMIT` another commit is beside it: its
product, in the same simulated runs and by the same truth.

**What is true.** Injected faults, and what the queues of the simulator show: a link is in collision
when its demand, what its senders could send, exceeds it for more than 3 s while the other links of
its group have room, and at least two senders that share it are each below what they could send
(`docs/decisions/0009-what-a-collision-is.md`). Its loss is 1 - achieved / what the slowed flows
would get if the group were used evenly, of all the time in which the link is full: while all of its
group is, an even use gains nothing. When a whole group is full, that is oversubscription. A run
is healthy when none of this was true in it; collisions that nobody injected count as faults.
A counter that is stuck is found or missed like a fault, but leaves its run healthy.

**What is right.** A finding whose cause is true at its place at that time, from 2 s before to 15
s after; of a finding that changes its cause, the one that it had for most of its time from 5 s
on. Where no switch is watched, a finding that reports only a congested path is right when queues
between switches, of whatever rail, slow most ports that it names; a wrong name is wrong. A fault
must be found (recall) when it showed in the traffic for 4 s or more; a collision when its own queue
slowed two senders for 6 s and cost 10 %. A queue builds at the first full link of a flow's path: a
link that is as full as another one that holds its flows has none. In a ring all hosts wait for a
straggler: their traffic does not show which one it is, and it need not be found. Nor need a slow
receiver on InfiniBand whose switch counts waiting in 32 bits, which are full before it has shown
for 4 s, or a job that leaves out half of the rails of all its hosts: one on half of their GPUs
looks the same.

**What the columns are.** *Precision* is right findings of all, *recall* is faults found of all that
must be. *Recall by run* is the mean over the runs of the share of their faults that was found: a
run with a dozen collisions counts as one. *Time* is from when a fault first showed. Per cause,
findings count by what they say, faults by what is true. The *Brier score* is the mean square of
confidence less outcome (1 for a right finding, 0 for a wrong one): 0 is best.

"""


def head(runs: Runs, first: int, digest: str) -> str:
    """What docs/score.md says before the tables."""
    hours = sum(map(is_training_hour, runs))
    faults = sum(bool(score.played.plan.fault) for score in runs)
    healthy = len(runs) - hours - faults
    return _HEAD.format(healthy=healthy, faults=faults, hours=hours, first=first, digest=digest)


def report(scores: Scores, sizes: Mapping[str, Size]) -> str:
    """All tables, with a row for each commit."""
    seen, alone = _each(scores, watched), _each(scores, hosts_alone)
    places = [("switches watched", seen), ("hosts alone", alone)]
    lengths = [
        ("runs of minutes", _those(scores, lambda s: not is_training_hour(s))),
        ("hours of training", _those(scores, is_training_hour)),
    ]
    on_axes = [
        (f"{title.lower()} {value}", runs)
        for title, of in AXES.items()
        for value, runs in _by_value(scores, of)
    ]
    parts = ["## Asked and reached", asked_table(scores, sizes), "## All runs"]
    parts.append(
        _runs(
            "Runs",
            [
                ("all", scores),
                ("healthy", _those(scores, lambda s: s.healthy)),
                ("with a fault", _those(scores, lambda s: not s.healthy)),
                *places,
            ],
        )
    )
    parts.append("## Switches watched")
    for title, of in (*AXES.items(), ("Workload", workload)):
        parts.append(_runs(title, _by_value(seen, of)))
    parts += [_causes(seen), "## Hosts alone"]
    for title, of in AXES.items():
        if title != "Topology":
            parts.append(_runs(title, _by_value(alone, of)))
    parts += [_causes(alone), "## Time to flag", _times([*places, ("all", scores)])]
    parts += ["## Healthy runs", _healthy([*lengths, *places, *on_axes])]
    parts += ["## Confidence", _reliability(scores)]
    parts.append(_calibrated([("all", scores), *places, *on_axes]))
    transports = _by_value(scores, AXES["Transport"])
    parts += ["## Lost bandwidth of collisions", _losses([("all", scores), *transports])]
    parts += [_unqueued(scores), _not_injected(), "## Size", _sizes(sizes)]
    return "\n".join(f"{part}\n" if part.startswith("## ") else part for part in parts)


def numbers(scores: Scores, sizes: Mapping[str, Size]) -> dict[str, object]:
    """The figures of a set of runs, for JSON, by the name of the commit."""
    return {name: _numbers_of(runs, sizes[name]) for name, runs in scores.items()}


def _numbers_of(runs: Runs, of: Size) -> dict[str, object]:
    sets = {"all": runs, "switches watched": watched(runs), "hosts alone": hosts_alone(runs)}
    return {
        "asked": [asdict(line) for line in asked(runs, of)],
        **{which: _figures_of(some) for which, some in sets.items()},
    }


def _figures_of(runs: Runs) -> dict[str, object]:
    mine = figures(runs)
    return {
        **asdict(mine),
        "precision": mine.precision,
        "recall": mine.recall,
        "health": asdict(health(runs)),
        "calibration": asdict(calibration(runs)),
        "brier_score": brier_score(confidences(runs)),
    }


def _each(scores: Scores, select: Callable[[Runs], Runs]) -> Scores:
    """Some of the runs, of each commit."""
    return {name: select(runs) for name, runs in scores.items()}


def _those(scores: Scores, is_one: Callable[[Score], bool]) -> Scores:
    return _each(scores, lambda runs: [run for run in runs if is_one(run)])


def _by_value(scores: Scores, of: Callable[[Score], str]) -> list[Line[Runs]]:
    """The runs with each value of an axis."""
    values = {name: by_value(runs, of) for name, runs in scores.items()}
    return [
        (value, {name: values[name][value] for name in scores})
        for value in next(iter(values.values()))
    ]


def _runs(title: str, lines: Iterable[Line[Runs]]) -> str:
    columns = ("runs", "findings", "precision", "faults", "recall", "recall by run")

    def cells(runs: Runs) -> list[str]:
        f = figures(runs)
        return [f"{f.runs}", f"{f.findings}", _share(f.precision), *_of_faults(f)]

    return _table((title, *columns, "median time", "p90"), lines, cells)


def _causes(scores: Scores) -> str:
    columns = ("findings", "right", "precision", "faults", "recall", "recall by run")

    def cells(f: Figures) -> list[str]:
        return [f"{f.findings}", f"{f.right}", _share(f.precision), *_of_faults(f)]

    lines = [
        (cause, {name: figures(runs, cause) for name, runs in scores.items()})
        for cause in sorted({cause for runs in scores.values() for cause in causes(runs)})
    ]
    return _table(("Cause", *columns, "median time", "p90"), lines, cells)


def _of_faults(f: Figures) -> list[str]:
    return [
        *(f"{f.faults}", _share(f.recall), _share(f.by_run)),
        *(_seconds(f.median_s), _seconds(f.p90_s)),
    ]


def _times(lines: Iterable[Line[Runs]]) -> str:
    def cells(runs: Runs) -> list[str]:
        f, times = figures(runs), injected(runs)
        middle, late = (median(times), times[int(len(times) * 0.9)]) if times else (None, None)
        found = [f"{f.found}", _seconds(f.median_s)]
        return [f"{len(times)}", _seconds(middle), _seconds(late), *found]

    columns = ("Skew", "injected, found", "median time", "p90", "all found", "median time")
    of_skews = [
        (f"{skew}, {name}", mine)
        for name, scores in lines
        for skew, mine in _by_value(scores, AXES["Skew"])
    ]
    return _table(columns, of_skews, cells)


def _healthy(lines: Iterable[Line[Runs]]) -> str:
    columns = ("runs", "hours", "with a wrong finding", "wrong findings", "per fabric-hour")

    def cells(runs: Runs) -> list[str]:
        h = health(runs)
        per_hour = "-" if h.per_hour is None else f"{h.per_hour:.2f}"
        alarms = [f"{h.alarmed}", f"{h.false}", per_hour, f"{h.critical_runs}"]
        return [f"{h.runs}", f"{h.hours:.1f}", *alarms]

    return _table(("Healthy", *columns, "with a critical finding"), lines, cells)


def _reliability(scores: Scores) -> str:
    """How often findings of a confidence are right."""
    every = {name: confidences(runs) for name, runs in scores.items()}
    edges = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
    lines = [
        (
            f"{low:.1f} to {min(high, 1.0):.1f}",
            {name: [p for p in pairs if low <= p[0] < high] for name, pairs in every.items()},
        )
        for low, high in pairwise(edges)
    ]

    def cells(pairs: Sequence[tuple[float, bool]]) -> list[str]:
        said = f"{mean(confidence for confidence, _ in pairs):.2f}" if pairs else "-"
        right = _percent(share(sum(is_right for _, is_right in pairs), len(pairs)))
        return [f"{len(pairs)}", said, right, _share(brier_score(pairs))]

    columns = ("Confidence", "findings", "mean confidence", "right", "Brier score")
    return _table(columns, [*lines, ("all", every)], cells)


def _calibrated(lines: Iterable[Line[Runs]]) -> str:
    columns = ("Confidence of 0.9 or more", "findings", "right of these", "of all right findings")

    def cells(runs: Runs) -> list[str]:
        c = calibration(runs)
        return [f"{c.sure}", _percent(c.kept), _percent(c.said)]

    return _table(columns, lines, cells)


def _losses(lines: Iterable[Line[Runs]]) -> str:
    def cells(runs: Runs) -> list[str]:
        mine = losses(runs)
        return [
            *(f"{len(mine.measured)}", _percent(mine.close), points_more(mine.measured)),
            *(f"{len(mine.up_to)}", _percent(mine.held), points_more(mine.up_to)),
            f"{mine.not_given}",
        ]

    columns = (
        *("measured", "within 10 points", "said less true"),
        *("said as *up to*", "true at most 10 points more", "said less true", "not given"),
    )
    return _table(("Transport", *columns), lines, cells)


def _unqueued(scores: Scores) -> str:
    counts = []
    for name, runs in scores.items():
        unqueued = [
            s.played.plan.seed
            for s in runs
            for _, t in s.right
            if t.cause == COLLISION and t.natural and not t.queued_s
        ]
        counts.append(f"{len(unqueued)}, in {len(set(unqueued))} runs ({name})")
    return (
        "Right collisions at links without a queue of their own, which the definition includes:"
        f" {'; '.join(counts)}.\n"
    )


def _sizes(sizes: Mapping[str, Size]) -> str:
    def cells(of: Size) -> list[str]:
        return [f"{of.lines}", f"{of.thresholds}", f"{of.settings}"]

    columns = ("What decides about", "lines of Python", "numbers", "of these in thresholds.toml")
    return _table(columns, [("traffic causes", sizes)], cells)


def _not_injected() -> str:
    """The causes of fabmon that no run has."""
    missing = sorted(set(CAUSES) - set(FAULTS))
    return (
        f"Causes that are never injected: {', '.join(missing)}. `congested_path` is what hosts see"
        " of queues between switches, `packet_loss` of degraded links there that no watched port"
        " counts; the simulator has no data for the others.\n"
    )


def _table(
    columns: Sequence[str], lines: Iterable[Line[_Judged]], cells: Callable[[_Judged], list[str]]
) -> str:
    """A Markdown table: of each line a row for every commit, under one another."""
    first, *others = columns
    out = [
        f"| {' | '.join((first, 'commit', *others))} |",
        "|---|---|" + "---:|" * len(others),
    ]
    for title, judged in lines:
        out += [f"| {' | '.join((title, n, *cells(of)))} |" for n, of in judged.items()]
    return "\n".join(out) + "\n"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
