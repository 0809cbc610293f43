"""Drawings over the time of the report: the timeline with findings, and the heatmap of links."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np

from fabmon.analysis import causes
from fabmon.fabric.model import Fabric
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import event_time, measured
from fabmon.fabric.wording import plural
from fabmon.report.page.digest import Digest, ReportedFinding, is_drawn
from fabmon.report.page.markup import (
    CHART_LEFT,
    CHART_WIDTH,
    Markup,
    joined,
    tag,
    time_grid,
    time_position,
)

_STRIP = 70.0
_ROW = 17.0
_MOST_FINDINGS = 40
MOST_ROWS = 1200
"""With more links a row of the heatmap is a node, with more nodes a group: its busiest link."""
_FULL, _ABSENT = 250, 255
"""Values in the data of heatmap.js: all of line rate or time, and absent."""


def timeline(digest: Digest) -> Markup:
    """An SVG of the busiest link, the events, and a bar per finding that links to its section."""
    bins = digest.bins
    found = list(digest.findings.values())
    shown = found[:_MOST_FINDINGS]
    events_top = _STRIP + 8
    top = events_top + (16 if digest.events else 0)
    bottom = top + _ROW * len(shown) + 4
    parts = [
        time_grid(bins.from_ns, bins.until_ns, bottom),
        tag("text", "Busiest link", x=0, y=14, class_="name"),
        tag("text", "highest share of line rate", x=0, y=28, class_="axis"),
        tag("text", "100 %", x=CHART_LEFT - 6, y=10, class_="axis", text_anchor="end"),
        _strip(digest),
    ]
    if digest.events:
        parts.append(tag("text", "Events", x=0, y=events_top + 12, class_="name"))
    for event in digest.events:
        x = time_position(event.time_ns, bins.from_ns, bins.until_ns)
        gone = any(word in event.text for word in ("lost", "down", "failed"))
        parts.append(
            tag(
                "circle",
                tag("title", f"{event_time(event.time_ns, bins.is_dated)} {event.text}"),
                cx=x,
                cy=events_top + 8,
                r=3.5,
                class_="gone" if gone else "event",
            )
        )
    for number, each in enumerate(shown, 1):
        parts.append(_bar(digest, each, number, top + _ROW * (number - 1)))
    return joined(
        [
            tag(
                "svg",
                *parts,
                viewBox=f"0 0 {CHART_WIDTH:g} {bottom + 18:g}",
                class_="timeline",
                role="img",
                aria_label="timeline of the recording",
            ),
            tag("p", _more(len(found) - len(shown), len(digest.left_out)), class_="muted")
            if len(found) > len(shown)
            else None,
        ]
    )


def _more(below: int, left_out: int) -> str:
    """The findings that are not on the timeline."""
    text = f"{plural(below, 'more finding')} below"
    return f"{text}, and {left_out} that did not fit on this page." if left_out else f"{text}."


def _strip(digest: Digest) -> Markup:
    with np.errstate(all="ignore"):
        highest = np.fmax.reduce(digest.busy.highest, axis=0, initial=np.nan)
    count = digest.bins.count
    width = (CHART_WIDTH - CHART_LEFT) / count
    path = "".join(
        f"M{CHART_LEFT + place * width:.1f} {_STRIP:g}h{width:.2f}"
        f"V{_STRIP * (1 - min(1.0, v)):.1f}"
        f"h-{width:.2f}z"
        for place, v in enumerate(highest.tolist())
        if v == v
    )
    return joined(
        [
            tag("path", d=path, class_="strip"),
            tag(
                "line",
                x1=CHART_LEFT,
                x2=CHART_WIDTH,
                y1=_STRIP,
                y2=_STRIP,
                class_="base",
            ),
        ]
    )


def _bar(digest: Digest, found: ReportedFinding, number: int, y: float) -> Markup:
    finding, bins = found.finding, digest.bins
    begin = time_position(finding.since_ns, bins.from_ns, bins.until_ns)
    end = time_position(finding.until_ns or bins.until_ns, bins.from_ns, bins.until_ns)
    name = causes.finding_title(finding)
    is_right = end > CHART_WIDTH * 0.8
    return tag(
        "a",
        tag("title", f"{name}: {causes.sentence(finding, is_dated=bins.is_dated)}"),
        tag("text", f"{number}  {name}"[:24], x=0, y=y + 12, class_="name"),
        tag(
            "rect",
            x=begin,
            y=y + 2,
            width=max(3.0, end - begin),
            height=_ROW - 5,
            rx=2,
            class_=f"bar {found.kept.severity}",
        ),
        tag(
            "text",
            found.subject,
            x=(begin if is_right else max(begin + 3, end)) + (-5 if is_right else 5),
            y=y + 12,
            class_="label",
            text_anchor="end" if is_right else "start",
        ),
        href=f"#finding-{number}",
    )


def heatmap(digest: Digest) -> Markup:
    """The canvas that heatmap.js draws, with its buttons and its data as JSON."""
    fabric = digest.fabric
    if fabric is None:
        return Markup("")
    what, rows = _rows(fabric)
    if not rows:
        return tag("p", "No link was watched.", class_="muted")
    layers = [
        ("highest", "highest share of line rate", digest.busy.highest),
        ("mean", "mean share of line rate", digest.busy.mean),
        ("paused", "mean share of time paused", digest.paused.mean),
    ]
    if not np.nan_to_num(digest.paused.mean).any():
        layers.pop()
    data = {
        "from_ms": digest.bins.from_ns // 1_000_000,
        "bin_ms": digest.bins.width_ns / 1e6,
        "bins": digest.bins.count,
        "full": _FULL,
        "absent": _ABSENT,
        "dated": digest.bins.is_dated,
        "rows": [name for name, _ in rows],
        "layers": [
            {"name": name, "title": title, "data": _packed(values, [r for _, r in rows])}
            for name, title, values in layers
        ],
    }
    choices = [
        tag("button", title, type="button", data_layer=str(place), aria_pressed="false")
        for place, (_, title, _) in enumerate(layers)
    ]
    return joined(
        [
            tag(
                "p",
                f"A row is {what}; a column is {measured(digest.bins.width_ns / 1e9)}.",
                class_="muted",
            ),
            tag("div", *choices, class_="choices"),
            tag(
                "div",
                tag("canvas", id="heatmap", tabindex="0", aria_label="load of every link by time"),
                tag("div", id="tip", hidden="hidden"),
                class_="heat",
            ),
            tag("div", tag("canvas", id="scale"), class_="legend"),
            tag("noscript", "The heatmap needs JavaScript: a script of this page draws it."),
            tag("script", Markup(_json(data)), type="application/json", id="heat-data"),
        ]
    )


def _rows(fabric: Fabric) -> tuple[str, list[tuple[str, list[int]]]]:
    """What a row is; then for each row its name and its port rows."""
    nodes = [
        (node, [port for port in node.ports if is_drawn(port, fabric)]) for node in fabric.nodes
    ]
    ports = [(port.display_name, [port.row]) for _, each in nodes for port in each]
    if len(ports) <= MOST_ROWS:
        return "a link", ports
    whole = [(node.name, [port.row for port in each]) for node, each in nodes if each]
    if len(whole) <= MOST_ROWS:
        return "a node, by its busiest link", whole
    groups: dict[str, list[int]] = {}
    for node, each in nodes:
        groups.setdefault(node.group, []).extend(port.row for port in each)
    return "a group of nodes, by its busiest link", list(groups.items())[:MOST_ROWS]


def _packed(values: Floats, rows: Sequence[Sequence[int]]) -> str:
    """[rows, bins] as bytes in base64; see _FULL and _ABSENT."""
    lines = []
    for ports in rows:
        known = [row for row in ports if row < len(values)]
        picked = values[known] if known else np.full((1, values.shape[1]), np.nan, np.float32)
        lines.append(np.fmax.reduce(picked, axis=0))
    table = np.stack(lines)
    shares = np.rint(np.clip(np.nan_to_num(table), 0, 1) * _FULL)
    return base64.b64encode(
        np.where(np.isnan(table), _ABSENT, shares).astype(np.uint8).tobytes()
    ).decode()


def _json(data: object) -> str:
    """JSON that is safe inside a script element, whatever names it contains."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
