"""The routing mode of every node, from the configuration and from reported facts.

The first of these that applies decides: the table `[routing]` of the configuration; adaptive
routing that the node, or the subnet manager's routing engine, reports; InfiniBand ports, which
forward by tables; NICs that spray packets
over all paths (`efa`: SRD; `cxi`: Slingshot); equal-cost routes, which are hashed. A host without a
fact of its own has the mode of the switch that its first rail is cabled to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from fabmon.fabric.forwarding_tables import ForwardingTables
from fabmon.fabric.hosts.host_line import Bad
from fabmon.fabric.model import FABRIC, HOST, RAIL, SWITCH, Node, Port
from fabmon.fabric.names import matches
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.routing_mode import ADAPTIVE, HASHED, STATIC, Routing
from fabmon.fabric.topology.cable_patterns import nodes as node_set

_SPRAYING = {"efa": "EFA (SRD)", "cxi": "Slingshot"}
"""Prefixes of drivers whose NICs or fabrics spread the packets of one flow over all paths."""

_HASH_POLICIES = {0: "addresses only", 1: "5-tuple", 2: "inner addresses", 3: "chosen fields"}
"""Values of net.ipv4.fib_multipath_hash_policy, Linux Documentation/networking/ip-sysctl.rst."""

_WILDCARDS = frozenset("*?")

Rules = Mapping[str, str]
"""`[routing]`: pattern of nodes or groups -> mode, the most specific last."""


def check_pattern(pattern: str) -> None:
    """Raise Bad unless `pattern` is a node set (`leaf[1-8]`) or a shell pattern (`leaf*`)."""
    if not _WILDCARDS & set(pattern):
        node_set(pattern)
    elif "[" in pattern or "," in pattern or not pattern.strip():
        raise Bad(1, "ranges and wildcards in one pattern", "write leaf[1-8] or leaf*")


class _Rule(NamedTuple):
    """A line of `[routing]`; `names` are those of a node set, empty for a shell pattern."""

    pattern: str
    mode: str
    names: frozenset[str]

    def selects(self, name: str) -> bool:
        """Whether the pattern selects the node or the group with this name."""
        return name in self.names if self.names else matches(name, (self.pattern,))


def _rules(given: Rules) -> list[_Rule]:
    return [
        _Rule(p, mode, frozenset() if _WILDCARDS & set(p) else frozenset(node_set(p)))
        for p, mode in given.items()
    ]


def renamed(rules: Rules, names: Mapping[str, str]) -> dict[str, str]:
    """The same rules for nodes and groups that are renamed; `names` maps old names to new ones."""
    found: dict[str, str] = {}
    for rule in _rules(rules):
        if rule.pattern == "*":
            found = {"*": rule.mode}
        else:
            found |= {new: rule.mode for old, new in names.items() if rule.selects(old)}
    return found


class _NodeRouting(NamedTuple):
    """The routing of a node, None if unknown, and from what: its own facts, the forwarding tables,
    what sprays `behind` a switch, and the routing of the switch that a host is cabled to
    (`leaf`)."""

    node: Node
    fact: NodeFacts | None
    forwarding: ForwardingTables | None
    behind: Set[str]
    leaf: Routing | None
    routing: Routing | None


class KnownRouting:
    """Keeps the routing of nodes: what has not changed is not found again."""

    def __init__(self, configured: Rules) -> None:
        self._rules = _rules(configured)
        self._drivers: dict[str, tuple[tuple[Port, ...], set[tuple[str, str]]]] = {}
        self._known: dict[str, _NodeRouting] = {}

    def of_nodes(
        self,
        nodes: Sequence[Node],
        facts: Mapping[str, NodeFacts],
        forwarding: ForwardingTables | None = None,
    ) -> dict[str, Routing]:
        """The routing of every node about which something is known, by name."""
        drivers = self._drivers_at_switches(nodes)
        fabric_drivers = {driver for each in drivers.values() for driver in each}
        before, self._known = self._known, {}
        found: dict[str, Routing] = {}
        for is_switch in (True, False):
            for node in nodes:
                if (node.role == SWITCH) != is_switch:
                    continue
                fact = facts.get(node.name)
                behind = drivers.get(node.name, fabric_drivers) if is_switch else _NOTHING
                leaf = None if is_switch else found.get(_leaf(node))
                known = before.get(node.name)
                if (
                    known is None
                    or known.node.ports is not node.ports
                    or known.node.group != node.group
                    or known.fact is not fact
                    or known.forwarding is not forwarding
                    or known.behind != behind
                    or known.leaf != leaf
                ):
                    routing = self._routing(node, fact or NodeFacts(), behind, forwarding) or leaf
                    known = _NodeRouting(node, fact, forwarding, behind, leaf, routing)
                self._known[node.name] = known
                if known.routing is not None:
                    found[node.name] = known.routing
        return found

    def _routing(
        self,
        node: Node,
        fact: NodeFacts,
        behind: Set[str],
        forwarding: ForwardingTables | None,
    ) -> Routing | None:
        return (
            _configured(node, self._rules)
            or _reported_adaptive(fact)
            or _infiniband(node, forwarding)
            or _sprayed(node, behind)
            or _hashed(fact)
        )

    def _drivers_at_switches(self, nodes: Sequence[Node]) -> dict[str, set[str]]:
        """Switch -> what sprays among the NICs that are cabled to it; "" where one does not."""
        before, self._drivers = self._drivers, {}
        found: dict[str, set[str]] = {}
        for node in nodes:
            if node.role == SWITCH:
                continue
            known = before.get(node.name)
            if known is None or known[0] is not node.ports:
                known = node.ports, _drivers(node)
            self._drivers[node.name] = known
            for switch, driver in known[1]:
                found.setdefault(switch, set()).add(driver)
        return found


_NOTHING: frozenset[str] = frozenset()


def _configured(node: Node, rules: Sequence[_Rule]) -> Routing | None:
    own = (node.name, node.group)
    rule = next((each for each in reversed(rules) if any(map(each.selects, own))), None)
    if rule is None:
        return None
    return Routing(rule.mode, f"config: {rule.pattern} = {rule.mode}")


def _reported_adaptive(fact: NodeFacts) -> Routing | None:
    reported = [each.adaptive for each in fact.ecmp]
    reported += [str(info.get("adaptive_routing") or "") for info in fact.ports.values()]
    source = next(filter(None, reported), "")
    return Routing(ADAPTIVE, f"adaptive routing is on ({source})") if source else None


def _infiniband(node: Node, forwarding: ForwardingTables | None) -> Routing | None:
    if not any(port.kind == "infiniband" for port in node.ports if port.role in FABRIC):
        return None
    if forwarding is not None and forwarding.is_adaptive:
        return Routing(ADAPTIVE, f"routing_engine {forwarding.engine} of the subnet manager")
    return Routing(STATIC, "InfiniBand forwards by tables, and no adaptive routing is reported")


def _sprayed(node: Node, behind: Set[str]) -> Routing | None:
    """By the NICs of a host, or by those behind a switch where all of them spray."""
    if node.role == HOST:
        behind = {_spraying(port) for port in node.ports if port.role == RAIL} - {""}
    if not behind or "" in behind:
        return None
    return Routing(ADAPTIVE, f"NICs spray packets: {', '.join(sorted(behind))}")


def _hashed(fact: NodeFacts) -> Routing | None:
    if not fact.ecmp:
        return None
    policy = next((each.hash_policy for each in fact.ecmp if each.hash_policy is not None), None)
    if policy is None:
        return Routing(HASHED, "equal-cost routes")
    words = f"fib_multipath_hash_policy {policy}: {_HASH_POLICIES.get(policy, 'other')}"
    return Routing(HASHED, f"equal-cost routes, {words}", policy)


def _leaf(node: Node) -> str:
    """The switch that a host's first cabled rail leads to; empty if none is known."""
    for port in node.ports:
        if port.role == RAIL and port.cable is not None:
            return port.cable.node
    return ""


def _drivers(node: Node) -> set[tuple[str, str]]:
    """(switch, what sprays) for the NICs of a host that are cabled to one; "" for one that does
    not."""
    return {
        (port.cable.node, _spraying(port))
        for port in node.ports
        if node.role == HOST and port.role == RAIL and port.cable is not None
    }


def _spraying(port: Port) -> str:
    driver = str(port.info.get("driver") or port.info.get("rdma") or port.name)
    return next((name for prefix, name in _SPRAYING.items() if driver.startswith(prefix)), "")
