"""From claims (plans and reports) to cables.

At each port the most trusted source decides, and contradictions are kept. A port gets a peer only
if both ends claim the same cable. Of the claims of one source, a cable that both of its ends report
counts first, then what the port's own node reports, then what others report of it: a node can take
no cable from ports of others. A source that still claims several far ends for one port is ignored
there. MAC addresses are used only where nothing else is known, or only what other nodes claim of a
port that sees its far end (as that sees it, or against a host): behind a switch that is not watched
they name the wrong port, so they contradict the port's own report only where two switches see only
each other.
The addresses of point-to-point links are used where MAC addresses give no cable either, and
contradict nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from fabmon.fabric.model import HOST, SWITCH, Cable, CableReport
from fabmon.fabric.node_facts import NodeFacts, ReportedPeer
from fabmon.fabric.topology.address_cables import PortName
from fabmon.fabric.topology.plan import CONFIG, INFINIBAND, End, Topology
from fabmon.fabric.topology.port_lookup import PortLookup

LLDP = "LLDP"
UFM = "UFM"
MAC = "neighbour MAC"
SUBNET = "link subnet"

TRUST = (CONFIG, LLDP, INFINIBAND, UFM, MAC, SUBNET)
"""Sources by trust, the most trusted first."""

_SOURCES = {"ib_fabric": INFINIBAND, "ufm": UFM}
"""Sources that report peers in another way than LLDP (lldp, sonic, eapi, snmp)."""


class Claim(NamedTuple):
    """One report of a cable: `source`, and the node or `file:line` it is from."""

    one: End
    other: End
    source: str
    by: str


def planned_claims(topology: Topology) -> Iterator[Claim]:
    """The cables of the plan."""
    for cable in topology.cables:
        yield Claim(cable.one, cable.other, cable.source, cable.by)


def reported_claims(facts: Mapping[str, NodeFacts]) -> Iterator[Claim]:
    """The cables that nodes report, from LLDP or fabric discovery."""
    for node, fact in facts.items():
        if not fact.peers:
            continue
        by_netdev = fact.by_device
        for reported in fact.peers:
            port = reported.port if reported.port in fact.ports else by_netdev.get(reported.port)
            if port is not None:
                source = _SOURCES.get(reported.source, LLDP)
                yield Claim(End(node, port), _end(reported), source, node)


def reported_roles(fact: NodeFacts) -> Counter[tuple[str, str]]:
    """How often a node reports a role of a neighbour, by the neighbour's own name and the role."""
    return Counter(
        (str(reported.peer.get("node")), str(reported.peer["role"]))
        for reported in fact.peers
        if reported.peer.get("role") in (HOST, SWITCH)
    )


def _end(reported: ReportedPeer) -> End:
    peer = reported.peer
    node, port, name = (str(peer.get(key) or "") for key in ("node", "port", "port_name"))
    ids = tuple([str(peer[key]) for key in ("guid", "mac") if peer.get(key)])
    if port.count(":") != 5:
        return End(node, port, (name,) if name else (), ids)
    # An LLDP port id may be a MAC address; the description is the name to show then.
    return End(node, name or port, (), (port, *ids))


_MOST_OUTVOTED = 4
"""Contradictions of other nodes that are kept for a port: enough to see who disagrees."""

AND = " and "
"""Joins the reporters of a cable where both ends report it."""

_RANK = {source: rank for rank, source in enumerate(TRUST)}


class Far(NamedTuple):
    """The far end of a claim; `place` is the watched port, None if it is not watched."""

    node: str
    port: str
    place: PortName | None

    def agrees(self, other: Far) -> bool:
        """Whether both may be the same end; an unknown port may be any port of its node."""
        if self.place is not None and other.place is not None:
            return self.place == other.place
        return self.node == other.node


LocatedClaim = tuple[Claim, Far, Far]
"""A claim, and what its ends are."""


class Opinion(NamedTuple):
    """The claim of one source about one port."""

    far: Far
    source: str
    by: str


class Dispute(NamedTuple):
    """A port with two contradicting reports, the more trusted first."""

    end: PortName
    believed: CableReport
    doubted: CableReport


class Wiring(NamedTuple):
    """The known cables: the far end of each port, its peer where that is watched,
    contradictions by port.

    `doubtful` are the ports about which sources name different far ends, perhaps of one node.
    """

    cables: dict[PortName, Cable]
    peers: dict[PortName, PortName]
    disputes: dict[PortName, list[Dispute]]
    doubtful: set[PortName]


def merge(
    claims: Iterable[LocatedClaim],
    seen: Mapping[PortName, PortName],
    places: PortLookup,
    switches: Set[str],
    named: Mapping[str, Set[str]],
    addressed: Mapping[PortName, PortName] | None = None,
) -> Wiring:
    """The cables. `seen` are those known from MAC addresses, from each end that sees the other, and
    `addressed` those from the addresses of point-to-point links, in both directions; `named` are
    the nodes that each source names anywhere."""
    by_port = _opinions(claims)
    own_sight = seen
    seen = {one: far for end, other in seen.items() for one, far in ((end, other), (other, end))}
    best: dict[PortName, Far] = {}
    first: dict[PortName, Opinion] = {}
    agreeing: dict[PortName, tuple[str, ...]] = {}
    disputes: dict[PortName, list[Dispute]] = {}
    doubtful: set[PortName] = set()
    for end, opinions in by_port.items():
        other = own_sight.get(end)
        if other is not None and _only_claimed_by_others(
            end, other, by_port, switches, is_mutual=own_sight.get(other) == end
        ):
            by_mac = Opinion(Far(*other, other), MAC, end[0])
            for doubted in _outvoted(end, opinions, [by_mac]):
                doubtful.add(end)
                dispute = Dispute(end, _report(by_mac), _report(doubted))
                disputes.setdefault(end, []).append(dispute)
            opinions = [each for each in opinions if each.far.agrees(by_mac.far)]
            if not opinions:
                continue
        place = opinions[0].far.place
        if place is not None and all(each.far.place == place for each in opinions):
            # All sources agree, the usual case.
            first[end] = opinions[0]
            best[end] = opinions[0].far
            agreeing[end] = _by_trust({each.source for each in opinions})
            continue
        clear = _clear(end, _without_foreign(end, opinions))
        outvoted = _outvoted(end, opinions, clear)
        if not clear:
            # Nobody decides between others that claim this port: none is used, and it is shown.
            for doubted in outvoted[1:]:
                dispute = Dispute(end, _report(outvoted[0]), _report(doubted))
                disputes.setdefault(end, []).append(dispute)
            continue
        believed = first[end] = clear[0]
        agreed = [each for each in clear if each.far.agrees(believed.far)]
        best[end] = next((each.far for each in agreed if each.far.place), believed.far)
        agreeing[end] = _by_trust({each.source for each in agreed})
        for doubted in clear:
            if doubted not in agreed:
                doubtful.add(end)
                if _comparable(believed, doubted, places, named):
                    dispute = Dispute(end, _report(believed), _report(doubted))
                    disputes.setdefault(end, []).append(dispute)
        for doubted in outvoted:
            doubtful.add(end)
            dispute = Dispute(end, _report(believed), _report(doubted))
            disputes.setdefault(end, []).append(dispute)
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
    _fill_in(MAC, seen, cables, peers, best)
    _fill_in(SUBNET, addressed or {}, cables, peers, best)
    for end, other in seen.items():
        known = best.get(end)
        if known is None or known.agrees(Far(*other, other)):
            continue
        # A host may claim a port that reports nothing: it cannot be decided, but shown.
        is_taken = _is_foreign(end, first[end]) and known.node not in switches
        if switches >= {end[0], other[0], known.node} or (
            is_taken and not switches.isdisjoint((end[0], other[0]))
        ):
            dispute = Dispute(end, _report(first[end]), CableReport(MAC, end[0], *other))
            disputes.setdefault(end, []).append(dispute)
    return Wiring(cables, peers, disputes, doubtful)


def _only_claimed_by_others(
    end: PortName,
    other: PortName,
    by_port: Mapping[PortName, list[Opinion]],
    switches: Set[str],
    *,
    is_mutual: bool,
) -> bool:
    """Whether only other nodes contradict that a port is cabled to the one whose MAC address it
    sees. Two hosts see each other through a switch, which may claim both; a port that is not seen
    by the other one may see it through any switch."""
    return (
        not switches.isdisjoint((end[0], other[0]))
        and all(
            _is_foreign(end, each)
            and (is_mutual or each.far.node == other[0] or each.far.node not in switches)
            for each in by_port[end]
        )
        and all(
            _is_foreign(other, each) or each.far.agrees(Far(*end, end))
            for each in by_port.get(other, ())
        )
    )


def _is_foreign(end: PortName, opinion: Opinion) -> bool:
    """Whether only the far end reports it."""
    return opinion.by == opinion.far.node != end[0]


def _by_trust(sources: Set[str]) -> tuple[str, ...]:
    if len(sources) == 1:
        return tuple(sources)
    return tuple(sorted(sources, key=lambda source: _RANK.get(source, 0)))


def _opinions(claims: Iterable[LocatedClaim]) -> dict[PortName, list[Opinion]]:
    """The claims by watched port."""
    by_port: dict[PortName, list[Opinion]] = {}
    for claim, one, other in claims:
        if one.place is not None:
            by_port.setdefault(one.place, []).append(Opinion(other, claim.source, claim.by))
        if other.place is not None:
            by_port.setdefault(other.place, []).append(Opinion(one, claim.source, claim.by))
    return by_port


def named_nodes(claims: Iterable[LocatedClaim]) -> Counter[tuple[str, str]]:
    """How often each source names a node, by (source, node)."""
    return Counter((claim.source, far.node) for claim, *ends in claims for far in ends)


def located(claims: Iterable[Claim], places: PortLookup) -> list[LocatedClaim]:
    """The claims about two ports, with both ends."""
    found = ((claim, _far(claim.one, places), _far(claim.other, places)) for claim in claims)
    return [
        (claim, one, other)
        for claim, one, other in found
        if one.node and other.node and (one.place is None or one.place != other.place)
    ]


def _far(end: End, places: PortLookup) -> Far:
    node, place = places.find(end)
    return Far(node, end.port, place)


def _without_foreign(end: PortName, opinions: list[Opinion]) -> list[Opinion]:
    """Without what only the far end says, against the watched port that anybody else names. A far
    end that is not watched may be the same one by another name."""
    known = {each.far.place for each in opinions if not _is_foreign(end, each)} - {None}
    if not known:
        return opinions
    return [each for each in opinions if not _is_foreign(end, each) or each.far.place in known]


def _clear(end: PortName, opinions: list[Opinion]) -> list[Opinion]:
    """One claim per source that names a single far end, the most trusted first.

    A watched far end excludes others of the same source: NIC firmware sends LLDP of its own. One
    that both ends report excludes others, then one that the port's own node reports.
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
        own = {each.far.place for each in watched if each.by == end[0]}
        reported = {each.far.place for each in watched if each.by == each.far.node}
        both = [each for each in watched if each.far.place in own & reported]
        decisive = both or [each for each in watched if each.by == end[0]] or watched or said
        chosen = decisive[0]
        if all(each.far.agrees(chosen.far) for each in decisive):
            senders = dict.fromkeys(each.by for each in decisive)
            clear.append(chosen._replace(by=AND.join(senders)))
    return clear


def _outvoted(end: PortName, opinions: list[Opinion], clear: list[Opinion]) -> list[Opinion]:
    """What other nodes claim of a port against all that counts there: one claim of a node, and of
    few nodes."""
    found = {
        each.by: each
        for each in reversed(opinions)
        if each.far.place is not None
        and each.by == each.far.node != end[0]
        and not any(each.far.agrees(known.far) for known in clear)
    }
    return [*reversed(found.values())][:_MOST_OUTVOTED]


def _comparable(
    one: Opinion, other: Opinion, places: PortLookup, named: Mapping[str, Set[str]]
) -> bool:
    """Whether two different names certainly mean different nodes.

    A switch that is not watched may be spine3 in the plan and sw-b7-03 in LLDP. The names differ
    for certain if one source uses both, or if one is a node that reports its own hostname.
    """
    nodes = one.far.node, other.far.node
    if nodes[0] == nodes[1] or all(map(places.is_watched, nodes)):
        return True
    return (
        nodes[1] in named.get(one.source, ())
        or nodes[0] in named.get(other.source, ())
        or any(map(places.has_hostname, nodes))
    )


def _report(opinion: Opinion) -> CableReport:
    far = opinion.far
    return CableReport(
        opinion.source, opinion.by, far.node, far.place[1] if far.place else far.port
    )


def _fill_in(
    source: str,
    found: Mapping[PortName, PortName],
    cables: dict[PortName, Cable],
    peers: dict[PortName, PortName],
    best: Mapping[PortName, Far],
) -> None:
    """Add what `source` has found, in both directions: cables between ports about which nothing is
    known, and the source where it agrees with what is known."""
    known = {**{end: Far(*peer, peer) for end, peer in peers.items()}, **best}
    for end, other in found.items():
        if end not in known:
            if other not in known:
                cables[end] = Cable(*other, (source,))
                peers[end] = other
        elif end in cables and known[end].agrees(Far(*other, other)):
            cable = cables[end]
            cables[end] = Cable(cable.node, cable.port, (*cable.known_from, source))
