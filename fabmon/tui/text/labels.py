"""How ports and findings are called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len
from rich.style import Style

from fabmon.analysis import causes
from fabmon.analysis.finding import Finding, unseen_s
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.snapshot import Snapshot, stale_ports
from fabmon.fabric.time_wording import duration
from fabmon.tui.line import Line, Span, peer, width_of
from fabmon.tui.metrics import traffic_words
from fabmon.tui.palette import Palette
from fabmon.tui.text.draw_context import DrawContext

_GONE = ("down", "lost", "failed", "dead", "stale")


def cause_title(finding: Finding) -> str:
    """The title of a finding's cause: `ECMP collision`."""
    return causes.title(finding.cause)


def event_text(event_: Event) -> str:
    """What happened, with its cause as a person says it."""
    did, _, rest = event_.text.partition(" ")
    name, space, about = rest.partition(" ")
    if event_.kind != "finding":
        return event_.text
    return f"{did} {causes.title(name)}{space}{about}"


def is_gone(finding: Finding) -> bool:
    """Whether it is about something that is not there any more."""
    return finding.cause.endswith(_GONE)


def finding_mark(finding: Finding) -> str:
    """`✖` for something gone, `▲` for something to look at."""
    return "✖" if is_gone(finding) else "▲"


def finding_sign(finding: Finding, snapshot: Snapshot, palette: Palette) -> tuple[str, Style]:
    """Its mark and the colour of its title; `△`, dimmed, for what does not hold any more."""
    if unseen_s(finding, snapshot) is not None:
        return "△", palette.dim
    return finding_mark(finding), palette.gone if is_gone(finding) else palette.hot


def port_name(port: Port) -> str:
    """`leaf1 up5`: the one name that a port has on the screen."""
    return port.display_name


def both_ends(port_: Port, fabric: Fabric) -> str:
    """`leaf1 up5 → spine5 dn1`; without an arrow where the other end is not watched."""
    other = peer(port_, fabric)
    return port_name(port_) if other is None else f"{port_name(port_)} → {port_name(other)}"


def victim_names(finding: Finding, fabric: Fabric) -> list[str]:
    """Who suffers under it; ports as everything else on the screen calls them."""
    nodes = {name.partition("/")[0] for name in finding.victims}
    known = {each.id: port_name(each) for each in fabric.ports if each.node in nodes}
    return [known.get(name, name) for name in finding.victims]


def subject_name(finding: Finding, fabric: Fabric) -> str:
    """What a finding is about, with the other end of the cable."""
    first = finding.rows[0] if finding.rows else None
    if first is None or not 0 <= first < len(fabric.ports):
        return finding.subject
    here = fabric.ports[first]
    if finding.subject not in (here.id, f"{here.node}/{here.label}"):
        return finding.subject
    return link_name(here, fabric)


def link_name(port_: Port, fabric: Fabric) -> str:
    """`leaf1 up5 → spine5`; without an arrow where the other end is not watched."""
    other = peer(port_, fabric)
    return port_name(port_) if other is None else f"{port_name(port_)} → {other.node}"


def name_list(names: Sequence[str], width: int) -> str:
    """As many names as `width` cells hold, and how many more there are."""
    for count in range(len(names), 1, -1):
        left = len(names) - count
        said = ", ".join(names[:count]) + (f" and {left} more" if left else "")
        if cell_len(said) <= width:
            return said
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


# The line below the heatmap: the port under the cursor or the mouse, in words.


def port_summary(ctx: DrawContext, row: int | None) -> Line:
    """Everything that a cell stands for, in `width` cells."""
    palette, snapshot = ctx.palette, ctx.snapshot
    if row is None or row >= len(snapshot.fabric.ports):
        return Line(((" ", palette.text),))
    port = snapshot.fabric.ports[row]
    spans: list[Span] = [
        (f" {both_ends(port, snapshot.fabric)}  ", palette.strong),
        (port_state(ctx.scene, row), palette.gone if snapshot.up[row] == 0 else palette.dim),
        ("  ", palette.text),
    ]
    if snapshot.up[row] != 0:
        if not ctx.metric.traffic:
            spans.append(
                (
                    f"{ctx.metric.say(snapshot, row, ctx.unit)}  ",
                    palette.strong,
                )
            )
        spans.append((traffic_words(snapshot, row, ctx.unit), palette.text))
    for finding in ctx.scene.findings:
        text = f"  {finding_mark(finding)} {cause_title(finding)}"
        if row in finding.rows and width_of(spans) + len(text) < ctx.width:
            spans.append((text, palette.gone if is_gone(finding) else palette.hot))
    return Line(tuple(spans))


def port_state(scene: Scene, row: int) -> str:
    """`up`, `down`, `stale 12 s`, or what else is known of a port."""
    snapshot = scene.snapshot
    if stale_ports(snapshot)[row]:
        return f"stale {duration(float(snapshot.age_s[row]))}"
    if np.isnan(snapshot.up[row]):
        return "state unknown"
    return "up" if snapshot.up[row] else "down"
