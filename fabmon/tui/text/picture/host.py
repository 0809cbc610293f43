"""A host: its rails beside each other, or itself beside the hosts around it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from fabmon.fabric.model import GPU, HOST, RAIL, Node, Port
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import SECOND_NS, duration
from fabmon.fabric.wording import RATE, rate
from fabmon.tui.heatmap_layout import ports_of_role
from fabmon.tui.line import Line, NodeTarget, fit, line, right
from fabmon.tui.text import chart
from fabmon.tui.text.picture.canvas import RECENT_S, Canvas, Loads, bars
from fabmon.tui.text.picture.pause_tree import pause_tree

_PEER_S = 60
_MOST_PEERS = 8
_NAME = 16


def rails(canvas: Canvas) -> list[Line]:
    """What each rail of the first host sends; and who else is like it."""
    own = _rails(canvas)
    if not own:
        return []
    loads = Loads(canvas, [port.row for port in own], "tx")
    others = list(dict.fromkeys(port.node for port in canvas.ports if port.node != own[0].node))
    lines = canvas.title(f"Rails of {own[0].node}, transmit, mean of {RECENT_S} s")
    alike: list[Line] = []
    if others:
        more = f" and {len(others) - 4} more" if len(others) > 4 else ""
        alike = canvas.said(f"the same on {', '.join(others[:4])}{more}")
    return lines + bars(canvas, own, loads, canvas.height - len(lines) - len(alike)) + alike


def pcie_links(canvas: Canvas) -> list[Line]:
    """What each NIC of the host receives, with its PCIe link; then who waits for the guilty one."""
    own = _rails(canvas)
    if not own:
        return pause_tree(canvas)
    loads = Loads(canvas, [port.row for port in own], "rx")
    lines = canvas.title(f"NICs of {own[0].node}, receive, mean of {RECENT_S} s")
    waits = len(canvas.ports) > 1
    lines += bars(canvas, own, loads, canvas.height - len(lines) - 4 * waits, note=_pcie)
    return lines + (pause_tree(_less(canvas, len(lines))) if waits else [])


def receiver(canvas: Canvas) -> list[Line]:
    """A NIC and its host's others, receive; then who is held by its switch."""
    own = _rails(canvas)
    if not own:
        return []
    loads = Loads(canvas, [port.row for port in own], "rx")
    lines = canvas.title(f"NICs of {own[0].node}, receive, mean of {RECENT_S} s")
    waits = len(canvas.ports) > 2
    lines += bars(canvas, own, loads, canvas.height - len(lines) - 4 * waits)
    return lines + (pause_tree(_less(canvas, len(lines))) if waits else [])


def peers(canvas: Canvas) -> list[Line]:
    """The traffic of a host over the last minute, above that of the hosts around it."""
    if not canvas.ports:
        return []
    name = canvas.ports[0].node
    around = _around(canvas, name, min(_MOST_PEERS, max(1, canvas.height - 2)))
    ports = [ports_of_role(node, RAIL) for node in around]
    sent = [_sum(canvas, "tx_bps", own) for own in ports]
    got = [_sum(canvas, "rx_bps", own) for own in ports]
    moved = [np.fmax(one, other) for one, other in zip(sent, got, strict=True)]
    top = max((float(np.nan_to_num(each).max(initial=0)) for each in moved), default=0.0)
    columns = max(8, min(_PEER_S, canvas.width - 3 - _NAME - RATE - 4))
    lines = canvas.title(
        f"{name} beside hosts around it: all rails, tx or rx, last {_PEER_S} s, one scale"
    )
    for node, values in zip(around, moved, strict=True):
        guilty = node.name == name
        style = canvas.palette.hot if guilty else canvas.palette.tx
        now = rate(float(values[-1]), float("nan"), canvas.ctx.unit)
        lines.append(
            line(
                (f" {'▲' if guilty else ' '} ", canvas.palette.hot),
                (fit(node.name, _NAME), canvas.palette.strong if guilty else canvas.palette.text),
                (chart.spark(values, columns, top), style),
                (f" {right(now, RATE)}", canvas.palette.text),
                target=NodeTarget(node.name),
            )
        )
    return lines


def _less(canvas: Canvas, used: int) -> Canvas:
    height = max(2, canvas.height - used)
    return Canvas(canvas.ctx.sized(canvas.width, height), canvas.finding)


def _rails(canvas: Canvas) -> list[Port]:
    """All rails of the host that the finding is about, in physical order."""
    hosts = [node for node in canvas.fabric.nodes if node.role == HOST]
    named = {port.node for port in canvas.ports[:2]}
    found = next((node for node in hosts if node.name in named), None)
    return list(ports_of_role(found, RAIL)) if found is not None else []


def _around(canvas: Canvas, name: str, count: int) -> list[Node]:
    """The host itself, then those nearest to it in the order of the fabric."""
    hosts = [node for node in canvas.fabric.nodes if node.role == HOST and node.ports]
    place = next((place for place, node in enumerate(hosts) if node.name == name), None)
    if place is None:
        return []
    first = max(0, min(place - count // 2, len(hosts) - count))
    near = [node for node in hosts[first : first + count] if node.name != name]
    return [hosts[place], *near]


def _sum(canvas: Canvas, column: str, ports: Sequence[Port]) -> Floats:
    """[ticks] of all rails of a host together; NaN where none of them is known."""
    seen = canvas.window(column, [port.row for port in ports], _PEER_S)
    known = np.isfinite(seen)
    total: Floats = np.where(known.any(axis=0), np.where(known, seen, 0).sum(axis=0), np.nan)
    return total


def _pcie(port: Port) -> str:
    """`PCIe 32.0 GT/s x8 of x16`; empty where nothing is known."""
    now, lanes = port.info.get("pcie_speed_gtps"), port.info.get("pcie_width")
    most, widest = port.info.get("pcie_max_speed_gtps"), port.info.get("pcie_max_width")
    if now is None or lanes is None:
        return ""
    less = f" of x{widest}" if widest not in (None, lanes) else ""
    return f"PCIe {now:g} GT/s x{lanes}{less}" + (
        f", can {most:g}" if most not in (None, now) else ""
    )


# A node as a whole: the last that was heard of it, its GPUs and NICs, its stuck counters.


_LOOK_BACK_S = 300
_NAME_nodes = 16


def last_traffic(canvas: Canvas) -> list[Line]:
    """The node's traffic until it fell silent, and what is known of the way to it."""
    node = _node(canvas)
    if node is None:
        return []
    status = canvas.snapshot.statuses.get(node.name)
    rows = [port.row for port in ports_of_role(node, RAIL) or node.ports]
    lines = canvas.title(f"{node.name}: all its traffic in the last {_LOOK_BACK_S // 60} min")
    if rows:
        seen = canvas.window("tx_bps", rows, _LOOK_BACK_S)
        known = np.isfinite(seen)
        total = np.where(known.any(axis=0), np.where(known, seen, 0).sum(axis=0), np.nan)
        columns = max(8, canvas.width - 6)
        drawn = chart.spark(total.astype(np.float32), columns, float(np.nanmax(total, initial=1)))
        lines.append(line((f"   {drawn}", canvas.palette.tx), target=NodeTarget(node.name)))
    if status is not None:
        ago = duration((canvas.snapshot.time_ns - status.since_ns) / SECOND_NS)
        lines += canvas.said(f"{status.state} for {ago}: {status.reason or 'no reason is known'}")
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
    far = {port.label for port in canvas.ports}
    lines = canvas.title(f"{node.name}: GPUs and NICs by NUMA node")
    for numa in sorted(on, key=str):
        gpus, nics = on[numa][GPU], on[numa][RAIL]
        said = f"   NUMA {numa if numa is not None else 'unknown'}"
        hot = bool(far & set(gpus))
        lines.append(
            line(
                (f" {'▲' if hot else ' '} {fit(said.strip(), 14)}", canvas.palette.hot),
                (fit(f"GPUs {' '.join(gpus) or '-'}", 34), canvas.palette.text),
                (f"NICs {' '.join(nics) or 'none'}", canvas.palette.text),
                target=NodeTarget(node.name),
            )
        )
    return lines


def affected_ports(canvas: Canvas) -> list[Line]:
    """How many ports of which nodes."""
    counts = Counter(port.node for port in canvas.ports)
    labels: dict[str, list[str]] = defaultdict(list)
    for port in canvas.ports:
        labels[port.node].append(port.label or port.name)
    lines = canvas.title(f"{canvas.finding.subject} is not to be trusted here")
    room = max(1, canvas.height - 2)
    for name, _ in counts.most_common(room):
        text = fit(f"{' '.join(labels[name])}", max(0, canvas.width - 4 - _NAME_nodes))
        lines.append(
            line(
                (f"   {fit(name, _NAME_nodes)}", canvas.palette.strong),
                (text, canvas.palette.text),
                target=NodeTarget(name),
            )
        )
    if len(counts) > room:
        lines += canvas.said(f"and {len(counts) - room} more nodes")
    return lines


def _node(canvas: Canvas) -> Node | None:
    wanted = canvas.ports[0].node if canvas.ports else canvas.finding.subject
    return next((node for node in canvas.fabric.nodes if node.name == wanted), None)
