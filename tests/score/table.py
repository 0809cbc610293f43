"""The score of many runs as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median

from tests.score.match import Score
from tests.world.job_mixes import DAY_S

COLLISION = "ecmp_collision"


_HEAD = """# How good the findings are

Made by `make score` (`python -m tests.score`): {healthy} runs of healthy fabrics, {faults} with
an injected fault, {hours} hours of healthy training (1 % marks, skew 0.2 s); seeds from {first} on.
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
slowed two senders for 6 s and cost 10 %: a link that is as full as another one that holds its flows
has none. In a ring all hosts wait for a straggler: their traffic does not show which one it
is, and it need not be found.

## Figures

"""


def page(scores: Sequence[Score], first: int) -> str:
    """docs/score.md."""
    plans = [score.played.plan for score in scores]
    hours = sum(plan.seconds == DAY_S for plan in plans)
    faults = sum(bool(plan.fault) for plan in plans)
    head = _HEAD.format(
        healthy=len(plans) - hours - faults, faults=faults, hours=hours, first=first
    )
    return head + "\n" + report(scores)


def report(scores: Sequence[Score]) -> str:
    """All tables."""
    axes: tuple[tuple[str, Callable[[Score], str]], ...] = (
        ("Topology", lambda s: s.played.plan.topology),
        ("Transport", lambda s: s.played.plan.transport),
        ("Marks", lambda s: f"{s.played.plan.marks:.1%}"),
        ("Skew", lambda s: f"{s.played.plan.skew_s:g} s"),
        ("Workload", lambda s: s.played.plan.workload),
    )
    parts = [_summary(scores)]
    for title, of in axes:
        values = sorted({of(s) for s in scores})
        lines = [(value, [s for s in scores if of(s) == value]) for value in values]
        parts.append(_axis(title, lines))
    parts += [_causes(scores), _calibration(scores)]
    return "\n".join(parts)


def numbers(scores: Sequence[Score]) -> dict[str, float | int | None]:
    """The figures of a set of runs."""
    right = sum(len(s.right) for s in scores)
    wrong = sum(len(s.wrong) for s in scores)
    found = [after for s in scores for _, after in s.found]
    missed = sum(len(s.missed) for s in scores)
    healthy = [s for s in scores if s.healthy]
    hours = sum(s.played.plan.seconds for s in healthy) / 3600
    alarmed = sum(bool(s.wrong) for s in healthy)
    false = sum(len(s.wrong) for s in healthy)
    return {
        "runs": len(scores),
        "findings": right + wrong,
        "precision": right / (right + wrong) if right + wrong else None,
        "faults": len(found) + missed,
        "recall": len(found) / (len(found) + missed) if found or missed else None,
        "median_s": median(found) if found else None,
        "healthy": len(healthy),
        "healthy_with_finding": alarmed / len(healthy) if healthy else None,
        "false_per_hour": false / hours if hours else None,
    }


def _axis(title: str, lines: Iterable[tuple[str, Sequence[Score]]]) -> str:
    head = (
        f"| {title} | runs | findings | precision | faults | recall | median time |"
        " healthy runs | with a finding | false per fabric-hour |\n|---|" + "---:|" * 9
    )
    out = [head]
    for value, scores in lines:
        n = numbers(scores)
        out.append(
            f"| {value} | {n['runs']} | {n['findings']} | {_share(n['precision'])} |"
            f" {n['faults']} | {_share(n['recall'])} | {_seconds(n['median_s'])} | {n['healthy']} |"
            f" {_percent(n['healthy_with_finding'])} | {_number(n['false_per_hour'])} |"
        )
    return "\n".join(out) + "\n"


def _summary(scores: Sequence[Score]) -> str:
    lines = [("all", scores)]
    lines.append(("healthy", [s for s in scores if s.healthy]))
    lines.append(("with a fault", [s for s in scores if not s.healthy]))
    return _axis("Runs", lines)


def _causes(scores: Sequence[Score]) -> str:
    causes = sorted(
        {r.cause for s in scores for r in s.wrong}
        | {r.cause for s in scores for r, _ in s.right}
        | {t.cause for s in scores for t in s.missed}
        | {t.cause for s in scores for t, _ in s.found}
    )
    out = [
        "| Cause | findings | right | precision | faults | recall | median time | p90 |\n|---|"
        + "---:|" * 7
    ]
    for cause in causes:
        right = sum(r.cause == cause for s in scores for r, _ in s.right)
        wrong = sum(r.cause == cause for s in scores for r in s.wrong)
        times = sorted(after for s in scores for t, after in s.found if t.cause == cause)
        missed = sum(t.cause == cause for s in scores for t in s.missed)
        out.append(
            f"| {cause} | {right + wrong} | {right} |"
            f" {_share(right / (right + wrong) if right + wrong else None)} |"
            f" {len(times) + missed} |"
            f" {_share(len(times) / (len(times) + missed) if times or missed else None)} |"
            f" {_seconds(median(times) if times else None)} |"
            f" {_seconds(times[int(len(times) * 0.9)] if times else None)} |"
        )
    return "\n".join(out) + "\n"


def _calibration(scores: Sequence[Score]) -> str:
    pairs = [(r.confidence, True) for s in scores for r, _ in s.right]
    pairs += [(r.confidence, False) for s in scores for r in s.wrong]
    out = ["| Confidence | findings | right |\n|---|---:|---:|"]
    edges = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
    for low, high in pairwise(edges):
        inside = [ok for confidence, ok in pairs if low <= confidence < high]
        share = _percent(sum(inside) / len(inside) if inside else None)
        out.append(f"| {low:.1f} to {min(high, 1.0):.1f} | {len(inside)} | {share} |")
    right = [confidence for confidence, ok in pairs if ok]
    sure = sum(c >= 0.9 for c in right) / len(right) if right else None
    errors = [
        abs(r.lost - t.lost) for s in scores for r, t in s.right if r.cause == t.cause == COLLISION
    ]
    close = sum(e <= 0.1 for e in errors) / len(errors) if errors else None
    out.append("")
    out.append(f"Right findings with a confidence of 0.9 or more: {_percent(sure)}.")
    out.append(
        f"Lost bandwidth of collisions within 10 points of the model's: {_percent(close)}"
        f" of {len(errors)}"
        + (f" (median error {median(errors) * 100:.0f} points)." if errors else ".")
    )
    unqueued = [
        (s.played.plan.seed, t)
        for s in scores
        for _, t in s.right
        if t.cause == COLLISION and t.natural and not t.queued_s
    ]
    out.append(
        f"Right collisions at links without a queue of their own, which the definition includes:"
        f" {len(unqueued)}, in {len({seed for seed, _ in unqueued})} runs."
    )
    return "\n".join(out) + "\n"


def _share(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _seconds(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.2f}"
