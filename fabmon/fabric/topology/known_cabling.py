"""The cabling of the fabric, computed again only for ports whose reports may have changed it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from fabmon.fabric import model
from fabmon.fabric.model import Host, Shape
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.address_cables import (
    LinkAddress,
    PortName,
    cables_by_address,
    cables_by_mac,
    link_addresses,
)
from fabmon.fabric.topology.cabling import Cabling
from fabmon.fabric.topology.claims import (
    Claim,
    Wiring,
    located,
    merge,
    named_nodes,
    planned_claims,
    reported_claims,
    reported_roles,
)
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.topology.port_graph import (
    SUBNET,
    PortGraph,
    Token,
    tokens_of_claim,
    tokens_of_ports,
)
from fabmon.fabric.topology.port_lookup import PortLookup, all_names
from fabmon.fabric.topology.tiers import shape

T = TypeVar("T")

_MAX_SHARE = 8
"""With more than one of so many nodes changed, all is computed again: it takes as long."""

_PLAN = "\0"
"""Planned cables are in the graph as ports of this node, named by their number. No node has a name
that is not printable."""


class _NodeReports(NamedTuple):
    """What a node's facts say of cables, each report with the local port that it is about."""

    node: str
    fact: NodeFacts
    claims: list[Claim]
    neighbours: list[tuple[str, Mapping[str, Any]]]
    addresses: list[tuple[str, LinkAddress]]
    roles: Counter[tuple[str, str]]

    @classmethod
    def of(cls, node: str, fact: NodeFacts) -> _NodeReports:
        by_device = fact.by_device
        local = ((by_device.get(str(entry.get("dev"))), entry) for entry in fact.neighbours)
        neighbours: list[tuple[str, Mapping[str, Any]]] = [
            (port, entry) for port, entry in local if port is not None
        ]
        claims = list(reported_claims({node: fact}))
        return cls(node, fact, claims, neighbours, list(link_addresses(fact)), reported_roles(fact))

    @property
    def ports(self) -> list[PortName]:
        """All ports of the node."""
        return [(self.node, name) for name in self.fact.ports]

    def says_the_same(self, other: _NodeReports | None) -> bool:
        """Whether other facts of the node have the same ports, by the same names, and say the same
        of their cables."""
        if other is self or other is None:
            return other is self
        return (
            self.fact.hostname == other.fact.hostname
            and (self.claims, self.neighbours, self.addresses)
            == (other.claims, other.neighbours, other.addresses)
            and all_names(self.fact) == all_names(other.fact)
        )

    def tokens(self) -> Iterator[tuple[PortName, frozenset[Token], frozenset[Token]]]:
        """Each port, what it can be found by, and what reports about it name."""
        named: defaultdict[str, set[Token]] = defaultdict(set)
        for claim in self.claims:
            named[claim.one.port].update(tokens_of_claim(claim))
        for port, entry in self.neighbours:
            named[port].add(("mac", str(entry.get("mac", "")).lower()))
        for port, address in self.addresses:
            named[port].add((SUBNET, address.subnet))
        for port, own in tokens_of_ports(self.node, self.fact):
            subnets = {token for token in named[port] if token[0] == SUBNET}
            yield (self.node, port), own | subnets, frozenset(named[port])

    def of_ports(
        self, ports: Set[str]
    ) -> tuple[dict[str, dict[str, Any]], list[Mapping[str, Any]]]:
        """The facts of some ports, and the neighbours seen at them."""
        infos = {name: info for name, info in self.fact.ports.items() if name in ports}
        return infos, [entry for port, entry in self.neighbours if port in ports]


class KnownCabling:
    """Keeps the cabling from update to update.

    Facts that are the same objects as before have not changed. The result is the one of all facts
    at once. It is computed as a whole when a node is new, has another hostname or another role.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._hosts: Sequence[Host] = ()
        self._facts: dict[str, NodeFacts] = {}
        self._reports: dict[str, _NodeReports] = {}
        self._graph = PortGraph()
        self._plan = list(planned_claims(topology))
        for number, claim in enumerate(self._plan):
            self._graph.add((_PLAN, str(number)), frozenset(), frozenset(tokens_of_claim(claim)))
        self._places = PortLookup({})
        self._roles: dict[str, str] = {}
        # By source and node, the number of claims that name it.
        self._named: Counter[tuple[str, str]] = Counter()
        # By pair of nodes, the number of ports that are cabled from one to the other.
        self._links: Counter[tuple[str, str]] = Counter()
        self._shaped_by: tuple[dict[str, str], Set[tuple[str, str]]] | None = None
        self._updates = 0
        self._cabling = Cabling(Wiring({}, {}, {}, set()), Shape(), frozenset(), {})

    def update(self, hosts: Sequence[Host], facts: Mapping[str, NodeFacts]) -> Cabling:
        """The cabling; `facts` are the reports by node."""
        # After an update that failed, all is computed again.
        before, self._facts = self._facts, {}
        self._updates += 1
        changed = [name for name, fact in facts.items() if before.get(name) is not fact]
        if not changed and hosts == self._hosts and len(before) == len(facts):
            self._facts = before
            return self._cabling
        is_whole = (
            hosts != self._hosts
            or list(before) != list(facts)
            or len(changed) * _MAX_SHARE > len(facts) + _MAX_SHARE
            or any(before[name].hostname != facts[name].hostname for name in changed)
        )
        reports = self._reports_of(facts)
        known = self._reports.items()
        old = {name: each for name, each in known if not each.says_the_same(reports.get(name))}
        ends = set() if is_whole else self._graph.reached(_ports(old.values()))
        self._connect(old, reports)
        if is_whole:
            self._places = PortLookup(facts)
        roles = self._reported_roles(hosts)
        if is_whole or roles != self._roles:
            self._places = PortLookup(facts)
            self._roles = roles
            self._solve_all(facts)
        else:
            for name in set(changed) - old.keys():
                self._places.replace(name, facts[name])
            if old:
                ends |= self._graph.reached({*ends, *_ports(reports[name] for name in old)})
                self._solve(ends, old, facts)
        self._shape(facts)
        self._hosts, self._facts = hosts, dict(facts)
        return self._cabling

    def _reports_of(self, facts: Mapping[str, NodeFacts]) -> dict[str, _NodeReports]:
        """The reports of all nodes; those from the same facts as before are the same objects."""
        known = self._reports
        return {
            name: known[name]
            if name in known and known[name].fact is fact
            else _NodeReports.of(name, fact)
            for name, fact in facts.items()
        }

    def _connect(self, old: Mapping[str, _NodeReports], reports: dict[str, _NodeReports]) -> None:
        """Set the reports of nodes, and what they name in place of what `old` ones named."""
        new = [name for name in reports if name in old or name not in self._reports]
        self._reports = reports
        for each in old.values():
            for port in each.ports:
                self._graph.remove(port)
        for name in new:
            for port, own, named in reports[name].tokens():
                self._graph.add(port, own, named)

    def _reported_roles(self, hosts: Sequence[Host]) -> dict[str, str]:
        """The role of every node, without those that follow from cables: as most reports say where
        neither the hosts file nor the plan does."""
        votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for reports in self._reports.values():
            for name, role in reports.roles:
                votes[self._places.node(name)][role] += 1
        roles = {self._places.node(name): model.HOST for name in self._topology.hosts}
        roles |= {self._places.node(name): model.SWITCH for name in self._topology.switches}
        roles |= {
            name: max((count, role) for role, count in said.items())[1]
            for name, said in votes.items()
        }
        roles |= {host.name: host.role for host in hosts}
        return roles

    def _solve_all(self, facts: Mapping[str, NodeFacts]) -> None:
        """Find all cables."""
        claims = [*self._plan, *(each for name in facts for each in self._reports[name].claims)]
        seen = cables_by_mac({name: (fact.ports, fact.neighbours) for name, fact in facts.items()})
        addressed = cables_by_address({name: self._reports[name].addresses for name in facts})
        ends = located(claims, self._places)
        self._named = named_nodes(ends)
        wiring = merge(ends, seen, self._places, self._switches, self._by_source(), addressed)
        self._links = Counter((end[0], cable.node) for end, cable in wiring.cables.items())
        before = self._cabling.wiring
        nodes = {
            end[0]
            for known, new in ((before.cables, wiring.cables), (before.peers, wiring.peers))
            for end in known.keys() | new.keys()
            if known.get(end) != new.get(end)
        }
        changed = {**self._cabling.changed, **dict.fromkeys(nodes, self._updates)}
        self._cabling = self._cabling._replace(wiring=wiring, changed=changed)

    def _solve(
        self,
        ends: set[PortName],
        old: Mapping[str, _NodeReports],
        facts: Mapping[str, NodeFacts],
    ) -> None:
        """Find the cables of some ports, and of no others: those that new reports can affect.
        `old` are the reports that were replaced."""
        order = {name: number for number, name in enumerate(facts)}
        before = located(self._claims(ends, {**self._reports, **old}, order), self._places)
        for name in old:
            self._places.replace(name, facts[name])
        claims = located(self._claims(ends, self._reports, order), self._places)
        nodes = set(self._named)
        _add(self._named, named_nodes(before), -1)
        _add(self._named, named_nodes(claims), 1)
        wiring = self._cabling.wiring
        # Whether a far end is doubted depends on all names that its source uses.
        doubted = wiring.doubtful if self._named.keys() != nodes else ()
        if more := self._graph.reached(doubted) - ends:
            ends |= more
            claims = located(self._claims(ends, self._reports, order), self._places)
        by_node = _by_node(ends)
        seen = cables_by_mac(
            {
                name: self._reports[name].of_ports(by_node[name])
                for name in sorted(by_node.keys() & order.keys(), key=order.__getitem__)
            }
        )
        addressed = cables_by_address(
            {
                name: [each for each in self._reports[name].addresses if each[0] in by_node[name]]
                for name in by_node.keys() & order.keys()
            }
        )
        found = merge(claims, seen, self._places, self._switches, self._by_source(), addressed)
        changed = dict(self._cabling.changed)
        for end in ends:
            cable = wiring.cables.get(end)
            if found.cables.get(end) != cable or found.peers.get(end) != wiring.peers.get(end):
                changed[end[0]] = self._updates
            for each, by in ((cable, -1), (found.cables.get(end), 1)):
                if each is not None:
                    _add(self._links, {(end[0], each.node): 1}, by)
            _put(wiring.cables, end, found.cables)
            _put(wiring.peers, end, found.peers)
            _put(wiring.disputes, end, found.disputes)
        wiring.doubtful.difference_update(ends)
        wiring.doubtful.update(found.doubtful)
        self._cabling = self._cabling._replace(changed=changed)

    def _claims(
        self,
        ends: set[PortName],
        reports: Mapping[str, _NodeReports],
        order: Mapping[str, int],
    ) -> list[Claim]:
        """The claims about some ports, in the order of all claims."""
        by_node = _by_node(ends)
        claims = [self._plan[number] for number in sorted(map(int, by_node.pop(_PLAN, ())))]
        for name in sorted(by_node, key=order.__getitem__):
            claims += [each for each in reports[name].claims if each.one.port in by_node[name]]
        return claims

    def _by_source(self) -> dict[str, set[str]]:
        """The nodes that each source names."""
        named: dict[str, set[str]] = {}
        for source, node in self._named:
            named.setdefault(source, set()).add(node)
        return named

    @property
    def _switches(self) -> set[str]:
        return {name for name, role in self._roles.items() if role == model.SWITCH}

    def _shape(self, facts: Mapping[str, NodeFacts]) -> None:
        """Place the nodes by their roles and cables."""
        roles, cables = dict(self._roles), self._cabling.wiring.cables
        # An equal-cost next hop of a switch is a router, hence a switch.
        for name in self._switches & facts.keys():
            for members, _ in facts[name].members:
                for port in members:
                    cable = cables.get((name, port))
                    if cable is not None:
                        roles.setdefault(cable.node, model.SWITCH)
        links = frozenset(self._links)
        if self._shaped_by == (roles, links):
            return
        self._shaped_by = roles, links
        find, plan = self._places.node, self._topology
        named = Topology(
            tiers={find(name): tier for name, tier in plan.tiers.items()},
            planes={find(name): plane for name, plane in plan.planes.items()},
            pods={find(name): pod for name, pod in plan.pods.items()},
        )
        found = shape(roles, links, named)
        if found == self._cabling.shape:
            found = self._cabling.shape
        self._cabling = self._cabling._replace(shape=found, links=links)


def _ports(reports: Iterable[_NodeReports]) -> set[PortName]:
    return {port for each in reports for port in each.ports}


def _by_node(ends: Iterable[PortName]) -> defaultdict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node, port in ends:
        found[node].add(port)
    return found


def _put(known: dict[PortName, T], end: PortName, new: Mapping[PortName, T]) -> None:
    """Set what is known of a port to what is new; nothing where nothing is."""
    if end in new:
        known[end] = new[end]
    else:
        known.pop(end, None)


def _add(counts: Counter[tuple[str, str]], others: Mapping[tuple[str, str], int], by: int) -> None:
    """Add `by` times the other counts, without leaving any at zero."""
    for key, count in others.items():
        counts[key] += by * count
        if not counts[key]:
            del counts[key]
