"""Root causes: of the conditions of a tick, keep those that no other finding explains.

Which cause explains which symptom is decided here, by the traits that the causes declare and by the
ports that both findings name. A symptom is dropped for one of two reasons. It is *explained* when a
root is certain to produce it (a link of a lost node is down). It is *excused* when it was inferred
and a root may have produced what it was inferred from (marks that an incast made).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from fabmon.analysis.causes import CAUSES, causes_with
from fabmon.analysis.detectors import (
    degraded_link,
    ecmp_collision,
    flapping_link,
    host_pcie_limit,
    incast,
    link_down,
    node_lost,
    oversubscription,
    pause_storm,
    pause_victim,
    polarization,
    slow_receiver,
    straggler,
    uneven_rails,
)
from fabmon.analysis.evidence.fabric_queue import LEAST_CONFIDENCE
from fabmon.analysis.fabric_structure import NONE, FabricStructure
from fabmon.analysis.finding import Condition, Trait

_OF_LINK = causes_with(Trait.OF_LINK)
_OF_HOST_PORT = causes_with(Trait.OF_HOST_PORT)
_DAMAGES_PACKETS = causes_with(Trait.DAMAGES_PACKETS)
_MAKES_PAUSE = causes_with(Trait.MAKES_PAUSE)
_OF_GROUP = {each.CAUSE.name for each in (ecmp_collision, polarization, oversubscription)}
_OF_PAUSING_HOST = {each.CAUSE.name for each in (slow_receiver, pause_storm)}
_OF_QUIET_HOST = {each.CAUSE.name for each in (straggler, uneven_rails)}

_DAMAGED_LINK_DOUBT = 0.15
"""Confidence, 0 to 1, that an inferred collision loses while some link damages packets: senders
may be slowed by that link when their path is not known. Set by `make score`: see docs/score.md."""


def keep_root_causes(
    conditions: Sequence[Condition], open_findings: Iterable[Condition], structure: FabricStructure
) -> tuple[list[Condition], set[str]]:
    """The conditions of a tick that nothing explains, and the keys of all that is explained.

    The keys are of conditions and of open findings. Both are roots for each other.
    """
    now = {condition.key for condition in conditions}
    roots = [*conditions, *(each for each in open_findings if each.key not in now)]
    graph = _Roots(roots, structure)
    explained = {each.key for each in roots if graph.explains(each)}
    graph = _Roots([each for each in roots if each.key not in explained], structure)
    explained |= {each.key for each in roots if graph.excuses(each)}
    kept = [graph.with_doubt(each) for each in conditions if each.key not in explained]
    return kept, explained


class _Roots:
    """Conditions and open findings that may explain others."""

    def __init__(self, roots: Sequence[Condition], structure: FabricStructure) -> None:
        self._structure = structure
        self._roots = roots
        self._lost = {each.subject for each in roots if each.cause == node_lost.CAUSE.name}
        self._polarized = {
            _node_of(each) for each in roots if each.cause == polarization.CAUSE.name
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
            return bool(self._nodes(symptom) & self._lost) or rows[0] in flapping
        if cause in _OF_GROUP:
            is_collision = cause == ecmp_collision.CAUSE.name
            if is_collision and _node_of(symptom) in self._polarized:
                return True
            return rows[0] in degraded | flapping
        if cause in _OF_PAUSING_HOST:
            return rows[0] in self._ports[host_pcie_limit.CAUSE.name]
        if cause == incast.CAUSE.name:
            return bool(degraded & set(rows[:2]))
        if cause in _OF_QUIET_HOST:
            nodes = self._nodes(symptom)
            return len(nodes) == 1 and bool(nodes & self._nodes_at_fault())
        return False

    def excuses(self, symptom: Condition) -> bool:
        """Whether some root may have produced what a symptom was inferred from.

        A slow receiver slows senders anywhere; a cable only what is near it.
        """
        if symptom.cause == pause_victim.CAUSE.name:
            pausing = [root for root in self._roots if root.cause in _MAKES_PAUSE]
            return any(self._may_share_a_switch(symptom, root) for root in pausing)
        return any(
            root.cause != symptom.cause
            and any(trait in CAUSES[root.cause].traits for trait in symptom.unless)
            and self._is_near(symptom, root)
            for root in (self._roots if symptom.unless else ())
        )

    def with_doubt(self, condition: Condition) -> Condition:
        """The condition, with less confidence where a damaged link may be on an unknown path."""
        is_inferred = condition.cause == ecmp_collision.CAUSE.name and bool(
            self._structure.is_rail[list(condition.rows[:1])].any()
        )
        if not is_inferred:
            return condition
        damaged = [each.subject for each in self._roots if each.cause in _DAMAGES_PACKETS]
        if not damaged:
            return condition
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        return msgspec.structs.replace(
            condition,
            confidence=round(max(LEAST_CONFIDENCE, condition.confidence - _DAMAGED_LINK_DOUBT), 2),
            unseen=f"{condition.unseen}; whether they cross {damaged[0]}{more}",
        )

    def _is_near(self, symptom: Condition, root: Condition) -> bool:
        """Whether a root touches a symptom's surroundings; True for roots that are no cable."""
        if root.cause not in _OF_LINK or not symptom.rows:
            return True
        return bool(self._ends(root.rows) & self._surroundings(symptom))

    def _may_share_a_switch(self, symptom: Condition, root: Condition) -> bool:
        """Whether both touch one switch (watched or not), or the switches of one are not known."""
        own, other = self._switches(symptom.rows), self._switches(root.rows)
        return not own or not other or bool(own & other)

    def _switches(self, rows: Iterable[int]) -> set[str]:
        """Names of the switches at the ends of links, and of the leaves that rails lead to."""
        structure, ports = self._structure, self._structure.fabric.ports
        ends = self._ends(rows)
        behind = {structure.leaves[at] for row in ends if (at := int(structure.leaf[row])) != NONE}
        return behind | {ports[row].node for row in ends if structure.is_switch[row]}

    def _surroundings(self, symptom: Condition) -> set[int]:
        """The ports of a link, of the nodes at its ends, and of what is cabled to these."""
        structure = self._structure
        own = structure.node[sorted(self._ends(symptom.rows[:1]))]
        beside = np.flatnonzero(np.isin(structure.node, own[own != NONE]))
        return self._ends((*symptom.rows, *beside.tolist()))

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


def _node_of(condition: Condition) -> str:
    return condition.subject.partition("/")[0]
