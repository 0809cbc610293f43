"""Full links that no finding is about, and why: what a person asks who sees one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, FabricStructure
from fabmon.analysis.finding import Condition
from fabmon.analysis.model.bottlenecks import BottleneckModel, Place
from fabmon.analysis.model.candidates import Candidate
from fabmon.analysis.model.evidence import ANOTHER_LINK, NO_BUSIER, ONE_NIC
from fabmon.analysis.thresholds import ModelThresholds


class FullLinks:
    """A detector without conditions that keeps why full links are no bottlenecks.

    `why_unflagged` has them by row, of both ends, as of the last tick: `one NIC accounts for it
    (gpu001 r0)`. A link between switches or the last hop to a NIC is full that was so in one of the
    last model.window ticks.
    """

    def __init__(self, model: BottleneckModel) -> None:
        self._model = model
        self.why_unflagged: Mapping[int, str] = {}

    def __call__(self, inputs: DetectorInput) -> tuple[Condition, ...]:
        """Take a tick."""
        self.why_unflagged = {}  # Of a tick at which the model fails nothing is known.
        model, structure, t = self._model, inputs.structure, self._model.t
        found = model.bottlenecks(inputs)
        links = {(each.link.row, each.link.receiver) for each in found}
        groups = {id(each.group) for each in found if each.place is Place.GROUP}
        util = np.fmax(inputs.sent, inputs.received_filled)[:, -t.window :].max(axis=1)
        uplinks = np.flatnonzero(structure.is_uplink & (util >= t.full_util)).tolist()
        # One that is no candidate.
        why = dict.fromkeys(uplinks, NO_BUSIER)
        flagged = set()
        for each in model.candidates(inputs):
            ends = {each.row, int(structure.peer[each.row]), each.receiver} - {NONE}
            if (each.row, each.receiver) in links or id(each.group) in groups:
                flagged |= ends
            elif each.util.max() >= t.full_util:
                why |= dict.fromkeys(ends, why_no_bottleneck(structure, each, t))
        self.why_unflagged = {row: text for row, text in why.items() if row not in flagged}
        return ()


def why_no_bottleneck(structure: FabricStructure, each: Candidate, t: ModelThresholds) -> str:
    """What rules a link out that is no bottleneck, else how much evidence is missing."""
    for limit, row in ((ONE_NIC, each.alone), (ANOTHER_LINK, each.brought_by)):
        if limit in each.limits:
            return f"{limit} ({structure.label(row)})"
    if each.limits:
        return each.limits[0]
    if each.llr <= -t.veto:
        return "this tick is against it"
    if each.is_of_whole_group(t):
        return "the other links of its group are as busy"
    if each.evidence >= t.flags:
        return "a fuller link holds its flows, or they would lose too little"
    return f"evidence {each.evidence:.1f}, from {t.flags:.1f} on it is flagged"
