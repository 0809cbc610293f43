"""Which picture a finding has, by its cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fabmon.tui.line import Line
from fabmon.tui.text.picture import ends, hosts, nodes, waiting
from fabmon.tui.text.picture.canvas import Canvas
from fabmon.tui.text.picture.group import group

Picture = Callable[[Canvas], list[Line]]

PICTURES: Mapping[str, Picture] = {
    "degraded_link": ends.ends,
    "ecmp_collision": group,
    "error_burst": ends.ends,
    "flapping_link": ends.ends,
    "gpu_nic_numa": nodes.sockets,
    "host_pcie_limit": hosts.buses,
    "incast": hosts.receiver,
    "link_down": ends.ends,
    "miscabled": ends.contradictions,
    "node_lost": nodes.silence,
    "oversubscription": group,
    "pause_deadlock": waiting.circle,
    "pause_storm": waiting.tree,
    "pause_victim": waiting.held,
    "polarization": group,
    "saturated_counter": nodes.where,
    "slow_receiver": waiting.tree,
    "straggler": hosts.peers,
    "uneven_rails": hosts.rails,
}


OF_GROUPS = frozenset(cause for cause, draw in PICTURES.items() if draw is group)
"""The causes that are about parallel links."""


def picture(canvas: Canvas) -> list[Line]:
    """The picture of the canvas' finding; none for a cause that is not known here."""
    draw = PICTURES.get(canvas.finding.cause)
    return draw(canvas) if draw is not None else []
