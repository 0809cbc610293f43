"""The probe's loop: aligned ticks, a deadline for every source, one frame per tick."""

from __future__ import annotations

import contextlib
import math
import os
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from collectors import clock, wire
from collectors.coverage import Coverage
from collectors.hostfs import File
from collectors.loop.watchdog import DiscoveryResult, Reading, Task, Watchdog, discover, read
from collectors.source import Faults, NoData, Source
from collectors.wire import Block, BlockLayout, Object

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


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_DISCOVERY_S = 0.4
LOOK_AGAIN_S = 5.0


class Probe:
    """Reads `sources` every `interval_s` and hands lines of the wire to `emit`, in `encoding`.

    `about` is what the hello says about the node, `warnings` are notices of its start. Nothing here
    blocks for longer than the sources' deadlines, except `emit`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        emit: Callable[[bytes], None],
        about: Dict[str, Any],
        interval_s: float = 1.0,
        encoding: str = wire.PLAIN,
        warnings: Sequence[bytes] = (),
    ) -> None:
        look_every = max(1, round(LOOK_AGAIN_S / interval_s))
        self._notices: List[bytes] = []
        self._warnings = warnings
        self._slots = [
            SourceSlot(source, place, interval_s, look_every, self._notices.append)
            for place, source in enumerate(sources)
        ]
        self._watchdog = Watchdog()
        self._emit = emit
        self._about = {**about, "interval_s": interval_s, "encoding": encoding}
        # Of the machine, known from the start; sources add theirs.
        names = [source.name for source in sources]
        given = self._about.pop("limits", [])
        self._limits = [limit for limit in given if limit["source"] in names]
        self._encoding = encoding
        self._encode = wire.make_encoder(encoding)
        self._interval_s = interval_s
        self._meter = Meter([slot.name for slot in self._slots])
        self._seq = 0
        self._layouts: List[BlockLayout] = []
        self._remarks: Dict[str, List[Dict[str, Any]]] = {}
        self._last_hello = b""

    def run(self, frames: Optional[int] = None) -> None:
        """Write a hello, then one frame per tick: `frames` of them, or without end."""
        while frames is None or self._seq < frames:
            if self._seq:
                self._meter.late_us = self._sleep()
            self._discover()
            self._frame()
            self._seq += 1

    def _discover(self) -> None:
        """Discover where hardware appeared or went away; write a hello when the layout changed.

        Nothing is written when the hello would be the same as the last one. After a hello every
        problem that lasts is reported again, since a reader starts anew there.
        """
        for slot in self._slots:
            slot.take()
        looking = [slot for slot in self._slots if slot.must_discover and not slot.hangs]
        self._watchdog.run([slot.discovery_task(_DISCOVERY_S) for slot in looking])
        for slot in looking:
            slot.take()
        layouts = [slot.layout for slot in self._slots if slot.layout is not None]
        remarks = {
            "coverage": [c.describe(slot.name) for slot in self._slots for c in slot.coverage],
            "limits": [
                *self._limits,
                *(
                    {"source": slot.name, "text": text}
                    for slot in self._slots
                    for text in slot.limits
                ),
            ],
        }
        remarks = {key: found for key, found in remarks.items() if found}
        if (layouts, remarks) == (self._layouts, self._remarks) and self._last_hello:
            return
        self._layouts, self._remarks = layouts, remarks
        line = wire.hello([*layouts, self._meter.layout], {**self._about, **remarks})
        if line == self._last_hello:
            return
        self._last_hello = line
        self._encode = wire.make_encoder(self._encoding)
        self._emit(line)
        self._notices[:] = self._warnings
        for slot in self._slots:
            slot.repeat_notices()

    def _frame(self) -> None:
        wall_ns, mono_ns = clock.time_ns(), clock.monotonic_ns()
        tasks = {slot: slot.read_task(self._seq) for slot in self._slots if not slot.hangs}
        self._watchdog.run([task for task in tasks.values() if task is not None])
        blocks: List[Block] = []
        for slot in self._slots:
            reading = slot.take() if tasks.get(slot) is not None else None
            if reading is not None:
                self._meter.read_us[slot.name] = reading.duration_us
            block = slot.block(reading)
            if slot.layout is not None:
                blocks.append(block)
        blocks.append(self._meter.block())
        for notice in self._notices:
            self._emit(notice)
        self._notices.clear()
        self._emit(self._encode(self._seq, wall_ns, mono_ns, blocks))

    def _sleep(self) -> int:
        """Sleep until the next multiple of the interval on the wall clock; the delay after it, us.

        Wall-clock ticks make the frames of all nodes coincide. A tick that would come sooner than a
        quarter of the interval is skipped, so that a stepped clock cannot double the pace.
        """
        interval = self._interval_s
        delay_s = interval - time.time() % interval
        if delay_s < interval / 4:
            delay_s += interval
        until_s = time.monotonic() + delay_s
        time.sleep(delay_s)
        return max(0, int((time.monotonic() - until_s) * 1e6))


class Meter:
    """The probe's own counters, the last block of a frame: the node, then one object per source.

    `late_us` is how late the last frame started, `read_us` how long each source's last read took.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        own = ("probe_cpu_us", "probe_rss_bytes", "probe_late_us")
        objects = [Object(name, "node", None, {}, ("probe_read_us",)) for name in sources]
        self.layout = BlockLayout("probe", 1, [Object("node", "node", None, {}, own), *objects])
        self.late_us = 0
        self.read_us: Dict[str, Optional[int]] = dict.fromkeys(sources)
        self._statm: Optional[File] = None
        with contextlib.suppress(OSError):  # without /proc the probe's memory is not known
            self._statm = File("/proc/self/statm")

    def block(self) -> Block:
        """The block with the values of this moment."""
        return [
            clock.monotonic_ns(),
            clock.process_time_ns() // 1000,
            self._resident_bytes(),
            self.late_us,
            *self.read_us.values(),
        ]

    def _resident_bytes(self) -> Optional[int]:
        statm = self._statm
        try:
            return None if statm is None else int(statm.read().split()[1]) * _PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return None
