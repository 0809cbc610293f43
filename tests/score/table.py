"""The score of many runs as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from statistics import median

from fabmon.analysis.causes import CAUSES
from tests.score.asked import asked, asked_table
from tests.score.figures import (
    AXES,
    CLOSE,
    COLLISION,
    Runs,
    bound_excesses,
    by_value,
    calibration,
    causes,
    figures,
    health,
    hosts_alone,
    injected,
    is_training_hour,
    loss_errors,
    share,
    watched,
    workload,
)
from tests.world.faults.registry import FAULTS

Line = tuple[str, Runs]

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

**What is true.** Injected faults, and what the queues of the model show: a link is in collision
when its demand, what its senders could send, exceeds it for more than 3 s while the other links of
its group have room, and at least two senders that share it are each below what they could send
(`docs/decisions/0009-what-a-collision-is.md`). Its loss is 1 - achieved / what the slowed flows
would get if the group were used evenly. When a whole group is full, that is oversubscription. A run
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
findings count by what they say, faults by what is true.

"""


def page(scores: Runs, first: int, digest: str) -> str:
    """docs/score.md."""
    plans = [score.played.plan for score in scores]
    hours = sum(map(is_training_hour, scores))
    faults = sum(bool(plan.fault) for plan in plans)
    head = _HEAD.format(
        healthy=len(plans) - hours - faults, faults=faults, hours=hours, first=first, digest=digest
    )
    return head + "\n" + report(scores)


def report(scores: Runs) -> str:
    """All tables."""
    seen, alone = watched(scores), hosts_alone(scores)
    places = [("switches watched", seen), ("hosts alone", alone)]
    lengths = [
        ("runs of minutes", [s for s in scores if not is_training_hour(s)]),
        ("hours of training", [s for s in scores if is_training_hour(s)]),
    ]
    on_axes = [
        (f"{title.lower()} {value}", runs)
        for title, of in AXES.items()
        for value, runs in by_value(scores, of).items()
    ]
    parts = ["## Asked and reached", asked_table(asked(scores)), "## All runs"]
    parts.append(
        _table(
            "Runs",
            [
                ("all", scores),
                ("healthy", [s for s in scores if s.healthy]),
                ("with a fault", [s for s in scores if not s.healthy]),
                *places,
            ],
        )
    )
    parts.append("## Switches watched")
    for title, of in (*AXES.items(), ("Workload", workload)):
        parts.append(_table(title, by_value(seen, of).items()))
    parts += [_causes(seen), "## Hosts alone"]
    for title, of in AXES.items():
        if title != "Topology":
            parts.append(_table(title, by_value(alone, of).items()))
    parts += [_causes(alone), "## Time to flag", _times([*places, ("all", scores)])]
    parts += ["## Healthy runs", _healthy([*lengths, *places, *on_axes])]
    parts += ["## Confidence", _calibration(scores)]
    parts.append(_calibrated([("all", scores), *places, *on_axes]))
    transports = by_value(scores, AXES["Transport"])
    parts += ["## Lost bandwidth of collisions", _losses([("all", scores), *transports.items()])]
    parts += [_unqueued(scores), _not_injected()]
    return "\n".join(f"{part}\n" if part.startswith("## ") else part for part in parts)


def numbers(scores: Runs) -> dict[str, object]:
    """The figures of a set of runs, for JSON."""
    sets = {"all": scores, "switches watched": watched(scores), "hosts alone": hosts_alone(scores)}
    return {
        "asked": [asdict(line) for line in asked(scores)],
        **{name: _figures_of(runs) for name, runs in sets.items()},
    }


def _figures_of(runs: Runs) -> dict[str, object]:
    mine = figures(runs)
    return {
        **asdict(mine),
        "precision": mine.precision,
        "recall": mine.recall,
        "health": asdict(health(runs)),
        "calibration": asdict(calibration(runs)),
    }


def _table(title: str, lines: Iterable[Line]) -> str:
    out = [
        _header(
            title,
            *("runs", "findings", "precision", "faults", "recall", "recall by run"),
            *("median time", "p90"),
        )
    ]
    for value, runs in lines:
        f = figures(runs)
        out.append(
            f"| {value} | {f.runs} | {f.findings} | {_share(f.precision)} | {f.faults} |"
            f" {_share(f.recall)} | {_share(f.by_run)} | {_seconds(f.median_s)} |"
            f" {_seconds(f.p90_s)} |"
        )
    return "\n".join(out) + "\n"


def _causes(scores: Runs) -> str:
    out = [
        _header(
            "Cause",
            *("findings", "right", "precision", "faults", "recall", "recall by run"),
            *("median time", "p90"),
        )
    ]
    for cause in causes(scores):
        f = figures(scores, cause)
        out.append(
            f"| {cause} | {f.findings} | {f.right} | {_share(f.precision)} | {f.faults} |"
            f" {_share(f.recall)} | {_share(f.by_run)} | {_seconds(f.median_s)} |"
            f" {_seconds(f.p90_s)} |"
        )
    return "\n".join(out) + "\n"


def _times(lines: Iterable[Line]) -> str:
    out = [_header("Skew", "injected, found", "median time", "p90", "all found", "median time")]
    for name, runs in lines:
        for skew, mine in by_value(runs, AXES["Skew"]).items():
            f, times = figures(mine), injected(mine)
            middle, late = (median(times), times[int(len(times) * 0.9)]) if times else (None, None)
            out.append(
                f"| {skew}, {name} | {len(times)} | {_seconds(middle)} | {_seconds(late)}"
                f" | {f.found} | {_seconds(f.median_s)} |"
            )
    return "\n".join(out) + "\n"


def _healthy(lines: Iterable[Line]) -> str:
    out = [
        _header(
            "Healthy",
            *("runs", "hours", "with a wrong finding", "wrong findings", "per fabric-hour"),
            "with a critical finding",
        )
    ]
    for name, runs in lines:
        h = health(runs)
        out.append(
            f"| {name} | {h.runs} | {h.hours:.1f} | {h.alarmed} | {h.false} |"
            f" {'-' if h.per_hour is None else f'{h.per_hour:.2f}'} | {h.critical_runs} |"
        )
    return "\n".join(out) + "\n"


def _calibration(scores: Runs) -> str:
    pairs = [(r.confidence, True) for s in scores for r, _ in s.right]
    pairs += [(r.confidence, False) for s in scores for r in s.wrong]
    out = [_header("Confidence", "findings", "right")]
    edges = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
    for low, high in pairwise(edges):
        inside = [ok for confidence, ok in pairs if low <= confidence < high]
        right = _percent(share(sum(inside), len(inside)))
        out.append(f"| {low:.1f} to {min(high, 1.0):.1f} | {len(inside)} | {right} |")
    return "\n".join(out) + "\n"


def _calibrated(lines: Iterable[Line]) -> str:
    out = [
        _header("Confidence of 0.9 or more", "findings", "right of these", "of all right findings")
    ]
    for name, runs in lines:
        c = calibration(runs)
        out.append(f"| {name} | {c.sure} | {_percent(c.kept)} | {_percent(c.said)} |")
    return "\n".join(out) + "\n"


def _losses(lines: Iterable[Line]) -> str:
    head = ("Transport", "right collisions", "within 10 points", "median error")
    out = [_header(*head, "that say *up to*", "not more than that and 10 points")]
    for name, runs in lines:
        errors, excesses = loss_errors(runs), bound_excesses(runs)
        close = share(sum(error <= CLOSE for error in errors), len(errors))
        bounded = share(sum(excess <= CLOSE for excess in excesses), len(excesses))
        middle = f"{median(errors) * 100:.0f} points" if errors else "-"
        out.append(
            f"| {name} | {len(errors)} | {_percent(close)} | {middle} | {len(excesses)} |"
            f" {_percent(bounded)} |"
        )
    return "\n".join(out) + "\n"


def _unqueued(scores: Runs) -> str:
    unqueued = [
        s.played.plan.seed
        for s in scores
        for _, t in s.right
        if t.cause == COLLISION and t.natural and not t.queued_s
    ]
    return (
        "Right collisions at links without a queue of their own, which the definition includes:"
        f" {len(unqueued)}, in {len(set(unqueued))} runs.\n"
    )


def _not_injected() -> str:
    """The causes of fabmon that no run has."""
    missing = sorted(set(CAUSES) - set(FAULTS))
    return (
        f"Causes that are never injected: {', '.join(missing)}. `congested_path` is what hosts see"
        " of queues between switches, `packet_loss` of degraded links there that no watched port"
        " counts; the simulator has no data for the others.\n"
    )


def _header(*columns: str) -> str:
    return f"| {' | '.join(columns)} |\n|---|" + "---:|" * (len(columns) - 1)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
