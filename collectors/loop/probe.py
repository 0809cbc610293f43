"""The loop on the node: aligned ticks, a deadline for every source, one frame a tick."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from collectors import wire
from collectors.hostfs import File
from collectors.loop.source_slot import SourceSlot
from collectors.loop.watchdog import Watchdog
from collectors.source import Source
from collectors.wire import Block, BlockLayout, Object

# The probe watches itself: its CPU time, its memory, and how long each source's reads take.


_PAGE = os.sysconf("SC_PAGE_SIZE")


class Meter:
    """The last block of every frame: the node itself, then one object a source."""

    def __init__(self, sources: Sequence[str]) -> None:
        node = Object(
            "node", "node", None, {}, ("probe_cpu_us", "probe_rss_bytes", "probe_late_us")
        )
        objects = [Object(name, "node", None, {}, ("probe_read_us",)) for name in sources]
        self.layout = BlockLayout("probe", 1, [node, *objects])
        self.late_us = 0
        self._statm = _own_statm()
        self._read_us: Dict[str, Optional[int]] = dict.fromkeys(sources)

    def took(self, source: str, duration_us: int) -> None:
        """Remember how long a source's read took."""
        self._read_us[source] = duration_us

    def read(self) -> Block:
        """The block, now."""
        values: List[Optional[int]] = [
            time.monotonic_ns(),
            time.process_time_ns() // 1000,
            _resident_bytes(self._statm),
            self.late_us,
        ]
        return values + list(self._read_us.values())


def _own_statm() -> Optional[File]:
    """The file in which the kernel says how much memory this process holds; None without /proc."""
    try:
        return File("/proc/self/statm")
    except OSError:
        return None


def _resident_bytes(statm: Optional[File]) -> Optional[int]:
    try:
        return None if statm is None else int(statm.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


_DISCOVERY_S = 0.4
_LOOK_AGAIN_S = 5.0


class Probe:
    """Reads `sources` every `interval_s` and hands lines of the wire to `emit`, in `encoding`.

    `about` is what the hello says of the node. Nothing here blocks for longer than the sources'
    deadlines, except `emit`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        emit: Callable[[bytes], None],
        about: Dict[str, Any],
        interval_s: float = 1.0,
        encoding: str = wire.PLAIN,
    ) -> None:
        look_every = max(1, round(_LOOK_AGAIN_S / interval_s))
        self._notices: List[bytes] = []
        self._seats = [
            SourceSlot(source, place, interval_s, look_every, self._notices.append)
            for place, source in enumerate(sources)
        ]
        self._lanes = Watchdog()
        self._emit = emit
        self._about = {**about, "interval_s": interval_s, "encoding": encoding}
        self._encoding = encoding
        self._encode = wire.make_encoder(encoding)
        self._interval_s = interval_s
        self._meter = Meter([seat.name for seat in self._seats])
        self._seq = 0
        self._layouts: List[wire.BlockLayout] = []
        self._said = b""

    def run(self, frames: Optional[int] = None) -> None:
        """Say hello, then a frame a tick: `frames` of them, or for ever."""
        while frames is None or self._seq < frames:
            if self._seq:
                self._meter.late_us = self._sleep()
            self._discover()
            self._frame()
            self._seq += 1

    def _discover(self) -> None:
        """Look where hardware came or went, and say so when the frames will hold something else."""
        for seat in self._seats:
            seat.take()
        looking = [seat for seat in self._seats if seat.must_discover and not seat.hangs]
        self._lanes.run([seat.ask_discovery(_DISCOVERY_S) for seat in looking])
        for seat in looking:
            seat.take()
        layouts = [seat.layout for seat in self._seats if seat.layout is not None]
        if layouts != self._layouts or not self._said:
            self._layouts = layouts
            self._hello()

    def _hello(self) -> None:
        """Say what the frames will hold, unless that is what was said last; then what is wrong.

        A hello begins anew for whoever listens, so every trouble that lasts is told again.
        """
        line = wire.hello([*self._layouts, self._meter.layout], self._about)
        if line != self._said:
            self._said = line
            self._encode = wire.make_encoder(self._encoding)
            self._emit(line)
            self._notices.clear()
            for seat in self._seats:
                seat.tell_again()

    def _frame(self) -> None:
        wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
        tasks = {seat: seat.ask(self._seq) for seat in self._seats if not seat.hangs}
        self._lanes.run([task for task in tasks.values() if task is not None])
        blocks: List[wire.Block] = []
        for seat in self._seats:
            reading = seat.take() if tasks.get(seat) is not None else None
            if reading is not None:
                self._meter.took(seat.name, reading.duration_us)
            block = seat.block(reading)
            if seat.layout is not None:
                blocks.append(block)
        blocks.append(self._meter.read())
        for notice in self._notices:
            self._emit(notice)
        self._notices.clear()
        self._emit(self._encode(self._seq, wall_ns, mono_ns, blocks))

    def _sleep(self) -> int:
        """Sleep to the next multiple of the interval on the wall clock; how late we woke, in us.

        Wall-clock ticks make the frames of all nodes fall together. A tick that would come sooner
        than a quarter of the interval is left out, so that a stepped clock cannot double the pace.
        """
        interval = self._interval_s
        delay_s = interval - time.time() % interval
        if delay_s < interval / 4:
            delay_s += interval
        until = time.monotonic() + delay_s
        time.sleep(delay_s)
        return max(0, int((time.monotonic() - until) * 1e6))
