"""One finding, explained: the numbers behind it, the ports beside their equals, what to do."""

from __future__ import annotations

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Port
from fabmon.tui import clock
from fabmon.tui.line import Hit, Line, Span, fit, line, right, wrap
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.stage import Stage
from fabmon.tui.target import NodeTarget, PortTarget
from fabmon.tui.text import chart, flows, words
from fabmon.tui.text.inspect import state
from fabmon.tui.text.node import troubles
from fabmon.tui.units import RATE, Unit, evidence, percent, rate

_IDLE = 0.02


def page(stage: Stage, scene: Scene, finding: Finding, open_now: bool, width: int) -> list[Line]:
    """The whole of a finding."""
    palette = stage.palette
    lines = _title(finding, scene, open_now, width, palette)
    lines.append(line(("", palette.text)))
    rows = _equals(finding, scene)
    if rows:
        lines += _ports(finding, rows, stage, scene, width)
    lines += _evidence(finding, width, palette)
    lines += flows.of_finding(stage, scene, finding, width)
    nodes = {node.name for node in scene.moment.fabric.nodes}
    if finding.victims:
        lines.append(line((" Suffers under it", palette.strong)))
    for victim in finding.victims:
        name = victim.split("/")[0].split(" ")[0]
        target = NodeTarget(name) if name in nodes else None
        lines.append(line((f"   → {fit(victim, width - 6)}", palette.text), target=target))
    for title, text in (("Advice", finding.advice), ("Not visible", finding.unseen)):
        if text:
            lines.append(line((f" {title}", palette.strong)))
            lines += [line((f"   {part}", palette.text)) for part in wrap(text, width - 4)]
    return lines


def _title(
    finding: Finding, scene: Scene, open_now: bool, width: int, palette: Palette
) -> list[Line]:
    """Cause and subject, the sentence, since when, how sure."""
    accent = palette.gone if words.gone(finding) else palette.hot
    moment = scene.moment
    until = finding.until_ns or moment.time_ns
    lasted = clock.span((until - finding.since_ns) / clock.SECOND_NS)
    when = f"since {clock.hms(finding.since_ns)} ({lasted})"
    if not open_now:
        when = f"not open any more; began {clock.hms(finding.since_ns)}"
    costs = f"costs {percent(finding.lost)} of the bandwidth, " if finding.lost > 0 else ""
    subject = words.subject(finding, moment.fabric)
    return [
        line(
            (f" {words.mark(finding)} {words.cause(finding)}  ", accent), (subject, palette.strong)
        ),
        *(line((f"   {part}", palette.text)) for part in wrap(finding.text, width - 4)),
        *(
            line((f"   {part}", palette.dim))
            for part in wrap(f"{when}, {costs}{finding.confidence * 100:.0f} % sure", width - 4)
        ),
    ]


def _equals(finding: Finding, scene: Scene) -> list[int]:
    """The ports to show: the whole ECMP group of the guilty one, in physical order."""
    ports = scene.moment.fabric.ports
    rows = [row for row in finding.rows if 0 <= row < len(ports) and ports[row].node]
    if not rows:
        return []
    group = scene.moment.fabric.group_of(rows[0])
    if group is None:
        return rows
    own = list(group.rows)
    return own + [row for row in rows if row not in own]


def _ports(finding: Finding, rows: list[int], stage: Stage, scene: Scene, width: int) -> list[Line]:
    """A bar for each port of the group; in two columns where there is room."""
    palette, fabric = stage.palette, scene.moment.fabric
    ports = [fabric.ports[row] for row in rows]
    one = len({port.node for port in ports}) == 1
    group = fabric.group_of(rows[0])
    title = (
        f" {ports[0].node} → its {len(rows)} equal-cost links, transmit"
        if one and group
        else " Ports"
    )
    lines = [line((title, palette.strong))]
    columns = 2 if width >= 110 and len(ports) > 3 else 1
    each = (width - 2) // columns
    half = -(-len(ports) // columns)
    made = [_bar(port, port.row == finding.rows[0], one, stage, scene, each) for port in ports]
    for place in range(half):
        spans: list[Span] = list(made[place].spans)
        hits = list(made[place].hits)
        if columns == 2 and place + half < len(made):
            other = made[place + half]
            spans += other.spans
            hits += [hit._replace(start=hit.start + each, end=hit.end + each) for hit in other.hits]
        lines.append(Line(tuple(spans), None, tuple(hits)))
    return [*lines, line(("", palette.text))]


def _bar(port: Port, guilty: bool, one: bool, stage: Stage, scene: Scene, width: int) -> Line:
    """`up5 ████████████▌  392 Gb/s ▲ ECN 12.0 k/s` in `width` cells."""
    palette, moment = stage.palette, scene.moment
    share = float(moment.tx_util[port.row])
    unit = stage.choices.unit
    bps = float(moment.column("tx_bps")[port.row])
    said = rate(bps, float(moment.line_rate_bps[port.row]), unit)
    if unit is Unit.PERCENT:
        said = percent(share)
    label = port.label if one else f"{port.node} {port.label}"
    name = 6 if one else 18
    notes = [f"{what} {value}" for what, value, busy in troubles(scene, port.row) if busy]
    down = moment.up[port.row] == 0
    if down:
        notes = [state(scene, port.row)]
    elif share < _IDLE:
        notes.insert(0, "idle")
    mark, accent = (
        ("✖", palette.gone) if down else ("▲", palette.hot) if guilty else (" ", palette.tx)
    )
    room = max(8, width - name - RATE - 24)
    bar = chart.hbar(share, room)
    if palette.depth is Depth.NONE:
        bar = ("#" * round(share * room if share > 0 else 0)).ljust(room)
    spans: list[Span] = [
        (f"   {fit(label, name)}", palette.strong if guilty else palette.text),
        (bar, accent),
        (f" {right(said, RATE)} ", palette.text),
        (f"{mark} ", accent),
    ]
    used = 3 + name + room + 1 + RATE + 1 + 2
    spans.append((fit(" ".join(notes), max(0, width - used)), palette.dim))
    return Line(tuple(spans), None, (Hit(0, width, PortTarget(port.row)),))


def _evidence(finding: Finding, width: int, palette: Palette) -> list[Line]:
    """The numbers behind it, as a table."""
    if not finding.evidence:
        return []
    lines = [line((" Evidence", palette.strong))]
    for item in finding.evidence:
        value = evidence(item.value, item.unit)
        if isinstance(item.value, str):
            text = fit(f"   {fit(item.name, 28)}{value}", width)
            lines.append(line((text, palette.text)))
        else:
            lines.append(line((f"   {fit(item.name, 28)}{right(value, 14)}", palette.text)))
    return lines
