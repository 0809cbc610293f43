"""The picture of each finding, by the name that its cause declares, and that of parallel links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fabmon.analysis.causes import CAUSES
from fabmon.analysis.evidence.null_model import HashingComparison, compare_with_hashing
from fabmon.analysis.finding import shown_moment
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.wording import bit_rate, number, plural, whole_number
from fabmon.tui.line import Line, peer, width_of
from fabmon.tui.text.picture import host, link_ends, pause_tree
from fabmon.tui.text.picture.canvas import LIMIT, Canvas, Loads, bars


def group_members(canvas: Canvas) -> list[Port]:
    """The links of the group in physical order, without the affected ports."""
    affected = set(shown_moment(canvas.finding).victims)
    own = [port for port in canvas.ports if port.id not in affected]
    places = {node.name: place for place, node in enumerate(canvas.fabric.nodes)}
    return sorted(own, key=lambda port: (places.get(port.node, 0), port.role, port.index, port.row))


def link_group(canvas: Canvas) -> list[Line]:
    """`leaf1 → spines, transmit …`, a bar per link, and in them what random hashing would load."""
    links = group_members(canvas)
    if not links:
        return []
    loads = Loads(canvas, [port.row for port in links], "tx")
    hashing = compare_with_hashing(shown_moment(canvas.finding))
    shares = np.array([loads.share(port.row) for port in links], np.float32)
    known = shares[np.isfinite(shares)]
    lines, usual = canvas.title(_title(canvas, links)), float("nan")
    if hashing is not None:
        if len(known):
            usual = hashing.usual * float(known.mean())
        text = _hashing_text(hashing, usual)
        gap = canvas.ctx.width - 1 - width_of(lines[-1].spans) - len(text)
        if len(lines) == 1 and gap >= 3:
            lines = [Line((*lines[0].spans, (" " * gap + text, canvas.palette.text)))]
        else:
            lines += canvas.remark(text)
    return lines + bars(canvas, links, loads, canvas.ctx.height - len(lines), usual)


def _title(canvas: Canvas, links: Sequence[Port]) -> str:
    rates = {float(canvas.snapshot.line_rate_bps[port.row]) for port in links}
    each = f", {bit_rate(rates.pop())} each" if len(rates) == 1 else ""
    here = _side(canvas.fabric, {port.node for port in links})
    others = {other.node for port in links if (other := peer(port, canvas.fabric))}
    there = _side(canvas.fabric, others)
    what = f"{here} → {there}, {len(links)} links" if there else f"{len(links)} ports of {here}"
    return f"{what}, transmit{each}, {canvas.basis}"


def _side(fabric: Fabric, names: set[str]) -> str:
    """One node by its name, several nodes of one group by its name, else their number."""
    if len(names) == 1:
        return next(iter(names))
    groups = {node.group for node in fabric.nodes if node.name in names}
    if len(groups) == 1 and (found := groups.pop()):
        return found
    return plural(len(names), "node") if names else ""


def _hashing_text(hashing: HashingComparison, usual: float) -> str:
    """How far random hashing would load the busiest link (`usual`), and what was measured."""
    verdict = "random hashing explains it" if hashing.explains else "more than random"
    where = f" ({LIMIT})" if usual <= 1 else ""
    return (
        f"random hashing of {whole_number(hashing.flows)} flows on {hashing.links} links: busiest"
        f" up to {number(hashing.usual)} times the mean{where};"
        f" measured {number(hashing.seen)}: {verdict}"
    )


PICTURES: Mapping[str, Callable[[Canvas], list[Line]]] = {
    "affected_ports": host.affected_ports,
    "cabling": link_ends.cabling,
    "host_peers": host.host_peers,
    "kernel_messages": host.kernel_messages,
    "last_traffic": host.last_traffic,
    "link_ends": link_ends.link_ends,
    "link_group": link_group,
    "numa_nodes": host.numa_nodes,
    "nvlinks": host.nvlinks,
    "pause_cycle": pause_tree.pause_cycle,
    "pause_tree": pause_tree.pause_tree,
    "paused_ports": pause_tree.paused_ports,
    "pcie_links": host.pcie_links,
    "rails": host.rails,
    "receiver": host.receiver,
    "resending_ports": host.resending_ports,
}
"""Drawing functions by the name that a cause declares as its `picture`."""

OF_GROUPS = frozenset(name for name, cause in CAUSES.items() if cause.picture == "link_group")
"""Names of the causes that are about parallel links."""


def picture(canvas: Canvas) -> list[Line]:
    """The picture of the canvas's finding; none for a cause that is not declared."""
    cause = CAUSES.get(canvas.finding.cause)
    return [] if cause is None else PICTURES[cause.picture](canvas)
