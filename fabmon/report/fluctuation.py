"""Fluctuation as a table: by rail, link, pair, job, or by hour and day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fabmon.analysis.fluctuation.results import (
    ALL,
    JOB,
    LINK,
    PAIR,
    RAIL,
    Fluctuation,
    Foreign,
    Slot,
    Step,
    Subject,
)
from fabmon.fabric.wording import bit_rate
from fabmon.report.records import utc
from fabmon.report.scene_report import aligned

HOUR, WEEKDAY = "hour", "weekday"

NUMBERS = ("MEDIAN", "P5", "P95", "CoV", "SAMPLES", "COMM", "DRIFT/h")
"""What is told of a subject, as columns: samples are those that count, COMM the share of time that
is communication.
"""

NO_STEP = "No step of the level was found."
FOREIGN = "Of what leaves send up, not from our hosts"

_BLOCKS = "▁▂▃▄▅▆▇█"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_STEPS = 12


def fluctuation_table(found: Fluctuation, by: str) -> str:
    """The whole report: time, table, steps, drifts, other people's share, what was not seen."""
    return "\n".join(_lines(found, by))


def over(found: Fluctuation) -> str:
    """What all of it is of: the time, the samples, which bandwidth."""
    begin, end = (utc(ns).strftime("%Y-%m-%d %H:%M:%SZ") for ns in (found.from_ns, found.until_ns))
    hours = found.watched_s / 3600
    return (
        f"{begin} to {end}, {hours:.3g} h watched, sampled every {found.interval_s:g} s. "
        "Bandwidth in communication phases, one direction."
    )


def _lines(found: Fluctuation, by: str) -> Iterator[str]:
    yield over(found)
    yield ""
    if by in (HOUR, WEEKDAY):
        yield from _slots(found, by)
    else:
        yield from _subjects(found, by)
    yield from _steps(found, by)
    yield from _foreign(found.foreign)
    yield from (f"Not seen: {note}." for note in found.notes)


def _subjects(found: Fluctuation, by: str) -> Iterator[str]:
    subjects = found.of(by)
    if not subjects:
        yield f"no {by} was found"
        return
    shown = [*found.of(ALL), *subjects]
    own = ["ITERATION"] if by == JOB else []
    head = [by.upper(), *own, *NUMBERS, "OVER THE TIME"]
    rows = [
        [name_of(each), *([iteration(each)] if own else []), *numbers(each), strip(each)]
        for each in shown
    ]
    yield from aligned([head, *rows], left=1)


def name_of(subject: Subject) -> str:
    """A link that is told of by who receives says so."""
    return f"{subject.name} {subject.way}" if subject.way == "rx" else subject.name


def iteration(subject: Subject) -> str:
    """Its length and how that varies; a dot where there is no rhythm."""
    its = subject.iterations
    return "·" if its is None else f"{its.median_s:.2f} s ({its.p5_s:.2f}-{its.p95_s:.2f})"


def numbers(subject: Subject) -> list[str]:
    """What the columns of NUMBERS say of it."""
    spread = subject.spread
    if spread is None:
        return ["·", "·", "·", "·", "0", "0 %", "·"]
    least = "" if spread.whole else "≥ "
    return [
        least + bit_rate(spread.median_bps),
        bit_rate(spread.p5_bps),
        bit_rate(spread.p95_bps),
        f"{spread.cov * 100:.1f} %",
        str(spread.samples),
        f"{spread.share * 100:.0f} %",
        _drift(subject),
    ]


def _drift(subject: Subject) -> str:
    drift = subject.drift
    if drift is None:
        return "·"
    if not drift.is_sure:
        return "none"
    return f"{drift.per_hour * 100:+.2f} % ({drift.low * 100:+.2f} to {drift.high * 100:+.2f})"


def strip(subject: Subject) -> str:
    """The medians over the time as blocks, from nothing to the highest; a dot where none is."""
    top = max((value for value in subject.strip if value is not None), default=0.0)
    return "".join(
        "·" if value is None else _BLOCKS[min(7, int(value / top * 8))] if top > 0 else _BLOCKS[0]
        for value in subject.strip
    )


def _slots(found: Fluctuation, by: str) -> Iterator[str]:
    label = {HOUR: f"HOUR ({found.zone})", WEEKDAY: f"DAY ({found.zone})"}[by]
    subjects = found.of(ALL)
    if not subjects:
        yield "no rail was found"
        return
    slots = subjects[0].hours if by == HOUR else subjects[0].weekdays
    top = max((slot.median_bps for slot in slots), default=0.0)
    rows = [_slot(slot, by, top) for slot in slots]
    head = [label, "MEDIAN", "P5", "P95", "CoV", "MINUTES", ""]
    yield f"{subjects[0].name}, means of 10 s:"
    yield from aligned([head, *rows], left=1)


def _slot(slot: Slot, by: str, top: float) -> Sequence[str]:
    return [
        f"{slot.slot:02}:00" if by == HOUR else DAYS[slot.slot],
        bit_rate(slot.median_bps),
        bit_rate(slot.p5_bps),
        bit_rate(slot.p95_bps),
        f"{slot.cov * 100:.1f} %",
        f"{slot.cells / 6:.0f}",
        "█" * round(20 * slot.median_bps / top) if top > 0 else "",
    ]


def _steps(found: Fluctuation, by: str) -> Iterator[str]:
    shown, more = largest_steps(found, stepped_kinds(by), _MOST_STEPS)
    yield ""
    yield "Steps of the level:" if shown else NO_STEP
    for step, subject in shown:
        yield f"  {'  '.join(step_words(step, subject))}"
    if more:
        yield f"  and {more} smaller ones"


def stepped_kinds(by: str) -> tuple[str, ...]:
    """The kinds of subjects whose steps and drift the table tells."""
    return (ALL, JOB, by) if by in (RAIL, LINK, PAIR) else (ALL, JOB)


def largest_steps(
    found: Fluctuation, kinds: Iterable[str], most: int
) -> tuple[list[tuple[Step, Subject]], int]:
    """The largest steps of some kinds of subjects, by time, and how many others there are."""
    told = [
        (step, subject)
        for kind in dict.fromkeys(kinds)
        for subject in found.of(kind)
        for step in subject.steps
    ]
    largest = sorted(told, key=lambda each: -abs(each[0].change))[:most]
    return sorted(largest, key=lambda each: each[0].at_ns), len(told) - len(largest)


def step_words(step: Step, subject: Subject) -> tuple[str, str, str, str]:
    """When, of what, from which level to which, and by how much."""
    return (
        f"{utc(step.at_ns):%Y-%m-%d %H:%M:%SZ} ± {step.within_s:.0f} s",
        name_of(subject),
        f"{bit_rate(step.before_bps)} -> {bit_rate(step.after_bps)}",
        f"{step.change * 100:+.1f} %",
    )


def _foreign(shares: Sequence[Foreign]) -> Iterator[str]:
    if not shares:
        return
    yield ""
    yield f"{FOREIGN}:"
    yield from (f"  {each.switch}: {foreign_share(each)}" for each in shares)


def foreign_share(each: Foreign) -> str:
    """`8 to 12 % of 76.8 TB`, or why that is not known."""
    if each.low is None or each.high is None:
        return f"not known: {each.unseen}"
    one, other = (f"{share * 100:.0f}" for share in (each.low, each.high))
    share = f"{one} %" if one == other else f"{one} to {other} %"
    return f"{share} of {each.sent_bytes / 1e12:.3g} TB"
