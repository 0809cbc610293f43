"""The roles of a host's NICs by comparison with the same NICs of its peers.

Hosts with NICs at the same places (PCI addresses) are peers: a port is what the same port is on
most of its peers, so that one degraded or miscabled link stays a rail.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from fabmon.fabric import model
from fabmon.fabric.model import PortRole
from fabmon.fabric.roles.evidence import DEFAULT, SESSION, PortEvidence

_SLOW_BPS = 1e9
"""Up to this line rate a NIC beside faster ones is for management."""

_INFINIBAND = "InfiniBand"
_NEAR_GPU = (
    "no GPU is beside it, one is beside each rail",
    "a GPU is beside it, not beside the rails",
)


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
    _Trait(lambda port: port.link_layer or None, False, "{}, the rails are {}".format),
    _Trait(lambda port: port.rate_bps or None, False, lambda own, usual: _rates(own, usual)),
    _Trait(lambda port: port.card or None, True, "its card is {}, the rails are {}".format),
    _Trait(
        lambda port: port.card_ports or None,
        True,
        "its card has {} RDMA ports, the rails' cards {}".format,
    ),
    _Trait(
        lambda port: port.subnet or None, True, "another InfiniBand subnet than the rails".format
    ),
    _Trait(
        lambda port: port.fabric or None,
        True,
        "cabled to switches that do not reach the rails' leaves".format,
    ),
    _Trait(lambda port: port.near_gpu, True, lambda own, _: _NEAR_GPU[bool(own)]),
    _Trait(lambda port: port.network or None, True, "another IP network than the rails".format),
)
_RATE = _TRAITS[1]


class RolesByPeers:
    """The roles by port of hosts that have peers. Every host says which of its ports are no rails;
    the majority of its peers decides.

    Hosts with equal evidence have one object of it, and get one object of roles.
    """

    def __init__(self) -> None:
        # By the identity of the evidence: the evidence, why places are no rails, the roles.
        self._known: dict[
            int, tuple[tuple[PortEvidence, ...], dict[str, str], dict[str, PortRole]]
        ] = {}

    def roles(
        self, ports: Mapping[str, tuple[PortEvidence, ...]]
    ) -> dict[str, dict[str, PortRole]]:
        """The roles by host and port; `ports` are by host those whose role depends on others."""
        hosts = Counter(id(own) for own in ports.values())
        distinct = {id(own): own for own in ports.values()}
        peers: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, own in distinct.items():
            peers[_places(own)].append(number)
        known, self._known = self._known, {}
        for numbers in peers.values():
            is_alone = sum(hosts[number] for number in numbers) == 1
            votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for number in numbers:
                said = _no_rails(distinct[number], is_alone)
                for port in distinct[number]:
                    votes[port.position][said.get(port.name, "")] += hosts[number]
            no_rails = {place: why for place, count in votes.items() if (why := _majority(count))}
            for number in numbers:
                own, before = distinct[number], known.get(number)
                if before is None or before[0] is not own or before[1] != no_rails:
                    before = own, no_rails, _roles(own, no_rails)
                self._known[number] = before
        return {name: self._known[id(own)][2] for name, own in ports.items()}


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
