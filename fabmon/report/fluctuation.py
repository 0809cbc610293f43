"""Bandwidth variability as a table: by rail, link, pair, job, or by hour and day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fabmon.analysis.fluctuation.results import (
    ALL,
    JOB,
    LINK,
    PAIR,
    PARTITION,
    RAIL,
    USER,
    Fluctuation,
    Foreign,
    Slot,
    Step,
    Subject,
)
from fabmon.fabric.time_wording import date_time, duration, interval, measured
from fabmon.fabric.wording import (
    ABSENT,
    bit_rate,
    byte_count,
    percent,
    percent_change,
    percent_range,
    rounded_percent,
)
from fabmon.report.output import aligned

HOUR, WEEKDAY = "hour", "weekday"

NUMBERS = ("MEDIAN", "P5", "P95", "CoV", "SAMPLES", "ACTIVE", "DRIFT/h")
"""Columns of a subject: SAMPLES that count, and ACTIVE, the share of time with traffic."""

NO_STEP = "No step of the level was found."
FOREIGN = "Share of what leaves send up that is not from our hosts"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_BLOCKS = "▁▂▃▄▅▆▇█"
_MAX_STEPS = 12


def fluctuation_table(found: Fluctuation, by: str) -> str:
    """The whole report: time, table, steps, foreign traffic, and what was not observable."""
    return "\n".join(_lines(found, by))


def scope(found: Fluctuation) -> str:
    """The time, the number of samples, and the kind of bandwidth of a study."""
    if not found.interval_s:
        return "No counter of a node is recorded in this time: nothing was measured."
    watched = duration(found.watched_s)
    return (
        f"{date_time(found.from_ns)} to {date_time(found.until_ns)}, {watched} watched, "
        f"sampled every {interval(found.interval_s)}. Bandwidth in communication phases, one "
        "direction."
    )


def _lines(found: Fluctuation, by: str) -> Iterator[str]:
    yield scope(found)
    if not found.interval_s:
        return
    yield ""
    if by in (HOUR, WEEKDAY):
        yield from _slots(found, by)
    else:
        yield from _subjects(found, by)
    yield from _steps(found, by)
    if found.foreign:
        yield ""
        yield f"{FOREIGN}:"
        yield from (f"  {each.switch}: {foreign_share(each)}" for each in found.foreign)
    yield from (f"Not observable: {note}." for note in found.notes)


def _subjects(found: Fluctuation, by: str) -> Iterator[str]:
    subjects = found.of(by)
    if not subjects:
        unknown = ": the recording has no jobs of a scheduler" if by in (USER, PARTITION) else ""
        yield f"no {by} was found{unknown}"
        return
    has_iterations = by == JOB
    head = [by.upper(), *(["STEP TIME"] if has_iterations else []), *NUMBERS, "OVER TIME"]
    rows = [
        [each.label, *([step_time(each)] if has_iterations else []), *numbers(each), strip(each)]
        for each in (*found.of(ALL), *subjects)
    ]
    yield f"Samples of {interval(found.interval_s)}:"
    yield from aligned([head, *rows], left=1)


def step_time(subject: Subject) -> str:
    """`4.10 s (3.89 s to 4.34 s)`: the median step time of a job, its 5th and 95th percentile."""
    its = subject.iterations
    return (
        ABSENT
        if its is None
        else f"{measured(its.median_s)} ({measured(its.p5_s)} to {measured(its.p95_s)})"
    )


def numbers(subject: Subject) -> list[str]:
    """The cells of the columns NUMBERS."""
    spread = subject.spread
    if spread is None:
        return [ABSENT, ABSENT, ABSENT, ABSENT, "0", "0 %", ABSENT]
    bound = "" if spread.whole else "≥ "
    return [
        bound + bit_rate(spread.median_bps),
        bit_rate(spread.p5_bps),
        bit_rate(spread.p95_bps),
        percent(spread.cov),
        str(spread.samples),
        rounded_percent(spread.share),
        _drift(subject),
    ]


def _drift(subject: Subject) -> str:
    drift = subject.drift
    if drift is None:
        return ABSENT
    if not drift.is_sure:
        return "none"
    return f"{drift.per_hour * 100:+.2f} % ({drift.low * 100:+.2f} to {drift.high * 100:+.2f})"


def strip(subject: Subject) -> str:
    """The medians over time as blocks, from 0 to the highest; a dot where there is none."""
    top = max((part.median_bps for part in subject.strip if part is not None), default=0.0)
    return "".join(
        ABSENT
        if part is None
        else _BLOCKS[min(7, int(part.median_bps / top * 8)) if top > 0 else 0]
        for part in subject.strip
    )


def _slots(found: Fluctuation, by: str) -> Iterator[str]:
    """Statistics of all rails, by hour or day."""
    subjects = found.of(ALL)
    if not subjects:
        yield "no rail was found"
        return
    slots = subjects[0].hours if by == HOUR else subjects[0].weekdays
    label = "HOUR" if by == HOUR else "DAY"
    top = max((slot.median_bps for slot in slots), default=0.0)
    head = [f"{label} ({found.zone})", "MEDIAN", "P5", "P95", "CoV", "MINUTES", ""]
    yield f"{subjects[0].name}, {found.means}:"
    yield from aligned([head, *(_slot(slot, by, top) for slot in slots)], left=1)


def _slot(slot: Slot, by: str, top: float) -> Sequence[str]:
    return [
        f"{slot.slot:02}:00" if by == HOUR else DAYS[slot.slot],
        bit_rate(slot.median_bps),
        bit_rate(slot.p5_bps),
        bit_rate(slot.p95_bps),
        percent(slot.cov),
        f"{slot.cells / 6:.0f}",
        "█" * round(20 * slot.median_bps / top) if top > 0 else "",
    ]


def _steps(found: Fluctuation, by: str) -> Iterator[str]:
    shown, others = largest_steps(found, stepped_kinds(by), _MAX_STEPS)
    yield ""
    yield f"Steps of the level, of {found.means}:" if shown else NO_STEP
    for step, subject in shown:
        yield f"  {'  '.join(step_cells(step, subject))}"
    if others:
        yield f"  and {others} smaller ones"


def stepped_kinds(by: str) -> tuple[str, ...]:
    """The kinds of subjects whose steps and drift the table shows."""
    return (ALL, JOB, by) if by in (RAIL, LINK, PAIR, USER, PARTITION) else (ALL, JOB)


def largest_steps(
    found: Fluctuation, kinds: Iterable[str], most: int
) -> tuple[list[tuple[Step, Subject]], int]:
    """The largest steps of some kinds of subjects in order of time, and the number of others."""
    steps = [
        (step, subject)
        for kind in dict.fromkeys(kinds)
        for subject in found.of(kind)
        for step in subject.steps
    ]
    largest = sorted(steps, key=lambda each: -abs(each[0].change))[:most]
    return sorted(largest, key=lambda each: each[0].at_ns), len(steps) - len(largest)


def step_cells(step: Step, subject: Subject) -> tuple[str, str, str, str]:
    """The time of a step, its subject, the levels before and after, and the change."""
    return (
        f"{date_time(step.at_ns)} ± {step.within_s:.0f} s",
        subject.label,
        f"{bit_rate(step.before_bps)} -> {bit_rate(step.after_bps)}",
        percent_change(step.change),
    )


def foreign_share(each: Foreign) -> str:
    """`8.3 to 12 % of 76.8 TB`, or why it is not known."""
    if each.low is None or each.high is None:
        return f"not known: {each.unseen}"
    return f"{percent_range(each.low, each.high)} of {byte_count(each.sent_bytes)}"
