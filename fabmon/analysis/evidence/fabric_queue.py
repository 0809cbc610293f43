"""A queue between switches that are not watched, as hosts see it: its place and the flows it slows.

Where the hosts' cables are known (LLDP, a plan), marked packets give the place: if all slowed
senders are behind one leaf, it is a link out of that leaf; if all receivers that see the marks are,
it is a link into it (reference: detection.md section 3b).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.fabric.snapshot import Floats

MARKS = "marks"
PAUSE = "pause"

_ONE_LEAF = 0.9
"""Share of the CNPs or marks, 0 to 1, behind one leaf that locates the queue there."""

_MOST_SENDERS = 0.5
"""Share of the slowed senders, 0 to 1, with errors above which a damaged link is suspected."""

_ERROR_TICKS = 5
"""Ticks in which those errors are looked for."""

_SOME_MARKS = 0.05
"""Share of the marks, 0 to 1, at receivers that are full, slow or stalled that casts doubt."""

_CNP_TOLERANCE = 0.2
"""CNPs handled and CNPs sent agree within this share, 0 to 1, when both ends are watched."""

_CERTAIN = 0.95
"""Confidence without doubts: how often such a queue is a collision (docs/score.md)."""

LEAST_CONFIDENCE = 0.1
"""Confidence that remains whatever speaks against it."""

_PACKETS_LOST, _ALL_SLOWED, _SOME_EXPLAINED, _PAUSE_ONLY = 0.4, 0.2, 0.1, 0.05
"""What each doubt takes from the confidence, 0 to 1, calibrated in docs/score.md."""

_MAX_LEAVES = 4
"""Leaves named in a doubt."""


@dataclass(frozen=True, slots=True)
class FabricQueue:
    """`senders` are the rails that are slowed, `receivers` those that see the queue's marks.

    `seen_by` is MARKS or PAUSE. `slowed` and `marked` are [ports]: how many CNPs (or how much
    pause) and how many marks each port has. `inside` is the share of the marks, 0 to 1, that the
    last hop does not explain. `cnp_ratio` is CNPs handled by senders over those sent by receivers;
    NaN where either is not counted.
    """

    senders: Rows
    receivers: Rows
    seen_by: str
    slowed: Floats
    marked: Floats
    inside: float
    cnp_ratio: float


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason against a collision, by how much it lowers the confidence, and the alternative;
    `instead` is empty where there is no particular one."""

    text: str
    weight: float
    instead: str = ""


def locate_queue(inputs: DetectorInput, queue: FabricQueue) -> tuple[str, str]:
    """Where a queue is, as a subject and in a sentence; both empty when it cannot be located."""
    source = _one_leaf(inputs, queue.slowed)
    target = _one_leaf(inputs, queue.marked)
    if source and queue.seen_by == PAUSE:
        return f"paths out of {source}", f"on a path out of {source}"
    if source and source == target:
        return "", ""  # traffic below one leaf crosses no link between switches
    if source and target:
        return f"{source} to {target}", f"at an uplink of {source} or a link into {target}"
    if source:
        return f"uplinks of {source}", f"at an uplink of {source}"
    if target:
        return f"links into {target}", f"at a link into {target}"
    return "", ""


def confidence(found: list[Doubt]) -> float:
    """The confidence that remains after all doubts, 0.1 to 0.95."""
    return round(max(LEAST_CONFIDENCE, _CERTAIN - sum(doubt.weight for doubt in found)), 2)


def doubts(inputs: DetectorInput, queue: FabricQueue, active: Mask) -> Iterator[Doubt]:
    """What speaks against a collision; `active` are the [ports] that send.

    A hash slows some of the senders that share a path; a slow or damaged link slows all of them.
    """
    errors = inputs.filled("errors")[queue.senders, -_ERROR_TICKS:]
    if (errors > 0).any(axis=1).mean() > _MOST_SENDERS:
        yield Doubt("packets of these senders are lost", _PACKETS_LOST, "a damaged link")
    all_slowed = _all_slowed(inputs, queue, active)
    if all_slowed:
        yield Doubt(all_slowed, _ALL_SLOWED, "a slow link")
    if queue.seen_by == PAUSE:
        yield Doubt("pause alone also reaches senders whose path has no queue", _PAUSE_ONLY)
        return
    if queue.inside < 1 - _SOME_MARKS:
        yield Doubt("some receivers are full, slow or stalled", _SOME_EXPLAINED)
    if queue.cnp_ratio < 1 - _CNP_TOLERANCE:
        yield Doubt("senders that are not watched are slowed too", _SOME_EXPLAINED)
    elif queue.cnp_ratio > 1 + _CNP_TOLERANCE:
        yield Doubt("receivers that are not watched see marks too", _SOME_EXPLAINED)


def _all_slowed(inputs: DetectorInput, queue: FabricQueue, active: Mask) -> str:
    """Whether all active senders of some leaves (else of some rails, or hosts) are slowed; empty
    when not."""
    structure = inputs.structure
    leaves, rails, nodes = (
        own[queue.senders] for own in (structure.leaf, structure.rail, structure.node)
    )
    if (leaves != NONE).all():
        beside = active & _is_any_of(structure.leaf, leaves)
        names = [structure.leaves[leaf] for leaf in sorted(set(leaves.tolist()))]
        whole = beside.sum() > 1 and not _others(beside, queue.senders).any()
        return f"all senders of {', '.join(names[:_MAX_LEAVES])} are slowed" if whole else ""
    for own, members, name in ((structure.rail, rails, "rails"), (structure.node, nodes, "hosts")):
        beside = active & structure.is_rail & _is_any_of(own, members)
        more = beside.sum() > len(set(members.tolist()))
        if more and not _others(beside, queue.senders).any():
            return f"all senders of their {name} are slowed"
    return ""


def _is_any_of(numbers: Rows, wanted: Rows) -> Mask:
    """[ports]: whether a port's number (NONE or more) is one of those wanted (0 or more)."""
    known = np.zeros(int(numbers.max(initial=NONE)) + 2, np.bool_)
    known[wanted] = True
    return known[numbers]


def _others(of: Mask, senders: Rows) -> Mask:
    others = of.copy()
    others[senders] = False
    return others


def _one_leaf(inputs: DetectorInput, share: Floats) -> str:
    """The leaf behind which nearly all of it is; empty if there is none, or no cable is known."""
    structure = inputs.structure
    known = structure.leaf != NONE
    if not known.any() or share.sum() <= 0:
        return ""
    by_leaf = np.bincount(structure.leaf[known], share[known], len(structure.leaves))
    top = int(by_leaf.argmax())
    return structure.leaves[top] if by_leaf[top] >= _ONE_LEAF * share.sum() else ""
