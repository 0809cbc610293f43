"""Root causes: of the conditions of a tick, keep those that no other finding explains.

Which cause explains which symptom is decided here, by the traits that the causes declare and by the
ports that both findings name. A symptom is dropped for one of two reasons. It is *explained* when a
root is certain to produce it (a link of a lost node is down). It is *excused* when it was inferred
and a root may have produced what it was inferred from (marks that an incast made).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fabmon.analysis.causes import CAUSES, causes_with
from fabmon.analysis.detectors import (
    degraded_link,
    driver_failed,
    ecmp_collision,
    error_burst,
    flapping_link,
    host_pcie_limit,
    incast,
    link_down,
    missing_nvlinks,
    node_lost,
    nvlink_fabric,
    oversubscription,
    pause_deadlock,
    pause_storm,
    polarization,
    saturated_counter,
    slow_receiver,
    straggler,
    uneven_rails,
)
from fabmon.analysis.fabric_structure import NONE, FabricStructure
from fabmon.analysis.finding import Condition, Trait
from fabmon.fabric.model import HOST, MANAGEMENT, RAIL, Fabric

_OF_LINK = causes_with(Trait.OF_LINK)
_OF_HOST_PORT = causes_with(Trait.OF_HOST_PORT)
_OF_GROUP = {each.CAUSE.name for each in (ecmp_collision, polarization, oversubscription)}
_OF_PAUSING_HOST = {each.CAUSE.name for each in (slow_receiver, pause_storm)}
_OF_PLACE = {each.CAUSE.name for each in (uneven_rails, incast)}
_OF_GPU = {each.CAUSE.name for each in (missing_nvlinks, nvlink_fabric)}
_OF_QUIET_HOST = {each.CAUSE.name for each in (straggler, uneven_rails)}


def keep_root_causes(
    conditions: Sequence[Condition],
    open_findings: Iterable[Condition],
    structure: FabricStructure,
    closed: Iterable[Condition] = (),
) -> tuple[list[Condition], set[str]]:
    """The conditions of a tick that nothing explains, and the keys of all that is explained.

    The keys are of conditions and of open findings. Both are roots for each other. Findings that
    `closed` a moment ago excuse new conditions that were inferred from traffic of before; what is
    open stays open.
    """
    now, opened = {condition.key for condition in conditions}, list(open_findings)
    roots = [*conditions, *(each for each in opened if each.key not in now)]
    graph = _Roots(roots, structure)
    explained = {each.key for each in roots if graph.explains(each)}
    explained |= _in_full_groups([each for each in roots if each.key not in explained])
    left = [each for each in roots if each.key not in explained]
    graph = _Roots(left, structure)
    explained |= {each.key for each in roots if graph.excuses(each)}
    kept = [each for each in conditions if each.key not in explained]
    before = [each for each in closed if each.key not in now]
    if before:
        is_open = {each.key for each in opened}
        graph = _Roots([*left, *before], structure)
        kept = [each for each in kept if each.key in is_open or not graph.excuses(each)]
    return kept, explained


class _Roots:
    """Conditions and open findings that may explain others."""

    def __init__(self, roots: Sequence[Condition], structure: FabricStructure) -> None:
        self._structure = structure
        self._roots = roots
        self._lost = {each.subject for each in roots if each.cause == node_lost.CAUSE.name}
        self._polarized = {
            each.subject_node for each in roots if each.cause == polarization.CAUSE.name
        }
        flapping = Counter(
            node
            for each in roots
            if each.cause == flapping_link.CAUSE.name
            for node in self._nodes(each)
        )
        # A host that restarts changes the carrier of all its ports; one that flaps alone may be
        # the reason that its host is lost.
        self._restarted = {node for node in self._lost if flapping[node] > 1}
        self._paused_by_storms = {
            row for each in roots if each.cause == pause_storm.CAUSE.name for row in each.rows
        }
        self._failed = {
            end
            for each in roots
            if each.cause == driver_failed.CAUSE.name
            for end in self._ends(each.rows)
        }
        self._ports: dict[str, set[int]] = {cause: set() for cause in _OF_LINK | _OF_HOST_PORT}
        """The ports at fault by cause: both ends of a link, one port of a host."""
        for each in roots:
            if each.cause in _OF_LINK:
                self._ports[each.cause].update(self._ends(each.rows[:2]))
            elif each.cause in _OF_HOST_PORT and each.rows:
                self._ports[each.cause].add(each.rows[0])

    def explains(self, symptom: Condition) -> bool:
        """Whether some root is certain to produce a symptom."""
        cause, rows = symptom.cause, symptom.rows
        flapping = self._ports[flapping_link.CAUSE.name]
        degraded = self._ports[degraded_link.CAUSE.name]
        if cause == link_down.CAUSE.name:
            if self._nodes(symptom) & self._lost:
                return True
            return rows[0] in flapping or not self._failed.isdisjoint(rows)
        if cause == flapping_link.CAUSE.name:
            return bool(self._nodes(symptom) & self._restarted)
        if cause in _OF_GPU:
            return rows[0] in self._failed
        if cause == pause_deadlock.CAUSE.name:
            # Pause that spreads from one host returns to the switches that it began at.
            return not self._paused_by_storms.isdisjoint(rows)
        if cause in _OF_GROUP:
            is_collision = cause == ecmp_collision.CAUSE.name
            if is_collision and symptom.subject_node in self._polarized:
                return True
            # The traffic of a link that is down or flaps fills the other links of its group.
            sheds = flapping | self._ports[link_down.CAUSE.name]
            is_full = cause == oversubscription.CAUSE.name
            return (is_full and not sheds.isdisjoint(rows)) or rows[0] in degraded | flapping
        if cause == saturated_counter.CAUSE.name:
            # A counter that damage drove to its maximum.
            return set(rows) <= self._ports[error_burst.CAUSE.name] | degraded
        if cause in _OF_PAUSING_HOST:
            return rows[0] in self._ports[host_pcie_limit.CAUSE.name]
        if cause == incast.CAUSE.name:
            return bool(degraded & set(rows[:2]))
        if cause in _OF_QUIET_HOST:
            nodes = self._nodes(symptom)
            return len(nodes) == 1 and bool(nodes & self._nodes_at_fault())
        return False

    def excuses(self, symptom: Condition) -> bool:
        """Whether some root may have produced what a symptom was inferred from: a slow receiver may
        slow senders anywhere, a cable those whose traffic can cross it."""
        return any(
            root.cause != symptom.cause
            and any(trait in CAUSES[root.cause].traits for trait in symptom.unless)
            and self._carries_traffic(root)
            and self._can_reach(root, symptom)
            for root in (self._roots if symptom.unless else ())
        )

    def _can_reach(self, root: Condition, symptom: Condition) -> bool:
        """Whether traffic of a symptom's hosts can meet a root: one of hosts or of a leaf is met by
        their own hosts, any other by all. Senders that no place is known of may wait for any."""
        is_cable, is_group = root.cause in _OF_LINK, root.cause in _OF_GROUP
        if not is_cable and symptom.cause not in _OF_PLACE:
            return True
        rows = root.rows[:2] if is_cable else (*root.rows, *self._rows_of(_slowed_here(root)))
        ports, hosts = self._structure.fabric.ports, self._structure.once(_leaves_of_hosts)
        met = {ports[row].node for row in self._ends(rows)}
        local = {name for name in met if name in hosts}
        if is_cable or is_group:
            local |= met & set(self._structure.leaves)
        if symptom.cause == uneven_rails.CAUSE.name:
            # A ring of one rail is as fast as its slowest host, and the first rail is the low one.
            rail, rails = self._structure.rail, (*rows, *self._rows_of(_slowed_here(root)))
            own_rails = {int(rail[symptom.rows[0]])}
            if Trait.ONE_RAIL in set(CAUSES[root.cause].traits) & set(symptom.unless):
                # The senders of an incast may be anywhere; the last rail is their busy one.
                own_rails.add(int(rail[symptom.rows[-1]]))
            if not own_rails.isdisjoint(int(rail[row]) for row in self._ends(rails)):
                return True
        own = {name.partition("/")[0] for name in _slowed_here(symptom)} | self._nodes(symptom)
        own |= {leaf for name in own for leaf in hosts.get(name, ())}
        return not local or not local.isdisjoint(own)

    def _rows_of(self, victims: Iterable[str]) -> list[int]:
        """The ports that a finding names as slowed."""
        rows = self._structure.once(_rows_by_id)
        return [rows[name] for name in victims if name in rows]

    def _carries_traffic(self, root: Condition) -> bool:
        """Whether a root is about ports of the fabric, not of a management network."""
        ports = self._structure.fabric.ports
        return not root.rows or ports[root.rows[0]].role != MANAGEMENT

    def _nodes_at_fault(self) -> set[str]:
        """Nodes that are lost, or that have a port at fault."""
        ports = self._structure.fabric.ports
        return {ports[row].node for rows in self._ports.values() for row in rows} | self._lost

    def _nodes(self, condition: Condition) -> set[str]:
        return {self._structure.fabric.ports[row].node for row in condition.rows}

    def _ends(self, rows: Iterable[int]) -> set[int]:
        """The ports and their peers."""
        peer = self._structure.peer
        return {end for row in rows for end in (row, int(peer[row])) if end != NONE}


def _in_full_groups(roots: Sequence[Condition]) -> set[str]:
    """The keys of collisions on links of groups that are full as a whole: one fault is one finding,
    and a group that fills link by link looks like a collision for some seconds."""
    full = {row for each in roots if each.cause == oversubscription.CAUSE.name for row in each.rows}
    collision = ecmp_collision.CAUSE.name
    return {each.key for each in roots if each.cause == collision and each.rows[0] in full}


def _slowed_here(condition: Condition) -> tuple[str, ...]:
    """The ports that a condition names as slowed where it is. The senders of an incast may be
    anywhere; the ports that wait for it are in its rows."""
    return () if condition.cause == incast.CAUSE.name else condition.victims


def _leaves_of_hosts(fabric: Fabric) -> dict[str, set[str]]:
    """The leaves that each host's rails are cabled to."""
    return {
        node.name: {port.cable.node for port in node.ports if port.role == RAIL and port.cable}
        for node in fabric.nodes
        if node.role == HOST
    }


def _rows_by_id(fabric: Fabric) -> dict[str, int]:
    """The row of each port, by its id."""
    return {port.id: row for row, port in enumerate(fabric.ports)}
