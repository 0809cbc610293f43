"""The section on how steady bandwidth is: what `fabmon fluctuate` tells, with its pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabmon.analysis.fluctuation.results import (
    ALL,
    JOB,
    KINDS,
    LINK,
    PAIR,
    RAIL,
    Fluctuation,
    Slot,
    Step,
    Subject,
)
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wording import bit_rate
from fabmon.report.fluctuation import (
    DAYS,
    FOREIGN,
    NO_STEP,
    NUMBERS,
    foreign_share,
    largest_steps,
    numbers,
    scope,
    step_cells,
    step_time,
)
from fabmon.report.page import markup
from fabmon.report.page.markup import CHART_LEFT, CHART_WIDTH, Markup, joined, table, tag

# Bandwidth by hour of the day and day of the week: a box an hour, a row a job or a rail.


_ROW, _BOX, _TOP = 62.0, 36.0, 18.0
_MOST_ROWS = 12
_WIDEST = 40.0
_WEEK = 7


def by_hour(found: Fluctuation) -> Markup:
    """24 boxes in a row: from the 5th to the 95th percentile, the mark is the median."""
    return _strips(found, [f"{hour:02}" for hour in range(24)], lambda each: each.hours)


def by_weekday(found: Fluctuation) -> Markup | None:
    """The same of the days of the week, where there is more than one."""
    if all(len(each.weekdays) < 2 for each in found.subjects):
        return None
    return _strips(found, DAYS, lambda each: each.weekdays)


def _strips(
    found: Fluctuation, names: Sequence[str], slots: Callable[[Subject], Sequence[Slot]]
) -> Markup:
    rows = [each for kind in (ALL, JOB, RAIL) for each in found.of(kind) if slots(each)]
    if not rows:
        return tag("p", "Nothing communicated.", class_="muted")
    shown = rows[:_MOST_ROWS]
    width = (CHART_WIDTH - CHART_LEFT) / len(names)
    parts = [
        tag("text", name, x=CHART_LEFT + width * (place + 0.5), y=12, class_="axis middle")
        for place, name in enumerate(names)
    ]
    for number, subject in enumerate(shown):
        parts += _row(subject, slots(subject), _TOP + _ROW * number, width, len(names))
    more = len(rows) - len(shown)
    said = f" {more} more rails are left out here." if more else ""
    return tag(
        "figure",
        tag(
            "svg",
            *parts,
            viewBox=f"0 0 {CHART_WIDTH:g} {_TOP + _ROW * len(shown):g}",
            role="img",
            aria_label=f"bandwidth by {'day of the week' if len(names) == _WEEK else 'hour'}",
        ),
        tag(
            "figcaption",
            "Means of 10 s of communication, from nothing to the highest of a row; the number is "
            f"the median. Of a grey one nothing is known: no traffic, or nobody watched.{said}",
        ),
    )


def _row(
    subject: Subject, slots: Sequence[Slot], top: float, width: float, count: int
) -> list[Markup]:
    """Its name, and a box for each slot that there is."""
    highest = max(slot.p95_bps for slot in slots) or 1.0
    divisor, unit = next(
        ((d, u) for d, u in ((1e9, "Gb/s"), (1e6, "Mb/s")) if highest >= d), (1e3, "kb/s")
    )
    parts = [
        tag("text", subject.label[:22], x=0, y=top + 16, class_="name"),
        tag("text", f"{unit}, highest {bit_rate(highest)}", x=0, y=top + 30, class_="axis"),
    ]
    known = {slot.slot: slot for slot in slots}
    across = min(width - 4, _WIDEST)
    for place in range(count):
        left = CHART_LEFT + width * (place + 0.5) - across / 2
        slot = known.get(place)
        if slot is None:
            parts.append(tag("rect", x=left, y=top, width=across, height=_BOX, class_="unseen"))
            continue
        low, middle, high = (
            top + _BOX * (1 - value / highest)
            for value in (slot.p5_bps, slot.median_bps, slot.p95_bps)
        )
        said = (
            f"{subject.label}: median {bit_rate(slot.median_bps)}, 5th percentile "
            f"{bit_rate(slot.p5_bps)}, 95th {bit_rate(slot.p95_bps)}, CoV {slot.cov * 100:.1f} %, "
            f"{slot.cells / 6:.0f} min"
        )
        parts.append(
            tag(
                "g",
                tag("title", said),
                tag("rect", x=left, y=high, width=across, height=max(1, low - high), class_="band"),
                tag("rect", x=left, y=top + _BOX, width=across, height=1, class_="rail"),
                tag("rect", x=left, y=middle - 1, width=across, height=2.5, class_="tx"),
                tag(
                    "text",
                    f"{slot.median_bps / divisor:.3g}",
                    x=left + across / 2,
                    y=top + _BOX + 12,
                    class_="axis middle",
                ),
            )
        )
    return parts


# Bandwidth over the time, with the steps of its level marked and told.


_ROW_levels, _CURVE, _TOP_levels = 58.0, 38.0, 14.0
_MOST_ROWS_levels, _MOST_STEPS = 8, 20


def levels(found: Fluctuation) -> Markup:
    """Curves of all rails, of jobs, and of what else has steps; then the steps by time."""
    kinds = [kind for kind in KINDS if kind != LINK]
    shown, more = largest_steps(found, kinds, _MOST_STEPS)
    rows = [each for kind in (ALL, JOB) for each in found.of(kind) if each.spread is not None]
    rows += [each for _, each in shown if each not in rows]
    rows = list({(each.kind, each.name): each for each in rows}.values())[:_MOST_ROWS_levels]
    if not rows:
        return tag("p", "Nothing communicated.", class_="muted")
    told: Markup = tag("p", NO_STEP)
    if shown:
        cells = [step_cells(*each) for each in shown]
        told = joined(
            [
                tag("div", table(("TIME", "WHAT", "LEVEL", "CHANGE"), cells), class_="wide"),
                tag("p", f"{more} smaller ones are left out.", class_="muted") if more else None,
            ]
        )
    return joined([_curves(found, rows), told])


def _curves(found: Fluctuation, rows: list[Subject]) -> Markup:
    bottom = _TOP_levels + _ROW_levels * len(rows)
    parts = [markup.time_grid(found.from_ns, found.until_ns, 0, bottom)]
    for number, subject in enumerate(rows):
        parts += _row_levels(found, subject, _TOP_levels + _ROW_levels * number)
    return tag(
        "figure",
        tag(
            "svg",
            *parts,
            viewBox=f"0 0 {markup.CHART_WIDTH:g} {bottom + 18:g}",
            role="img",
            aria_label="bandwidth over the time, with its steps",
        ),
        tag(
            "figcaption",
            "Medians of equal parts of the time, of means of 10 s of communication, from nothing "
            "to the highest of a row. A line with a number is a step. Times are UTC.",
        ),
    )


def _row_levels(found: Fluctuation, subject: Subject, top: float) -> list[Markup]:
    highest = max((value for value in subject.strip if value is not None), default=0.0) or 1.0
    width = (markup.CHART_WIDTH - markup.CHART_LEFT) / max(1, len(subject.strip))
    base = top + _CURVE
    area, line, was_there = "", "", False
    for place, value in enumerate(subject.strip):
        if value is None:
            was_there = False
            continue
        x, y = markup.CHART_LEFT + place * width, base - _CURVE * value / highest
        area += f"M{x:.1f} {base:g}V{y:.1f}h{width:.2f}V{base:g}z"
        line += f"{'L' if was_there else 'M'}{x:.1f} {y:.1f}h{width:.2f}"
        was_there = True
    return [
        tag("text", subject.label[:22], x=0, y=top + 16, class_="name"),
        tag("text", f"highest {bit_rate(highest)}", x=0, y=top + 30, class_="axis"),
        tag("path", d=area, class_="band"),
        tag("path", d=line, class_="median"),
        tag("line", x1=markup.CHART_LEFT, x2=markup.CHART_WIDTH, y1=base, y2=base, class_="grid"),
        *(_mark(found, subject, step, top, base) for step in subject.steps),
    ]


def _mark(found: Fluctuation, subject: Subject, step: Step, top: float, base: float) -> Markup:
    x = markup.time_position(step.at_ns, found.from_ns, found.until_ns)
    is_right = x > markup.CHART_WIDTH * 0.85
    return tag(
        "g",
        tag("title", ", ".join(step_cells(step, subject))),
        tag("line", x1=x, x2=x, y1=top - 10, y2=base, class_="step"),
        tag(
            "text",
            f"{time_of_day(step.at_ns)[:5]} {step.change * 100:+.0f} %",
            x=x - 4 if is_right else x + 4,
            y=top - 2,
            class_="hot",
            text_anchor="end" if is_right else "start",
        ),
    )


_TITLES = {
    JOB: "Jobs",
    RAIL: "Rails",
    PAIR: "Pairs of switches, the least steady first",
    LINK: "Links, the least steady first",
}
_MOST = 30
_BAR, _TALL = 200.0, 16.0


def fluctuation(found: Fluctuation) -> Markup:
    """All of it; what there is nothing of is left out, what could not be seen is said."""
    if not found.subjects:
        return tag("p", "No rail and no link between switches was watched.", class_="muted")
    return joined(
        [
            tag("p", scope(found), class_="muted"),
            tag(
                "p",
                "Bars reach from the 5th to the 95th percentile, the mark in them is the median; "
                "the whole width is line rate, or the 95th percentile where that is not known. "
                "CoV is standard deviation over mean, COMM the share of time in communication.",
                class_="muted",
            ),
            _table(found, JOB),
            _table(found, RAIL),
            tag("h3", "Over the time, and steps of the level"),
            levels(found),
            tag("h3", f"By hour of the day, {found.zone}"),
            by_hour(found),
            by_weekday(found),
            _foreign(found),
            _table(found, PAIR),
            _table(found, LINK),
            *(tag("p", f"Not seen: {note}.", class_="muted") for note in found.notes),
        ]
    )


def _table(found: Fluctuation, kind: str) -> Markup | None:
    told = [each for each in found.of(kind) if each.spread is not None]
    if kind in (LINK, PAIR):
        told.sort(key=lambda each: -(each.spread.cov if each.spread else 0.0))
    if not told:
        return None
    if kind == RAIL:
        told = [*found.of(ALL), *told]
    shown = told[:_MOST]
    its = ("ITERATION",) if kind == JOB else ()
    head = (kind.upper(), "", *its, *NUMBERS)
    rows = [
        (each.label, _bar(each), *((step_time(each),) if its else ()), *numbers(each))
        for each in shown
    ]
    more = len(told) - len(shown)
    silent = len(found.of(kind)) - sum(each.spread is not None for each in found.of(kind))
    said = (
        [f"{more} others vary less" if kind in (LINK, PAIR) else f"{more} others"] if more else []
    )
    said += [f"{silent} never communicated"] if silent else []
    return joined(
        [
            tag("h3", _TITLES[kind]),
            tag("div", table(head, rows, 2), class_="wide steady"),
            tag("p", f"{'; '.join(said)}.", class_="muted") if said else None,
        ]
    )


def _bar(subject: Subject) -> Markup | None:
    """From the 5th to the 95th percentile, with the median in it."""
    spread = subject.spread
    if spread is None:
        return None
    top = max(spread.p95_bps, subject.line_rate_bps or 0.0, 1.0)
    low, middle, high = (
        value / top * _BAR for value in (spread.p5_bps, spread.median_bps, spread.p95_bps)
    )
    return tag(
        "svg",
        tag("rect", x=0, y=_TALL / 2 - 0.5, width=_BAR, height=1, class_="rail"),
        tag("rect", x=low, y=3, width=max(1.5, high - low), height=_TALL - 6, class_="band"),
        tag("rect", x=min(middle, _BAR - 3), y=0, width=3, height=_TALL, class_="tx"),
        viewBox=f"0 0 {_BAR:g} {_TALL:g}",
        class_="spread",
        role="img",
        aria_label=f"{subject.name}: 5th percentile, median, 95th percentile",
    )


def _foreign(found: Fluctuation) -> Markup | None:
    if not found.foreign:
        return None
    rows = []
    for each in found.foreign:
        bar: Markup | None = None
        if each.low is not None and each.high is not None:
            bar = tag(
                "svg",
                tag("rect", x=0, y=3, width=_BAR, height=_TALL - 6, class_="unseen"),
                tag("rect", x=0, y=3, width=_BAR * each.high, height=_TALL - 6, class_="band"),
                tag("rect", x=0, y=3, width=_BAR * each.low, height=_TALL - 6, class_="theirs"),
                viewBox=f"0 0 {_BAR:g} {_TALL:g}",
                class_="spread",
                role="img",
                aria_label=f"{each.switch}: {foreign_share(each)}",
            )
        rows.append((each.switch, bar, foreign_share(each)))
    return joined(
        [
            tag("h3", FOREIGN),
            tag(
                "p",
                "The strong part of a bar cannot be from our hosts, the pale part may be: what "
                "they sent may have stayed below the leaf. The whole width is all it sent up.",
                class_="muted",
            ),
            tag("div", table(("LEAF", "", "NOT OURS"), rows), class_="wide steady"),
        ]
    )
