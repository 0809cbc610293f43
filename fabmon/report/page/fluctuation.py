"""The section on how much rates fluctuate: a chart a rail."""

from __future__ import annotations

import numpy as np

from fabmon.report.page import words
from fabmon.report.page.digest import Digest
from fabmon.report.page.markup import Markup, joined, table, tag
from fabmon.report.page.spread import RailSpread

_WIDTH, _HEIGHT = 480.0, 110.0


def fluctuation(digest: Digest) -> Markup:
    """What the hosts send on each rail: median, and where nine of ten samples are."""
    rails = digest.rails.rails()
    if not rails:
        return tag("p", "No rail of a host was watched.", class_="muted")
    rows = [
        (
            rail.label,
            str(rail.hosts),
            words.rate(rail.line_rate_bps),
            *(words.share(each) for each in rail.whole),
        )
        for rail in rails
    ]
    return joined(
        [
            tag(
                "p",
                "What hosts send on a rail, as a share of line rate: the line is the median of all "
                "hosts, the band holds nine of ten samples. Pauses between exchanges count too.",
                class_="muted",
            ),
            tag("div", *(_chart(rail) for rail in rails), class_="charts"),
            table(("rail", "hosts", "line rate", "5th percentile", "median", "95th"), rows, 1),
        ]
    )


def _chart(rail: RailSpread) -> Markup:
    low, middle, high = rail.bins
    width = _WIDTH / rail.bins.shape[1]
    band, line, was_there = "", "", False
    for place, (a, m, b) in enumerate(
        zip(low.tolist(), middle.tolist(), high.tolist(), strict=True)
    ):
        if m != m:
            was_there = False
            continue
        x = place * width
        band += f"M{x:.1f} {_y(b):.1f}h{width:.2f}V{_y(a) + 1:.1f}h-{width:.2f}z"
        line += f"{'L' if was_there else 'M'}{x:.1f} {_y(m):.1f}h{width:.2f}"
        was_there = True
    marks = [
        tag("line", x1=0, x2=_WIDTH, y1=_y(mark), y2=_y(mark), class_="grid")
        for mark in (0, 0.5, 1)
    ]
    said = "unknown" if np.isnan(rail.whole[1]) else " / ".join(map(words.share, rail.whole))
    return tag(
        "figure",
        tag(
            "svg",
            *marks,
            tag("path", d=band, class_="band"),
            tag("path", d=line, class_="median"),
            viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
            role="img",
            aria_label=f"rail {rail.label} by time",
            preserveAspectRatio="none",
        ),
        tag("figcaption", tag("b", rail.label), f" 5th / median / 95th: {said}"),
    )


def _y(share: float) -> float:
    return 4 + (_HEIGHT - 8) * (1 - min(1.0, max(0.0, share)))
