"""How much of a recording before a moment is analysed, wherever findings of it are shown."""

from __future__ import annotations

from fabmon.fabric.snapshot import RING_TICKS
from fabmon.recording.reading.timeline import Timeline

_READS = 15_000
"""Nodes times ticks: some 1.5 s. It is no measured time: what is said of a moment would depend on
how busy the machine is, and on how one got there."""

_LEAST_TICKS = 60


def lead_in_ns(timeline: Timeline) -> int:
    """The time before a moment that is analysed with it, in ns: 60 to 900 ticks, fewer of more
    nodes. Screen, report, export, explain and queries have the same findings by it."""
    ticks = min(max(_READS // max(len(timeline.hosts), 1), _LEAST_TICKS), RING_TICKS)
    return int(ticks * timeline.interval_s * 1e9)
