"""Which findings are right, which are wrong, and which truths were missed.

A finding is right when its cause is true at its place at that time, whatever rule found it. Where
no switch is watched, the queues between switches cannot be distinguished: there a finding that
reports only a congested path is right, and a wrong name is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.score.play import Played, Reported
from tests.world.plans import HOSTS_ONLY
from tests.world.truth import Truth

CONGESTED_PATH = "congested_path"

EARLY_S, LATE_S = 2.0, 15.0
"""A finding may open this long before the truth begins (clocks, episodes that begin small) and
after it ends (windows that still see it)."""

_OF_NODE_OR_GROUP = frozenset(
    {
        *("straggler", "node_lost", "uneven_rails", "gpu_nic_numa"),
        *("oversubscription", "polarization"),
    }
)


@dataclass
class Score:
    """The judgement of a run. `right` pairs a finding with the truth that it states."""

    played: Played
    right: list[tuple[Reported, Truth]] = field(default_factory=list)
    wrong: list[Reported] = field(default_factory=list)
    found: list[tuple[Truth, float]] = field(default_factory=list)
    """Required truths that were found, and after how many seconds."""
    missed: list[Truth] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether nothing was wrong in the fabric: a counter that is stuck does not count."""
        return all(truth.cause == "saturated_counter" for truth in self.played.truths)


def score(played: Played) -> Score:
    """Judge a run."""
    result = Score(played)
    hosts_only = played.plan.topology == HOSTS_ONLY
    first: dict[int, float] = {}
    for reported in played.reported:
        matching = [t for t in played.truths if states(reported, t, played.truths, hosts_only)]
        if not matching:
            result.wrong.append(reported)
            continue
        best = max(
            matching,
            key=lambda t: (
                is_of_its_link(reported, t),
                *(t.required, reported.cause == t.cause, t.active_s),
            ),
        )
        result.right.append((reported, best))
        for truth in matching:
            begun = truth.first_s if truth.first_s is not None else truth.start_s
            after = max(0.0, reported.opened_s - begun)
            first[id(truth)] = min(after, first.get(id(truth), after))
    for together in _distinguishable(played.truths, hosts_only):
        times = [first[id(truth)] for truth in together if id(truth) in first]
        main = max(together, key=lambda truth: truth.lost_sum)
        if times:
            result.found.append((main, min(times)))
        else:
            result.missed.append(main)
    return result


def _distinguishable(truths: list[Truth], hosts_only: bool) -> list[list[Truth]]:
    """The required truths, in sets that count as one: where only hosts are watched, all queues
    between switches at the same time; everywhere, links that carry the same flows."""
    sets: list[list[Truth]] = []
    for truth in truths:
        if not truth.required:
            continue
        near = [
            known
            for known in sets
            if (
                (hosts_only and truth.inside and known[0].inside)
                or _carries_the_same_flows(truth, known[0])
            )
            and any(_overlap(truth, t) for t in known)
        ]
        if near:
            near[0].append(truth)
        else:
            sets.append([truth])
    return sets


def _overlap(one: Truth, other: Truth) -> bool:
    """Whether two truths held at the same time."""
    return one.start_s <= other.end_s and other.start_s <= one.end_s


def _carries_the_same_flows(one: Truth, other: Truth) -> bool:
    """Whether two truths are about the same flows: they have one cause, and need one finding.

    Flows that share an uplink may share the link down to their leaf too.
    """
    if not {one.cause, other.cause} <= {"ecmp_collision", "polarization"}:
        return False
    fewer, more = sorted((one.affected, other.affected), key=len)
    return bool(fewer) and fewer <= more


def states(reported: Reported, truth: Truth, truths: list[Truth], hosts_only: bool) -> bool:
    """Whether a finding says what is true, as one of all `truths`."""
    closed = reported.closed_s if reported.closed_s is not None else float("inf")
    if not truth.start_s - EARLY_S <= reported.opened_s <= truth.end_s + LATE_S:
        before = truth.start_s - reported.opened_s
        # It was open long before: right only if it is about this for most of its time.
        if reported.opened_s > truth.end_s or closed - truth.start_s < before:
            return False
    cause = reported.cause
    vague = cause == CONGESTED_PATH and hosts_only and truth.inside
    if cause not in truth.names and not vague:
        return False
    if not hosts_only or not truth.inside:
        return _is_at(reported, truth)
    affected = truth.affected
    if vague:
        # It is about all queues between switches, of whatever rail.
        near = [t for t in truths if t.inside and _overlap(t, truth)]
        affected = set().union(*(t.affected for t in near))
    return _is_about_affected(reported, truth, affected)


def is_of_its_link(reported: Reported, truth: Truth) -> bool:
    """Whether a finding's own link, not only its group, is that of a collision."""
    return truth.cause == reported.cause and reported.subject in truth.ports


def _is_at(reported: Reported, truth: Truth) -> bool:
    """Whether it names the place, or shows it first."""
    node = reported.subject.partition("/")[0]
    first = reported.ports[0] if reported.ports else ""
    if reported.cause in _OF_NODE_OR_GROUP:
        return node in truth.nodes or first in truth.ports
    if reported.subject in truth.ports or first in truth.ports:
        return True
    return node in truth.nodes and not truth.ports.isdisjoint(reported.ports)


def _is_about_affected(reported: Reported, truth: Truth, affected: set[str]) -> bool:
    """Whether its ports are mostly those of the flows that are slowed, some of them by `truth`."""
    if _is_at(reported, truth):
        return True
    shown = set(reported.ports) | {v for v in reported.victims if "/" in v}
    nodes = {port.partition("/")[0] for port in truth.affected}
    if shown and shown.isdisjoint(truth.affected):
        return False
    if shown:
        return len(shown & affected) * 2 >= min(len(shown), len(affected))
    return reported.subject.partition("/")[0] in nodes
