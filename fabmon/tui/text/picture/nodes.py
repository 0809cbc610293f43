"""A node as a whole: the last that was heard of it, its GPUs and NICs, its stuck counters."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from fabmon.fabric.model import GPU, RAIL, Node
from fabmon.tui import clock
from fabmon.tui.line import Line, fit, line
from fabmon.tui.section import shown
from fabmon.tui.target import NodeTarget
from fabmon.tui.text import chart
from fabmon.tui.text.picture.canvas import Canvas

_LOOK_BACK_S = 300
_NAME = 16


def silence(canvas: Canvas) -> list[Line]:
    """The node's traffic until it fell silent, and what is known of the way to it."""
    node = _node(canvas)
    if node is None:
        return []
    status = canvas.scene.moment.statuses.get(node.name)
    rows = [port.row for port in shown(node, RAIL) or node.ports]
    lines = canvas.title(f"{node.name}: all its traffic in the last {_LOOK_BACK_S // 60} min")
    if rows:
        seen = canvas.window("tx_bps", rows, _LOOK_BACK_S)
        known = np.isfinite(seen)
        total = np.where(known.any(axis=0), np.where(known, seen, 0).sum(axis=0), np.nan)
        columns = max(8, canvas.width - 6)
        drawn = chart.spark(total.astype(np.float32), columns, float(np.nanmax(total, initial=1)))
        lines.append(line((f"   {drawn}", canvas.palette.tx), target=NodeTarget(node.name)))
    if status is not None:
        ago = clock.span((canvas.scene.moment.time_ns - status.since_ns) / clock.SECOND_NS)
        lines += canvas.said(f"{status.state} for {ago}: {status.reason or 'no reason is known'}")
    return lines


def sockets(canvas: Canvas) -> list[Line]:
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


def where(canvas: Canvas) -> list[Line]:
    """How many ports of which nodes."""
    counts = Counter(port.node for port in canvas.ports)
    labels: dict[str, list[str]] = defaultdict(list)
    for port in canvas.ports:
        labels[port.node].append(port.label or port.name)
    lines = canvas.title(f"{canvas.finding.subject} is not to be trusted here")
    room = max(1, canvas.height - 2)
    for name, _ in counts.most_common(room):
        text = fit(f"{' '.join(labels[name])}", max(0, canvas.width - 4 - _NAME))
        lines.append(
            line(
                (f"   {fit(name, _NAME)}", canvas.palette.strong),
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
