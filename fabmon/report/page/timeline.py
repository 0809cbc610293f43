"""The whole time at a glance: the busiest link, what happened, how long each finding was open."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.finding import Finding
from fabmon.report.page import axis, words
from fabmon.report.page.digest import Digest
from fabmon.report.page.markup import Markup, joined, tag

_STRIP = 70.0
_ROW = 17.0
_MOST_ROWS = 40


def timeline(digest: Digest) -> Markup:
    """An SVG; each finding's bar leads to its section."""
    bins = digest.bins
    told = list(digest.findings.values())
    shown = told[:_MOST_ROWS]
    events_top = _STRIP + 8
    top = events_top + (16 if digest.events else 0)
    bottom = top + _ROW * len(shown) + 4
    parts = [
        axis.grid(bins.from_ns, bins.until_ns, 0, bottom),
        tag("text", "busiest link", x=0, y=14, class_="name"),
        tag("text", "of line rate, highest", x=0, y=28, class_="axis"),
        tag("text", "100 %", x=axis.LEFT - 6, y=10, class_="axis", text_anchor="end"),
        _strip(digest),
    ]
    if digest.events:
        parts.append(tag("text", "events", x=0, y=events_top + 12, class_="name"))
    for event in digest.events:
        x = axis.place(event.time_ns, bins.from_ns, bins.until_ns)
        gone = any(word in event.text for word in ("lost", "down", "failed"))
        parts.append(
            tag(
                "circle",
                tag("title", f"{words.clock(event.time_ns, bins.is_dated)} {event.text}"),
                cx=x,
                cy=events_top + 8,
                r=3.5,
                class_="gone" if gone else "event",
            )
        )
    for number, each in enumerate(shown, 1):
        parts.append(_bar(digest, each.finding, number, top + _ROW * (number - 1)))
    return joined(
        [
            tag(
                "svg",
                *parts,
                viewBox=f"0 0 {axis.WIDTH:g} {bottom + 18:g}",
                class_="timeline",
                role="img",
                aria_label="timeline of the recording",
            ),
            tag("p", f"{len(told) - len(shown)} more findings below.", class_="muted")
            if len(told) > len(shown)
            else None,
        ]
    )


def _strip(digest: Digest) -> Markup:
    with np.errstate(all="ignore"):
        highest = np.fmax.reduce(digest.busy.highest, axis=0, initial=np.nan)
    count = digest.bins.count
    width = (axis.WIDTH - axis.LEFT) / count
    path = "".join(
        f"M{axis.LEFT + place * width:.1f} {_STRIP:g}h{width:.2f}V{_STRIP * (1 - min(1.0, v)):.1f}"
        f"h-{width:.2f}z"
        for place, v in enumerate(highest.tolist())
        if v == v
    )
    return joined(
        [
            tag("path", d=path, class_="strip"),
            tag("line", x1=axis.LEFT, x2=axis.WIDTH, y1=_STRIP, y2=_STRIP, class_="base"),
        ]
    )


def _bar(digest: Digest, finding: Finding, number: int, y: float) -> Markup:
    bins = digest.bins
    begin = axis.place(finding.since_ns, bins.from_ns, bins.until_ns)
    end = axis.place(finding.until_ns or bins.until_ns, bins.from_ns, bins.until_ns)
    name = words.cause(finding.cause)
    label = f"{finding.subject}"
    is_right = end > axis.WIDTH * 0.8
    return tag(
        "a",
        tag("title", f"{name}: {finding.text}"),
        tag("text", f"{number}  {name}"[:24], x=0, y=y + 12, class_="name"),
        tag(
            "rect",
            x=begin,
            y=y + 2,
            width=max(3.0, end - begin),
            height=_ROW - 5,
            rx=2,
            class_=f"bar {finding.severity}",
        ),
        tag(
            "text",
            label,
            x=(begin if is_right else max(begin + 3, end)) + (-5 if is_right else 5),
            y=y + 12,
            class_="label",
            text_anchor="end" if is_right else "start",
        ),
        href=f"#finding-{number}",
    )
