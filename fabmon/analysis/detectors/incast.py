"""Many senders, one receiver: the last hop to a host is full and the switch behind it queues."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.fabric_structure import NONE
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Incast as Thresholds
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="incast",
    title="Incast",
    severity=WARNING,
    picture="receiver",
    tables=("incast",),
    traits=(
        Trait.NEEDS_TRAFFIC,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.MAKES_PAUSE,
        Trait.ONE_RAIL,
        Trait.HAS_SENDERS,
    ),
)


_USUAL_PERCENT = 90
"""Nine in ten of the other rails receive less than a usual one may."""

_SENDS = 0.05
_OWN_RATE = 0.8
"""A sender at this share of its line rate is not slowed by the receiver."""


class Incasts:
    """Judges every rail by what it receives, and by what says that more was meant for it."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition a receiver."""
        structure = inputs.structure
        util = inputs.received
        with np.errstate(invalid="ignore"):
            hot_ticks = (util[:, -self._t.of_ticks :] >= self._t.hot_util).sum(axis=1)
        hot = np.flatnonzero(structure.is_rail & (hot_ticks >= self._t.hot_ticks)).tolist()
        if not hot:
            return
        told = inputs.often("ecn", self._t.marks_per_s, 5, 3)
        told |= inputs.often("cnp_sent", self._t.cnps_per_s, 5, 3)
        usual_at_least = _usual_at_least(inputs, util)
        level = np.nanmean(np.ascontiguousarray(util[hot, -3:]), axis=1)
        may = (level >= self._t.hot_util) & (usual_at_least < self._t.others_below * level)
        for row, own, may_stand_out in zip(hot, level.tolist(), may.tolist(), strict=True):
            if pause_graph(inputs).holds[row]:
                continue  # it is slow itself
            marked, queues = bool(told[row]), self._is_waited_for(inputs, row)
            if marked or queues or (may_stand_out and self._stands_out(inputs, util, row, own)):
                senders = self._senders(inputs, row)
                if senders[0] >= 2:
                    yield self._condition(inputs, row, own, senders, (marked, queues))

    def _is_waited_for(self, inputs: DetectorInput, row: int) -> bool:
        """Whether the switch of the last hop holds others, and nothing holds it."""
        edge = int(inputs.structure.peer[row])
        return edge != NONE and int(inputs.structure.node[edge]) in pause_graph(inputs).roots

    def _senders(self, inputs: DetectorInput, row: int) -> tuple[int, bool]:
        """Rails of other hosts that are slowed; else, False, those that send below their rate."""
        structure = inputs.structure
        others = structure.is_rail & (structure.node != structure.node[row])
        count = int(np.count_nonzero(inputs.slowed & others))
        if count >= 2:
            return count, True
        sent = inputs.sent[:, -3:].mean(axis=1)
        return int((others & (sent > _SENDS) & (sent < _OWN_RATE)).sum()), False

    def _stands_out(self, inputs: DetectorInput, util: Floats, row: int, own: float) -> bool:
        """Whether it receives far more than any usual rail does."""
        structure = inputs.structure
        others = util[structure.is_rail & (structure.node != structure.node[row])][:, -3:]
        known = others[np.isfinite(others)]
        if not len(known):
            return False
        return float(np.percentile(known, _USUAL_PERCENT)) < self._t.others_below * own

    def _condition(
        self,
        inputs: DetectorInput,
        row: int,
        level: float,
        told_senders: tuple[int, bool],
        seen: tuple[bool, bool],
    ) -> Condition:
        (senders, slowed_ones), (marked, queues) = told_senders, seen
        structure, snapshot = inputs.structure, inputs.snapshot
        port = structure.fabric.ports[row]
        edge = int(structure.peer[row])
        graph = pause_graph(inputs)
        waiting = graph.victims(int(structure.node[edge])) if queues else []
        rows = [row] if edge == NONE else [edge, row]
        told = {
            "ECN-marked packets": float(snapshot.column("ecn")[row]),
            "CNPs sent": float(snapshot.column("cnp_sent")[row]),
        }
        slowed = snapshot.fabric.ports
        return Condition(
            cause="incast",
            severity=WARNING,
            subject=port.id,
            rows=(*rows, *(each for each in waiting if each not in rows)),
            text=(
                f"{port.node} {port.label} receives {rounded_percent(level)} of line rate, more is"
                f" meant for it: {senders} senders {'are slowed' if slowed_ones else 'at most'}"
            ),
            evidence=(
                Evidence("received", round(level * 100, 1), "%"),
                Evidence("slowed senders" if slowed_ones else "senders at most", senders, "ports"),
                *(
                    Evidence(name, round(value), "/s")
                    for name, value in told.items()
                    if np.isfinite(value) and value > 0
                ),
                Evidence("ports that wait for it", len(waiting), "ports"),
            ),
            advice=(
                "Look at what gathers there (all-to-all, parameter server, checkpoint); spread the"
                " receivers over rails, or stagger the senders (NCCL_P2P_NET_CHUNKSIZE, fewer"
                " channels)."
            ),
            confidence=0.9 if marked and queues else 0.85 if marked or queues else 0.7,
            lost=round(1 - 1 / max(senders, 1), 3) if senders > 1 else 0.0,
            victims=tuple(dict.fromkeys(slowed[each].id for each in waiting)),
            unseen="" if edge != NONE else "the switch in front of it",
        )


def _usual_at_least(inputs: DetectorInput, util: Floats) -> float:
    """What a usual rail receives, whichever node is left out of account, is no less than this.

    Worked out once, where that of the others of each hot rail takes a second for a thousand hosts:
    leaving values out moves those that remain up in their order.
    """
    structure = inputs.structure
    rails = util[structure.is_rail, -3:]
    known = np.sort(rails[np.isfinite(rails)])
    of_a_node = rails.shape[1] * int(np.bincount(structure.node[structure.is_rail]).max(initial=0))
    place = int(_USUAL_PERCENT / 100 * (len(known) - of_a_node - 1))
    return float(known[place]) if place >= 0 and len(known) else float("-inf")
