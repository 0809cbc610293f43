"""Bandwidth by hour of the day and day of the week: a box an hour, a row a job or a rail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabmon.analysis.fluctuation.records import ALL, JOB, RAIL, Fluctuation, Slot, Subject
from fabmon.report.fluctuation import DAYS, name_of
from fabmon.report.page.axis import LEFT, WIDTH
from fabmon.report.page.markup import Markup, tag
from fabmon.report.units import bits

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
    width = (WIDTH - LEFT) / len(names)
    parts = [
        tag("text", name, x=LEFT + width * (place + 0.5), y=12, class_="axis middle")
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
            viewBox=f"0 0 {WIDTH:g} {_TOP + _ROW * len(shown):g}",
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
        tag("text", name_of(subject)[:22], x=0, y=top + 16, class_="name"),
        tag("text", f"{unit}, highest {bits(highest)}", x=0, y=top + 30, class_="axis"),
    ]
    known = {slot.slot: slot for slot in slots}
    across = min(width - 4, _WIDEST)
    for place in range(count):
        left = LEFT + width * (place + 0.5) - across / 2
        slot = known.get(place)
        if slot is None:
            parts.append(tag("rect", x=left, y=top, width=across, height=_BOX, class_="unseen"))
            continue
        low, middle, high = (
            top + _BOX * (1 - value / highest)
            for value in (slot.p5_bps, slot.median_bps, slot.p95_bps)
        )
        said = (
            f"{name_of(subject)}: median {bits(slot.median_bps)}, 5th percentile "
            f"{bits(slot.p5_bps)}, 95th {bits(slot.p95_bps)}, CoV {slot.cov * 100:.1f} %, "
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
