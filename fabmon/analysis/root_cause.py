"""One root, one finding: what another finding explains is not told beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from fabmon.analysis.condition import Condition
from fabmon.analysis.fabric_structure import NONE, FabricStructure

_OF_LINK = frozenset({"link_down", "flapping_link", "degraded_link", "error_burst", "miscabled"})
_OF_HOST_PORT = frozenset({"slow_receiver", "pause_storm", "host_pcie_limit"})
_SICK = frozenset({"flapping_link", "degraded_link", "error_burst"})
_PERHAPS = 0.15
_ROOTS_OF_PAUSE = frozenset(
    {*_OF_HOST_PORT, "incast", "pause_deadlock", "ecmp_collision", "oversubscription"}
)


def keep_root_causes(
    told: Sequence[Condition], open_ones: Iterable[Condition], structure: FabricStructure
) -> tuple[list[Condition], set[str]]:
    """What is left of the conditions of a tick, and the keys of what they and the open explain."""
    now = {condition.key for condition in told}
    roots = [*told, *(each for each in open_ones if each.key not in now)]
    judge = _Judge(roots, structure)
    explained = {each.key for each in roots if judge.explains(each)}
    judge = _Judge([each for each in roots if each.key not in explained], structure)
    explained |= {each.key for each in roots if judge.excuses(each)}
    return [judge.doubted(each) for each in told if each.key not in explained], explained


class _Judge:
    def __init__(self, roots: Sequence[Condition], structure: FabricStructure) -> None:
        self._structure = structure
        self._roots = roots
        self._causes = {each.cause for each in roots}
        self._lost = {each.subject for each in roots if each.cause == "node_lost"}
        self._polarized = {
            each.subject.partition("/")[0] for each in roots if each.cause == "polarization"
        }
        self._links: dict[str, set[int]] = {cause: set() for cause in _OF_LINK}
        self._host_ports: dict[str, set[int]] = {cause: set() for cause in _OF_HOST_PORT}
        for each in roots:
            if each.cause in _OF_LINK:
                self._links[each.cause].update(self._ends(each.rows[:2]))
            elif each.cause in _OF_HOST_PORT and each.rows:
                self._host_ports[each.cause].add(each.rows[0])

    def explains(self, symptom: Condition) -> bool:
        """Whether some root explains it."""
        cause = symptom.cause
        if cause == "link_down":
            flapping = self._links["flapping_link"]
            return bool(self._nodes(symptom) & self._lost) or symptom.rows[0] in flapping
        if cause == "ecmp_collision" and symptom.subject.partition("/")[0] in self._polarized:
            return True
        if cause in ("ecmp_collision", "polarization", "oversubscription"):
            sick = self._links["degraded_link"] | self._links["flapping_link"]
            return symptom.rows[0] in sick
        if cause in ("slow_receiver", "pause_storm"):
            return symptom.rows[0] in self._host_ports["host_pcie_limit"]
        if cause == "incast":
            return bool(self._links["degraded_link"] & set(symptom.rows[:2]))
        if cause in ("straggler", "uneven_rails"):
            mine = self._nodes(symptom)
            return len(mine) == 1 and bool(mine & self._host_trouble())
        return False

    def excuses(self, symptom: Condition) -> bool:
        """Whether what it was inferred from may as well come from some root.

        Who takes its data too slowly slows senders wherever they are; a cable only what is near.
        """
        if symptom.cause == "pause_victim":
            held = [root for root in self._roots if root.cause in _ROOTS_OF_PAUSE]
            return any(self._may_share_a_switch(symptom, root) for root in held)
        if not self._causes & set(symptom.unless):
            return False
        return any(
            self._is_near(symptom, root) for root in self._roots if root.cause in symptom.unless
        )

    def doubted(self, condition: Condition) -> Condition:
        """The same, less surely where a sick cable may lie on a way that nobody sees."""
        if not self._is_by_hosts(condition):
            return condition
        sick = [each.subject for each in self._roots if each.cause in _SICK]
        if not sick:
            return condition
        more = f" and {len(sick) - 1} more" if len(sick) > 1 else ""
        return msgspec.structs.replace(
            condition,
            confidence=round(max(0.1, condition.confidence - _PERHAPS), 2),
            unseen=f"{condition.unseen}; whether they cross {sick[0]}{more}",
        )

    def _is_by_hosts(self, condition: Condition) -> bool:
        """Whether a queue was inferred from hosts alone."""
        first = condition.rows[:1]
        return condition.cause == "ecmp_collision" and bool(
            self._structure.is_rail[list(first)].any()
        )

    def _is_near(self, symptom: Condition, root: Condition) -> bool:
        if root.cause not in _OF_LINK or not symptom.rows:
            return True
        return bool(self._ends(root.rows) & self._around(symptom))

    def _may_share_a_switch(self, symptom: Condition, root: Condition) -> bool:
        """Whether both touch one switch, watched or not, or nobody tells what one touches."""
        own, other = self._switches(symptom.rows), self._switches(root.rows)
        return not own or not other or bool(own & other)

    def _switches(self, rows: Iterable[int]) -> set[str]:
        structure, ports = self._structure, self._structure.fabric.ports
        ends = self._ends(rows)
        behind = {structure.leaves[at] for row in ends if (at := int(structure.leaf[row])) != NONE}
        return behind | {ports[row].node for row in ends if structure.is_switch[row]}

    def _around(self, symptom: Condition) -> set[int]:
        """The ports of a link, of the switches at its ends, and of what is cabled to these."""
        structure = self._structure
        own = structure.node[sorted(self._ends(symptom.rows[:1]))]
        beside = np.flatnonzero(np.isin(structure.node, own[own != NONE]))
        return self._ends((*symptom.rows, *beside.tolist()))

    def _host_trouble(self) -> set[str]:
        ports = self._structure.fabric.ports
        rows = {row for links in self._links.values() for row in links}
        rows |= {row for each in self._host_ports.values() for row in each}
        return {ports[row].node for row in rows} | self._lost

    def _nodes(self, condition: Condition) -> set[str]:
        ports = self._structure.fabric.ports
        return {ports[row].node for row in condition.rows}

    def _ends(self, rows: Iterable[int]) -> set[int]:
        peer = self._structure.peer
        return {end for row in rows for end in (row, int(peer[row])) if end != NONE}
