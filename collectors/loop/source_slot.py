"""One source in the frame: its layout, the call in progress, and what is wrong with it."""

from __future__ import annotations

import math
from functools import partial
from typing import Callable, List, Optional, Union

from collectors import wire
from collectors.coverage import Coverage
from collectors.loop.watchdog import DiscoveryResult, Reading, Task, discover, read
from collectors.source import Faults, NoData, Source

Answer = Union[DiscoveryResult, Reading]

_MAX_NOTICES = 50


class SourceSlot:
    """Calls its source through tasks and keeps the results; `emit` takes the notices.

    `offset` spreads the reads of slow counters over the ticks. The hardware is looked at every
    `look_every` ticks, by all slots at once: the first look warms the caches for the others.
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
        self.coverage: List[Coverage] = []
        self.limits: List[str] = []
        self.must_discover = True
        self._offset = offset
        self._interval_s = interval_s
        self._look_every = look_every
        self._emit = emit
        self._task: Optional[Task[Answer]] = None
        self._signature: object = None
        self._faults: Faults = {}
        self._lost_reason = ""
        self._lost_text = ""
        self._every = source.every

    @property
    def hangs(self) -> bool:
        """Whether an earlier task has no answer yet; then no other task may start."""
        return self._task is not None

    def discovery_task(self, deadline_s: float) -> Task[Answer]:
        """The task that finds the objects."""
        self._task = Task(partial(discover, self.source), deadline_s)
        return self._task

    def read_task(self, seq: int) -> Optional[Task[Answer]]:
        """The task of the tick `seq`; None when there is nothing to do in it."""
        looks = seq % self._look_every == 0
        has_values = self.layout is not None and self.layout.has_values
        is_due = seq == 0 or (seq + self._offset) % self._every == 0
        reads = has_values and (is_due or self.source.is_background)
        if not reads and not looks:
            return None
        work = partial(read, self.source, reads=reads, looks=looks, known=self._signature)
        self._task = Task(work, self.source.deadline_s)
        return self._task

    def take(self) -> Optional[Reading]:
        """Take the answer of the last task: a reading if it is one, else None.

        The result of a discovery is kept here. A task without an answer is reported as late.
        """
        task, self._task = self._task, None
        if task is None:
            return None
        if task.answer is None:
            self._task = task
            self._lose("late", f"no answer in {task.deadline_s:g} s")
        elif isinstance(task.answer, DiscoveryResult):
            self._accept_discovery(task.answer)
        else:
            self.must_discover |= task.answer.has_changed
            return task.answer
        return None

    def block(self, reading: Optional[Reading]) -> wire.Block:
        """The block of a reading; emits notices for everything that changed with it."""
        if reading is None:
            return None
        for event in reading.logged:
            self._emit(wire.notice(wire.LOGGED, self.name, event.text, event.device, event.name))
        if reading.error is not None:
            self._lose(reading.error.reason, str(reading.error))
        if reading.values is None:
            return None
        self._recover()
        if reading.faults != self._faults:
            self._report_faults(reading.faults)
        return [reading.mono_ns, *reading.values]

    def repeat_notices(self) -> None:
        """Emit a notice for everything that is wrong now, whether reported before or not."""
        if self._lost_reason:
            self._emit(wire.notice("lost", self.name, self._lost_text, reason=self._lost_reason))
        faults, self._faults = self._faults, {}
        if faults:
            self._report_faults(faults)

    def _accept_discovery(self, found: DiscoveryResult) -> None:
        self.must_discover = False
        self.layout = None
        self.coverage, self.limits = found.coverage, found.limits
        self._faults = {}
        self._signature = found.signature
        if found.error is None or isinstance(found.error, NoData):
            self._recover()
        else:
            self._lose(found.error.reason, str(found.error))
        # Read no sooner than the counters are refreshed, which the source knows by now.
        refresh_ticks = math.ceil(self.source.min_period_s / self._interval_s)
        self._every = max(self.source.every, refresh_ticks)
        if found.objects:
            self.layout = wire.BlockLayout(self.name, self._every, found.objects)

    def _lose(self, reason: str, text: str) -> None:
        if self._lost_reason != reason:
            self._lost_reason, self._lost_text = reason, text
            self._emit(wire.notice("lost", self.name, text, reason=reason))

    def _recover(self) -> None:
        if self._lost_reason:
            self._lost_reason = ""
            self._emit(wire.notice("recovered", self.name, "reads again"))

    def _report_faults(self, faults: Faults) -> None:
        """Emit one notice for each value that became absent or recovered."""
        assert self.layout is not None
        places = [(item.id, name) for item in self.layout.objects for name in item.metrics]
        changed = [
            place
            for place in sorted(faults.keys() | self._faults.keys())
            if faults.get(place) != self._faults.get(place)
        ]
        for place in changed[:_MAX_NOTICES]:
            reason = faults.get(place, "")
            event = "absent" if reason else "recovered"
            self._emit(wire.notice(event, self.name, "", *places[place], reason))
        if len(changed) > _MAX_NOTICES:
            more = f"and {len(changed) - _MAX_NOTICES} more values"
            self._emit(wire.notice("absent", self.name, more))
        self._faults = faults
