"""Jobs over hours: groups of hosts that keep one rhythm, followed from passage to passage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.rhythm.beat import measure
from fabmon.analysis.rhythm.pulses import filled, pulses, relief
from fabmon.analysis.rhythm.together import LEAST_SAMPLES, together
from fabmon.fabric.moment import Floats

_SAME_JOB = 0.5
_SAME_PERIOD = 0.1
_USUAL = 0.4


@dataclass(slots=True)
class Job:
    """Hosts by name, and the lengths of its iterations: seconds, by passage."""

    hosts: frozenset[str]
    lengths_s: list[NDArray[np.float64]] = field(default_factory=list)


class Jobs:
    """Knows a job again by its hosts: half of all that are in either."""

    def __init__(self) -> None:
        self.found: list[Job] = []

    def names(self) -> list[str]:
        """Of every job another, by its first host: nobody has told its name."""
        named = [
            f"{min(job.hosts)} +{len(job.hosts) - 1}" if len(job.hosts) > 1 else min(job.hosts)
            for job in self.found
        ]
        return [
            f"{name} ({named[:number].count(name) + 1})" if named.count(name) > 1 else name
            for number, name in enumerate(named)
        ]

    def accept(self, names: Sequence[str], sent: Floats) -> list[tuple[int, tuple[int, ...]]]:
        """The jobs of a passage, by what each host sent [ticks, hosts]: number, places of hosts."""
        if len(sent) < LEAST_SAMPLES:
            return []
        now = []
        taken: set[int] = set()
        for group in together(sent.T):
            if len(group.members) < 2:
                continue
            hosts = frozenset(names[member] for member in group.members)
            number = self._known(hosts, taken)
            taken.add(number)
            self.found[number].hosts = hosts
            now.append((number, group.members))
        return now

    def _known(self, hosts: frozenset[str], taken: set[int]) -> int:
        likely = [
            (len(job.hosts & hosts) / len(job.hosts | hosts), -number)
            for number, job in enumerate(self.found)
            if number not in taken
        ]
        best, number = max(likely, default=(0.0, 0))
        if best >= _SAME_JOB:
            return -number
        self.found.append(Job(hosts))
        return len(self.found) - 1


def iterations(signal: Floats, interval_s: float, ceiling: float) -> NDArray[np.float64]:
    """Seconds of each iteration in a signal [ticks]; none where it has no rhythm that is sure.

    One that is far from the usual (a checkpoint, a pulse that was missed) is left out; where an
    iteration has several pulses, there is one number, the mean of all.
    """
    beat = measure(signal, ceiling)
    values = filled(signal)
    if beat is None or values is None:
        return np.empty(0)
    at = relief(values, beat.period)
    if at is None:
        return np.empty(0)
    lengths = np.diff(pulses(at.height).middles)
    likely = lengths[np.abs(lengths - beat.period) <= _USUAL * beat.period]
    if len(likely) < 2 or abs(likely.mean() - beat.period) > _SAME_PERIOD * beat.period:
        return np.array([beat.period * interval_s])
    seconds: NDArray[np.float64] = likely * interval_s
    return seconds
