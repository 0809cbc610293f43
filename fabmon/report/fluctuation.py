"""Fluctuation as a table: by rail, link, pair, job, or by hour and day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabmon.analysis.fluctuation.records import ALL, Fluctuation, Foreign, Slot, Subject
from fabmon.report.records import utc
from fabmon.report.table import aligned
from fabmon.report.units import bits

HOUR, WEEKDAY = "hour", "weekday"

_BLOCKS = "▁▂▃▄▅▆▇█"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_STEPS = 12


def fluctuation_table(found: Fluctuation, by: str) -> str:
    """The whole report: time, table, steps, drifts, other people's share, what was not seen."""
    return "\n".join(_lines(found, by))


def _lines(found: Fluctuation, by: str) -> Iterator[str]:
    begin, end = (utc(ns).strftime("%Y-%m-%d %H:%M:%SZ") for ns in (found.from_ns, found.until_ns))
    hours = found.watched_s / 3600
    yield (
        f"{begin} to {end}, {hours:.3g} h watched, sampled every {found.interval_s:g} s. "
        "Bandwidth in communication phases, one direction."
    )
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
    head = [by.upper(), "MEDIAN", "P5", "P95", "CoV", "SAMPLES", "COMM", "DRIFT/h", "OVER THE TIME"]
    rows = [[*_name(each, by), *_cells(each)] for each in shown]
    extra = len(_name(shown[0], by)) - 1
    if extra:
        head.insert(1, "ITERATION")
    yield from aligned([head, *rows], left=1)


def _name(subject: Subject, by: str) -> list[str]:
    name = f"{subject.name} {subject.way}" if subject.way == "rx" else subject.name
    if by != "job":
        return [name]
    its = subject.iterations
    return [name, "·" if its is None else f"{its.median_s:.2f} s ({its.p5_s:.2f}-{its.p95_s:.2f})"]


def _cells(subject: Subject) -> list[str]:
    spread = subject.spread
    if spread is None:
        return ["·", "·", "·", "·", "0", "0 %", "·", ""]
    least = "" if spread.whole else "≥ "
    return [
        least + bits(spread.median_bps),
        bits(spread.p5_bps),
        bits(spread.p95_bps),
        f"{spread.cov * 100:.1f} %",
        str(spread.samples),
        f"{spread.share * 100:.0f} %",
        _drift(subject),
        strip(subject),
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
        f"{slot.slot:02}:00" if by == HOUR else _DAYS[slot.slot],
        bits(slot.median_bps),
        bits(slot.p5_bps),
        bits(slot.p95_bps),
        f"{slot.cov * 100:.1f} %",
        f"{slot.cells / 6:.0f}",
        "█" * round(20 * slot.median_bps / top) if top > 0 else "",
    ]


def _steps(found: Fluctuation, by: str) -> Iterator[str]:
    kinds = (ALL, "job", by) if by in ("rail", "link", "pair") else (ALL, "job")
    told = [
        (step, subject)
        for kind in dict.fromkeys(kinds)
        for subject in found.of(kind)
        for step in subject.steps
    ]
    if not told:
        yield ""
        yield "No step of the level was found."
        return
    yield ""
    yield "Steps of the level:"
    largest = sorted(told, key=lambda each: -abs(each[0].change))[:_MOST_STEPS]
    for step, subject in sorted(largest, key=lambda each: each[0].at_ns):
        yield (
            f"  {utc(step.at_ns):%Y-%m-%d %H:%M:%SZ} ± {step.within_s:.0f} s  {subject.name}  "
            f"{bits(step.before_bps)} -> {bits(step.after_bps)}  {step.change * 100:+.1f} %"
        )
    if len(told) > len(largest):
        yield f"  and {len(told) - len(largest)} smaller ones"


def _foreign(shares: Sequence[Foreign]) -> Iterator[str]:
    if not shares:
        return
    yield ""
    yield "Of what leaves send up, not from our hosts:"
    for each in shares:
        if each.low is None or each.high is None:
            yield f"  {each.switch}: not known: {each.unseen}"
        else:
            sent = f"{each.sent_bytes / 1e12:.3g} TB"
            yield f"  {each.switch}: {_range(each.low, each.high)} of {sent}"


def _range(low: float, high: float) -> str:
    one, other = f"{low * 100:.0f}", f"{high * 100:.0f}"
    return f"{one} %" if one == other else f"{one} to {other} %"
