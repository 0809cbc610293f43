"""What is asked of the findings, and whether these runs reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from tests.score.figures import (
    AXES,
    CLOSE,
    Figures,
    Runs,
    Scores,
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
    with_rdma_counters,
)
from tests.score.size import Size
from tests.world.faults.registry import FAULTS

VALUE, CASES_OF_VALUE = 0.95, 200
CAUSE, CASES_OF_CAUSE = 0.90, 40
ENOUGH = 40
"""Cases below which no figure counts as reached."""
NAMED = 4
"""Values of too few cases that a line names."""
HEALTHY_RUNS, HEALTHY_SHARE = 100, 0.01
"""Fewer healthy runs cannot show one in a hundred."""
TRAINING_HOURS, TRAINING_FALSE = 24.0, 1
FLAG_S = (("0 s", 5.0), ("0.2 s", 5.0), ("0.5 s", 10.0))
ALONE_PRECISION, ALONE_RECALL = 0.95, 0.9
RIGHT_OF_SURE, SURE_OF_RIGHT = 0.9, 0.5
CONFIDENCES = ((0.8, 0.75, 0.95), (0.9, 0.93, 1.0))
"""From which confidence on, to the next or 1, which share of the findings is right, from and to."""
CLOSE_LOSSES = 0.9
LINES, NUMBERS = 2500, 40

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Asked:
    """A line of what is asked, what these runs reach, and whether that is enough."""

    text: str
    reached: str
    is_reached: bool


def asked(scores: Runs, of: Size) -> list[Asked]:
    """Every line, of runs as a commit judged them, and of what decides there."""
    return [
        *_healthy(scores),
        *_of_axes(watched(scores)),
        *_of_causes(watched(scores)),
        *_times(watched(scores)),
        *_alone(with_rdma_counters(hosts_alone(scores))),
        *_calibration(scores),
        *_reliability(scores),
        *_losses(scores),
        _smaller(of),
    ]


def _healthy(scores: Runs) -> Iterator[Asked]:
    short = health([s for s in scores if not is_training_hour(s)])
    hours = health([s for s in scores if is_training_hour(s)])
    enough = short.runs >= HEALTHY_RUNS
    yield Asked(
        f"Healthy runs with a wrong finding: at most {HEALTHY_SHARE:.0%} of {HEALTHY_RUNS} or more",
        f"{short.alarmed} of {short.runs}",
        enough and short.alarmed <= HEALTHY_SHARE * short.runs,
    )
    critical = short.critical_runs + hours.critical_runs
    yield Asked(
        "Healthy runs with a critical finding: none",
        f"{critical} of {short.runs + hours.runs}",
        enough and not critical,
    )
    yield Asked(
        f"Wrong findings in {TRAINING_HOURS:.0f} hours of healthy training: at most"
        f" {TRAINING_FALSE}",
        f"{hours.false} in {hours.hours:.0f} hours",
        hours.hours >= TRAINING_HOURS and hours.false <= TRAINING_FALSE,
    )


def _of_axes(scores: Runs) -> Iterator[Asked]:
    values = _by_axis_value(scores, figures)
    title = "Switches watched, every axis value"
    yield _lowest(
        f"{title}: precision", {n: (f.precision, f.findings) for n, f in values.items()}, VALUE
    )
    yield _lowest(f"{title}: recall", {n: (f.recall, f.faults) for n, f in values.items()}, VALUE)
    yield _fewest(title, values, CASES_OF_VALUE)


def _of_causes(scores: Runs) -> Iterator[Asked]:
    """Precision of all causes that are reported, recall of all that are injected."""
    values = {cause: figures(scores, cause) for cause in {*causes(scores), *FAULTS}}
    injected = {cause: values[cause] for cause in FAULTS}
    title = "Switches watched, every cause"
    reported = {n: (f.precision, f.findings) for n, f in sorted(values.items()) if f.findings}
    yield _lowest(f"{title}: precision", reported, CAUSE)
    yield _lowest(f"{title}: recall", {n: (f.recall, f.faults) for n, f in injected.items()}, CAUSE)
    yield _fewest(title, injected, CASES_OF_CAUSE)


def _by_axis_value(scores: Runs, of_runs: Callable[[Runs], _Kind]) -> dict[str, _Kind]:
    return {
        f"{axis.lower()} {value}": of_runs(runs)
        for axis, of in AXES.items()
        for value, runs in by_value(scores, of).items()
    }


def _lowest(text: str, values: dict[str, tuple[float | None, int]], limit: float) -> Asked:
    """Whether all values, each of so many cases, are at least `limit`: the lowest, how many are
    not, and which are of too few cases to say."""
    known = {name: value for name, (value, _) in values.items() if value is not None}
    few = sorted(name for name, (_, cases) in values.items() if cases < ENOUGH)
    below = sum(value < limit for value in known.values())
    said = []
    if known:
        name = min(known, key=lambda name: known[name])
        said.append(f"{known[name]:.3f} ({name})")
    if below:
        said.append(f"{below} of {len(values)} below")
    if few:
        names = ", ".join(few) if len(few) <= NAMED else f"{len(few)} of {len(values)}"
        said.append(f"fewer than {ENOUGH} cases of {names}")
    is_reached = bool(known) and not below and not few
    return Asked(f"{text} {limit:.2f} or more", "; ".join(said) or "-", is_reached)


def _fewest(title: str, values: dict[str, Figures], cases: int) -> Asked:
    name = min(values, key=lambda name: values[name].faults, default="")
    fewest = values[name].faults if name else 0
    below = sum(each.faults < cases for each in values.values())
    return Asked(
        f"{title}: {cases} faults or more",
        f"{fewest} ({name or 'no runs'})" + (f"; {below} of {len(values)} below" if below else ""),
        fewest >= cases,
    )


def _times(scores: Runs) -> Iterator[Asked]:
    runs = by_value(scores, AXES["Skew"])
    for skew, limit in FLAG_S:
        times = injected(runs.get(skew, []))
        yield Asked(
            f"Switches watched, injected faults, skew {skew}: median time to flag {limit:g} s or"
            " less",
            f"{median(times):.1f} s of {len(times)}" if times else "-",
            len(times) >= ENOUGH and median(times) <= limit,
        )


def _alone(scores: Runs) -> Iterator[Asked]:
    mine = figures(scores)
    for kind, value, of, limit in (
        ("precision", mine.precision, mine.findings, ALONE_PRECISION),
        ("recall", mine.recall, mine.faults, ALONE_RECALL),
    ):
        yield Asked(
            f"Hosts alone, RoCE and InfiniBand: {kind} {limit:.1f} or more",
            "-" if value is None else f"{value:.3f} of {of}",
            value is not None and value >= limit and of >= ENOUGH,
        )


def _calibration(scores: Runs) -> Iterator[Asked]:
    values = _by_axis_value(scores, calibration)
    yield _lowest(
        "Findings with a confidence of 0.9 or more, every axis value: share right",
        {name: (each.kept, each.sure) for name, each in values.items()},
        RIGHT_OF_SURE,
    )
    yield _lowest(
        "Right findings, every axis value: share with a confidence of 0.9 or more",
        {name: (each.said, each.right) for name, each in values.items()},
        SURE_OF_RIGHT,
    )


def _losses(scores: Runs) -> Iterator[Asked]:
    mine = losses(scores)
    points = f"{CLOSE * 100:.0f} points"
    yield _share_of_losses(
        f"Lost bandwidth that is measured: within {points} of the simulator's",
        mine.close,
        mine.measured,
    )
    yield _share_of_losses(
        f"Lost bandwidth said as *up to*: the simulator's is at most {points} more",
        mine.held,
        mine.up_to,
    )


def _share_of_losses(text: str, right: float | None, more: Sequence[float]) -> Asked:
    return Asked(
        f"{text}: {CLOSE_LOSSES:.0%} of collisions",
        "-" if right is None else f"{right:.0%} of {len(more)}, {points_more(more)}",
        right is not None and right >= CLOSE_LOSSES and len(more) >= ENOUGH,
    )


def _reliability(scores: Runs) -> Iterator[Asked]:
    every = confidences(scores)
    for (low, least, most), high in zip(CONFIDENCES, (CONFIDENCES[1][0], 1.01), strict=True):
        some = [is_right for said, is_right in every if low <= said < high]
        right = share(sum(some), len(some))
        yield Asked(
            f"Findings with a confidence of {low} to {min(high, 1.0)}: right in {least:.0%} to"
            f" {most:.0%}",
            "-" if right is None else f"{right:.0%} of {len(some)}",
            right is not None and least <= right <= most and len(some) >= ENOUGH,
        )


def _smaller(of: Size) -> Asked:
    return Asked(
        f"What decides about traffic causes: at most {LINES} lines and {NUMBERS} numbers",
        f"{of.lines} and {of.thresholds}",
        of.lines <= LINES and of.thresholds <= NUMBERS,
    )


def asked_table(scores: Scores, sizes: Mapping[str, Size]) -> str:
    """The lines as a Markdown table, with what each commit reaches."""
    columns = [asked(runs, sizes[name]) for name, runs in scores.items()]
    out = [
        "| Asked |" + "".join(f" {name} | |" for name in scores),
        "|---|" + "---|---|" * len(scores),
    ]
    for line in zip(*columns, strict=True):
        cells = [f" {a.reached} | {'yes' if a.is_reached else 'no'} |" for a in line]
        out.append(f"| {line[0].text} |{''.join(cells)}")
    return "\n".join(out) + "\n"
