"""The section on fluctuation: the tables of `fabmon fluctuate`, with drawings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabmon.analysis.fluctuation.results import (
    ALL,
    JOB,
    KINDS,
    LINK,
    PAIR,
    PARTITION,
    RAIL,
    USER,
    Fluctuation,
    Slot,
    Step,
    Subject,
)
from fabmon.fabric.time_wording import duration, time_of_day
from fabmon.fabric.wording import bit_rate, percent, percent_change, plural, trimmed
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
from fabmon.report.page.markup import (
    CHART_LEFT,
    CHART_WIDTH,
    Markup,
    joined,
    table,
    tag,
    time_grid,
    time_position,
)

_TITLES = {
    JOB: "Jobs",
    RAIL: "Rails",
    PAIR: "Pairs of switches, most variable first",
    LINK: "Links, most variable first",
}
_MOST = 30
_BAR, _TALL = 200.0, 16.0
_MOST_STEPS = 20
# By hour and weekday: the height of a row and its box, the top margin, and the widest box.
_SLOT_ROW, _BOX, _SLOT_TOP, _WIDEST = 62.0, 36.0, 18.0, 40.0
_MOST_SLOT_ROWS, _WEEK = 12, 7
# Over time: the height of a row and its curve, and the top margin.
_CURVE_ROW, _CURVE, _CURVE_TOP = 58.0, 38.0, 14.0
_MOST_CURVES = 8


def by_hour(found: Fluctuation) -> Markup:
    """A row per subject of 24 boxes, from the 5th to the 95th percentile with the median marked."""
    return _strips(found, [f"{hour:02}" for hour in range(24)], lambda each: each.hours)


def by_weekday(found: Fluctuation) -> Markup | None:
    """The same by day of the week; None where only one day is known."""
    if all(len(each.weekdays) < 2 for each in found.subjects):
        return None
    return _strips(found, DAYS, lambda each: each.weekdays)


def _strips(
    found: Fluctuation, names: Sequence[str], slots: Callable[[Subject], Sequence[Slot]]
) -> Markup:
    rows = [each for kind in (ALL, JOB, RAIL) for each in found.of(kind) if slots(each)]
    if not rows:
        return tag("p", "No communication.", class_="muted")
    shown = rows[:_MOST_SLOT_ROWS]
    width = (CHART_WIDTH - CHART_LEFT) / len(names)
    parts = [
        tag("text", name, x=CHART_LEFT + width * (place + 0.5), y=12, class_="axis middle")
        for place, name in enumerate(names)
    ]
    for place, subject in enumerate(shown):
        parts += _row(subject, slots(subject), _SLOT_TOP + _SLOT_ROW * place, width, len(names))
    more = len(rows) - len(shown)
    rest = f" {plural(more, 'more rail')} not shown." if more else ""
    return tag(
        "figure",
        tag(
            "svg",
            *parts,
            viewBox=f"0 0 {CHART_WIDTH:g} {_SLOT_TOP + _SLOT_ROW * len(shown):g}",
            role="img",
            aria_label=f"bandwidth by {'day of the week' if len(names) == _WEEK else 'hour'}",
        ),
        tag(
            "figcaption",
            "Means of 10 s of communication, on a scale from 0 to the highest of the row; the "
            "number is the median of these means. Grey: not known, because of no traffic or no "
            f"data.{rest}",
        ),
    )


def _row(
    subject: Subject, slots: Sequence[Slot], top: float, width: float, count: int
) -> list[Markup]:
    """The name of a subject, and a box for each slot with data."""
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
        text = (
            f"{subject.label}: median {bit_rate(slot.median_bps)}, 5th percentile "
            f"{bit_rate(slot.p5_bps)}, 95th {bit_rate(slot.p95_bps)}, CoV {percent(slot.cov)}, "
            f"{duration(slot.cells * 10)}"
        )
        parts.append(
            tag(
                "g",
                tag("title", text),
                tag("rect", x=left, y=high, width=across, height=max(1, low - high), class_="band"),
                tag("rect", x=left, y=top + _BOX, width=across, height=1, class_="rail"),
                tag("rect", x=left, y=middle - 1, width=across, height=2.5, class_="tx"),
                tag(
                    "text",
                    trimmed(slot.median_bps / divisor),
                    x=left + across / 2,
                    y=top + _BOX + 12,
                    class_="axis middle",
                ),
            )
        )
    return parts


def levels(found: Fluctuation) -> Markup:
    """Curves of all rails, of jobs and of what else has level changes; then the changes by time."""
    kinds = [kind for kind in KINDS if kind not in (LINK, USER, PARTITION)]
    shown, more = largest_steps(found, kinds, _MOST_STEPS)
    rows = [each for kind in (ALL, JOB) for each in found.of(kind) if each.spread is not None]
    rows += [each for _, each in shown if each not in rows]
    every = list({(each.kind, each.name): each for each in rows}.values())
    rows = every[:_MOST_CURVES]
    if not rows:
        return tag("p", "No communication.", class_="muted")
    measured: Markup = tag("p", NO_STEP)
    if shown:
        cells = [step_cells(*each) for each in shown]
        measured = joined(
            [
                tag("div", table(("TIME", "WHAT", "LEVEL", "CHANGE"), cells), class_="wide"),
                tag("p", f"{plural(more, 'smaller change')} not listed.", class_="muted")
                if more
                else None,
            ]
        )
    rest = len(every) - len(rows)
    none = tag("p", f"{plural(rest, 'more curve')} not drawn.", class_="muted") if rest else None
    return joined([_curves(found, rows), none, measured])


def _curves(found: Fluctuation, rows: list[Subject]) -> Markup:
    bottom = _CURVE_TOP + _CURVE_ROW * len(rows)
    parts = [time_grid(found.from_ns, found.until_ns, bottom)]
    for place, subject in enumerate(rows):
        parts += _curve(found, subject, _CURVE_TOP + _CURVE_ROW * place)
    return tag(
        "figure",
        tag(
            "svg",
            *parts,
            viewBox=f"0 0 {CHART_WIDTH:g} {bottom + 18:g}",
            role="img",
            aria_label="bandwidth over time, with level changes",
        ),
        tag(
            "figcaption",
            "Lowest, median and highest of the means of 10 s of communication in equal parts of "
            "the time, on a scale from 0 to the highest of the row. A line with a number is a "
            "level change. Times are UTC.",
        ),
    )


def _curve(found: Fluctuation, subject: Subject, top: float) -> list[Markup]:
    highest = max((part.high_bps for part in subject.strip if part is not None), default=0.0) or 1.0
    width = (CHART_WIDTH - CHART_LEFT) / max(1, len(subject.strip))
    base = top + _CURVE
    area, line, was_there = "", "", False
    for place, part in enumerate(subject.strip):
        if part is None:
            was_there = False
            continue
        x = CHART_LEFT + place * width
        low, y, high = (
            base - _CURVE * bps / highest for bps in (part.low_bps, part.median_bps, part.high_bps)
        )
        area += f"M{x:.1f} {low:.1f}V{high:.1f}h{width:.2f}V{low:.1f}z"
        line += f"{'L' if was_there else 'M'}{x:.1f} {y:.1f}h{width:.2f}"
        was_there = True
    return [
        tag("text", subject.label[:22], x=0, y=top + 16, class_="name"),
        tag("text", f"highest {bit_rate(highest)}", x=0, y=top + 30, class_="axis"),
        tag("path", d=area, class_="band"),
        tag("path", d=line, class_="median"),
        tag("line", x1=CHART_LEFT, x2=CHART_WIDTH, y1=base, y2=base, class_="grid"),
        *(_mark(found, subject, step, top, base) for step in subject.steps),
    ]


def _mark(found: Fluctuation, subject: Subject, step: Step, top: float, base: float) -> Markup:
    x = time_position(step.at_ns, found.from_ns, found.until_ns)
    is_right = x > CHART_WIDTH * 0.85
    return tag(
        "g",
        tag("title", ", ".join(step_cells(step, subject))),
        tag("line", x1=x, x2=x, y1=top - 10, y2=base, class_="step"),
        tag(
            "text",
            f"{time_of_day(step.at_ns)[:5]} {percent_change(step.change)}",
            x=x - 4 if is_right else x + 4,
            y=top - 2,
            class_="hot",
            text_anchor="end" if is_right else "start",
        ),
    )


def fluctuation(found: Fluctuation) -> Markup:
    """The whole section: tables, curves and hours, and what was not observable."""
    if not found.subjects:
        return tag("p", "No rail and no link between switches was watched.", class_="muted")
    return joined(
        [
            tag("p", scope(found), class_="muted"),
            tag(
                "p",
                "MEDIAN, P5 and P95 of the tables are of single samples; the curves and the hours "
                "are of means of 10 s, whose medians differ from these. "
                "Bars are from the 5th to the 95th percentile, with the median marked; the full "
                "width is line rate, or the 95th percentile where that is not known. CoV is the "
                "standard deviation divided by the mean, ACTIVE the share of time with traffic.",
                class_="muted",
            ),
            _table(found, JOB),
            _table(found, RAIL),
            tag("h3", "Over time, with level changes"),
            levels(found),
            tag("h3", f"By hour of the day, {found.zone}"),
            by_hour(found),
            by_weekday(found),
            _foreign(found),
            _table(found, PAIR),
            _table(found, LINK),
            *(tag("p", f"Not observable: {note}.", class_="muted") for note in found.notes),
        ]
    )


def _table(found: Fluctuation, kind: str) -> Markup | None:
    """The subjects of one kind with their numbers; None where there are none."""
    measured = [each for each in found.of(kind) if each.spread is not None]
    if kind in (LINK, PAIR):
        measured.sort(key=lambda each: -((each.spread and each.spread.cov) or 0.0))
    if not measured:
        return None
    if kind == RAIL:
        measured = [*found.of(ALL), *measured]
    shown = measured[:_MOST]
    its = ("ITERATION",) if kind == JOB else ()
    head = (kind.upper(), "", *its, *NUMBERS)
    rows = [
        (each.label, _bar(each), *((step_time(each),) if its else ()), *numbers(each))
        for each in shown
    ]
    more = len(measured) - len(shown)
    silent = len(found.of(kind)) - sum(each.spread is not None for each in found.of(kind))
    notes = [f"{more} more vary less" if kind in (LINK, PAIR) else f"{more} more"] if more else []
    notes += [f"{silent} never communicated"] if silent else []
    return joined(
        [
            tag("h3", _TITLES[kind]),
            tag("div", table(head, rows, 2), class_="wide steady"),
            tag("p", f"{'; '.join(notes)}.", class_="muted") if notes else None,
        ]
    )


def _bar(subject: Subject) -> Markup | None:
    """A bar from the 5th to the 95th percentile, with the median marked."""
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
                "The dark part of a bar cannot be from the watched hosts, the pale part may be: "
                "what they sent may have stayed below the leaf. The full width is all uplink "
                "traffic of the leaf.",
                class_="muted",
            ),
            tag("div", table(("LEAF", "", "OTHER TRAFFIC"), rows), class_="wide steady"),
        ]
    )
