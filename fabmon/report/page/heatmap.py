"""Links by time: data for the canvas that heatmap.js draws."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np

from fabmon.fabric.model import Fabric
from fabmon.fabric.moment import Floats
from fabmon.report.page.digest import Digest, is_drawn
from fabmon.report.page.markup import Markup, joined, tag

MOST_ROWS = 1200
"""More links than this are drawn a node a row, more nodes a group a row: the busiest counts."""

_FULL = 250
_ABSENT = 255


def heatmap(digest: Digest) -> Markup:
    """The canvas with its choices, and its data as JSON; nothing where there is no link."""
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
            tag("p", f"A row is {what}; a column is {_span(digest)}.", class_="muted"),
            tag("div", *choices, class_="choices"),
            tag(
                "div",
                tag("canvas", id="heatmap", tabindex="0", aria_label="load of every link by time"),
                tag("div", id="tip", hidden="hidden"),
                class_="heat",
            ),
            tag("div", tag("canvas", id="scale"), class_="legend"),
            tag("noscript", "The heatmap is drawn by a script of this page."),
            tag("script", Markup(_json(data)), type="application/json", id="heat-data"),
        ]
    )


def _span(digest: Digest) -> str:
    return f"{digest.bins.width_ns / 1e9:.3g} s"


def _rows(fabric: Fabric) -> tuple[str, list[tuple[str, list[int]]]]:
    """What a row is, and for each its name and the port rows that it stands for."""
    nodes = [
        (node, [port for port in node.ports if is_drawn(port, fabric)]) for node in fabric.nodes
    ]
    ports = [(f"{port.node} {port.label}", [port.row]) for _, each in nodes for port in each]
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
    """[rows, bins] as bytes in base64: 250 is all of line rate or time, 255 is absent."""
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
    """As it may stand inside a script element, whatever names are in it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
