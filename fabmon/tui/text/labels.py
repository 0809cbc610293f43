"""Names, titles and marks of ports, findings and events, and a port in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.style import Style

from fabmon.analysis import causes
from fabmon.analysis.evidence.flow_control import uses_credits
from fabmon.analysis.finding import Finding, Trait, holds
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.routing_mode import NOT_REPORTED
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import label_runs, name_list
from fabmon.tui.cells import FADED_MARK
from fabmon.tui.line import Line, Span, Target, fit, paragraph, peer
from fabmon.tui.metrics import traffic_parts
from fabmon.tui.palette import Palette
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.finding_groups import FindingGroup, port_of

_CHANGES = {"open": "Opened", "close": "Ended"}
_GONE_CAUSES = causes.causes_with(Trait.GONE)


def event_text(event: Event, fabric: Fabric) -> str:
    """The text of an event: for a finding, `Opened: ECMP collision leaf1 up5`."""
    return event_texts([event], fabric)[0]


def event_texts(events: Sequence[Event], fabric: Fabric) -> list[str]:
    """The texts of events, whose names are looked up together."""
    about = [each.text.split(" ", 2) if each.kind == "finding" else [] for each in events]
    names = fabric.display_names(parts[2] if len(parts) > 2 else "" for parts in about)
    return [
        f"{_CHANGES.get(parts[0], parts[0])}: {_title_at(parts[1:], fabric)} {name}".rstrip()
        if parts
        else event.text
        for event, parts, name in zip(events, about, names, strict=True)
    ]


def event_node(event: Event) -> str:
    """The node that an event is of; some other word, or nothing, where it is of none."""
    words = event.text.split(" ", 2)
    subject = words[-1] if event.kind == "finding" and len(words) == 3 else words[0]
    return "" if event.kind == "bookmark" else re.split("[/ :]", subject, maxsplit=1)[0]


def _title_at(parts: Sequence[str], fabric: Fabric) -> str:
    """The title of a cause and a subject, by the routing mode of the subject's node, and by the
    kind of its port."""
    cause, subject = (*parts, "", "")[:2]
    node = subject.partition("/")[0]
    routing = fabric.routing.get(node, NOT_REPORTED)
    other = causes.other_title(cause)
    has_credits = bool(other and other.of_credits) and any(
        port.id == subject and uses_credits(port)
        for each in fabric.nodes
        if each.name == node
        for port in each.ports
    )
    return causes.title_at(cause, routing.mode, has_credits)


def is_gone(finding: Finding) -> bool:
    """Whether the subject of a finding is down or lost."""
    return finding.cause in _GONE_CAUSES


def finding_mark(finding: Finding) -> str:
    """`✖` where the subject is down or lost, else `▲`."""
    return "✖" if is_gone(finding) else "▲"


def finding_sign(finding: Finding, snapshot: Snapshot, palette: Palette) -> tuple[str, Style]:
    """A finding's mark and colour; `△`, dimmed, where its condition does not hold any more."""
    if not holds(finding, snapshot):
        return FADED_MARK, palette.dim
    return finding_mark(finding), palette.gone if is_gone(finding) else palette.accent


def finding_paragraph(
    ctx: DrawContext, finding: Finding, target: Target | None = None
) -> list[Line]:
    """`▲ ECMP collision: 46 % lost …`: mark, title and sentence of a finding."""
    sign, style = finding_sign(finding, ctx.snapshot, ctx.palette)
    text = f"{sign} {causes.finding_title(finding)}: {causes.sentence(finding, ctx.snapshot)}"
    return paragraph(text, ctx.width, style, target, indent=1)


def subject_name(finding: Finding, fabric: Fabric) -> str:
    """The subject of a finding; of a port, with the other end of its cable."""
    port = port_of(finding, fabric)
    if port is not None:
        return link_name(port, fabric)
    return fabric.display_names([finding.subject])[0]


def subjects(group: FindingGroup, fabric: Fabric) -> list[str]:
    """The subjects of several findings: ports of one node as runs of labels, else their names."""
    ports = [port_of(finding, fabric) for finding in group.findings]
    known = [port for port in ports if port is not None]
    if len(known) == len(ports) and len({port.node for port in known}) == 1:
        known.sort(key=lambda port: (port.role, port.index, port.name))
        runs = label_runs((port.label or port.name, port.role, port.index) for port in known)
        return runs.split(", ")
    return fabric.display_names(finding.subject for finding in group.findings)


def link_name(port: Port, fabric: Fabric) -> str:
    """`leaf1 up5 → spine5`; without an arrow where the other end is not watched."""
    other = peer(port, fabric)
    return port.display_name if other is None else f"{port.display_name} → {other.node}"


def both_ends(port: Port, fabric: Fabric) -> str:
    """`leaf1 up5 → spine5 dn1`; without an arrow where the other end is not watched."""
    other = peer(port, fabric)
    return port.display_name if other is None else f"{port.display_name} → {other.display_name}"


def fitting_names(names: Sequence[str], width: int) -> str:
    """As many names as `width` cells hold (at least one), and how many more there are."""
    for count in range(min(len(names), max(1, width)), 1, -1):
        text = name_list(names, count)
        if cell_len(text) <= width:
            return text
    return name_list(names, 1)


def port_summary(ctx: DrawContext, row: int | None) -> Line:
    """One line on a port: both ends, state, the chosen metric, traffic and findings."""
    palette, snapshot = ctx.palette, ctx.snapshot
    if row is None or row >= len(ctx.fabric.ports):
        return Line(((" ", palette.text),))
    port, is_down = ctx.fabric.ports[row], snapshot.up[row] == 0
    state = (port_state(ctx.scene, row), palette.gone if is_down else palette.dim)
    values: list[Span] = []
    more: list[Span] = []
    if not is_down:
        if not ctx.metric.is_traffic:
            value = ctx.metric.say(snapshot, row, ctx.choices.unit)
            if ctx.time.is_reading and value.endswith(": absent"):
                value = f"{ctx.metric.name}: …"
            values.append((value, palette.strong))
        traffic = [(part, palette.text) for part in traffic_parts(snapshot, row, ctx.choices.unit)]
        # Without a line rate the third part says how to set it.
        most = 2 if snapshot.line_rate_bps[row] > 0 else 3
        values += traffic[:most]
        more += traffic[most:]
    more += [
        (f"{sign} {causes.finding_title(finding)}", style)
        for finding in ctx.scene.findings
        if row in finding.rows
        for sign, style in [finding_sign(finding, snapshot, palette)]
    ]
    if why := why_not_flagged(ctx, row):
        more.append((why, palette.dim))
    for name in (both_ends(port, ctx.fabric), port.display_name):
        parts: list[Span] = [(f" {name}", palette.strong), state, *values]
        if _summary_width(parts) <= ctx.width:
            break
    else:
        # Half of a number is another number: what does not fit is left out whole.
        cut: Span = ("…", palette.dim)
        parts[0] = (fit(parts[0][0], min(cell_len(parts[0][0]), ctx.width - 3)), palette.strong)
        while len(parts) > 1 and _summary_width([*parts, cut]) > ctx.width:
            parts.pop()
        return Line(tuple(_side_by_side([*parts, cut], palette)))
    for part in more:
        if _summary_width([*parts, part]) <= ctx.width:
            parts.append(part)
    return Line(tuple(_side_by_side(parts, palette)))


def why_not_flagged(ctx: DrawContext, row: int) -> str:
    """`Full, not flagged: one NIC accounts for it (gpu001 r0)`; empty of a link that is flagged, or
    not full."""
    why = ctx.scene.why_unflagged.get(row)
    return f"Full, not flagged: {why}" if why and row not in ctx.flagged_rows else ""


def _side_by_side(parts: Sequence[Span], palette: Palette) -> list[Span]:
    """Parts with blanks between them."""
    blanks: Span = ("  ", palette.text)
    return [span for part in parts for span in (part, blanks)][:-1]


def _summary_width(parts: Sequence[Span]) -> int:
    return sum(cell_len(text) + 2 for text, _ in parts) - 2


def port_state(scene: Scene, row: int) -> str:
    """`up`, `down`, `stale 12 s` or `state unknown`."""
    snapshot = scene.snapshot
    state = snapshot.state(row)
    if state == "stale":
        return f"stale {duration(float(snapshot.age_s[row]))}"
    return "state unknown" if state == "unknown" else state


def port_sign(ctx: DrawContext, rows: set[int]) -> tuple[str, Style]:
    """The mark of a port or link with these rows: `✖` down, else as `flag_sign`."""
    if any(ctx.snapshot.up[row] == 0 for row in rows):
        return "✖", ctx.palette.gone
    return flag_sign(ctx, rows)


def flag_sign(ctx: DrawContext, rows: set[int]) -> tuple[str, Style]:
    """`▲` flagged, `△` of a finding that no longer holds, else blank."""
    if rows & ctx.flagged_rows:
        return "▲", ctx.palette.accent
    return (FADED_MARK, ctx.palette.dim) if rows & ctx.faded_rows else (" ", ctx.palette.text)


def pcie_text(info: Mapping[str, Any]) -> str:
    """The PCIe link of a device, with what it supports where that is more: `PCIe 32 GT/s x8 of
    x16`, `PCIe 16 GT/s x16, supports 32 GT/s`; empty where it is not known.
    """
    speed, width = info.get("pcie_speed_gtps"), info.get("pcie_width")
    most, widest = info.get("pcie_max_speed_gtps"), info.get("pcie_max_width")
    if speed is None or width is None:
        return ""
    lanes = f"x{width}" if widest in (None, width) else f"x{width} of x{widest}"
    more = f", supports {most:g} GT/s" if most not in (None, speed) else ""
    return f"PCIe {speed:g} GT/s {lanes}{more}"
