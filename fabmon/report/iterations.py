"""Rhythms for `--format jsonl`: told when they begin, change or end, and once a minute."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.finding import Change
from fabmon.analysis.iteration.results import JobIteration
from fabmon.analysis.scene import Scene
from fabmon.report.records import IterationRecord, iteration_record

_AGAIN_NS = 60_000_000_000
_LEAST_CHANGE = 0.02


class IterationLines:
    """Remembers what it has told of each job; a job is known by the first of its hosts."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[JobIteration, int]] = {}

    def records(self, scene: Scene) -> Iterator[IterationRecord]:
        """What is new in a scene."""
        now_ns = scene.snapshot.time_ns
        seen = {rhythm.hosts[0]: rhythm for rhythm in scene.iteration_report.jobs}
        for name in [name for name in self._told if name not in seen]:
            yield iteration_record(Change.CLOSE, self._told.pop(name)[0], now_ns)
        for name, rhythm in seen.items():
            told = self._told.get(name)
            if told is not None and not _differs(rhythm, told[0]) and now_ns - told[1] < _AGAIN_NS:
                continue
            self._told[name] = (rhythm, now_ns)
            change = Change.OPEN if told is None else Change.UPDATE
            yield iteration_record(change, rhythm, now_ns)


def _differs(rhythm: JobIteration, told: JobIteration) -> bool:
    """Whether there is something to tell: by more than what it may be wrong by."""
    room_s = max(_LEAST_CHANGE * told.step_s, told.error_s)
    return (
        abs(rhythm.step_s - told.step_s) > room_s
        or rhythm.hosts != told.hosts
        or rhythm.bound != told.bound
        or (rhythm.step_was, rhythm.comm_was, rhythm.bytes_was)
        != (told.step_was, told.comm_was, told.bytes_was)
    )
