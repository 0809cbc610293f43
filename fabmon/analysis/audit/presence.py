"""Rails that carry nothing: the port is down, or the host has fewer of them than its peers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from fabmon.analysis.audit.fault import MEND, Fault
from fabmon.analysis.audit.survey import Survey
from fabmon.fabric.model import HOST, RAIL, Node, Port

_MOST_NAMED = 4
_NUMBER = re.compile(r"\d+")


def down(survey: Survey) -> Iterator[Fault]:
    """Ports that are down while most ports of their rail are up."""
    up = survey.moment.up
    for rail, ports in survey.rails():
        known = [port for port in ports if up[port.row] == up[port.row]]
        alive = sum(up[port.row] == 1 for port in known)
        if 2 * alive <= len(known):
            continue
        for port in known:
            if up[port.row] == 0:
                yield Fault(
                    check="rail_down",
                    severity=MEND,
                    ports=(port.id,),
                    text=f"down, {alive} of the {len(known)} ports of rail {rail} are up",
                    advice="Look at the cable, the optics and the switch port; then at its driver.",
                )


def missing(survey: Survey) -> Iterator[Fault]:
    """Hosts with fewer rails than most of their peers: those whose names differ by numbers only.

    Where some of the peers have RDMA, only ports with RDMA count.
    """
    peers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in survey.moment.fabric.nodes:
        if node.role == HOST and node.name in survey.hellos:
            peers[_NUMBER.sub("#", node.name)].append(node)
    for nodes in peers.values():
        yield from _fewer({node.name: _rails(node, nodes) for node in nodes})


def _rails(node: Node, peers: Sequence[Node]) -> list[Port]:
    rdma = any(port.info.get("rdma") for peer in peers for port in peer.ports)
    return [
        port for port in node.ports if port.role == RAIL and (port.info.get("rdma") or not rdma)
    ]


def _fewer(rails: dict[str, list[Port]]) -> Iterator[Fault]:
    """`rails` are those of hosts that are peers of each other."""
    counts = Counter(len(ports) for ports in rails.values())
    usual = max(counts, key=lambda count: (counts[count], count))
    if 2 * counts[usual] < len(rails):
        return
    places = Counter(str(port.info.get("pci")) for ports in rails.values() for port in ports)
    for name, ports in rails.items():
        if len(ports) >= usual:
            continue
        mine = {str(port.info.get("pci")) for port in ports} | {"None"}
        empty = [each for each in places if each not in mine and 2 * places[each] >= len(rails)]
        where = f"; nothing at {', '.join(sorted(empty)[:_MOST_NAMED])}" if empty else ""
        yield Fault(
            check="rail_missing",
            severity=MEND,
            ports=(name,),
            text=f"{len(ports)} rails, most of its peers have {usual}{where}",
            advice="Look whether the card is there (lspci), and whether its driver is (dmesg).",
        )
