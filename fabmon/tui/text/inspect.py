"""The line below the heatmap: the port under the cursor or the mouse, in words."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.scene import Scene
from fabmon.fabric.moment import stale_ports
from fabmon.tui import clock
from fabmon.tui.line import Line, Span, width_of
from fabmon.tui.metrics import traffic_words
from fabmon.tui.stage import Stage
from fabmon.tui.text import words


def inspect(stage: Stage, scene: Scene, row: int | None, width: int) -> Line:
    """Everything that a cell stands for, in `width` cells."""
    palette, moment = stage.palette, scene.moment
    if row is None or row >= len(moment.fabric.ports):
        return Line(((" ", palette.text),))
    port = moment.fabric.ports[row]
    spans: list[Span] = [
        (f" {words.both_ends(port, moment.fabric)}  ", palette.strong),
        (state(scene, row), palette.gone if moment.up[row] == 0 else palette.dim),
        ("  ", palette.text),
    ]
    if moment.up[row] != 0:
        if not stage.heat.traffic:
            spans.append((f"{stage.heat.say(moment, row, stage.choices.unit)}  ", palette.strong))
        spans.append((traffic_words(moment, row, stage.choices.unit), palette.text))
    for finding in scene.findings:
        text = f"  {words.mark(finding)} {words.cause(finding)}"
        if row in finding.rows and width_of(spans) + len(text) < width:
            spans.append((text, palette.gone if words.gone(finding) else palette.hot))
    return Line(tuple(spans))


def state(scene: Scene, row: int) -> str:
    """`up`, `down`, `stale 12 s`, or what else is known of a port."""
    moment = scene.moment
    if stale_ports(moment)[row]:
        return f"stale {clock.span(float(moment.age_s[row]))}"
    if np.isnan(moment.up[row]):
        return "state unknown"
    return "up" if moment.up[row] else "down"
