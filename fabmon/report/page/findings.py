"""The section of each finding: its sentence, a picture of its ports, evidence and advice."""

from __future__ import annotations

import math

from fabmon.analysis import causes
from fabmon.analysis.finding import shown_moment
from fabmon.analysis.recent_load import RECENT_S
from fabmon.analysis.scene import missing_findings
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.time_wording import event_time, lasted
from fabmon.fabric.wording import bit_rate, evidence_value, name_list, percent, plural
from fabmon.report.page.digest import Bar, Digest, ReportedFinding
from fabmon.report.page.markup import Markup, joined, table, tag

_MOST_VICTIMS = 40
_ROW = 24.0
_WIDTH = 1000.0
_GAP = 30.0
_SHORT = 9
_VALUES = 262.0
"""Room of `tx 51.0 Gb/s 12.8 %  rx 70.8 Gb/s 17.7 %` also in a wide font."""
_ONE_COLUMN = 6
"""More ports than this are drawn in two columns."""


def findings(digest: Digest) -> Markup:
    """A section per finding, in the order of their starts; first, what may be missing."""
    said = missing_findings(digest.failed_detectors)
    missing = joined([tag("p", each, class_="said") for each in said]) if said else None
    if not digest.findings:
        text = "No findings."
        if not digest.is_known:
            text = "Nothing is known: no port had a rate."
        elif not digest.has_line_rates:
            text = "No findings, but full links were not judged: no port had a line rate."
        return joined([missing, tag("p", text, class_="muted")])
    return joined(
        [
            missing,
            *(
                _finding(number, reported, digest)
                for number, reported in enumerate(digest.findings.values(), 1)
            ),
            tag("p", f"{len(digest.left_out)} more did not fit on this page.", class_="muted")
            if digest.left_out
            else None,
        ]
    )


def _finding(number: int, reported: ReportedFinding, digest: Digest) -> Markup:
    finding, dated = reported.finding, digest.bins.is_dated
    shown, is_open = shown_moment(finding), finding.until_ns is None
    end_ns = finding.until_ns or digest.bins.until_ns
    length = lasted(finding.since_ns, end_ns)
    end = "the end" if is_open else event_time(end_ns, dated)
    began = event_time(finding.since_ns, dated)
    facts = [
        f"{began} to {end} ({length}){'' if is_open else ', closed'}",
        causes.loss_and_confidence(finding),
        shown.severity,
    ]
    return tag(
        "section",
        tag(
            "h3",
            tag("span", str(number), class_=f"mark {shown.severity}"),
            f" {causes.finding_title(finding)} ",
            tag("span", reported.subject, class_="subject"),
        ),
        tag("p", causes.sentence(finding, is_dated=dated), class_="said"),
        tag("p", " · ".join(facts), class_="muted"),
        _picture(reported, dated),
        table(
            ("evidence", ""),
            ((each.name, evidence_value(each.value, each.unit)) for each in shown.evidence),
            1,
        )
        if shown.evidence
        else None,
        _labelled("Affected jobs", ", ".join(shown.jobs)),
        _labelled("Advice", shown.advice),
        _labelled("Also affected", _victims(reported.victims)),
        _labelled("Not observable", shown.unseen),
        _rule(finding.cause),
        class_=f"finding {shown.severity}",
        id=f"finding-{number}",
    )


def _labelled(name: str, text: str) -> Markup | None:
    return tag("p", tag("b", f"{name}: "), text) if text else None


def _rule(cause: str) -> Markup | None:
    """The rule of a cause and its limits, shown on request."""
    declared = causes.CAUSES.get(cause)
    if declared is None:
        return None
    return tag(
        "details",
        tag("summary", "Rule and limits"),
        tag("p", declared.rule),
        tag("p", tag("b", "Not observable: "), declared.not_observable),
    )


def _victims(victims: tuple[str, ...]) -> str:
    """Nodes as a node set, ports as a list."""
    if victims and not any("/" in name or " " in name for name in victims):
        return fold(victims)
    return name_list(victims, _MOST_VICTIMS)


def _picture(reported: ReportedFinding, dated: bool) -> Markup | None:
    """Two bars per port (sent and received), at the time of the sentence; None without traffic."""
    # Of a lost node nothing is measured, or 0: bars without a length show nothing.
    if not any(bar.tx_util > 0 or bar.rx_util > 0 for bar in reported.bars):
        return None
    columns = 2 if len(reported.bars) > _ONE_COLUMN else 1
    lines = -(-len(reported.bars) // columns)
    height = _ROW * lines + 4
    width = (_WIDTH - _GAP * (columns - 1)) / columns
    name = 90.0 if all(len(bar.label) <= _SHORT for bar in reported.bars) else 170.0
    parts = []
    for column in range(columns):
        left = column * (width + _GAP)
        axis = left + name
        room = width - name - _VALUES
        parts += [
            tag("line", x1=x, x2=x, y1=0, y2=height, class_="grid")
            for x in (axis, axis + room / 2, axis + room)
        ]
        shown = reported.bars[column * lines : (column + 1) * lines]
        parts += [_bar(bar, left, axis, room, _ROW * place + 2) for place, bar in enumerate(shown)]
    more = f", and {plural(reported.more, 'more port')}" if reported.more else ""
    seconds = f"Mean of the {RECENT_S} s with traffic"
    if reported.mean_s is not None:
        seconds = f"Mean of the {reported.mean_s:g} s"
    worst = ", at its worst" if shown_moment(reported.finding) is not reported.finding else ""
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
            f"{seconds} before {event_time(reported.at_ns, dated)}{worst}{more}. ",
            tag("span", "■ sent", class_="key-tx"),
            " ",
            tag("span", "■ received", class_="key-rx"),
            " as a share of line rate; ▲ is the port that the finding is about.",
        ),
    )


def _bar(bar: Bar, left: float, axis: float, room: float, y: float) -> Markup:
    """The two bars of a port, which start at `axis`; `room` is the width at line rate."""
    mark = "✖ " if bar.up == 0 else "▲ " if bar.is_subject else ""
    values = [
        f"{direction} {bit_rate(bps)} {percent(util)}"
        for direction, bps, util in (
            ("tx", bar.tx_bps, bar.tx_util),
            ("rx", bar.rx_bps, bar.rx_util),
        )
    ]
    strokes = [
        tag(
            "rect",
            x=axis,
            y=y + top,
            width=max(1.0, room * min(1.0, util)),
            height=8,
            class_=direction,
        )
        for direction, util, top in (("tx", bar.tx_util, 2), ("rx", bar.rx_util, 11))
        if math.isfinite(util)
    ]
    return tag(
        "g",
        tag("title", f"{bar.port}: {', '.join(values)}"),
        tag("text", mark + bar.label, x=left, y=y + 15, class_="hot" if bar.is_subject else "name"),
        *strokes,
        tag("text", "  ".join(values), x=axis + room + 8, y=y + 15, class_="axis"),
        class_="subject-port" if bar.is_subject else None,
    )
