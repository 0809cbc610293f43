"""A source's place in the frame: its layout, the question it is at, and what is wrong with it."""

from __future__ import annotations

import math
from functools import partial
from typing import Callable, List, Optional, Union

from collectors import wire
from collectors.loop import guarded_calls
from collectors.loop.guarded_calls import DiscoveryResult, Reading
from collectors.loop.watchdog import Task
from collectors.source import Faults, NoData, Source

Answer = Union[DiscoveryResult, Reading]

_MOST_NOTICES = 50


class SourceSlot:
    """Asks its source through tasks and keeps what came of it; `emit` takes the notices.

    `offset` spreads the reads of slow counters over the ticks. The hardware is looked at every
    `look_every` ticks, by all seats at once: the first look warms the caches for the others.
    """

    def __init__(
        self,
        source: Source,
        offset: int,
        interval_s: float,
        look_every: int,
        emit: Callable[[bytes], None],
    ) -> None:
        self.source = source
        self.name = source.name
        self.layout: Optional[wire.BlockLayout] = None
        self.must_discover = True
        self._offset = offset
        self._interval_s = interval_s
        self._look_every = look_every
        self._emit = emit
        self._task: Optional[Task[Answer]] = None
        self._signature: object = None
        self._faults: Faults = {}
        self._lost = ""
        self._lost_text = ""
        self._every = source.every

    @property
    def hangs(self) -> bool:
        """Whether an earlier question is still unanswered; then no other may be asked."""
        return self._task is not None

    def ask_discovery(self, deadline_s: float) -> Task[Answer]:
        """The task that looks for objects."""
        return self._ask(partial(guarded_calls.discover, self.source), deadline_s)

    def ask(self, seq: int) -> Optional[Task[Answer]]:
        """The task of this tick; None when there is nothing to do in it."""
        place = seq + self._offset
        looks = seq % self._look_every == 0
        has_values = self.layout is not None and self.layout.has_values
        work: Callable[[], Answer]
        if has_values and (seq == 0 or place % self._every == 0):
            work = partial(guarded_calls.read, self.source)
            if looks:
                work = partial(guarded_calls.read_and_look, self.source, self._signature)
        elif looks:
            work = partial(guarded_calls.look, self.source, self._signature)
        else:
            return None
        return self._ask(work, self.source.deadline_s)

    def take(self) -> Optional[Reading]:
        """Take the answer to the last question, if it has come; a reading in time is handed on."""
        task, self._task = self._task, None
        if task is None:
            return None
        if task.answer is None:
            self._task = task
            self._lose("late", f"no answer in {task.deadline_s:g} s")
        elif isinstance(task.answer, DiscoveryResult):
            self._found(task.answer)
        else:
            self.must_discover |= task.answer.has_changed
            return task.answer
        return None

    def block(self, reading: Optional[Reading]) -> wire.Block:
        """A reading as the frame has it, having told what is new about it."""
        if reading is None:
            return None
        if reading.error is not None:
            self._lose(reading.error.reason, str(reading.error))
        if reading.values is None:
            return None
        self._recover()
        if reading.faults != self._faults:
            self._tell_faults(reading.faults)
        return [reading.mono_ns, *reading.values]

    def tell_again(self) -> None:
        """Say what is wrong now, as if nothing had been said of it."""
        if self._lost:
            self._emit(wire.notice("lost", self.name, self._lost_text, reason=self._lost))
        faults, self._faults = self._faults, {}
        if faults:
            self._tell_faults(faults)

    def _ask(self, work: Callable[[], Answer], deadline_s: float) -> Task[Answer]:
        self._task = Task(work, deadline_s)
        return self._task

    def _found(self, found: DiscoveryResult) -> None:
        self.must_discover = False
        self.layout = None
        self._faults = {}
        self._signature = found.signature
        if found.error is None or isinstance(found.error, NoData):
            self._recover()
        else:
            self._lose(found.error.reason, str(found.error))
        # No sooner than the counters are refreshed, which the source knows by now.
        refresh_ticks = math.ceil(self.source.min_period_s / self._interval_s)
        self._every = max(self.source.every, refresh_ticks)
        if found.objects:
            self.layout = wire.BlockLayout(self.name, self._every, found.objects)

    def _lose(self, reason: str, text: str) -> None:
        if self._lost != reason:
            self._lost, self._lost_text = reason, text
            self._emit(wire.notice("lost", self.name, text, reason=reason))

    def _recover(self) -> None:
        if self._lost:
            self._lost = ""
            self._emit(wire.notice("recovered", self.name, "reads again"))

    def _tell_faults(self, faults: Faults) -> None:
        """Say once which values went absent, and once that they are back."""
        assert self.layout is not None
        places = [(item.id, name) for item in self.layout.objects for name in item.metrics]
        moved: List[int] = [
            place
            for place in sorted(faults.keys() | self._faults.keys())
            if faults.get(place) != self._faults.get(place)
        ]
        for place in moved[:_MOST_NOTICES]:
            reason = faults.get(place, "")
            event = "absent" if reason else "recovered"
            self._emit(wire.notice(event, self.name, "", *places[place], reason))
        if len(moved) > _MOST_NOTICES:
            more = f"and {len(moved) - _MOST_NOTICES} more values"
            self._emit(wire.notice("absent", self.name, more))
        self._faults = faults
