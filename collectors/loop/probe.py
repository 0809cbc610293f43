"""The probe's loop: aligned ticks, a deadline for every source, one frame per tick."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from collectors import clock, wire
from collectors.hostfs import File
from collectors.loop.source_slot import SourceSlot
from collectors.loop.watchdog import Watchdog
from collectors.source import Source
from collectors.wire import Block, BlockLayout, Object

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
