"""One root, one finding: what another finding explains is not told beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fabmon.analysis.condition import Condition
from fabmon.analysis.structure import NONE, Structure

_OF_LINK = frozenset({"link_down", "flapping_link", "degraded_link", "error_burst", "miscabled"})
_OF_HOST_PORT = frozenset({"slow_receiver", "pause_storm", "host_pcie_limit"})
_ROOTS_OF_PAUSE = frozenset(
    {*_OF_HOST_PORT, "incast", "pause_deadlock", "ecmp_collision", "oversubscription"}
)


def one_root(
    told: Sequence[Condition], open_ones: Iterable[Condition], structure: Structure
) -> tuple[list[Condition], set[str]]:
    """What is left of the conditions of a tick, and the keys of what they and the open explain."""
    now = {condition.key for condition in told}
    roots = [*told, *(each for each in open_ones if each.key not in now)]
    judge = _Judge(roots, structure)
    explained = {each.key for each in roots if judge.explains(each)}
    return [each for each in told if each.key not in explained], explained


class _Judge:
    def __init__(self, roots: Sequence[Condition], structure: Structure) -> None:
        self._structure = structure
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
        if any(other in self._causes for other in symptom.unless):
            return True
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
        if cause == "pause_victim":
            return bool(self._causes & _ROOTS_OF_PAUSE)
        if cause in ("straggler", "uneven_rails"):
            mine = self._nodes(symptom)
            return len(mine) == 1 and bool(mine & self._host_trouble())
        return False

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
