"""The role of every port of the hosts, with the reason.

A NIC gets its role from what it is (its card, link layer, line rate, subnet, switches, GPUs), not
from its name. Hosts with NICs at the same places (PCI addresses) are peers: a port is what the same
port is on most of its peers, so that one degraded or miscabled link stays a rail.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import NamedTuple

from fabmon.fabric import model
from fabmon.fabric.model import Host
from fabmon.fabric.names import matches, natural
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.roles.evidence import (
    DEFAULT,
    SESSION,
    EvidenceMemory,
    PortEvidence,
    connected_switches,
    evidence_of,
)
from fabmon.fabric.roles.rules import FRONT_PANEL, RoleRules, names_of_port
from fabmon.fabric.topology.cabling import Cabling, Rails

_SLOW_BPS = 1e9
"""Up to this line rate a NIC beside faster ones is for management."""

_INFINIBAND = "InfiniBand"

_MIN_DISTINCT = 64
"""Evidence that is kept beyond twice that of all hosts, until what no host has is removed."""


class PortRole(NamedTuple):
    """A role of `model`, and one line that says why."""

    role: str
    reason: str


class HostRoles(NamedTuple):
    """The roles of a host's NICs, and the numbers of its rails, by port."""

    roles: dict[str, PortRole]
    rails: dict[str, int]


class _Trait(NamedTuple):
    """A fact that all rails of a host share, so that a port with another value is no rail.

    `value` is None where it is unknown. The common value has the most bandwidth; with
    `by_majority` it must have more than half of it, and two ports. `reason` gets a port's own value
    and the common one.
    """

    value: Callable[[PortEvidence], Hashable]
    by_majority: bool
    reason: Callable[[Hashable, Hashable], str]


_TRAITS = (
    _Trait(
        lambda port: port.link_layer or None,
        False,
        lambda own, usual: f"{own}, the rails are {usual}",
    ),
    _Trait(lambda port: port.rate_bps or None, False, lambda own, usual: _rates(own, usual)),
    _Trait(
        lambda port: port.card or None,
        True,
        lambda own, usual: f"its card is {own}, the rails are {usual}",
    ),
    _Trait(
        lambda port: port.card_ports or None,
        True,
        lambda own, usual: f"its card has {own} RDMA ports, the rails' cards {usual}",
    ),
    _Trait(
        lambda port: port.subnet or None,
        True,
        lambda own, usual: "another InfiniBand subnet than the rails",
    ),
    _Trait(
        lambda port: port.fabric or None,
        True,
        lambda own, usual: "cabled to switches that do not reach the rails' leaves",
    ),
    _Trait(
        lambda port: port.near_gpu,
        True,
        lambda own, usual: (
            "a GPU is beside it, not beside the rails"
            if own
            else "no GPU is beside it, one is beside each rail"
        ),
    ),
    _Trait(
        lambda port: port.network or None,
        True,
        lambda own, usual: "another IP network than the rails",
    ),
)
_RATE = _TRAITS[1]


class _HostPorts(NamedTuple):
    """What is known of a host's NICs without its peers, as long as facts and cables are the same.

    `fact`, the `update` of its cables and the connected switches `fabrics` are what this is from.
    `open` are those whose role depends on others. `places` say who the host's peers are.
    """

    fact: NodeFacts
    update: int
    fabrics: Mapping[str, str]
    fixed: dict[str, PortRole]
    open: tuple[PortEvidence, ...]
    places: Hashable
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
        self._by_peers = _RolesByPeers()
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
        by_peers = self._by_peers.roles(self._ports)
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
                numbers = {port: order.index(place) for place, port in assigned.rails}
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
        found = ((port.name, self._fixed(name, port, fact, planned)) for port in evidence)
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
            places=_places(left),
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
        self, host: str, port: PortEvidence, fact: NodeFacts, planned: Mapping[str, int]
    ) -> PortRole | None:
        """The role that does not depend on other ports; None if it does."""
        names = names_of_port(port.name, fact.ports[port.name])
        role = self.rules.override(host, names)
        if role is not None:
            return PortRole(role, "set in the configuration")
        is_front_panel = any(matches(each, FRONT_PANEL) for each in fact.ports)
        if self.rules.is_management(names[:2], is_front_panel):
            return PortRole(model.MANAGEMENT, "its name matches management_ports")
        if port.is_usb:
            return PortRole(model.MANAGEMENT, "a USB NIC, as the BMC's is")
        if port.name in planned:
            return PortRole(model.RAIL, "one of the planned rails")
        return None


class _RolesByPeers:
    """The roles by port of hosts that have peers. Every host says which of its ports are no rails;
    the majority of its peers decides.

    Hosts with equal evidence have one object of it, and get one object of roles.
    """

    def __init__(self) -> None:
        # By the identity of the evidence: the evidence, why places are no rails, the roles.
        self._known: dict[
            int, tuple[tuple[PortEvidence, ...], dict[str, str], dict[str, PortRole]]
        ] = {}

    def roles(self, ports: Mapping[str, _HostPorts]) -> dict[str, dict[str, PortRole]]:
        """The roles by host and port."""
        peers: defaultdict[Hashable, Counter[int]] = defaultdict(Counter)
        distinct: dict[int, tuple[PortEvidence, ...]] = {}
        for each in ports.values():
            peers[each.places][id(each.open)] += 1
            distinct[id(each.open)] = each.open
        known, self._known = self._known, {}
        for hosts in peers.values():
            votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for number, count in hosts.items():
                said = _no_rails(distinct[number], is_alone=hosts.total() == 1)
                for port in distinct[number]:
                    votes[port.position][said.get(port.name, "")] += count
            no_rails = {place: why for place, count in votes.items() if (why := _majority(count))}
            for number in hosts:
                own, before = distinct[number], known.get(number)
                if before is None or before[0] is not own or before[1] != no_rails:
                    before = own, no_rails, _roles(own, no_rails)
                self._known[number] = before
        return {name: self._known[id(each.open)][2] for name, each in ports.items()}


def _places(ports: Sequence[PortEvidence]) -> Hashable:
    """What peers have in common: the places of their RDMA NICs, or of all NICs without any."""
    rdma = frozenset(port.position for port in ports if port.is_rdma)
    return rdma or (frozenset(port.position for port in ports),)


def _majority(votes: Counter[str]) -> str:
    """Why a port is no rail; empty where half of the peers or more have it as one."""
    if 2 * votes[""] >= votes.total():
        return ""
    return max((each for each in votes if each), key=lambda each: (votes[each], each))


def _no_rails(ports: Sequence[PortEvidence], is_alone: bool) -> dict[str, str]:
    """The ports of one host that are no rails, with the reason. `is_alone`: it has no peers."""
    rdma = [port for port in ports if port.is_rdma]
    return _odd_rdma(rdma, is_alone) if rdma else _odd_without_rdma(ports, is_alone)


def _odd_rdma(ports: Sequence[PortEvidence], is_alone: bool) -> dict[str, str]:
    odd: dict[str, str] = {}
    left = list(ports)
    for trait in _TRAITS:
        usual = _usual(left, trait)
        if usual is None:
            continue
        cards = {port.card for port in left if trait.value(port) == usual}
        for port in left:
            own = trait.value(port)
            # Without peers to compare with, a slower port of the same card is a degraded rail.
            degraded = trait is _RATE and is_alone and port.card in cards
            if own not in (None, usual) and not degraded:
                odd[port.name] = trait.reason(own, usual)
        left = [port for port in left if port.name not in odd]
    return odd


def _usual(ports: Sequence[PortEvidence], trait: _Trait) -> Hashable:
    """The value of a trait that the rails have; None where it does not set any port apart."""
    weight: defaultdict[Hashable, float] = defaultdict(float)
    count: Counter[Hashable] = Counter()
    for port in ports:
        value = trait.value(port)
        if value is not None:
            weight[value] += port.weight
            count[value] += 1
    if len(weight) < 2:
        return None
    best = max(weight, key=lambda each: (weight[each], count[each], each == _INFINIBAND, str(each)))
    is_most = count[best] >= 2 and 2 * weight[best] > sum(weight.values())
    return best if is_most or not trait.by_majority else None


def _odd_without_rdma(ports: Sequence[PortEvidence], is_alone: bool) -> dict[str, str]:
    odd: dict[str, str] = {}
    fastest = max((port.rate_bps for port in ports), default=0.0)
    cards = {port.card for port in ports if port.rate_bps == fastest}
    for port in ports:
        # Down, or with no peers to compare with, a NIC like the fastest is a degraded rail.
        degraded = port.card in cards and (is_alone or not port.rate_bps)
        if port.rate_bps < fastest and not degraded:
            odd[port.name] = _rates(port.rate_bps, fastest)
    for what in (SESSION, DEFAULT):
        left = [port for port in ports if port.name not in odd]
        carrying = [port for port in left if what in port.carries]
        # Equal-cost default routes over several NICs are those of a routed fabric.
        is_one = len({port.bond or port.name for port in carrying}) == 1
        if is_one and len(carrying) < len(left):
            odd |= {port.name: f"carries {what}" for port in carrying}
    return odd


def _rates(own: Hashable, usual: Hashable) -> str:
    return f"{_rate(own) or 'line rate unknown'}, the rails have {_rate(usual)}"


def _rate(bps: Hashable) -> str:
    return f"{bps / 1e9:g} Gb/s" if isinstance(bps, float) and bps else ""


def _roles(ports: Sequence[PortEvidence], no_rails: Mapping[str, str]) -> dict[str, PortRole]:
    """The roles of a host's ports; `no_rails` are places with the reason."""
    has_rdma = any(port.is_rdma for port in ports)
    fastest = max((port.rate_bps for port in ports), default=0.0)
    bonds = {port.bond: port.name for port in ports if port.is_rdma and port.bond}
    found = {}
    for port in ports:
        also = [f"carries {' and '.join(port.carries)}"] if port.carries else []
        odd = no_rails.get(port.position, "")
        rate = _rate(port.rate_bps)
        is_slow = 0 < port.rate_bps <= _SLOW_BPS and port.rate_bps < fastest and not also
        if has_rdma and not port.is_rdma and port.bond in bonds:
            role, said = model.MEMBER, [f"a link of {port.bond}, whose RDMA is {bonds[port.bond]}"]
        elif has_rdma and not port.is_rdma:
            role = model.MANAGEMENT if is_slow else model.FRONTEND
            said = ["no RDMA device", rate, *also]
        elif not odd:
            role = model.RAIL
            said = ["RDMA device" if has_rdma else "no NIC of this host has RDMA", rate, *also]
        elif has_rdma:
            role = model.FRONTEND if also else model.STORAGE
            said = ["RDMA device", odd, *also]
        else:
            role = model.MANAGEMENT if is_slow else model.FRONTEND
            said = [odd, *also]
            if odd.startswith("carries"):
                said = also or [f"on most of its peers it {odd}"]
        found[port.name] = PortRole(role, "; ".join(dict.fromkeys(filter(None, said))))
    return found


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
