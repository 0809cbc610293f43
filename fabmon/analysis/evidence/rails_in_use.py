"""Which NICs of a host its jobs send over together: its rails, and not its NICs for storage."""

from __future__ import annotations

import operator

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.fabric_structure import FabricStructure, Mask, Rows
from fabmon.analysis.thresholds import Share
from fabmon.fabric.jobs.job_table import NO_JOBS
from fabmon.fabric.snapshot import Floats

MIN_BUSY = 2
"""Rails in use from which on the others are left out: one alone may be a single large flow."""

_LEARNS, _FORGETS, _IN_USE = 0.02, 0.01, 0.5
"""Weights of a tick in which a rail is used, or not, in the moving average of its use, and the
average, 0 to 1, from which on it is a rail that jobs use: a NIC for storage is used with the others
for some seconds only. What was in use is known for longer than the window in which it is not."""

_IDLE, _IDLE_TICKS = 0.01, 120
"""Share of line rate, 0 to 1, below which all rails of a host are idle, and the ticks of it after
which the next job may use other rails: checkpoints and evaluations take less."""

EXCHANGED = 0.5
"""Received over sent from which on hosts exchange data with each other."""


class RailsInUse:
    """Learns, tick by tick, over which rails each host sends while its job runs.

    A rail counts as used in a tick in which it sends `low` or more of what the busiest rail of its
    host does, and that one more than `busy_util` of line rate.
    """

    def __init__(self, busy_util: Share, low: Share) -> None:
        self._busy_util, self._low = busy_util, low
        self._usage: Floats = np.empty(0, np.float32)
        """[ports]: how often a rail was in use when its host was, 0 to 1, a moving average since
        its job began."""
        self._idle_ticks: Rows = np.empty(0, np.intp)
        """[ports]: for how many ticks all rails of the port's host have been idle."""
        self._jobs = NO_JOBS
        self._jobs_on: dict[str, tuple[str, ...]] = {}
        """The jobs that ran last on each host."""
        self._numbered: tuple[tuple[Rows, dict[str, tuple[str, ...]]], Rows, int] | None = None
        """See `_rails_of_jobs`, with what it was computed from."""

    @property
    def in_use(self) -> Mask:
        """[ports]: whether a rail is one that the jobs of its host use."""
        used: Mask = self._usage >= _IN_USE
        return used

    @property
    def ever_used(self) -> Mask:
        """[ports]: whether a rail was used at all since its job began."""
        used: Mask = self._usage > 0
        return used

    def accept(self, inputs: DetectorInput) -> None:
        """Take a tick."""
        usage = np.zeros(len(inputs.structure.peer), np.float32)
        usage[: len(self._usage)] = self._usage[: len(usage)]
        usage[self._between_jobs(inputs)] = 0
        total, received = (inputs.total(of) / TICKS for of in ("tx_bps", "rx_bps"))
        lines = inputs.snapshot.line_rate_bps
        lines = np.where(np.isnan(lines), np.float32(np.inf), lines)
        for _, rows in inputs.structure.rail_tables:
            sent = total[rows]
            top = sent.max(axis=1, keepdims=True)
            active = (top > self._busy_util * lines[rows].max(axis=1, keepdims=True)).ravel()
            used = sent >= self._low * top
            used &= received[rows] >= EXCHANGED * sent
            count = used.sum(axis=1)
            active &= (count >= MIN_BUSY) & (2 * count >= rows.shape[1])
            own = rows[active]
            weight = np.where(used[active], np.float32(_LEARNS), np.float32(_FORGETS))
            usage[own] += weight * (used[active] - usage[own])
        self._usage = usage

    def used_by_most(self, inputs: DetectorInput) -> Mask:
        """[ports]: whether most hosts that use any rails use this one together with their others;
        of the hosts of the same jobs, where jobs are known."""
        place, places = self._rails_of_jobs(inputs.structure)
        ever_used, in_use = self.ever_used, self.in_use
        known, used = np.zeros((2, places), np.intp)
        for _, rows in inputs.structure.rail_tables:
            own = rows[ever_used[rows].any(axis=1)]
            known += np.bincount(place[own].ravel(), minlength=places)
            used += np.bincount(place[own[in_use[own]]], minlength=places)
        by_most = np.zeros(len(place), np.bool_)
        for _, rows in inputs.structure.rail_tables:
            by_most[rows] = (2 * used > known)[place[rows]]
        return by_most

    def _rails_of_jobs(self, structure: FabricStructure) -> tuple[Rows, int]:
        """[ports]: a number for each rail of all hosts of the same jobs, and how many there are;
        computed when hosts or jobs change."""
        of = (structure.rail, self._jobs_on)
        if self._numbered is None or any(map(operator.is_not, self._numbered[0], of)):
            jobs = [self._jobs_on.get(node.name, ()) for node in structure.fabric.nodes]
            numbers = {on: number for number, on in enumerate(dict.fromkeys(jobs))}
            group = np.array([numbers[on] for on in jobs], np.intp)
            rails = int(structure.rail.max(initial=0)) + 1
            place = group[structure.node] * rails + structure.rail
            self._numbered = of, place, len(numbers) * rails
        return self._numbered[1:]

    def _between_jobs(self, inputs: DetectorInput) -> Mask:
        """[ports]: whether all rails of a host have been idle for long, or other jobs run on it:
        what was in use before says nothing of what the next job uses."""
        structure, jobs = inputs.structure, inputs.snapshot.jobs
        sent = inputs.util("tx")[:, -1]
        idle_ticks = np.zeros(len(sent), np.intp)
        idle_ticks[: len(self._idle_ticks)] = self._idle_ticks[: len(sent)]
        for _, rows in structure.rail_tables:
            top = np.fmax.reduce(sent[rows], axis=1, keepdims=True)
            idle_ticks[rows] = np.where(top >= _IDLE, 0, idle_ticks[rows] + (top < _IDLE))
        self._idle_ticks = idle_ticks
        found: Mask = idle_ticks >= _IDLE_TICKS
        if jobs is not self._jobs:
            self._jobs, before = jobs, self._jobs_on
            now = {node: tuple(job.number for job in on) for node, on in jobs.on_node.items()}
            changed = {
                node
                for node, on in now.items()
                if before.get(node) and set(before[node]).isdisjoint(on)
            }
            names = [node.name in changed for node in structure.fabric.nodes]
            found |= np.array(names, np.bool_)[structure.node]
            self._jobs_on = {**before, **now}
        return found
