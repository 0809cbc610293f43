"""Pictures of a host: its rails, its traffic beside that of other hosts, its GPUs and NICs."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from collectors.catalog.kernel_log import FATAL
from fabmon.analysis.finding import shown_moment
from fabmon.fabric.kernel_log import message_text, pattern_of
from fabmon.fabric.measures import known_mean
from fabmon.fabric.model import GPU, HOST, RAIL, Node, Port
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import SECOND_NS, at_least_a_second, time_of_day
from fabmon.fabric.wording import ABSENT, RATE, name_list, plural, rate
from fabmon.tui.heatmap_units import ports_of_role
from fabmon.tui.line import Line, NodeTarget, PortTarget, fit, line, right
from fabmon.tui.text import chart
from fabmon.tui.text.gpu_activity import activity, is_slowed
from fabmon.tui.text.labels import pcie_text
from fabmon.tui.text.picture.canvas import Canvas, Loads, bars
from fabmon.tui.text.picture.pause_tree import pause_tree

_PEER_S = 60
_MOST_PEERS = 8
_NAME = 16
_BAR = 12
_LOOK_BACK_S = 300


def rails(canvas: Canvas) -> list[Line]:
    """What each rail of the first host sends, and the hosts with the same pattern."""
    own = _rails(canvas)
    if not own:
        return []
    loads = Loads(canvas, [port.row for port in own], "tx")
    others = list(dict.fromkeys(port.node for port in canvas.ports if port.node != own[0].node))
    lines = canvas.title(f"Rails of {own[0].node}, transmit, {canvas.basis}")
    also = canvas.remark(f"Same pattern on {name_list(others, 4)}") if others else []
    return lines + bars(canvas, own, loads, canvas.ctx.height - len(lines) - len(also)) + also


def pcie_links(canvas: Canvas) -> list[Line]:
    """What each NIC of the host receives, with its PCIe link; then the ports that wait for it."""
    return _received(canvas, with_pcie=True) or pause_tree(canvas)


def receiver(canvas: Canvas) -> list[Line]:
    """What each NIC of the host receives; then the ports that wait for it."""
    return _received(canvas, with_pcie=False)


def _received(canvas: Canvas, with_pcie: bool) -> list[Line]:
    own = _rails(canvas)
    if not own:
        return []
    loads = Loads(canvas, [port.row for port in own], "rx")
    lines = canvas.title(f"NICs of {own[0].node}, receive, {canvas.basis}")
    has_tree = len(canvas.ports) > (1 if with_pcie else 2)
    note = (lambda port: pcie_text(port.info)) if with_pcie else None
    room = canvas.ctx.height - len(lines) - 4 * has_tree
    lines += bars(canvas, own, loads, room, note=note)
    return lines + (pause_tree(canvas.sized(canvas.ctx.height - len(lines))) if has_tree else [])


def host_peers(canvas: Canvas) -> list[Line]:
    """The traffic of a host over the last minute, above that of the hosts that wait for it; where
    these are not known, of the hosts listed around it."""
    if not canvas.ports:
        return []
    palette, name = canvas.palette, canvas.ports[0].node
    subject = _node(canvas)
    gpus = _gpu_activity(canvas, subject) if subject is not None else []
    room = canvas.ctx.height - 2 - len(gpus)
    count = min(_MOST_PEERS, max(1, room))
    waiting = _waiting(canvas)
    shown = waiting[: max(0, count - 1)]
    hosts = [*([] if subject is None else [subject]), *shown]
    what = plural(len(waiting), "host")
    if len(shown) < len(waiting):
        what = f"{len(shown)} of the {what}"
    what += f" that {'waits' if len(waiting) == 1 else 'wait'} for it"
    if not waiting:
        hosts, what = _around(canvas, name, count), "the hosts around it"
    ports = [ports_of_role(node, RAIL) for node in hosts]
    moved = [
        np.fmax(canvas.total("tx_bps", own, _PEER_S), canvas.total("rx_bps", own, _PEER_S))
        for own in ports
    ]
    top = max((float(np.nan_to_num(each).max(initial=0)) for each in moved), default=0.0)
    columns = max(8, min(_PEER_S, canvas.ctx.width - 3 - _NAME - RATE - 4))
    when = f"{_PEER_S} s until {canvas.moment}" if canvas.before_s else f"last {_PEER_S} s"
    lines = canvas.title(f"{name} and {what}: all rails, tx or rx, {when}, one scale")
    for node, values in zip(hosts, moved, strict=True):
        is_subject = node.name == name
        now = rate(float(values[-1]), float("nan"), canvas.ctx.choices.unit)
        lines.append(
            line(
                (f" {canvas.subject_mark if is_subject else ' '} ", palette.accent),
                (fit(node.name, _NAME), palette.strong if is_subject else palette.text),
                (chart.spark(values, columns, top), palette.accent if is_subject else palette.tx),
                (f" {right(now, RATE)}", palette.text),
                target=NodeTarget(node.name),
            )
        )
    return lines + gpus


def _gpu_activity(canvas: Canvas, node: Node) -> list[Line]:
    """What each GPU of a node does: a GPU that is slow or idle makes its host a straggler."""
    palette, snapshot = canvas.palette, canvas.snapshot
    gpus = [(gpu, activity(snapshot, gpu)) for gpu in ports_of_role(node, GPU)]
    known = [(gpu, text) for gpu, text in gpus if text]
    now = ", now" if canvas.moment else ""
    lines = canvas.title(f"GPUs of {node.name}{now}") if known else []
    for gpu, text in known:
        sign = "▲" if is_slowed(snapshot, gpu) else " "
        lines.append(
            line(
                (f" {sign} {fit(gpu.label, 5)}", palette.accent if sign == "▲" else palette.strong),
                (fit(text, max(0, canvas.ctx.width - 8)), palette.text),
                target=PortTarget(gpu.row),
            )
        )
    return lines


def _rails(canvas: Canvas) -> list[Port]:
    """All rails of the finding's host, in physical order."""
    named = {port.node for port in canvas.ports[:2]}
    hosts = (node for node in canvas.fabric.nodes if node.role == HOST)
    found = next((node for node in hosts if node.name in named), None)
    return list(ports_of_role(found, RAIL)) if found is not None else []


def _waiting(canvas: Canvas) -> list[Node]:
    """The hosts that the finding names as affected, in its order."""
    nodes = {node.name: node for node in canvas.fabric.nodes if node.role == HOST and node.ports}
    return [nodes[name] for name in shown_moment(canvas.finding).victims if name in nodes]


def _around(canvas: Canvas, name: str, count: int) -> list[Node]:
    """The host itself, then those nearest to it in the order of the fabric."""
    hosts = [node for node in canvas.fabric.nodes if node.role == HOST and node.ports]
    place = next((place for place, node in enumerate(hosts) if node.name == name), None)
    if place is None:
        return []
    first = max(0, min(place - count // 2, len(hosts) - count))
    near = [node for node in hosts[first : first + count] if node.name != name]
    return [hosts[place], *near]


def last_traffic(canvas: Canvas) -> list[Line]:
    """The traffic of a node until it was lost, and the state of the connection to it."""
    node = _node(canvas)
    if node is None:
        return []
    status = canvas.snapshot.statuses.get(node.name)
    ports = ports_of_role(node, RAIL) or node.ports
    lines = canvas.title(f"{node.name}: all its traffic in the last {_LOOK_BACK_S // 60} min")
    if ports:
        total = canvas.total("tx_bps", ports, _LOOK_BACK_S)
        columns = max(8, canvas.ctx.width - 6)
        drawn = chart.spark(total, columns, float(np.nanmax(total, initial=1)))
        lines.append(line((f"   {drawn}", canvas.palette.tx), target=NodeTarget(node.name)))
    if status is not None:
        length = at_least_a_second((canvas.snapshot.time_ns - status.since_ns) / SECOND_NS)
        is_up = status.state is NodeState.UP
        reason = status.reason or ("" if is_up else "unknown reason")
        lines += canvas.remark(f"{status.state} for {length}" + (f": {reason}" if reason else ""))
    return lines


def numa_nodes(canvas: Canvas) -> list[Line]:
    """Which GPUs and which NICs are on which NUMA node."""
    node = _node(canvas)
    if node is None:
        return []
    on: dict[object, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for port in sorted(node.ports, key=lambda each: (each.role, each.index)):
        if port.role in (GPU, RAIL):
            on[port.info.get("numa_node")][port.role].append(port.label or port.name)
    distant = {port.label for port in canvas.ports}
    lines = canvas.title(f"{node.name}: GPUs and NICs by NUMA node")
    for numa in sorted(on, key=str):
        gpus, nics = on[numa][GPU], on[numa][RAIL]
        name = fit(f"NUMA {numa if numa is not None else 'unknown'}", 14)
        lines.append(
            line(
                (f" {'▲' if distant & set(gpus) else ' '} {name}", canvas.palette.accent),
                (fit(f"GPUs {' '.join(gpus) or 'none'}", 34), canvas.palette.text),
                (f"NICs {' '.join(nics) or 'none'}", canvas.palette.text),
                target=NodeTarget(node.name),
            )
        )
    return lines


def nvlinks(canvas: Canvas) -> list[Line]:
    """The links of each GPU of the node, by number: up or not."""
    node = _node(canvas)
    if node is None:
        return []
    lines = canvas.title(f"{node.name}: NVLinks of each GPU, nv0 first; █ active, ✖ not")
    for gpu, links in node.gpu_links():
        drawn = "".join("✖" if canvas.is_down(port.row) else "█" for port in links)
        active = len(links) - drawn.count("✖")
        style = canvas.palette.gone if "✖" in drawn else canvas.palette.text
        lines.append(
            line(
                (f"   {fit(gpu.label, 5)}", canvas.palette.strong),
                (f"{drawn}  ", style),
                (f"{active} of {len(links)}", canvas.palette.dim),
                target=PortTarget(gpu.row),
            )
        )
    return lines


def affected_ports(canvas: Canvas) -> list[Line]:
    """The affected ports of a counter, a line per node."""
    counts = Counter(port.node for port in canvas.ports)
    labels: dict[str, list[str]] = defaultdict(list)
    for port in canvas.ports:
        labels[port.node].append(port.label or port.name)
    lines = canvas.title(f"{canvas.finding.subject} is not reliable on these ports")
    room = max(1, canvas.ctx.height - 2)
    for name, _ in counts.most_common(room):
        text = fit(" ".join(labels[name]), max(0, canvas.ctx.width - 4 - _NAME))
        lines.append(
            line(
                (f"   {fit(name, _NAME)}", canvas.palette.strong),
                (text, canvas.palette.text),
                target=NodeTarget(name),
            )
        )
    if len(counts) > room:
        lines += canvas.remark(f"and {plural(len(counts) - room, 'more node')}")
    return lines


def resending_ports(canvas: Canvas) -> list[Line]:
    """The ports whose packets are lost, with how many a second are answered with a NAK."""
    ports = canvas.ports[: max(1, canvas.ctx.height - 1)]
    naks = canvas.recent("naks", [port.row for port in ports])
    per_s = known_mean(naks)
    top = float(np.nan_to_num(per_s).max(initial=0)) or 1.0
    return canvas.title(f"NAKs received: packets that are lost; {canvas.basis}") + [
        line(
            (f"   {fit(port.display_name, _NAME)} ", canvas.palette.text),
            (canvas.bar(value / top, _BAR), canvas.palette.accent),
            (
                f" {right(f'{value:,.0f}' if np.isfinite(value) else ABSENT, 9)}/s",
                canvas.palette.text,
            ),
            target=PortTarget(port.row),
        )
        for port, value in zip(ports, per_s.tolist(), strict=True)
    ]


def kernel_messages(canvas: Canvas) -> list[Line]:
    """What the kernel of the node logged about its devices, latest first."""
    name = canvas.ports[0].node if canvas.ports else canvas.finding.subject_node
    messages = canvas.snapshot.logs.get(name, ())
    node = next((each for each in canvas.fabric.nodes if each.name == name), None)
    lines = canvas.title(f"{name}: kernel log, latest first")
    for message in reversed(messages[-max(1, canvas.ctx.height - len(lines)) :]):
        is_fatal = pattern_of(message).severity == FATAL
        style = canvas.palette.gone if is_fatal else canvas.palette.text
        text = fit(message_text(message, node), max(0, canvas.ctx.width - 15))
        lines.append(
            line(
                (f"   {time_of_day(message.logged_ns or 0)} ", canvas.palette.dim),
                (f"{'✖' if is_fatal else ' '} ", style),
                (text, style),
                target=NodeTarget(name),
            )
        )
    return lines


def _node(canvas: Canvas) -> Node | None:
    wanted = canvas.ports[0].node if canvas.ports else canvas.finding.subject
    return next((node for node in canvas.fabric.nodes if node.name == wanted), None)
