"""What was found: the sentence, its numbers, its ports beside their equals, what to do."""

from __future__ import annotations

import math

from fabmon.analysis import causes
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.time_wording import duration, event_time
from fabmon.fabric.wording import bit_rate, evidence_value, percent
from fabmon.report.page.digest import Bar, Digest, ReportedFinding
from fabmon.report.page.markup import Markup, joined, table, tag

_MOST_VICTIMS = 40
_ROW = 24.0
_WIDTH = 1000.0
_GAP = 30.0
_SHORT = 9
_SAID = 222.0
_ONE_COLUMN = 6
"""More ports than this stand in two columns."""


def findings(digest: Digest) -> Markup:
    """A section each, as they began."""
    if not digest.findings:
        return tag("p", "Nothing was found.", class_="muted")
    return joined(
        [
            *(
                _finding(number, told, digest)
                for number, told in enumerate(digest.findings.values(), 1)
            ),
            tag("p", f"{digest.left_out_findings} more did not fit on this page.", class_="muted")
            if digest.left_out_findings
            else None,
        ]
    )


def _finding(number: int, told: ReportedFinding, digest: Digest) -> Markup:
    finding, dated = told.finding, digest.bins.is_dated
    end_ns = finding.until_ns or digest.bins.until_ns
    lasted = duration((end_ns - finding.since_ns) / 1e9)
    until = f"{event_time(finding.until_ns, dated)}" if finding.until_ns else "the end"
    facts = [
        f"{event_time(finding.since_ns, dated)} to {until} ({lasted})",
        f"{finding.confidence * 100:.0f} % sure",
        finding.severity,
    ]
    if finding.lost > 0:
        facts.insert(1, f"costs {percent(finding.lost)} of the bandwidth")
    return tag(
        "section",
        tag(
            "h3",
            tag("span", str(number), class_=f"mark {finding.severity}"),
            f" {causes.title(finding.cause)} ",
            tag("span", finding.subject, class_="subject"),
        ),
        tag("p", finding.text, class_="said"),
        tag("p", " · ".join(facts), class_="muted"),
        _picture(told, dated),
        table(
            ("evidence", ""),
            ((each.name, evidence_value(each.value, each.unit)) for each in finding.evidence),
            1,
        )
        if finding.evidence
        else None,
        _labelled("Advice", finding.advice),
        _labelled("Suffers under it", _victims(finding.victims)),
        _labelled("Not visible", finding.unseen),
        class_=f"finding {finding.severity}",
        id=f"finding-{number}",
    )


def _labelled(name: str, text: str) -> Markup | None:
    return tag("p", tag("b", f"{name}: "), text) if text else None


def _victims(victims: tuple[str, ...]) -> str:
    names = [name for name in victims if "/" not in name and " " not in name]
    if len(names) == len(victims) and names:
        return fold(names)
    rest = len(victims) - _MOST_VICTIMS
    said = ", ".join(victims[:_MOST_VICTIMS])
    return f"{said} and {rest} more" if rest > 0 else said


def _picture(told: ReportedFinding, dated: bool) -> Markup | None:
    """Two bars a port, sent and received."""
    if not any(math.isfinite(bar.tx_util) or math.isfinite(bar.rx_util) for bar in told.bars):
        return None
    columns = 2 if len(told.bars) > _ONE_COLUMN else 1
    lines = -(-len(told.bars) // columns)
    height = _ROW * lines + 4
    width = (_WIDTH - _GAP * (columns - 1)) / columns
    name = 90.0 if all(len(bar.label) <= _SHORT for bar in told.bars) else 170.0
    parts = []
    for column in range(columns):
        left = column * (width + _GAP)
        axis = left + name
        room = width - name - _SAID
        parts += [
            tag("line", x1=x, x2=x, y1=0, y2=height, class_="grid")
            for x in (axis, axis + room / 2, axis + room)
        ]
        shown = told.bars[column * lines : (column + 1) * lines]
        parts += [_bar(bar, left, axis, room, _ROW * place + 2) for place, bar in enumerate(shown)]
    more = f", and {told.more} ports more" if told.more else ""
    return tag(
        "figure",
        tag(
            "svg",
            *parts,
            viewBox=f"0 0 {_WIDTH:g} {height:g}",
            class_="bars",
            role="img",
            aria_label="load of the ports at that time",
        ),
        tag(
            "figcaption",
            f"At {event_time(told.at_ns, dated)}, when it cost the most{more}. ",
            tag("span", "■ sent", class_="key-tx"),
            " ",
            tag("span", "■ received", class_="key-rx"),
            " of line rate; ▲ is the one that is meant.",
        ),
    )


def _bar(bar: Bar, left: float, axis: float, room: float, y: float) -> Markup:
    """The two bars of a port: from `axis` on, `room` wide for all of line rate."""
    mark = "✖ " if bar.up == 0 else "▲ " if bar.guilty else ""
    said = [
        f"{way} {bit_rate(bps)} {percent(util)}"
        for way, bps, util in (
            ("tx", bar.tx_bps, bar.tx_util),
            ("rx", bar.rx_bps, bar.rx_util),
        )
    ]
    strokes = [
        tag("rect", x=axis, y=y + top, width=max(1.0, room * min(1.0, util)), height=8, class_=way)
        for way, util, top in (("tx", bar.tx_util, 2), ("rx", bar.rx_util, 11))
        if math.isfinite(util)
    ]
    return tag(
        "g",
        tag("title", f"{bar.port}: {', '.join(said)}"),
        tag("text", mark + bar.label, x=left, y=y + 15, class_="hot" if bar.guilty else "name"),
        *strokes,
        tag("text", "  ".join(said), x=axis + room + 8, y=y + 15, class_="axis"),
        class_="guilty" if bar.guilty else None,
    )
