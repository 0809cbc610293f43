"""Where the trouble of some senders is, as far as hosts show it: at a leaf, a host, or a rail."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import WINDOW_TICKS, DetectorInput
from fabmon.analysis.fabric_structure import NONE, Rows
from fabmon.fabric.snapshot import Floats


def senders_place(
    inputs: DetectorInput,
    senders: Rows,
    sent: Floats,
    receivers: Rows,
    received: Floats,
    most: float,
) -> tuple[str, str]:
    """Where their trouble is, as a subject and in a sentence, by the signs of it at senders and at
    receivers [ports]: `most` of those of senders, a share, behind one leaf make it a path out of
    that leaf, of receivers a path into it (detection.md section 3b)."""
    source = _one_leaf(inputs, senders, sent, most)
    target = _one_leaf(inputs, receivers, received, most)
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


def _one_leaf(inputs: DetectorInput, rows: Rows, weight: Floats, most: float) -> str:
    """The leaf behind which `most` of some weight is, a share; empty where there is none."""
    structure = inputs.structure
    leaf = structure.leaf[rows]
    if not len(rows) or len(structure.leaves) < 2:
        return ""
    known = leaf != NONE
    total = float(weight[rows].sum())
    of_leaf = np.bincount(leaf[known], weights=weight[rows][known], minlength=1)
    best = int(np.argmax(of_leaf))
    return structure.leaves[best] if total > 0 and of_leaf[best] >= most * total else ""


class LastSeen:
    """What a detector has said of some ports in WINDOW_TICKS, longer than a finding without its
    condition stays open: it keeps its name, and less is needed."""

    def __init__(self) -> None:
        self._said: list[tuple[int, frozenset[str], str]] = []

    def rows(self, inputs: DetectorInput) -> Rows:
        """The ports of what was said in the last ticks."""
        structure = inputs.structure
        ids = set().union(*(ids for _, ids, _ in self._recent(inputs)))
        places = {each.id: row for row, each in enumerate(structure.fabric.ports)} if ids else {}
        return np.array([places[each] for each in sorted(ids & places.keys())], np.intp)

    def subject(self, inputs: DetectorInput, rows: Rows, subject: str) -> str:
        """The subject of what was said of some of the same ports; else the given one."""
        ids = frozenset(inputs.structure.ids(rows.tolist()))
        for each in self._recent(inputs):
            if ids & each[1]:
                subject = each[2]
                self._said.remove(each)
                break
        self._said.append((inputs.snapshot.seq, ids, subject))
        return subject

    def _recent(self, inputs: DetectorInput) -> list[tuple[int, frozenset[str], str]]:
        self._said = [each for each in self._said if inputs.snapshot.seq - each[0] <= WINDOW_TICKS]
        return list(self._said)
