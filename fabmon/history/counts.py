"""Counters of one node over many ticks at once: rates, and of several that count the same the best.

The same rules as in series.py and derive.py, over whole runs of ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.messages import Hello
from fabmon.fabric.moment import Floats
from fabmon.fabric.stretch import NodeRun
from fabmon.history.series import GAUGE, STALE_READS, kind_of, pace, saturates


class Place(NamedTuple):
    """One value of a frame. `what` it tells of port `row` (tx, rx, line rate), `rank` by others
    that tell the same (0 is best), `bits` in one of it; where it and its block's clock are.
    """

    what: int
    row: int
    rank: int
    bits: float
    position: int
    clock: int
    block: int
    metric: str


class Layout:
    """Where a node's frames have what is wanted, as arrays; one element a value."""

    def __init__(self, hello: Hello, places: Sequence[Place]) -> None:
        # By port and kind, the best source first.
        places = sorted(places, key=lambda place: (place.what, place.row, place.rank))
        kinds = [
            kind_of(hello.metrics[p.metric].kind if p.metric in hello.metrics else "")
            for p in places
        ]
        self.what = np.array([place.what for place in places], np.intp)
        self.row = np.array([place.row for place in places], np.intp)
        self.bits = np.array([place.bits for place in places], np.float64)
        self.block = np.array([place.block for place in places], np.intp)
        self.kind = np.array([kind for kind, _ in kinds], np.uint8)
        self.top = np.array([top for _, top in kinds], np.uint64)
        self.every = [block.every for block in hello.blocks]
        self.interval_s = hello.interval_s
        clocks: list[int] = []
        position = 0
        for block in hello.blocks:
            clocks.append(position)
            position += block.width()
        self.clocks = clocks
        self.positions = [place.position for place in places]
        self.key = self.what * (int(self.row.max(initial=0)) + 1) + self.row


class Counts:
    """Turns runs of frames of one layout into rates; remembers the last frame in between."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        count = len(layout.positions)
        blocks = range(len(layout.clocks))
        self._of_block = [np.flatnonzero(layout.block == number) for number in blocks]
        self._counted = np.zeros(count, np.bool_)
        self._last: dict[int, tuple[int, NDArray[np.float64]]] = {}
        self._chosen: tuple[NDArray[np.bool_], NDArray[np.intp]] | None = None
        self._now = np.zeros(count, np.uint64)
        self._known = np.zeros(count, np.bool_)
        self._clock = np.zeros(len(layout.clocks), np.uint64)
        self._heard = np.zeros(len(layout.clocks), np.bool_)

    def accept(
        self, run: NodeRun, interval_s: float
    ) -> tuple[NDArray[np.int64], dict[int, tuple[NDArray[np.intp], Floats]]]:
        """Times of the run's ticks, and by kind of value rows [n] and values [ticks, n]."""
        own = self._layout
        times, tick_of = run.time_ns, np.arange(len(run.time_ns))
        if not (times[1:] > times[:-1]).all():
            times, tick_of = np.unique(times, return_inverse=True)
        rates = np.full((len(times), len(own.positions)), np.nan)
        for number, clock in enumerate(own.clocks):
            ours = self._of_block[number]
            if not len(ours):
                continue
            values, known = run.read([clock, *(own.positions[each] for each in ours.tolist())])
            # Of several reads at one tick the last one tells; the rate is over all of them.
            rows = np.flatnonzero(run.there[:, number] & known[:, 0])
            if not len(rows):
                continue
            rows = rows[np.append(tick_of[rows][1:] != tick_of[rows][:-1], True)]
            if len(rows) != len(values):
                values, known = values[rows], known[rows]
            read = tick_of[rows]
            made = self._rates(number, ours, values[:, 0], values[:, 1:], known[:, 1:])
            if len(read) != len(times):
                longest_ns = int(STALE_READS * own.every[number] * own.interval_s * 1e9)
                made = self._held(number, made, times, times[read], longest_ns)
            self._last[number] = (int(times[read[-1]]), made[-1])
            rates[:, ours] = made
        rates *= own.bits
        self._counted |= ~np.isnan(np.fmax.reduce(rates, axis=0, initial=np.nan))
        return times, self._best(rates)

    def _held(
        self,
        number: int,
        made: NDArray[np.float64],
        times: NDArray[np.int64],
        read_ns: NDArray[np.int64],
        longest_ns: int,
    ) -> NDArray[np.float64]:
        """[ticks, n]: rates of ticks without a read are those of the last one, for so long."""
        last_ns, last = self._last.get(number, (-longest_ns - 1, made[0]))
        made = np.concatenate([last[None], made])
        read_ns = np.concatenate([[last_ns], read_ns])
        at = np.searchsorted(read_ns, times, side="right") - 1
        held: NDArray[np.float64] = made[np.maximum(at, 0)]
        held[(at < 0) | (times - read_ns[np.maximum(at, 0)] > longest_ns)] = np.nan
        return held

    def _rates(
        self,
        number: int,
        ours: NDArray[np.intp],
        clock: NDArray[np.uint64],
        values: NDArray[np.uint64],
        known: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """[reads, n] of one block, and its last read kept for the next run."""
        own = self._layout
        clock = np.concatenate([self._clock[[number]], clock])
        values = np.concatenate([self._now[None, ours], values])
        known = np.concatenate([(self._known[ours] & self._heard[number])[None], known])
        self._clock[number], self._heard[number] = clock[-1], True
        self._now[ours], self._known[ours] = values[-1], known[-1]
        kind, top = own.kind[ours], own.top[ours]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            dt_ns = (clock[1:] - clock[:-1])[:, None]
            runs = (clock[1:] > clock[:-1])[:, None]
            sure = known[1:] & known[:-1] & runs & ~saturates(values[1:], kind, top)
            rate = np.where(sure, pace(values[1:], values[:-1], dt_ns, kind), np.nan)
        gauges = kind == GAUGE
        rate[:, gauges] = np.where(known[1:, gauges], values[1:, gauges], np.nan)
        return rate

    def _best(self, rates: NDArray[np.float64]) -> dict[int, tuple[NDArray[np.intp], Floats]]:
        """Of each port the best source that ever counted."""
        own = self._layout
        if self._chosen is None or not np.array_equal(self._counted, self._chosen[0]):
            counting = np.flatnonzero(self._counted)
            _, first = np.unique(own.key[counting], return_index=True)
            self._chosen = (self._counted.copy(), counting[first])
        chosen = self._chosen[1]
        found = {}
        for what in np.unique(own.what[chosen]).tolist():
            ours = chosen[own.what[chosen] == what]
            found[what] = (own.row[ours], rates[:, ours].astype(np.float32))
        return found
