"""Where the trouble of some senders is, as far as hosts show it: at a leaf, a host, or a rail."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, Rows
from fabmon.analysis.finding import Cause
from fabmon.fabric.snapshot import Floats

MAX_VICTIMS = 64
"""Receivers listed in a finding."""

_ONE_LEAF = 0.9
"""Share of the signs of trouble, 0 to 1, behind one leaf that locates it there."""


def senders_place(
    inputs: DetectorInput, senders: Rows, sent: Floats, receivers: Rows, received: Floats
) -> tuple[str, str]:
    """Where their trouble is, as a subject and in a sentence, by the signs of it at senders and at
    receivers [ports]: nine tenths of those of senders behind one leaf make it a path out of that
    leaf, of receivers a path into it (detection.md section 3b)."""
    source = _one_leaf(inputs, senders, sent)
    target = _one_leaf(inputs, receivers, received)
    if source and target and source != target:
        return f"{source} to {target}", f"between {source} and {target}"
    if source:
        return f"paths out of {source}", f"on a path out of {source}"
    if target:
        return f"paths into {target}", f"on a path into {target}"
    rails = set(inputs.structure.rail[senders].tolist())
    nodes = {inputs.structure.fabric.ports[row].node for row in senders.tolist()}
    if len(nodes) == 1:
        name = nodes.pop()
        return f"paths out of {name}", f"on a path out of {name}"
    if len(rails) == 1:
        return f"paths of rail r{rails.pop()}", "on their paths"
    return "paths between hosts", "on their paths"


def _one_leaf(inputs: DetectorInput, rows: Rows, weight: Floats) -> str:
    """The leaf behind which nearly all of some weight is; empty where there is none."""
    structure = inputs.structure
    leaf = structure.leaf[rows]
    if not len(rows) or len(structure.leaves) < 2:
        return ""
    known = leaf != NONE
    total = float(weight[rows].sum())
    of_leaf = np.bincount(leaf[known], weights=weight[rows][known], minlength=1)
    best = int(np.argmax(of_leaf))
    return structure.leaves[best] if total > 0 and of_leaf[best] >= _ONE_LEAF * total else ""


def share_at_one_node(inputs: DetectorInput, lost: Floats, missed: Floats) -> float:
    """The largest share, 0 to 1, of lost packets that one leaf or host can be the reason of: those
    that it sends and those that it receives, `lost` at senders and `missed` at receivers [ports].

    What a cable loses passes the nodes at both of its ends, in one direction or in both.
    """
    structure, best = inputs.structure, 0.0
    for numbers in (structure.node, structure.leaf):
        share = np.zeros(int(numbers.max(initial=0)) + 1)
        for events in (lost, missed):
            counts = (events > 0) & (numbers != NONE)
            np.add.at(share, numbers[counts], events[counts] / float(events.sum()))
        best = max(best, float(share.max()))
    return min(best, 1.0)


def open_subject(inputs: DetectorInput, cause: Cause, senders: Rows) -> str:
    """The subject of the open finding about some of the same senders; empty without one."""
    mine = set(senders.tolist())
    for finding in inputs.open_of(cause):
        if mine & set(finding.rows):
            return finding.subject
    return ""
