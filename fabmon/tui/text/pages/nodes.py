"""The page of all nodes (connection states, similar failures in one line) and the page of one node
(its state and, for each port, traffic, errors and facts).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.style import Style

from fabmon.fabric.model import DOWNLINK, GPU, NVLINK, ROLE_ORDER, UPLINK, Node, Port
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.time_wording import SECOND_NS, duration
from fabmon.fabric.wording import (
    NO_BREAK_SPACE,
    RATE,
    Unit,
    compact,
    name_list,
    per_second,
    percent,
    plural,
)
from fabmon.tui.line import (
    FoldTarget,
    Line,
    NodeTarget,
    PortTarget,
    Span,
    fit,
    line,
    paragraph,
    peer,
    right,
    width_of,
    wrap,
)
from fabmon.tui.metrics import combined_traffic_text, unit_of
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text import chart
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.gpu_activity import activity, is_slowed
from fabmon.tui.text.labels import pcie_text, port_sign, port_state

_BAD = (NodeState.LOST, NodeState.FAILED)
_FOLDED = (*_BAD, NodeState.STALE)
_SIGNS = {
    NodeState.FAILED: "✖",
    NodeState.LOST: "✖",
    NodeState.STALE: "▒",
    NodeState.STARTING: "◐",
    NodeState.CONNECTING: "◌",
    NodeState.QUEUED: "·",
    NodeState.UP: "●",
}
"""The states of nodes with their marks, worst first."""
_ORDER = tuple(_SIGNS)
_FOR = 11
"""Cells of the longest duration: `59 min 59 s`."""
_MINUTES = 5
_SPARK = 16
_INDENT = 5
_EVENTS = (
    ("errors", "errors"),
    ("drops", "drops"),
    ("ECN", "ecn"),
    ("CNP sent", "cnp_sent"),
    ("CNP", "cnp"),
    ("XOFF", "xoff"),
)
_SHARES = (("paused", "pause_rx"), ("pausing", "pause_tx"), ("stalled", "stall"))
_SHOWN_ELSEWHERE = (
    *("kind", "line_rate_bps", "gid_prefix"),
    *("pcie_speed_gtps", "pcie_width", "pcie_max_speed_gtps", "pcie_max_width"),
)
"""Facts that other columns and facts contain."""
_NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")


def nodes_page(ctx: DrawContext, unfolded: frozenset[FoldTarget]) -> list[Line]:
    """A progress bar of the connections, the states with counts, then a line per node, worst first.

    Nodes with the same failure are one line, followed by a line each where it is `unfolded`.
    """
    palette = ctx.palette
    statuses = _matching(ctx)
    lines = [_progress(ctx, statuses), _state_counts(statuses, palette)]
    lines.append(line(("", palette.text)))
    if not ctx.snapshot.statuses:
        return lines + paragraph(ctx.no_nodes_reason, ctx.width, palette.accent, indent=1)
    name = min(max((len(status.node) for status in statuses), default=4), 24)
    head = f"   {'node':<{name}}  {'state':<10}  {'for':>{_FOR}}  {'probe CPU':>9}  reason"
    lines.append(line((fit(head, ctx.width), palette.dim)))
    for group in _groups(statuses):
        fold = FoldTarget(group[0].state, group[0].cause)
        if len(group) > 1:
            lines.append(_fold(ctx, group, fold in unfolded, fold))
        if len(group) == 1 or fold in unfolded:
            lines += [_node(ctx, status, name) for status in group]
    return lines


def _matching(ctx: DrawContext) -> list[NodeStatus]:
    """The nodes that match the filter, in the order of the fabric."""
    statuses, matched = ctx.snapshot.statuses, ctx.matched
    names = dict.fromkeys([*(node.name for node in ctx.fabric.nodes), *statuses])
    return [
        statuses[name]
        for name in names
        if name in statuses and (matched is None or name in matched.nodes)
    ]


def _progress(ctx: DrawContext, statuses: list[NodeStatus]) -> Line:
    """A bar of how many of the nodes send data."""
    up, total = sum(status.state is NodeState.UP for status in statuses), len(statuses)
    text = f" {up}/{total} up "
    room = max(4, min(ctx.width - len(text) - 14, 60))
    full = round(room * up / total) if total else 0
    done, rest = ("#", "-") if ctx.palette.depth is Depth.NONE else ("█", "░")
    return line(
        (" Connected ", ctx.palette.strong),
        (done * full, ctx.palette.tx),
        (rest * (room - full), ctx.palette.rule),
        (text, ctx.palette.strong if up == total else ctx.palette.text),
    )


def _state_counts(statuses: list[NodeStatus], palette: Palette) -> Line:
    counts = Counter(status.state for status in statuses)
    spans: list[Span] = [(" ", palette.text)]
    for state in reversed(_ORDER):
        if counts[state]:
            spans.append((f"{_SIGNS[state]} {counts[state]} {state}   ", _style(state, palette)))
    return Line(tuple(spans))


def _style(state: NodeState, palette: Palette) -> Style:
    if state in _BAD:
        return palette.gone
    return {NodeState.UP: palette.text, NodeState.STALE: palette.accent}.get(state, palette.dim)


def _groups(statuses: list[NodeStatus]) -> list[list[NodeStatus]]:
    """Groups of one node, but stale, lost and failed nodes with the same cause; worst first."""
    groups: dict[tuple[str, str], list[NodeStatus]] = defaultdict(list)
    for status in statuses:
        key = status.cause if status.state in _FOLDED and status.cause else f"\0{status.node}"
        groups[status.state, key].append(status)
    return sorted(groups.values(), key=lambda group: _ORDER.index(group[0].state))


def _fold(ctx: DrawContext, group: list[NodeStatus], unfolded: bool, fold: FoldTarget) -> Line:
    """`▸ ✖ 12 failed, host key  gpu001, gpu002, gpu003 and 9 more: reason`."""
    first = group[0]
    names = name_list([status.node for status in group], 3)
    sign = f" {'▾' if unfolded else '▸'} {_SIGNS[first.state]}"
    head = f"{sign} {len(group)} {first.state}, {first.cause}  "
    text = fit(f"{names}: {first.reason or first.cause}", max(0, ctx.width - len(head)))
    return line((head, _style(first.state, ctx.palette)), (text, ctx.palette.text), target=fold)


def _node(ctx: DrawContext, status: NodeStatus, name: int) -> Line:
    """One node in a line; `name` is the width of its name."""
    palette, selection = ctx.palette, ctx.selection
    is_marked = selection is not None and status.node in selection.nodes
    lasted = duration((ctx.snapshot.time_ns - status.since_ns) / SECOND_NS)
    cpu = percent(ctx.snapshot.probe_cpu.get(status.node))
    notices = ctx.snapshot.notices.get(status.node, ())
    reason = status.reason or (f"{plural(len(notices), 'notice')}: enter" if notices else "")
    state = f"{_SIGNS[status.state]} {status.state}"
    used = 3 + name + 2 + 12 + _FOR + 2 + 9 + 2
    return line(
        (f" {palette.selection_mark if is_marked else ' '} ", palette.strong),
        (f"{fit(status.node, name)}  ", palette.text),
        (f"{state:<12}", _style(status.state, palette)),
        (f"{right(lasted, _FOR)}  {right(cpu, 9)}  ", palette.dim),
        (fit(reason, max(0, ctx.width - used)), palette.text),
        target=NodeTarget(status.node),
    )


def node_page(ctx: DrawContext, node: Node) -> list[Line]:
    """State and facts of a node, then a few lines for each of its ports."""
    palette, snapshot, matched = ctx.palette, ctx.snapshot, ctx.matched
    lines = _about(ctx, node)
    lines.append(line((f" Ports, with curves of the last {_MINUTES} min", palette.strong)))
    ports = [
        port
        for port in node.ports
        if port.role != NVLINK and (matched is None or matched.ports[port.row])
    ]
    ports.sort(key=lambda port: ROLE_ORDER.index(port.role))
    if not ports:
        text = "No port matches the filter" if node.ports else "No data from this node yet"
        return [*lines, line((f"   {text}", palette.dim))]
    ticks = round(_MINUTES * 60 / snapshot.interval_s)
    rows = [port.row for port in ports]
    windows = [snapshot.window(name, rows, ticks) for name in ("tx_bps", "rx_bps")]
    for place, port in enumerate(ports):
        top = float(snapshot.line_rate_bps[port.row])
        sparks = [chart.spark(values[place], _SPARK, top) for values in windows]
        own = _port(ctx, port, sparks)
        if ctx.selection is not None and port.row in ctx.selection.rows:
            own[0] = _marked(own[0], palette)
        lines += own
    return lines


def _marked(first: Line, palette: Palette) -> Line:
    """The first line of a port, with the mark of the selected finding before it."""
    text, style = first.spans[0]
    spans = ((palette.selection_mark, palette.strong), (text[1:], style), *first.spans[1:])
    return Line(spans, first.target, first.hits)


def _about(ctx: DrawContext, node: Node) -> list[Line]:
    """The node's state, its facts, and its notices: what cannot be read on it, and why."""
    palette, snapshot = ctx.palette, ctx.snapshot
    status = snapshot.statuses.get(node.name)
    grouped = node.group not in ("", node.name)
    facts = [f"{node.role} of {node.group}" if grouped else node.role]
    facts += [_fact(name, value) for name, value in node.about.items() if value and name != "probe"]
    if node.name in snapshot.probe_cpu:
        facts.append(_fact("probe", f"{percent(snapshot.probe_cpu[node.name])} of a core"))
    lines = []
    if status is not None:
        lasted = duration((snapshot.time_ns - status.since_ns) / SECOND_NS)
        state = f" {status.state}" + (f" for {lasted}" if status.since_ns else "")
        reason = f"  {status.reason}" if status.reason else ""
        lines.append(line((state, palette.strong), (fit(reason, ctx.width), palette.text)))
    lines += paragraph(", ".join(facts), ctx.width, palette.dim, indent=1)
    for notice in snapshot.notices.get(node.name, ()):
        where = " ".join(part for part in (notice.source, notice.object, notice.metric) if part)
        text = f"{notice.event} {where}: {notice.text or notice.reason}"
        for number, part in enumerate(wrap(text, ctx.width - 5)):
            lines.append(line((f"   {'? ' if not number else '  '}{part}", palette.dim)))
    return lines


def _port(ctx: DrawContext, port: Port, sparks: Sequence[str]) -> list[Line]:
    """The lines of one port, each of which opens it; `sparks` are its tx and rx curves."""
    palette, row = ctx.palette, port.row
    sign, accent = port_sign(ctx, {row})
    other = peer(port, ctx.fabric)
    name = [
        (f" {sign} ", accent),
        (fit(f"{port.label} {port.name}".strip(), 18), palette.strong),
        (fit(port_state(ctx.scene, row), 12), accent if sign == "✖" else palette.dim),
        (fit(f"→ {other.display_name}" if other else "", 24), palette.dim),
    ]
    traffic = [
        [*_traffic(ctx, direction, port), (f" {drawn}", style)]
        for direction, drawn, style in zip(
            ("tx", "rx"), sparks, (palette.tx, palette.rx), strict=True
        )
    ]
    both: list[Span] = [*traffic[0], ("  ", palette.text), *traffic[1]]
    together = combined_traffic_text(ctx.snapshot, row, ctx.unit)
    if together:
        both = [(together, palette.text)]
        traffic = [both]
    parts = [name, *([both] if width_of(both) + _INDENT <= ctx.width else traffic)]
    parts += [
        [(f"{label} ", palette.dim), (right(text, 8), palette.text if busy else palette.dim)]
        for label, text, busy in congestion(ctx, row)
    ]
    target = PortTarget(row)
    does = palette.accent if is_slowed(ctx.snapshot, port) else palette.text
    facts = ", ".join(filter(None, (role_text(port), port_facts(port.info))))
    return [
        *(Line(tuple(spans), target) for spans in flow(ctx, parts)),
        *paragraph(activity(ctx.snapshot, port), ctx.width, does, target, indent=_INDENT),
        *paragraph(facts, ctx.width, palette.dim, target, indent=_INDENT),
    ]


def _traffic(ctx: DrawContext, direction: str, port: Port) -> list[Span]:
    """`tx  188 Gb/s 47.0 %`."""
    unit = unit_of(port.kind, Unit.GBIT if ctx.unit is Unit.PERCENT else ctx.unit)
    util = ctx.snapshot.tx_util if direction == "tx" else ctx.snapshot.rx_util
    share = right(compact(percent(float(util[port.row]))), 6)
    return [
        (f"{direction} ", ctx.palette.dim),
        (f"{right(ctx.traffic(port.row, direction, unit), RATE)} {share}", ctx.palette.text),
    ]


def congestion(ctx: DrawContext, row: int) -> list[tuple[str, str, bool]]:
    """(name, value as text, whether it is above 0) of a port's errors, congestion and pause."""
    found = []
    for names, formatted in ((_EVENTS, per_second), (_SHARES, percent)):
        for name, column in names:
            value = float(ctx.snapshot.column(column)[row])
            found.append((name, formatted(value), value > 0))
    inside = ctx.fabric.ports[row].role in (GPU, NVLINK)
    return [each for each in found if not inside or each[0] in ("errors", "drops")]


def flow(ctx: DrawContext, parts: Sequence[list[Span]]) -> list[list[Span]]:
    """Parts side by side, on as many lines as they need; each line but the first is indented."""
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


def port_facts(info: Mapping[str, Any]) -> str:
    """Driver, PCI address, NUMA node, PCIe link, nearest NICs and PFC, then all other facts.

    Where it is wrapped, the name of a fact and its value stay on one line.
    """
    left = dict(info)
    facts = [str(left.pop(key)) for key in ("driver", "pci") if key in left]
    numa = left.pop("numa_node", None)
    if numa is not None:
        facts.append(_fact("NUMA", numa))
    facts += filter(None, [pcie_text(info), _nearest(left.pop("affinity", None))])
    facts += filter(None, [_lossless(left.pop("pfc", None), left.pop("pfc_priorities", None))])
    for key in _SHOWN_ELSEWHERE:
        left.pop(key, None)
    facts += [_fact(key, value) for key, value in left.items() if value not in (None, False, "")]
    return ", ".join(facts)


def _fact(name: str, value: object) -> str:
    """`netdev eth0`, with a no-break space."""
    return f"{name}{NO_BREAK_SPACE}{value}"


def role_text(port: Port) -> str:
    """`storage (RDMA device; 200 Gb/s, the rails have 400 Gb/s)`; empty for a switch's port, whose
    label says it, and where no reason is known."""
    is_clear = port.role in (UPLINK, DOWNLINK) or not port.role_reason
    return "" if is_clear else f"{port.role} ({port.role_reason})"


def _nearest(affinity: object) -> str:
    """The NICs nearest to a GPU, with the distance as `nvidia-smi topo -m` names it."""
    if not isinstance(affinity, dict):
        return ""
    distances = {str(name): each for name, each in affinity.items() if isinstance(each, str)}
    if not distances:
        return ""
    places = {each: place for place, each in enumerate(_NEAREST_FIRST)}
    nearest = min(distances.values(), key=lambda each: places.get(each, len(places)))
    names = [name for name, each in distances.items() if each == nearest]
    return f"nearest NIC {' '.join(names)} ({nearest})"


def _lossless(pfc: object, priorities: object) -> str:
    """Priority flow control: on (with its priorities), off, or not supported."""
    if pfc is None:
        return ""
    if pfc != "on":
        return f"PFC {'not supported' if pfc == 'unsupported' else pfc}"
    which = ", ".join(map(str, priorities)) if isinstance(priorities, (list, tuple)) else ""
    return f"PFC on, lossless: priority {which}" if which else "PFC on"
