"""Hosts that send through some of their rails only: a collective is as fast as its busiest rail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from fabmon.analysis.condition import WARNING, Condition, Evidence
from fabmon.analysis.sight import Sight
from fabmon.analysis.structure import Rows
from fabmon.analysis.thresholds import UnevenRails as Thresholds
from fabmon.analysis.words import percent
from fabmon.fabric.moment import Floats

_LEAST_TICKS = 3


class UnevenRails:
    """Judges every host with two rails or more, in communication phases."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._t = thresholds

    def __call__(self, sight: Sight) -> Iterator[Condition]:
        """One condition for all hosts that use the same rail too much."""
        phase = sight.communicates
        if phase.sum() < _LEAST_TICKS:
            return
        structure = sight.structure
        level = np.nan_to_num(sight.util("tx")[:, phase]).mean(axis=1)
        by_rail: dict[int, list[tuple[int, float, Rows]]] = defaultdict(list)
        active = set(structure.node[structure.is_rail & (level > self._t.busy_util)].tolist())
        for node in sorted(active):
            rows = np.flatnonzero(structure.is_rail & (structure.node == node))
            lost = _lost(level[rows])
            if len(rows) >= 2 and lost >= self._t.lost_min:
                busiest = rows[int(np.argmax(level[rows]))]
                by_rail[int(structure.rail[busiest])].append((node, lost, rows))
        for rail, hosts in by_rail.items():
            yield self._condition(sight, rail, hosts, level)

    def _condition(
        self, sight: Sight, rail: int, hosts: list[tuple[int, float, Rows]], level: Floats
    ) -> Condition:
        structure = sight.structure
        lost = float(np.mean([each for _, each, _ in hosts]))
        names = [structure.fabric.nodes[node].name for node, _, _ in hosts]
        rows = np.concatenate([rows for _, _, rows in hosts])
        busy = [int(row) for row in rows if structure.rail[row] == rail]
        who = names[0] if len(names) == 1 else f"{len(names)} hosts ({names[0]} …)"
        verb = "sends" if len(names) == 1 else "send"
        top = float(np.mean(level[busy]))
        return Condition(
            cause="uneven_rails",
            severity=WARNING,
            subject=names[0] if len(names) == 1 else f"rail r{rail}",
            rows=(*busy, *(int(row) for row in rows if int(row) not in busy)),
            text=(
                f"{who} {verb} at {percent(top)} of line rate on r{rail} and far less on the other"
                f" rails; that loses {percent(lost)}"
            ),
            evidence=(
                Evidence("hosts", len(names), "hosts"),
                Evidence("busiest rail", round(top * 100, 1), "%"),
                Evidence("lost bandwidth", round(lost * 100, 1), "%"),
            ),
            advice=(
                "See which NICs NCCL uses (NCCL_DEBUG=INFO, NCCL_IB_HCA, NCCL_CROSS_NIC) and that"
                " every GPU has its own."
            ),
            confidence=0.85,
            lost=round(lost, 3),
            victims=tuple(names[1:]),
        )


def _lost(level: Floats) -> float:
    top = float(level.max(initial=0.0))
    return 1.0 - float(level.mean()) / top if top > 0 else 0.0
