"""The ports that a finding slows, as a person reads them: the NICs of hosts first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fabmon.analysis.finding import Condition, Finding, shown_moment
from fabmon.analysis.recent_load import OF_FULL_LINKS
from fabmon.fabric.model import DOWNLINK, HOST, RAIL, Fabric, Port
from fabmon.fabric.names import natural

"""Causes whose victims feed a group of links: of a switch's port, the host behind it is slowed. Of
the other causes the victims are ports that wait themselves."""


class AffectedPort(NamedTuple):
    """A slowed port or node: `name` is its display name, `node` its node.

    Of a switch's port towards a host that is slowed, these are the host's NIC and the host, and
    `switch_port` is the display name of the port; else that is empty.
    """

    name: str
    node: str
    switch_port: str = ""

    @property
    def text(self) -> str:
        """`gpu005 r0 (leaf1 dn5)`, or the name alone."""
        return f"{self.name} ({self.switch_port})" if self.switch_port else self.name


def affected_ports(finding: Finding, fabric: Fabric) -> list[AffectedPort]:
    """The victims of a finding at the moment that is shown: NICs of hosts in natural order, then
    the others, those of a node together and in natural order."""
    victims = shown_moment(finding).victims
    if not victims:
        return []
    known = {port.id: port for port in _ports_of(victims, fabric)}
    hosts = {node.name for node in fabric.nodes if node.role == HOST}
    nics: dict[str, AffectedPort] = {}
    others: dict[str, list[str]] = {}
    for name in victims:
        port = known.get(name)
        nic = _slowed_nic(port, finding, fabric, hosts)
        if nic is not None and port is not None:
            nics[nic.id] = AffectedPort(nic.display_name, nic.node, port.display_name)
            continue
        node = name.replace(" ", "/", 1).partition("/")[0] if port is None else port.node
        others.setdefault(node, []).append(name if port is None else port.display_name)
    return [
        *sorted(nics.values(), key=lambda each: natural(each.name)),
        *(
            AffectedPort(name, node)
            for node, names in others.items()
            for name in sorted(names, key=natural)
        ),
    ]


def _ports_of(ids: Iterable[str], fabric: Fabric) -> Iterator[Port]:
    nodes = {each.partition("/")[0] for each in ids}
    return (port for node in fabric.nodes if node.name in nodes for port in node.ports)


def _slowed_nic(
    port: Port | None, finding: Condition, fabric: Fabric, hosts: set[str]
) -> Port | None:
    """The NIC of a host at the other end of a victim's cable; None where the victim is itself what
    is slowed, or its far end is not watched."""
    if port is None or port.role != DOWNLINK or finding.cause not in OF_FULL_LINKS:
        return None
    if port.peer is None or not 0 <= port.peer < len(fabric.ports):
        return None
    nic = fabric.ports[port.peer]
    return nic if nic.role == RAIL and nic.node in hosts else None
