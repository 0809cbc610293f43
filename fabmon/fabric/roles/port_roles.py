"""The role of every port of the hosts, with the reason.

A NIC gets its role from what it is (its card, link layer, line rate, subnet, switches, GPUs), not
from its name, and by comparison with the same NIC of other hosts (`peer_roles`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from fabmon.fabric import model
from fabmon.fabric.model import Host, PortRole
from fabmon.fabric.names import matches, natural
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.roles.evidence import (
    EvidenceMemory,
    PortEvidence,
    connected_switches,
    evidence_of,
)
from fabmon.fabric.roles.peer_roles import RolesByPeers
from fabmon.fabric.roles.rules import FRONT_PANEL, RoleRules, names_of_port
from fabmon.fabric.topology.cabling import Cabling, Rails

_MIN_DISTINCT = 64
"""Evidence that is kept beyond twice that of all hosts, until what no host has is removed."""


class HostRoles(NamedTuple):
    """The roles of a host's NICs, and the numbers of its rails, by port."""

    roles: dict[str, PortRole]
    rails: dict[str, int]


class _HostPorts(NamedTuple):
    """What is known of a host's NICs without its peers, as long as facts and cables are the same.

    `fact`, the `update` of its cables and the connected switches `fabrics` are what this is from.
    `open` are those whose role depends on others.
    """

    fact: NodeFacts
    update: int
    fabrics: Mapping[str, str]
    fixed: dict[str, PortRole]
    open: tuple[PortEvidence, ...]
    positions: dict[str, str]
    planned: dict[str, int]

    def is_from(self, fact: NodeFacts, update: int, fabrics: Mapping[str, str]) -> bool:
        """Whether it would be the same from these."""
        return self.fact is fact and self.update == update and self.fabrics is fabrics


class _Assigned(NamedTuple):
    """The roles of a host from its fixed ones and those by its peers, and the places of its
    rails."""

    of: tuple[_HostPorts, dict[str, PortRole]]
    roles: dict[str, PortRole]
    rails: tuple[tuple[str, str], ...]


class PortRoles:
    """Assigns roles. Keeps what earlier hellos reported, so that roles do not change back and
    forth; and, for the hosts of which nothing has changed, the roles themselves."""

    def __init__(self, rules: RoleRules | None = None) -> None:
        self.rules = rules or RoleRules()
        self._memory = EvidenceMemory()
        self._connected_by: tuple[Set[tuple[str, str]], list[str]] = frozenset(), []
        self._fabrics: dict[str, str] = {}
        self._ports: dict[str, _HostPorts] = {}
        # Hosts of one model have equal evidence: each once, so that it is compared by identity.
        self._distinct: dict[tuple[PortEvidence, ...], tuple[PortEvidence, ...]] = {}
        self._by_peers = RolesByPeers()
        self._assigned: dict[str, _Assigned] = {}
        self._order_of: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._roles: dict[str, tuple[_Assigned, HostRoles]] = {}

    def assign(
        self,
        hosts: Sequence[Host],
        facts: Mapping[str, NodeFacts],
        cabled: Cabling,
        rails: Rails,
    ) -> dict[str, HostRoles]:
        """The roles of the NICs of all hosts; not of their GPUs, and not of switches.

        Those of a host are the same object as before where they have not changed.
        """
        names = [host.name for host in hosts if host.role != model.SWITCH]
        self._connect(cabled, names)
        before, self._ports = self._ports, {}
        for name in names:
            fact = facts.get(name)
            if fact is not None and fact.ports:
                known = before.get(name)
                update = cabled.changed.get(name, 0)
                if known is None or not known.is_from(fact, update, self._fabrics):
                    known = self._ports_of(name, fact, update, cabled, rails)
                self._ports[name] = known
        by_peers = self._by_peers.roles({name: each.open for name, each in self._ports.items()})
        self._assigned = {
            name: self._assign(name, ports, by_peers[name]) for name, ports in self._ports.items()
        }
        orders = Counter(_order(each.rails) for each in self._assigned.values())
        order_of = {order: _complete(order, orders) for order in orders}
        if order_of != self._order_of:
            self._order_of, self._roles = order_of, {}
        before_roles, self._roles = self._roles, {}
        for name, assigned in self._assigned.items():
            known_roles = before_roles.get(name)
            if known_roles is None or known_roles[0] is not assigned:
                order = order_of[_order(assigned.rails)]
                number_of = dict(zip(reversed(order), reversed(range(len(order))), strict=True))
                numbers = {port: number_of[place] for place, port in assigned.rails}
                planned = _with_plan(numbers, self._ports[name].planned, rails.count)
                known_roles = assigned, HostRoles(assigned.roles, planned)
            self._roles[name] = known_roles
        return {name: roles for name, (_, roles) in self._roles.items()}

    def _connect(self, cabled: Cabling, names: list[str]) -> None:
        """Find the connected switches, if cables or hosts have changed."""
        unwatched = [name for name, tier in cabled.shape.tiers.items() if tier == 0]
        links, hosts = self._connected_by
        if links is cabled.links and hosts == [*names, *unwatched]:
            return
        self._connected_by = cabled.links, [*names, *unwatched]
        fabrics = connected_switches(*self._connected_by)
        if fabrics != self._fabrics:
            self._fabrics = fabrics

    def _ports_of(
        self,
        name: str,
        fact: NodeFacts,
        update: int,
        cabled: Cabling,
        rails: Rails,
    ) -> _HostPorts:
        gpus = [
            rails.nearest(info, fact.ports)
            for info in fact.ports.values()
            if info.get("kind") == "gpu"
        ]
        evidence = evidence_of(name, fact, gpus, self._fabrics, cabled.wiring, self._memory)
        planned = rails.of(fact.ports)
        is_front_panel = any(matches(each, FRONT_PANEL) for each in fact.ports)
        found = (
            (port.name, self._fixed(name, port, fact, planned, is_front_panel)) for port in evidence
        )
        fixed = {port: role for port, role in found if role is not None}
        left = tuple(port for port in evidence if port.name not in fixed)
        if len(self._distinct) > 2 * len(self._ports) + _MIN_DISTINCT:
            self._distinct = {each.open: each.open for each in self._ports.values()}
        return _HostPorts(
            fact=fact,
            update=update,
            fabrics=self._fabrics,
            fixed=fixed,
            open=self._distinct.setdefault(left, left),
            positions={port.name: port.position for port in evidence},
            planned=planned,
        )

    def _assign(self, name: str, ports: _HostPorts, by_peers: dict[str, PortRole]) -> _Assigned:
        known = self._assigned.get(name)
        if known is not None and known.of[0] is ports and known.of[1] is by_peers:
            return known
        roles = {**ports.fixed, **by_peers}
        return _Assigned((ports, by_peers), roles, _rail_places(roles, ports.positions))

    def _fixed(
        self,
        host: str,
        port: PortEvidence,
        fact: NodeFacts,
        planned: Mapping[str, int],
        is_front_panel: bool,
    ) -> PortRole | None:
        """The role that does not depend on other ports; None if it does."""
        names = names_of_port(port.name, fact.ports[port.name])
        role = self.rules.override(host, names)
        if role is not None:
            return PortRole(role, "set in the configuration")
        if self.rules.is_management(names[:2], is_front_panel):
            return PortRole(model.MANAGEMENT, "its name matches management_ports")
        if port.is_usb:
            return PortRole(model.MANAGEMENT, "a USB NIC, as the BMC's is")
        if port.name in planned:
            return PortRole(model.RAIL, "one of the planned rails")
        return None


def _rail_places(
    roles: Mapping[str, PortRole], positions: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """(place, port) of a host's rails, by PCI address; those without one last, by name."""
    own = [(positions[name], name) for name, each in roles.items() if each.role == model.RAIL]
    return tuple(sorted(own, key=lambda each: (each[0] == each[1], each[0], natural(each[1]))))


def _order(rails: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(place for place, _ in rails)


def _complete(order: tuple[str, ...], hosts: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """The order by which a host's rails are numbered; `hosts` counts those with each order. A host
    that lacks NICs of its peers leaves their numbers out: the other rails keep theirs."""
    larger = [each for each in hosts if hosts[each] > hosts[order] and set(order) < set(each)]
    return max(larger, key=lambda each: hosts[each], default=order)


def _with_plan(
    numbers: Mapping[str, int], planned: Mapping[str, int], count: int
) -> dict[str, int]:
    """The planned numbers, and after them those of rails that the plan does not have."""
    if not planned:
        return dict(numbers)
    others = sorted((name for name in numbers if name not in planned), key=lambda n: numbers[n])
    kept = {name: place for name, place in planned.items() if name in numbers}
    return {**kept, **{name: count + place for place, name in enumerate(others)}}
