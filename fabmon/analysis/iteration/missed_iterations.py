"""Jobs of which no iterations are measured any more, until that is an event, and until they are
measured again."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from fabmon.analysis.iteration.host_groups import SAME_JOB, HostTraffic, host_similarity
from fabmon.analysis.iteration.results import JobIteration
from fabmon.fabric.snapshot import Snapshot

_HELD_STEPS = 20
"""Steps for which the event is held back while the job still sends: it may only have been
disturbed, and be measured again."""

_SILENT_STEPS = 2
"""A job that has sent nothing for so many steps has no iterations."""

_REMEMBERED_S = 600.0
"""Time for which it is an event that a job has iterations again."""


@dataclass(slots=True)
class _Missed:
    """The last iteration of a job, its name, from which tick it is missed, and if that was said."""

    last: JobIteration
    name: str
    since_seq: int
    is_said: bool = False


class MissedIterations:
    """The jobs whose last result was dropped."""

    def __init__(self, least_level: float) -> None:
        """Below `least_level`, a share of line rate, a job sends nothing."""
        self._least_level = least_level
        self._missed: list[_Missed] = []

    def clear(self) -> None:
        """Forget all jobs."""
        self._missed = []

    def lose(self, last: JobIteration, snapshot: Snapshot) -> None:
        """A job has no iterations any more; these, with its name, were its last."""
        self._missed.append(_Missed(last, last.name, snapshot.seq))

    def find(self, iteration: JobIteration) -> str:
        """The iterations of a job are measured. Returns a text where it was said that there are
        none any more."""
        hosts = frozenset(iteration.hosts)
        for each in self._missed:
            if host_similarity(frozenset(each.last.hosts), hosts) >= SAME_JOB:
                self._missed.remove(each)
                again = f"iterations again, step time {iteration.step_words}"
                return f"{again}: {iteration.name}" if each.is_said else ""
        return ""

    def due(self, traffic: HostTraffic, snapshot: Snapshot) -> list[str]:
        """A text for each job of which it is certain now that it has no iterations any more."""
        texts = []
        for each in list(self._missed):
            passed_s = (snapshot.seq - each.since_seq) * snapshot.interval_s
            if each.is_said:
                if passed_s > _REMEMBERED_S:
                    self._missed.remove(each)
                continue
            sends = self._sends(each.last, traffic, snapshot)
            if sends is None:
                each.since_seq = snapshot.seq
                continue
            if sends and passed_s < _HELD_STEPS * each.last.step_s:
                continue
            each.is_said = True
            what = "no regular iterations" if sends else "no iterations"
            was = f"the step time was {each.last.step_words}"
            texts.append(f"{what} any more, {was}: {each.name}")
        return texts

    def _sends(self, last: JobIteration, traffic: HostTraffic, snapshot: Snapshot) -> bool | None:
        """Whether a job has sent data in the last steps; None where none of its hosts was read."""
        ticks = ceil(_SILENT_STEPS * last.step_s / snapshot.interval_s)
        members = [host in last.hosts for host in traffic.hosts]
        known = traffic.of_hosts(ticks)[:, members]
        if not known.size:
            return False
        if np.isnan(known).all():
            return None
        sent = np.nan_to_num(known)
        least_bps = self._least_level * (last.line_rate_bps or 0.0) * len(last.rail_bytes)
        return bool(sent.mean(axis=1).max() > least_bps)
