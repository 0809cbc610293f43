"""A link is hot while its ECMP group has room: too many elephants were hashed onto it.

A synchronous collective waits for its slowest flow, so the group is worth what its mean is to its
maximum: lost = 1 - mean/max (reference: detection.md section 2).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.detectors.polarization import is_polarized
from fabmon.analysis.evidence import null_model
from fabmon.analysis.evidence.attribution import may_talk
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flows_on_link import effective_flows
from fabmon.analysis.evidence.group_load import LEVEL, Load, loads
from fabmon.analysis.fabric_structure import NONE, LinkGroup
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import EcmpGroups
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="ecmp_collision",
    title="ECMP collision",
    severity=WARNING,
    picture="link_group",
    tables=(
        "ecmp_groups",
        "from_hosts",
    ),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HASHING,
        Trait.MAKES_PAUSE,
        Trait.FULL_LINK_OF_GROUP,
        Trait.HAS_SENDERS,
    ),
)


_IDLE_UTIL = 0.02
_POSSIBLE = 1.05
"""Counters are not read exactly a second apart; beyond this the line rate is not what it seems."""
_CRITICAL_LOST = 0.5
_SAME = 0.01
"""Two links whose levels differ by less than this share may well carry the same."""
_QUEUES = {
    "marks": "packets of its flows are ECN-marked",
    "pause": "those who fill it are held",
    "": "not visible",
}


class EcmpCollisions:
    """Judges what every group sends; a group of fewer than two live links cannot collide."""

    def __init__(self, thresholds: EcmpGroups) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for every hot link that has idle ones beside it; of several groups, the one
        that loses most: a link has a group for each set of destinations.
        """
        worst: dict[str, Condition] = {}
        uneven = [
            load
            for load in loads(inputs, self._t)
            if not load.is_lone and load.lost >= self._t.lost_min
        ]
        polarized = {load.group.node for load in uneven if is_polarized(inputs, load)}
        carried_on = _carried_on(inputs, uneven)
        passing = {row for rows in carried_on.values() for row in rows}
        for load in uneven:
            if load.group.node in polarized and not load.group.is_inward:
                continue
            for member in np.flatnonzero(load.hot).tolist():
                row = int(load.group.rows[member])
                if row in passing:
                    continue
                condition = self._condition(inputs, load, member, carried_on.get(row, []))
                before = worst.get(condition.key)
                if before is None or before.lost < condition.lost:
                    worst[condition.key] = condition
        yield from worst.values()

    def _condition(
        self, inputs: DetectorInput, load: Load, member: int, carried_on: list[int]
    ) -> Condition:
        structure, level = inputs.structure, load.level
        rows = load.group.rows
        row = int(rows[member])
        ports = [structure.fabric.ports[each] for each in rows]
        port = structure.fabric.ports[row]
        idle = [
            structure.label(int(each)) if load.group.is_inward else p.label
            for each, p, u in zip(rows, ports, level, strict=True)
            if u < _IDLE_UTIL
        ]
        others = ", ".join(idle[:4]) + (" …" if len(idle) > 4 else "") + " idle" if idle else ""
        peer = int(structure.peer[row])
        towards = f" to {structure.fabric.ports[peer].node}" if peer >= 0 else ""
        flows = round(load.effective_flows)
        seen, usual = null_model.hashing_evidence(
            float(level[member]) / load.mean, flows, load.links
        )
        own = f"the {load.links} links into {load.group.node} are"
        group = own if load.group.is_inward else f"its group of {load.links} is"
        lost = min(max(1.0 - load.mean / float(level[member]), 0.0), 1.0)
        wrong = (
            "; more than the line rate is not possible: the speed that is given for it is wrong"
            if float(np.nanmax(level)) > _POSSIBLE
            else ""
        )
        return Condition(
            cause="ecmp_collision",
            severity=CRITICAL if lost >= _CRITICAL_LOST else WARNING,
            subject=port.id,
            rows=(row, *carried_on, *(int(each) for each in rows if each != row)),
            text=(
                f"{structure.label(row)}{towards} sends at {rounded_percent(level[member])} of line"
                f" rate while {group} at {rounded_percent(load.mean)}; the group loses"
                f" {rounded_percent(lost)} ({others or 'none idle'}){wrong}"
            ),
            evidence=(
                Evidence(LEVEL, round(float(level[member]) * 100, 1), "%"),
                Evidence("group mean", round(load.mean * 100, 1), "%"),
                Evidence("lost bandwidth", round(lost * 100, 1), "%"),
                Evidence("group links", load.links, "links"),
                Evidence("idle links", len(idle), "links"),
                Evidence("hot ticks", int(load.hot_ticks[member]), f"of {self._t.of_ticks}"),
                seen,
                *effective_flows(inputs.snapshot, row, flows),
                usual,
                Evidence("queue", _QUEUES[load.queue]),
            ),
            advice=(
                "Give the hash more to work with: NCCL_IB_QPS_PER_CONNECTION=4, then E-ECMP on the"
                " queue pair or adaptive routing on the switch."
            ),
            confidence=self._confidence(load, member),
            lost=lost,
            victims=tuple(structure.fabric.ports[each].id for each in carried_on),
            unseen="" if load.queue else "the queue in front of the link (no host or no counters)",
            unless=(Trait.MAKES_QUEUES,) if load.queue and not load.was_full else (),
        )

    def _confidence(self, load: Load, member: int) -> float:
        """More ticks say it more surely, and so does a queue that is seen."""
        share = int(load.hot_ticks[member]) / self._t.of_ticks
        sure = 0.75 if load.queue else 0.5
        return round(min(0.98, sure + (0.98 - sure) * share), 2)


def _carried_on(inputs: DetectorInput, uneven: list[Load]) -> dict[int, list[int]]:
    """Hot uplinks, and the hot links behind the next switch that are as full as they are.

    Flows that collided on their way up go down together where their leaf is the same: there is no
    second queue, and whether there is one cannot be told apart.
    """
    structure = inputs.structure
    ups: dict[int, list[tuple[int, LinkGroup]]] = {}
    for row, group in _hot_uplinks(inputs, uneven).items():
        peer = int(structure.peer[row])
        if peer != NONE:
            ups.setdefault(int(structure.node[peer]), []).append((row, group))
    found: dict[int, list[int]] = {}
    for load in uneven:
        if load.group.is_inward:
            for row in load.group.rows[load.hot].tolist():
                for up, group in ups.get(int(structure.node[row]), ()):
                    if _is_as_full(inputs, load, row, up) and _may_reach(inputs, group, load.group):
                        found.setdefault(up, []).append(row)
                        break
    return found


def _hot_uplinks(inputs: DetectorInput, uneven: list[Load]) -> dict[int, LinkGroup]:
    """Those that are hot now, and those that are told of still."""
    told = {
        row
        for key, each in inputs.standing.items()
        if key.startswith("ecmp_collision:")
        for row in each.rows[:1]
    }
    found = {
        row: group
        for group in (inputs.structure.groups if told else ())
        for row in group.rows.tolist()
        if row in told and not group.is_inward
    }
    for load in uneven:
        if not load.group.is_inward:
            found |= dict.fromkeys(load.group.rows[load.hot].tolist(), load.group)
    return found


def _may_reach(inputs: DetectorInput, up: LinkGroup, into: LinkGroup) -> bool:
    """Whether what leaves a switch may enter another."""
    if up.node == into.node or not len(up.hosts):
        return up.node != into.node
    return bool(may_talk(inputs, up.hosts, into.hosts).any())


def _is_as_full(inputs: DetectorInput, load: Load, row: int, up: int) -> bool:
    """Whether an uplink carries what a link carries, if only while that one is at its fullest."""
    own, fed = np.nan_to_num(inputs.util("tx")[[row, up]])
    counts = load.tops > 0
    fullest = counts & (own >= (1 - _SAME) * own[counts].max())
    for ticks in (counts, fullest):
        level = float(own[ticks].mean())
        if abs(level - float(fed[ticks].mean())) <= _SAME * level:
            return True
    return False
