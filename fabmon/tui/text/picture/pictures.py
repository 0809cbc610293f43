"""Parallel links: what each carries, and what chance alone would have done to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fabmon.analysis.evidence.null_model import HashingComparison, compare_with_hashing
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.wording import bit_rate, number, whole_number
from fabmon.tui.line import Line, peer, width_of
from fabmon.tui.text.picture import host, link_ends, pause_tree
from fabmon.tui.text.picture.canvas import LIMIT, RECENT_S, Canvas, Loads, bars


def members(canvas: Canvas) -> list[Port]:
    """The links of the group, in physical order; without those that suffer under it."""
    suffer = set(canvas.finding.victims)
    own = [port for port in canvas.ports if port.id not in suffer]
    places = {node.name: place for place, node in enumerate(canvas.fabric.nodes)}
    return sorted(own, key=lambda port: (places.get(port.node, 0), port.role, port.index, port.row))


def group(canvas: Canvas) -> list[Line]:
    """`leaf1 → spines, transmit …`, a bar for each link, and the null model's line in them."""
    links = members(canvas)
    if not links:
        return []
    loads = Loads(canvas, [port.row for port in links], "tx")
    told = compare_with_hashing(canvas.finding)
    shares = np.array([loads.share(port.row) for port in links], np.float32)
    known = shares[np.isfinite(shares)]
    usual = told.usual * float(known.mean()) if told is not None and len(known) else float("nan")
    title = _title(canvas, links)
    lines = canvas.title(title)
    if told is not None:
        said = _said(told, usual)
        gap = canvas.width - 1 - width_of(lines[-1].spans) - len(said)
        if len(lines) == 1 and gap >= 3:
            lines = [Line((*lines[0].spans, (" " * gap + said, canvas.palette.text)))]
        else:
            lines += canvas.said(said)
    return lines + bars(canvas, links, loads, canvas.height - len(lines), usual)


def _title(canvas: Canvas, links: Sequence[Port]) -> str:
    rates = {float(canvas.snapshot.line_rate_bps[port.row]) for port in links}
    each = f", {bit_rate(rates.pop())} each" if len(rates) == 1 else ""
    here = _side(canvas.fabric, {port.node for port in links})
    there = _side(
        canvas.fabric, {other.node for port in links if (other := peer(port, canvas.fabric))}
    )
    what = f"{here} → {there}, {len(links)} links" if there else f"{len(links)} ports of {here}"
    return f"{what}, transmit{each}, mean of {RECENT_S} s"


def _side(fabric: Fabric, names: set[str]) -> str:
    """One node by its name, several by their group's."""
    if len(names) == 1:
        return next(iter(names))
    groups = {node.group for node in fabric.nodes if node.name in names}
    if len(groups) == 1 and (found := groups.pop()):
        return found
    return f"{len(names)} nodes" if names else ""


def _said(told: HashingComparison, usual: float) -> str:
    """What random hashing would do, what was seen, and where that is in the bars."""
    verdict = "chance does that" if told.explains else "more than chance"
    where = f" ({LIMIT})" if usual <= 1 else ""
    return (
        f"by chance {whole_number(told.flows)} flows on {told.links} links load the busiest up to"
        f" {number(told.usual)} times the mean{where};"
        f" seen {number(told.seen)}: {verdict}"
    )


# Which picture a finding has, by its cause.


Picture = Callable[[Canvas], list[Line]]

PICTURES: Mapping[str, Picture] = {
    "degraded_link": link_ends.ends,
    "ecmp_collision": group,
    "error_burst": link_ends.ends,
    "flapping_link": link_ends.ends,
    "gpu_nic_numa": host.numa_nodes,
    "host_pcie_limit": host.pcie_links,
    "incast": host.receiver,
    "link_down": link_ends.ends,
    "miscabled": link_ends.contradictions,
    "node_lost": host.last_traffic,
    "oversubscription": group,
    "pause_deadlock": pause_tree.pause_cycle,
    "pause_storm": pause_tree.pause_tree,
    "pause_victim": pause_tree.paused_ports,
    "polarization": group,
    "saturated_counter": host.affected_ports,
    "slow_receiver": pause_tree.pause_tree,
    "straggler": host.peers,
    "uneven_rails": host.rails,
}


OF_GROUPS = frozenset(cause for cause, draw in PICTURES.items() if draw is group)
"""The causes that are about parallel links."""


def picture(canvas: Canvas) -> list[Line]:
    """The picture of the canvas' finding; none for a cause that is not known here."""
    draw = PICTURES.get(canvas.finding.cause)
    return draw(canvas) if draw is not None else []
