"""One node: its ports with what they carry, what they suffer, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import GPU, NVLINK, Node, Port
from fabmon.fabric.time_wording import SECOND_NS, duration
from fabmon.fabric.wording import RATE, Unit, compact, per_second, percent, rate
from fabmon.tui.line import Line, PortTarget, Span, fit, line, peer, right, width_of, wrap
from fabmon.tui.metrics import both_words, unit_of
from fabmon.tui.palette import Palette
from fabmon.tui.text import chart, labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.labels import port_state

_MINUTES = 5
_SPARK = 16
_INDENT = 5


def page(ctx: DrawContext, node: Node) -> list[Line]:
    """What is known of a node, then a few lines for each of its ports."""
    palette = ctx.palette
    lines = _about(ctx, node)
    lines.append(line((f" Ports; the curves are of the last {_MINUTES} min", palette.strong)))
    matched = ctx.matched
    ports = [
        port
        for port in node.ports
        if port.role != NVLINK and (matched is None or matched.ports[port.row])
    ]
    if not ports:
        said = "no port in the filter" if node.ports else "no port yet: nothing has come from it"
        return [*lines, line((f"   {said}", palette.dim))]
    hot, marked = ctx.hot_rows, ctx.selection
    ticks = round(_MINUTES * 60 / ctx.snapshot.interval_s)
    rows = [port.row for port in ports]
    windows = [ctx.snapshot.window(name, rows, ticks) for name in ("tx_bps", "rx_bps")]
    for place, port in enumerate(ports):
        tx, rx = windows[0][place], windows[1][place]
        top = float(ctx.snapshot.line_rate_bps[port.row])
        sparks = [chart.spark(values, _SPARK, top) for values in (tx, rx)]
        own = _port(ctx, port, sparks, port.row in hot)
        if marked is not None and port.row in marked.rows:
            own[0] = _marked(own[0], palette)
        lines.extend(own)
    return lines


def _marked(first: Line, palette: Palette) -> Line:
    """The first line of a port, with the mark of the chosen finding before it."""
    text, style = first.spans[0]
    spans = ((palette.selection_mark, palette.strong), (text[1:], style), *first.spans[1:])
    return Line(spans, first.target, first.hits)


def _about(ctx: DrawContext, node: Node) -> list[Line]:
    """State, and what the node says of itself; what is missing on it and why."""
    status = ctx.snapshot.statuses.get(node.name)
    grouped = node.group not in ("", node.name)
    facts = [f"{node.role} of {node.group}" if grouped else node.role]
    facts += [f"{name} {value}" for name, value in node.about.items() if value and name != "probe"]
    cpu = ctx.snapshot.probe_cpu.get(node.name)
    if cpu is not None:
        facts.append(f"probe {percent(cpu)} of a core")
    lines = []
    if status is not None:
        since = duration((ctx.snapshot.time_ns - status.since_ns) / SECOND_NS)
        said = f" {status.state}" + (f" for {since}" if status.since_ns else "")
        reason = f"  {status.reason}" if status.reason else ""
        lines.append(line((said, ctx.palette.strong), (fit(reason, ctx.width), ctx.palette.text)))
    lines += [line((f" {text}", ctx.palette.dim)) for text in wrap(", ".join(facts), ctx.width - 2)]
    for notice in ctx.snapshot.notices.get(node.name, ()):
        where = " ".join(part for part in (notice.source, notice.object, notice.metric) if part)
        text = f"{notice.event} {where}: {notice.text or notice.reason}"
        for number, part in enumerate(wrap(text, ctx.width - 5)):
            lines.append(line((f"   {'? ' if not number else '  '}{part}", ctx.palette.dim)))
    return lines


def _port(
    ctx: DrawContext,
    port: Port,
    sparks: Sequence[str],
    hot: bool,
) -> list[Line]:
    """The lines of one port; all of them open it."""
    palette, snapshot, row = ctx.palette, ctx.snapshot, port.row
    down = snapshot.up[row] == 0
    sign, accent = (
        ("✖", palette.gone) if down else ("▲", palette.hot) if hot else (" ", palette.text)
    )
    other = peer(port, snapshot.fabric)
    name = [
        (f" {sign} ", accent),
        (fit(f"{port.label} {port.name}".strip(), 18), palette.strong),
        (fit(port_state(ctx.scene, row), 12), palette.gone if down else palette.dim),
        (fit(f"→ {labels.port_name(other)}" if other else "", 24), palette.dim),
    ]
    traffic = [
        [*_traffic(ctx, what, port), (f" {drawn}", style)]
        for what, drawn, style in zip(("tx", "rx"), sparks, (palette.tx, palette.rx), strict=True)
    ]
    both: list[Span] = [*traffic[0], ("  ", palette.text), *traffic[1]]
    together = both_words(ctx.snapshot, row, ctx.unit)
    if together:
        both = [(together, palette.text)]
        traffic = [both]
    parts = [name, *([both] if width_of(both) + _INDENT <= ctx.width else traffic)]
    parts += [
        [(f"{label} ", palette.dim), (right(said, 8), palette.text if busy else palette.dim)]
        for label, said, busy in troubles(ctx.scene, row)
    ]
    target = PortTarget(row)
    lines = [Line(tuple(spans), target) for spans in flow(ctx, parts)]
    for text in wrap(facts(port.info), ctx.width - _INDENT - 1):
        lines.append(line((" " * _INDENT + text, palette.dim), target=target))
    return lines


def _traffic(ctx: DrawContext, name: str, port: Port) -> list[Span]:
    """`tx  188 Gb/s 47.0 %`."""
    palette, snapshot = ctx.palette, ctx.snapshot
    chosen = Unit.GBIT if ctx.unit is Unit.PERCENT else ctx.unit
    unit = unit_of(port.kind, chosen)
    bps = float(snapshot.column(f"{name}_bps")[port.row])
    share = float((snapshot.tx_util if name == "tx" else snapshot.rx_util)[port.row])
    said = rate(bps, float(snapshot.line_rate_bps[port.row]), unit)
    return [
        (f"{name} ", palette.dim),
        (f"{right(said, RATE)} {right(compact(percent(share)), 6)}", palette.text),
    ]


_COUNTED = (
    ("errors", "errors"),
    ("drops", "drops"),
    ("ECN", "ecn"),
    ("CNP sent", "cnp_sent"),
    ("CNP", "cnp"),
    ("XOFF", "xoff"),
)


def troubles(scene: Scene, row: int) -> list[tuple[str, str, bool]]:
    """(name, value in words, whether it is more than nothing) of what a port may suffer."""
    told = []
    for name, column in _COUNTED:
        value = float(scene.snapshot.column(column)[row])
        told.append((name, per_second(value), value > 0))
    for name, column in (("paused", "pause_rx"), ("pausing", "pause_tx"), ("stalled", "stall")):
        value = float(scene.snapshot.column(column)[row])
        told.append((name, percent(value), value > 0))
    inside = scene.snapshot.fabric.ports[row].role in (GPU, NVLINK)
    return [each for each in told if not inside or each[0] in ("errors", "drops")]


def flow(ctx: DrawContext, parts: Sequence[list[Span]]) -> list[list[Span]]:
    """Parts side by side, on as many lines as they need; each but the first is indented."""
    lines: list[list[Span]] = []
    current: list[Span] = []
    for part in parts:
        if current and width_of(current) + 2 + width_of(part) > ctx.width:
            lines.append(current)
            current = []
        if current:
            current.append(("  ", ctx.palette.text))
        elif lines:
            current.append((" " * _INDENT, ctx.palette.text))
        current.extend(part)
    return [*lines, current]


def facts(info: dict[str, Any]) -> str:
    """Driver, PCI place, PCIe speed now and at most, NUMA node, then all else that is known."""
    left = dict(info)
    told = [str(left.pop(key)) for key in ("driver", "pci") if key in left]
    numa = left.pop("numa_node", None)
    if numa is not None:
        told.append(f"NUMA {numa}")
    now = _pcie(left.pop("pcie_speed_gtps", None), left.pop("pcie_width", None))
    most = _pcie(left.pop("pcie_max_speed_gtps", None), left.pop("pcie_max_width", None))
    if now:
        told.append(f"PCIe {now}" + (f" (slower than its {most})" if most and most != now else ""))
    left.pop("kind", None)
    told += _nearest(left.pop("affinity", None))
    told += _lossless(left.pop("pfc", None), left.pop("pfc_priorities", None))
    told += [f"{key} {value}" for key, value in left.items() if value not in (None, False, "")]
    return ", ".join(told)


def _nearest(affinity: object) -> list[str]:
    """The NICs that a GPU is nearest to, and how near in the words of `nvidia-smi topo -m`."""
    if not isinstance(affinity, dict):
        return []
    ways = {str(name): way for name, way in affinity.items() if isinstance(way, str)}
    if not ways:
        return []
    way = min(ways.values(), key=lambda way: _NEAREST_FIRST.get(way, len(_NEAREST_FIRST)))
    names = [name for name, its in ways.items() if its == way]
    return [f"nearest NIC {' '.join(names)} ({way})"]


_NEAREST_FIRST = {way: place for place, way in enumerate(("PIX", "PXB", "PHB", "NODE", "SYS"))}


def _lossless(pfc: object, priorities: object) -> list[str]:
    """What is known of priority flow control: on (for which priorities), off, or not supported."""
    if pfc is None:
        return []
    if pfc != "on":
        return [f"PFC {'not supported' if pfc == 'unsupported' else pfc}"]
    which = ", ".join(map(str, priorities)) if isinstance(priorities, (list, tuple)) else ""
    return [f"PFC on, lossless: priority {which}" if which else "PFC on"]


def _pcie(speed: object, lanes: object) -> str:
    return f"{speed} GT/s x{lanes}" if speed is not None and lanes is not None else ""
