"""A queue inside the fabric as hosts feel it: whom it slows, where it may be, what speaks against.

Where the hosts' cables are known (LLDP, a plan), marked packets tell of a place: if all who are
slowed are behind one leaf, it is a link out of that leaf; if all who see the marks are, it is one
into it (reference: detection.md section 3b).
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

_NEARLY_ALL = 0.9
_MOST = 0.5
_SOME = 0.05
_AGREE = 0.2
_LOSES_TICKS = 5
_CERTAIN = 0.95
"""How often a queue inside the fabric is a collision where nothing speaks against it (score.md)."""


@dataclass(frozen=True, slots=True)
class FabricQueue:
    """`senders` are the rails that are slowed, `receivers` those that see its marks.

    `by` is MARKS or PAUSE. `slowed` and `marked` are [ports]: how much each is. `inside` is the
    share of the marks that the last hop does not explain. `agree` is CNPs handled by senders over
    those sent by receivers; NaN where not counted.
    """

    senders: Rows
    receivers: Rows
    by: str
    slowed: Floats
    marked: Floats
    inside: float
    agree: float


@dataclass(frozen=True, slots=True)
class Doubt:
    """What speaks against a collision, by how much it lowers the confidence, and for what instead;
    `instead` is empty where that is nothing that has a name."""

    text: str
    weight: float
    instead: str = ""


def locate_queue(inputs: DetectorInput, queue: FabricQueue) -> tuple[str, str]:
    """Where it is, as a subject and in a sentence; both empty when it cannot be told."""
    source = _one_leaf(inputs, queue.slowed)
    target = _one_leaf(inputs, queue.marked)
    if source and queue.by == PAUSE:
        return f"paths out of {source}", f"on the way out of {source}"
    if source and source == target:
        return "", ""  # what stays behind one leaf crosses no link between switches
    if source and target:
        return f"{source} to {target}", f"at an uplink of {source} or a link into {target}"
    if source:
        return f"uplinks of {source}", f"at an uplink of {source}"
    if target:
        return f"links into {target}", f"at a link into {target}"
    return "", ""


def confidence(doubts: list[Doubt]) -> float:
    """What is left of certainty, 0 to 1."""
    return round(max(0.1, _CERTAIN - sum(doubt.weight for doubt in doubts)), 2)


def doubts(inputs: DetectorInput, queue: FabricQueue, active: Mask) -> Iterator[Doubt]:
    """What speaks against a collision; `active` are the [ports] that send.

    A hash slows some of those who share the way, a link that is slow or sick all of them.
    """
    errors = inputs.filled("errors")[queue.senders, -_LOSES_TICKS:]
    if (errors > 0).any(axis=1).mean() > _MOST:
        yield Doubt("their packets are lost on the way", 0.4, "a damaged link")
    everyone = _everyone(inputs, queue, active)
    if everyone:
        yield Doubt(everyone, 0.2, "a slow link")
    if queue.by == PAUSE:
        yield Doubt("pause goes where marks do not", 0.05)
        return
    if queue.inside < 1 - _SOME:
        yield Doubt("some receivers are full, slow or stalled", 0.1)
    if queue.agree < 1 - _AGREE:
        yield Doubt("senders that are not watched are slowed too", 0.1)
    elif queue.agree > 1 + _AGREE:
        yield Doubt("receivers that are not watched see marks too", 0.1)


def _everyone(inputs: DetectorInput, queue: FabricQueue, active: Mask) -> str:
    """Who are all slowed, of those that send: whole leaves; else, whole rails or hosts."""
    structure = inputs.structure
    leaves, rails, nodes = (
        own[queue.senders] for own in (structure.leaf, structure.rail, structure.node)
    )
    if (leaves != NONE).all():
        beside = active & _is_any_of(structure.leaf, leaves)
        names = [structure.leaves[leaf] for leaf in sorted(set(leaves.tolist()))]
        whole = beside.sum() > 1 and not _others(beside, queue.senders).any()
        return f"all senders of {', '.join(names[:4])} are slowed" if whole else ""
    for own, members, name in ((structure.rail, rails, "rails"), (structure.node, nodes, "hosts")):
        beside = active & structure.is_rail & _is_any_of(own, members)
        more = beside.sum() > len(set(members.tolist()))
        if more and not _others(beside, queue.senders).any():
            return f"all senders of their {name} are slowed"
    return ""


def _is_any_of(numbers: Rows, wanted: Rows) -> Mask:
    """[ports]: whether a port's number, NONE or more, is one of those wanted, which all exist."""
    known = np.zeros(int(numbers.max(initial=NONE)) + 2, np.bool_)
    known[wanted] = True
    return known[numbers]


def _others(of: Mask, senders: Rows) -> Mask:
    others = of.copy()
    others[senders] = False
    return others


def _one_leaf(inputs: DetectorInput, share: Floats) -> str:
    """The leaf behind which nearly all of it is; empty if there is none, or nobody tells."""
    structure = inputs.structure
    known = structure.leaf != NONE
    if not known.any() or share.sum() <= 0:
        return ""
    by_leaf = np.bincount(structure.leaf[known], share[known], len(structure.leaves))
    top = int(by_leaf.argmax())
    return structure.leaves[top] if by_leaf[top] >= _NEARLY_ALL * share.sum() else ""
