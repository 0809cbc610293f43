"""A link is full while other links of its ECMP group have room: flows were hashed onto it unevenly.

A synchronous collective waits for its slowest flow, so a job gets of a group what its mean load is
to its maximum: lost bandwidth is 1 - mean/max (reference: detection.md section 2).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.attribution import may_exchange
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flows_on_link import effective_flows_on_link
from fabmon.analysis.evidence.group_load import (
    LINK_UTIL,
    EcmpGroupThresholds,
    Load,
    group_loads,
)
from fabmon.analysis.evidence.null_model import hashing_evidence
from fabmon.analysis.fabric_structure import NONE, LinkGroup
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.wording import name_list, rounded_percent

CAUSE = Cause(
    name="ecmp_collision",
    title="ECMP collision",
    meaning="a link is full while others of its group have room: flows were hashed unevenly",
    severity=WARNING,
    picture="link_group",
    advice=(
        "Give the hash more flows: NCCL_IB_QPS_PER_CONNECTION=4, then E-ECMP on the queue pair or"
        " adaptive routing on the switch."
    ),
    tables=("ecmp_groups", "from_hosts"),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.OF_HASHING,
        Trait.MAKES_PAUSE,
        Trait.FULL_LINK_OF_GROUP,
        Trait.HAS_SENDERS,
    ),
)

_CRITICAL_LOST = 0.5
"""Lost bandwidth, 0 to 1, from which on a collision is critical: the job takes twice as long."""

_IDLE_UTIL = 0.02
"""Share of line rate, 0 to 1, below which a link of the group is named as idle."""

_MAX_IDLE_NAMED = 4
"""Idle links named in the sentence."""

_IMPOSSIBLE_UTIL = 1.05
"""Share of line rate above which the line rate must be wrong: counters are read up to a few per
cent earlier or later than a second apart."""

_SAME_LOAD = 0.01
"""Two links whose loads differ by less than this share may carry the same flows."""

_NO_QUEUE_CONFIDENCE, _QUEUE_CONFIDENCE, _MAX_CONFIDENCE = 0.5, 0.75, 0.98
"""Confidence, 0 to 1: of one hot tick without and with a queue that was seen, and the most."""

_QUEUES = {
    "marks": "packets of its flows are ECN-marked",
    "pause": "the ports that fill it are paused",
    "": "not observable",
}


def ecmp_collisions(inputs: DetectorInput, t: EcmpGroupThresholds) -> Iterator[Condition]:
    """One condition for each hot link beside links with room.

    A link has a group for each set of destinations; the group that loses most is reported.
    """
    worst: dict[str, Condition] = {}
    uneven = [
        load for load in group_loads(inputs, t) if not load.is_lone and load.lost >= t.lost_min
    ]
    polarized = {load.group.node for load in uneven if load.is_polarized(inputs)}
    downstream = _downstream_links(inputs, uneven)
    passing = {row for rows in downstream.values() for row in rows}
    for load in uneven:
        if load.group.node in polarized and not load.group.is_inward:
            continue
        for member in np.flatnonzero(load.hot).tolist():
            row = int(load.group.rows[member])
            if row in passing:
                continue
            condition = _condition(inputs, t, load, member, downstream.get(row, []))
            before = worst.get(condition.key)
            if before is None or before.lost < condition.lost:
                worst[condition.key] = condition
    yield from worst.values()


def _condition(
    inputs: DetectorInput, t: EcmpGroupThresholds, load: Load, member: int, downstream: list[int]
) -> Condition:
    structure, level, group = inputs.structure, load.level, load.group
    row = int(group.rows[member])
    ports = structure.fabric.ports
    idle = [
        structure.label(each) if group.is_inward else ports[each].label
        for each, util in zip(group.rows.tolist(), level, strict=True)
        if util < _IDLE_UTIL
    ]
    peer = int(structure.peer[row])
    towards = f" to {ports[peer].node}" if peer >= 0 else ""
    flows = round(load.effective_flows)
    seen, usual = hashing_evidence(float(level[member]) / load.mean, flows, load.links)
    links = (
        f"the {load.links} links into {group.node}"
        if group.is_inward
        else (f"the {load.links} links of its group")
    )
    lost = min(max(1.0 - load.mean / float(level[member]), 0.0), 1.0)
    room = f"; idle: {_named(idle)}" if idle else ""
    wrong = (
        "; above 100 % is impossible: its line rate is wrong"
        if float(np.nanmax(level)) > _IMPOSSIBLE_UTIL
        else ""
    )
    return Condition(
        cause=CAUSE.name,
        severity=CRITICAL if lost >= _CRITICAL_LOST else CAUSE.severity,
        subject=ports[row].id,
        rows=(row, *downstream, *(int(each) for each in group.rows if each != row)),
        text=(
            f"{structure.label(row)}{towards} sends at {rounded_percent(level[member])} of line"
            f" rate while {links} average {rounded_percent(load.mean)}: the job gets"
            f" {rounded_percent(1 - lost)} of what they could carry{room}{wrong}"
        ),
        evidence=(
            Evidence(LINK_UTIL, round(float(level[member]) * 100, 1), "%"),
            Evidence("group mean", round(load.mean * 100, 1), "%"),
            Evidence("lost bandwidth", round(lost * 100, 1), "%"),
            Evidence("group links", load.links, "links"),
            Evidence("idle links", len(idle), "links"),
            Evidence("hot ticks", int(load.hot_ticks[member]), f"of {t.of_ticks}"),
            seen,
            *effective_flows_on_link(inputs.snapshot, row, flows),
            usual,
            Evidence("queue", _QUEUES[load.queue]),
        ),
        advice=CAUSE.advice,
        confidence=_confidence(t, load, member),
        lost=lost,
        victims=tuple(ports[each].id for each in downstream),
        unseen="" if load.queue else "the queue in front of the link (no host or no counters)",
        unless=(Trait.MAKES_QUEUES,) if load.queue and not load.was_full else (),
    )


def _confidence(t: EcmpGroupThresholds, load: Load, member: int) -> float:
    """0.5 to 0.98: more with every hot tick, and where a queue was seen."""
    share = int(load.hot_ticks[member]) / t.of_ticks
    least = _QUEUE_CONFIDENCE if load.queue else _NO_QUEUE_CONFIDENCE
    return round(min(_MAX_CONFIDENCE, least + (_MAX_CONFIDENCE - least) * share), 2)


def _named(idle: list[str]) -> str:
    return name_list(idle, _MAX_IDLE_NAMED)


def _downstream_links(inputs: DetectorInput, uneven: list[Load]) -> dict[int, list[int]]:
    """Hot uplinks, and the hot links behind the next switch that are as full as they are.

    Flows that collided on their way up go down together where their destination leaf is the same.
    There is no second queue then, and whether there is one cannot be distinguished.
    """
    structure = inputs.structure
    ups: dict[int, list[tuple[int, LinkGroup]]] = {}
    for row, group in _hot_uplinks(inputs, uneven).items():
        peer = int(structure.peer[row])
        if peer != NONE:
            ups.setdefault(int(structure.node[peer]), []).append((row, group))
    found: dict[int, list[int]] = {}
    for load in uneven:
        if not load.group.is_inward:
            continue
        for row in load.group.rows[load.hot].tolist():
            for up, group in ups.get(int(structure.node[row]), ()):
                if _is_as_full(inputs, load, row, up) and _may_reach(inputs, group, load.group):
                    found.setdefault(up, []).append(row)
                    break
    return found


def _hot_uplinks(inputs: DetectorInput, uneven: list[Load]) -> dict[int, LinkGroup]:
    """The uplinks that are hot now, and those of open findings, with their groups."""
    reported = {row for each in inputs.open_of(CAUSE) for row in each.rows[:1]}
    found = {
        row: group
        for group in (inputs.structure.groups if reported else ())
        for row in group.rows.tolist()
        if row in reported and not group.is_inward
    }
    for load in uneven:
        if not load.group.is_inward:
            found |= dict.fromkeys(load.group.rows[load.hot].tolist(), load.group)
    return found


def _may_reach(inputs: DetectorInput, up: LinkGroup, into: LinkGroup) -> bool:
    """Whether traffic that leaves one switch may enter another."""
    if up.node == into.node or not len(up.hosts):
        return up.node != into.node
    return bool(may_exchange(inputs, up.hosts, into.hosts).any())


def _is_as_full(inputs: DetectorInput, load: Load, row: int, up: int) -> bool:
    """Whether an uplink carries what a link carries, in all ticks or while that link is fullest."""
    own, fed = np.nan_to_num(inputs.util("tx")[[row, up]])
    counts = load.tops > 0
    fullest = counts & (own >= (1 - _SAME_LOAD) * own[counts].max())
    for ticks in (counts, fullest):
        level = float(own[ticks].mean())
        if abs(level - float(fed[ticks].mean())) <= _SAME_LOAD * level:
            return True
    return False
