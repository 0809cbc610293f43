"""The section on how steady bandwidth is: what `fabmon fluctuate` tells, with its pictures."""

from __future__ import annotations

from fabmon.analysis.fluctuation.records import ALL, JOB, LINK, PAIR, RAIL, Fluctuation, Subject
from fabmon.report.fluctuation import (
    FOREIGN,
    NUMBERS,
    foreign_share,
    iteration,
    name_of,
    numbers,
    over,
)
from fabmon.report.page.hours import by_hour, by_weekday
from fabmon.report.page.levels import levels
from fabmon.report.page.markup import Markup, joined, table, tag

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
            tag("p", over(found), class_="muted"),
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
        (name_of(each), _bar(each), *((iteration(each),) if its else ()), *numbers(each))
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
