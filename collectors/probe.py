"""The loop on the node: aligned ticks, a deadline for every source, one frame a tick."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional, Sequence

from collectors import wire
from collectors.meter import Meter
from collectors.source import Faults, NoData, Source, SourceError
from collectors.worker import Found, Reading, Worker

_DISCOVERY_S = 0.5
_LOOK_AGAIN_S = 5.0
_MOST_NOTICES = 50


class _Seat:
    """A source's place in the frame: its worker, its layout, and what is wrong with it now."""

    def __init__(self, source: Source, offset: int) -> None:
        self.worker = Worker(source)
        self.name = source.name
        self.offset = offset
        self.layout: Optional[wire.BlockLayout] = None
        self.signature: object = None
        self.faults: Faults = {}
        self.lost = ""
        self.looking = False

    def is_due(self, seq: int) -> bool:
        every = self.worker.source.every
        return seq == 0 or (seq + self.offset) % every == 0


class Probe:
    """Reads `sources` every `interval_s` and hands lines of the wire to `emit`.

    `about` is what the hello says of the node. Nothing here blocks for longer than the sources'
    deadlines, except `emit`.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        emit: Callable[[bytes], None],
        about: Dict[str, Any],
        interval_s: float = 1.0,
    ) -> None:
        self._seats = [_Seat(source, index) for index, source in enumerate(sources)]
        self._emit = emit
        self._about = {**about, "interval_s": interval_s}
        self._interval_s = interval_s
        self._meter = Meter([seat.name for seat in self._seats])
        self._seq = 0
        self._said = b""

    def run(self, frames: Optional[int] = None) -> None:
        """Say hello, then a frame a tick: `frames` of them, or for ever."""
        self._discover()
        while frames is None or self._seq < frames:
            self._frame()
            if self._seq != frames:
                self._meter.late_us = self._sleep()
                self._look_again()

    def _discover(self) -> None:
        for seat in self._seats:
            seat.looking = True
            seat.worker.discover()
        until = time.monotonic() + _DISCOVERY_S
        for seat in self._seats:
            self._settle_discovery(seat, max(0.0, until - time.monotonic()))
        self._hello()

    def _settle_discovery(self, seat: _Seat, timeout_s: float) -> bool:
        """Take a discovery's answer; whether it has come."""
        found = seat.worker.found(timeout_s)
        if found is None:
            self._lose(seat, "late", f"still looking after {_DISCOVERY_S:g} s")
            return False
        seat.looking = False
        self._seat_found(seat, found)
        return True

    def _seat_found(self, seat: _Seat, found: Found) -> None:
        seat.faults = {}
        seat.signature = found.signature
        seat.layout = None
        if found.error is None or isinstance(found.error, NoData):
            self._recover(seat)
        else:
            self._lose(seat, found.error.reason, str(found.error))
        if found.objects:
            seat.layout = wire.BlockLayout(seat.name, seat.worker.source.every, found.objects)

    def _look_again(self) -> None:
        """Notice hardware that came or went, and discoveries that took long: a new hello."""
        changed = False
        period = max(1, round(_LOOK_AGAIN_S / self._interval_s))
        for seat in self._seats:
            if seat.looking:
                changed |= self._settle_discovery(seat, 0.0)
            elif not seat.worker.busy and (self._seq + seat.offset) % period == 0:
                answer = seat.worker.signature(seat.worker.source.deadline_s)
                if answer is not None and answer[0] != seat.signature:
                    seat.looking = True
                    seat.worker.discover()
                    changed |= self._settle_discovery(seat, seat.worker.source.deadline_s)
        if changed:
            self._hello()

    def _hello(self) -> None:
        """Say what the frames will hold, unless that is what was said last."""
        layouts = [seat.layout for seat in self._seats if seat.layout is not None]
        line = wire.hello([*layouts, self._meter.layout], self._about)
        if line != self._said:
            self._said = line
            self._emit(line)

    def _frame(self) -> None:
        wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
        blocks = [self._block(seat) for seat in self._seats if seat.layout is not None]
        blocks.append(self._meter.read())
        self._emit(wire.frame(self._seq, wall_ns, mono_ns, blocks))
        self._seq += 1

    def _block(self, seat: _Seat) -> wire.Block:
        worker = seat.worker
        if worker.busy and (seat.looking or not worker.settle()):
            return None
        if not seat.is_due(self._seq):
            return None
        reading = worker.read(worker.source.deadline_s)
        if reading is None:
            self._lose(seat, "late", f"no answer in {worker.source.deadline_s:g} s")
            return None
        self._meter.took(seat.name, reading.duration_us)
        if reading.values is None:
            error = reading.error or SourceError("no values")
            self._lose(seat, error.reason, str(error))
            return None
        self._recover(seat)
        if reading.faults != seat.faults:
            self._tell_faults(seat, reading)
        return [reading.mono_ns, *reading.values]

    def _lose(self, seat: _Seat, reason: str, text: str) -> None:
        if seat.lost != reason:
            seat.lost = reason
            self._emit(wire.notice("lost", seat.name, text, reason=reason))

    def _recover(self, seat: _Seat) -> None:
        if seat.lost:
            seat.lost = ""
            self._emit(wire.notice("recovered", seat.name, "reads again"))

    def _tell_faults(self, seat: _Seat, reading: Reading) -> None:
        """Say once which values went absent, and once that they are back."""
        assert seat.layout is not None
        places = [(item.id, name) for item in seat.layout.objects for name in item.metrics]
        changed = {
            place: reading.faults.get(place, "")
            for place in sorted(reading.faults.keys() | seat.faults.keys())
            if reading.faults.get(place) != seat.faults.get(place)
        }
        for place, reason in list(changed.items())[:_MOST_NOTICES]:
            object_id, metric = places[place]
            event = "absent" if reason else "recovered"
            self._emit(wire.notice(event, seat.name, "", object_id, metric, reason))
        if len(changed) > _MOST_NOTICES:
            more = f"and {len(changed) - _MOST_NOTICES} more values"
            self._emit(wire.notice("absent", seat.name, more))
        seat.faults = reading.faults

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
