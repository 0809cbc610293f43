"""A link goes down and up again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, without_nan
from fabmon.analysis.evidence.link_health import (
    CHECK_CABLE,
    LinkHealthThresholds,
    link_condition,
    link_name,
    one_per_cable,
)
from fabmon.analysis.fabric_structure import Rows
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, Trait
from fabmon.fabric.snapshot import Floats

_UNTIL_FIXED = "Take the port down until it is fixed: every flap costs a reroute."

CAUSE = Cause(
    name="flapping_link",
    title="Flapping link",
    meaning="a link goes down and up again and again",
    severity=CRITICAL,
    rule=(
        "A port changed its carrier link_health.flaps times in two minutes, by its counter or as"
        " was seen, whichever is more; going down and coming up again are two changes. Of the"
        " causes of an unhealthy cable (flapping, degraded, error burst) the first that holds is"
        " reported. A lost node explains it if several of its links flap."
    ),
    inputs="Port state or carrier counters of either end",
    not_observable="Flaps between two samples of a port that does not count them",
    confidence=0.95,
    picture="link_ends",
    advice=f"{CHECK_CABLE} {_UNTIL_FIXED}",
    tables=("link_health",),
    traits=(
        Trait.OF_LINK,
        Trait.MAKES_QUEUES,
        Trait.STOPS_PAUSE_FRAMES,
        Trait.HAS_SENDERS,
    ),
    family="link",
)

_WINDOW_S = 120
"""Seconds over which carrier changes are counted."""

_MOST_LATE = 9
"""The most ticks beyond the source's period that a rate is taken to be of: after longer silence a
node has begun anew."""


class FlappingLinks:
    """Counts the carrier changes of every port over two minutes."""

    def __init__(self, thresholds: LinkHealthThresholds) -> None:
        self._t = thresholds
        self._up: Floats = np.empty(0, np.float32)
        self._counted_seq: Rows = np.empty(0, np.intp)
        self._changes: deque[tuple[int, Rows, Floats]] = deque()

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each cable."""
        counts = self._carrier_changes(inputs)
        for row in one_per_cable(inputs, np.flatnonzero(counts >= self._t.flaps)).tolist():
            count = round(float(counts[row]))
            yield link_condition(
                inputs,
                row,
                CAUSE,
                f"{link_name(inputs, row)} changed carrier {count} times in the last"
                f" {_WINDOW_S // 60} min",
                (Evidence("carrier changes", count, "times"),),
                confidence=CAUSE.confidence,
                then=_UNTIL_FIXED,
            )

    def _carrier_changes(self, inputs: DetectorInput) -> Floats:
        """[ports]: how often a port went down or up, as it counts or as was seen, the larger:
        InfiniBand counts links going down only, and not all of them.
        """
        snapshot = inputs.snapshot
        ports = len(snapshot.up)
        before = np.full(ports, np.nan, np.float32)
        before[: len(self._up)] = self._up
        changed = np.isfinite(before) & np.isfinite(snapshot.up) & (before != snapshot.up)
        # A rate stands until the next frame comes, and is then that of all the time between.
        since = np.full(ports, snapshot.seq - 1, np.intp)
        since[: len(self._counted_seq)] = self._counted_seq
        is_new = snapshot.age_s < snapshot.interval_s
        most = snapshot.period_s / snapshot.interval_s + _MOST_LATE
        ticks = np.where(is_new, np.minimum(snapshot.seq - since, most), 0)
        self._counted_seq = np.where(is_new, snapshot.seq, since)
        counted = without_nan(snapshot.column("flaps")) * (ticks * snapshot.interval_s)
        rows = np.flatnonzero(changed | (counted > 0))
        if len(rows):
            self._changes.append((snapshot.seq, rows, np.stack((counted[rows], changed[rows]))))
        oldest = snapshot.seq - _WINDOW_S / snapshot.interval_s
        while self._changes and self._changes[0][0] <= oldest:
            self._changes.popleft()
        self._up = np.where(np.isnan(snapshot.up), before, snapshot.up)
        counts = np.zeros((2, len(snapshot.up)), np.float32)
        for _, rows, changes in self._changes:
            counts[:, rows] += changes
        larger: Floats = counts.max(axis=0)
        return larger
