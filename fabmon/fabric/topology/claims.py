"""Who says that which port is cabled to which: the given topology, and what the nodes tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from fabmon.fabric.model import HOST, SWITCH, Cable, CableReport
from fabmon.fabric.node_facts import NodeFacts, ReportedPeer
from fabmon.fabric.topology.mac_cables import PortName
from fabmon.fabric.topology.plan import CONFIG, INFINIBAND, End, Topology
from fabmon.fabric.topology.port_lookup import PortLookup

LLDP = "LLDP"
UFM = "UFM"
MAC = "neighbour MAC"

TRUST = (CONFIG, LLDP, INFINIBAND, UFM, MAC)
"""The most trusted first."""

_SOURCES = {"ib_fabric": INFINIBAND, "ufm": UFM}
"""Sources of the wire that tell of peers otherwise than by LLDP (lldp, sonic, eapi, snmp)."""


class Claim(NamedTuple):
    """Somebody's word on a cable."""

    one: End
    other: End
    source: str
    by: str


def planned_claims(topology: Topology) -> Iterator[Claim]:
    """What the person gave."""
    for cable in topology.cables:
        yield Claim(cable.one, cable.other, cable.source, cable.by)


def reported_claims(facts: Mapping[str, NodeFacts]) -> Iterator[Claim]:
    """What the nodes were told by their neighbours or by the fabric."""
    for node, fact in facts.items():
        if not fact.peers:
            continue
        by_netdev = fact.by_device()
        for told in fact.peers:
            port = told.port if told.port in fact.ports else by_netdev.get(told.port)
            if port is not None:
                source = _SOURCES.get(told.source, LLDP)
                yield Claim(End(node, port), _end(told), source, node)


def reported_roles(facts: Mapping[str, NodeFacts]) -> dict[str, str]:
    """The roles that neighbours say they have, by what they call themselves."""
    return {
        str(told.peer.get("node")): str(told.peer["role"])
        for fact in facts.values()
        for told in fact.peers
        if told.peer.get("role") in (HOST, SWITCH)
    }


def _end(told: ReportedPeer) -> End:
    peer = told.peer
    node, port, name = (str(peer.get(key) or "") for key in ("node", "port", "port_name"))
    ids = tuple([str(peer[key]) for key in ("guid", "mac") if peer.get(key)])
    if port.count(":") != 5:
        return End(node, port, (name,) if name else (), ids)
    # An LLDP port may be called by its MAC address; what is shown is then its description.
    return End(node, name or port, (), (port, *ids))


# From claims to cables: at each port the most trusted word holds, and what differs is kept.
#
# A port gets a peer only when both ends believe in the same cable, and a source that names several
# far ends for one port is not heard on it. MAC addresses only fill in where nothing else is known:
# behind a switch that is not watched they name the wrong port, so they contradict nobody but where
# two switches see each other and nothing else.


AND = " and "
"""Between the speakers, where both ends of a cable say the same of it."""

_RANK = {source: rank for rank, source in enumerate(TRUST)}


class Far(NamedTuple):
    """A far end as one claim has it: `place` where it is a watched port."""

    node: str
    port: str
    place: PortName | None

    def agrees(self, other: Far) -> bool:
        """Whether both may be the same end; a port that cannot be found may be any of its node."""
        if self.place is not None and other.place is not None:
            return self.place == other.place
        return self.node == other.node


class Opinion(NamedTuple):
    """What a source says of one port."""

    far: Far
    source: str
    by: str


class Dispute(NamedTuple):
    """A port, and the two words on it: the more trusted first."""

    end: PortName
    believed: CableReport
    doubted: CableReport


class Wiring(NamedTuple):
    """What is known of the cables: at each port its far end, its peer where that is watched."""

    cables: dict[PortName, Cable]
    peers: dict[PortName, PortName]
    disputes: list[Dispute]


def merge(
    claims: Iterable[Claim],
    seen: Mapping[PortName, PortName],
    places: PortLookup,
    switches: Set[str],
) -> Wiring:
    """The cables. `seen` are those that MAC addresses give away, in both directions."""
    heard, vocabulary = _opinions(claims, places)
    best: dict[PortName, Far] = {}
    first: dict[PortName, Opinion] = {}
    agreeing: dict[PortName, tuple[str, ...]] = {}
    disputes: list[Dispute] = []
    for end, opinions in heard.items():
        place = opinions[0].far.place
        if place is not None and all(each.far.place == place for each in opinions):
            # All agree, as nearly always.
            first[end] = opinions[0]
            best[end] = opinions[0].far
            agreeing[end] = _by_trust({each.source for each in opinions})
            continue
        clear = _clear(opinions)
        if not clear:
            continue
        believed = first[end] = clear[0]
        alike = [each for each in clear if each.far.agrees(believed.far)]
        best[end] = next((each.far for each in alike if each.far.place), believed.far)
        agreeing[end] = _by_trust({each.source for each in alike})
        for doubted in clear:
            if doubted not in alike and _comparable(believed, doubted, places, vocabulary):
                disputes.append(Dispute(end, _said(believed), _said(doubted)))
    peers = {
        end: far.place
        for end, far in best.items()
        if far.place in best and best[far.place].place == end
    }
    cables = {
        end: Cable(far.node, far.place[1] if far.place else far.port, agreeing[end])
        for end, far in best.items()
        if far.place is None or end in peers
    }
    for end, other in seen.items():
        _fill_in(end, other, cables, peers, best)
        known = best.get(end)
        if (
            known is not None
            and not known.agrees(Far(*other, other))
            and switches >= {end[0], other[0], known.node}
        ):
            disputes.append(Dispute(end, _said(first[end]), CableReport(MAC, end[0], *other)))
    return Wiring(cables, peers, disputes)


def _by_trust(sources: Set[str]) -> tuple[str, ...]:
    if len(sources) == 1:
        return tuple(sources)
    return tuple(sorted(sources, key=lambda source: _RANK.get(source, 0)))


def _opinions(
    claims: Iterable[Claim], places: PortLookup
) -> tuple[dict[PortName, list[Opinion]], dict[str, set[str]]]:
    """By watched port what is said of it; by source the nodes that it speaks of."""
    heard: dict[PortName, list[Opinion]] = {}
    vocabulary: dict[str, set[str]] = {}
    for claim in claims:
        one, other = _far(claim.one, places), _far(claim.other, places)
        if not one.node or not other.node or (one.place is not None and one.place == other.place):
            continue
        spoken = vocabulary.setdefault(claim.source, set())
        spoken.add(one.node)
        spoken.add(other.node)
        if one.place is not None:
            heard.setdefault(one.place, []).append(Opinion(other, claim.source, claim.by))
        if other.place is not None:
            heard.setdefault(other.place, []).append(Opinion(one, claim.source, claim.by))
    return heard, vocabulary


def _far(end: End, places: PortLookup) -> Far:
    place = places.port(end)
    return Far(place[0] if place else places.node(end.node), end.port, place)


def _clear(opinions: list[Opinion]) -> list[Opinion]:
    """What each source says that names one far end only, the most trusted first.

    Beside a far end that is watched, others do not count: a NIC's firmware speaks LLDP for itself.
    """
    if len(opinions) == 1:
        return opinions
    by_source: dict[str, list[Opinion]] = {}
    for opinion in opinions:
        by_source.setdefault(opinion.source, []).append(opinion)
    clear = []
    for source in sorted(by_source, key=lambda source: _RANK.get(source, 0)):
        said = by_source[source]
        watched = [each for each in said if each.far.place is not None]
        chosen = (watched or said)[0]
        if all(each.far.agrees(chosen.far) for each in watched or said):
            speakers = dict.fromkeys(each.by for each in watched or said)
            clear.append(chosen._replace(by=AND.join(speakers)))
    return clear


def _comparable(
    one: Opinion, other: Opinion, places: PortLookup, vocabulary: Mapping[str, set[str]]
) -> bool:
    """Whether two names are surely not two names of one thing.

    A switch that is not watched may be spine3 in the configuration and sw-b7-03 in LLDP. Not so if
    both speak of both, or if a node that calls itself something else is meant.
    """
    nodes = one.far.node, other.far.node
    if nodes[0] == nodes[1] or all(map(places.is_watched, nodes)):
        return True
    return (
        nodes[1] in vocabulary[one.source]
        or nodes[0] in vocabulary[other.source]
        or any(map(places.has_hostname, nodes))
    )


def _said(opinion: Opinion) -> CableReport:
    far = opinion.far
    return CableReport(
        opinion.source, opinion.by, far.node, far.place[1] if far.place else far.port
    )


def _fill_in(
    end: PortName,
    other: PortName,
    cables: dict[PortName, Cable],
    peers: dict[PortName, PortName],
    best: Mapping[PortName, Far],
) -> None:
    """Take in a cable that MAC addresses give away."""
    known = best.get(end)
    if known is None:
        if other not in best:
            cables[end] = Cable(*other, (MAC,))
            peers[end] = other
    elif end in cables and known.agrees(Far(*other, other)):
        cable = cables[end]
        cables[end] = Cable(cable.node, cable.port, (*cable.known_from, MAC))
