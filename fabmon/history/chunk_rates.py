"""Counters of one node over many ticks at once: rates, and of several that count the same the best.

The same rules as in series.py and derive.py, over whole runs of ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.fabric_builder import MANAGEMENT_PORTS, PortRows, build
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.object_owner import owner_of
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import NodeFrames, RawChunk
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import Hello
from fabmon.history.derived_metrics import RATES, WIRE, line_rate_overrides
from fabmon.history.rates import GAUGE, STALE_READS, counter_kind, is_saturated, rate_per_s


class ValuePosition(NamedTuple):
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


class ChunkLayout:
    """Where a node's frames have what is wanted, as arrays; one element a value."""

    def __init__(self, hello: Hello, places: Sequence[ValuePosition]) -> None:
        # By port and kind, the best source first.
        places = sorted(places, key=lambda place: (place.what, place.row, place.rank))
        kinds = [
            counter_kind(hello.metrics[p.metric].kind if p.metric in hello.metrics else "")
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


class ChunkRates:
    """Turns runs of frames of one layout into rates; remembers the last frame in between."""

    def __init__(self, layout: ChunkLayout) -> None:
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
        self, run: NodeFrames, interval_s: float
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
            sure = known[1:] & known[:-1] & runs & ~is_saturated(values[1:], kind, top)
            rate = np.where(sure, rate_per_s(values[1:], values[:-1], dt_ns, kind), np.nan)
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


# Traffic of many ticks at once: what is made of stretches, five minutes at a time.


CHUNK_S = 300
"""Seconds of a passage: many iterations of a job, few enough bytes to hold."""

_WAYS = ("tx", "rx")
_RATE = 2


@dataclass(frozen=True, slots=True)
class RateChunk:
    """Bits/s of every port, [ticks, ports] each way; NaN where it is not known.

    Ticks are `interval_s` apart from `start_ns` on. `line_rate_bps` is [ports]. Rows are those of
    the fabric.
    """

    start_ns: int
    interval_s: float
    fabric: Fabric
    tx_bps: Floats
    rx_bps: Floats
    line_rate_bps: Floats


class _Open:
    """A passage that is being filled: [ways, ticks, ports]."""

    def __init__(self, start_ns: int, interval_s: float, ports: int) -> None:
        self.start_ns = start_ns
        self.interval_s = interval_s
        self.ticks = max(1, round(CHUNK_S / interval_s))
        self.bps = np.full((len(_WAYS), self.ticks, ports), np.nan, np.float32)

    def put(self, way: int, at: NDArray[np.intp], rows: NDArray[np.intp], values: Floats) -> None:
        most = int(rows.max(initial=-1)) + 1
        if most > self.bps.shape[2]:
            wider = ((0, 0), (0, 0), (0, most - self.bps.shape[2]))
            self.bps = np.pad(self.bps, wider, constant_values=np.nan)
        self.bps[way, at[:, None], rows[None, :]] = values


class RateChunkBuilder:
    """Makes passages of stretches; `fabric` is what has been told of it so far."""

    def __init__(
        self, management: Sequence[str] = MANAGEMENT_PORTS, topology: Topology | None = None
    ) -> None:
        """`management` and `topology` are as for a History."""
        self._management = management
        self._topology = topology
        self._rows = PortRows()
        self._hosts: dict[str, Host] = {}
        self._told: dict[str, Hello] = {}
        self._counts: dict[str, tuple[Hello, ChunkRates]] = {}
        self._open: dict[tuple[int, float], _Open] = {}
        self._line_rate: dict[int, float] = {}
        self.fabric: Fabric = build([], {}, self._rows, 0, management, topology)

    def of(
        self, stretches: Iterable[RawChunk], from_ns: int = 0, until_ns: int = (1 << 63) - 1
    ) -> Iterator[RateChunk]:
        """Every passage between two times, by time; stretches have to come by time too."""
        for stretch in stretches:
            yield from self._done(stretch.start_ns)
            self._learn(stretch)
            for run in stretch.runs:
                times, found = self._of_layout(run).accept(run, stretch.interval_s)
                inside = (times >= from_ns) & (times <= until_ns)
                self._put(stretch.interval_s, times[inside], inside, found)
        yield from self._done((1 << 63) - 1)

    def _learn(self, stretch: RawChunk) -> None:
        """Build the fabric anew when somebody has told something new."""
        hosts = {host.name: host for host in stretch.hosts}
        changed = [n for n, hello in stretch.hellos.items() if self._told.get(n) is not hello]
        if not changed and hosts.keys() <= self._hosts.keys():
            return
        self._hosts |= hosts
        self._told |= {node: stretch.hellos[node] for node in changed}
        version = self.fabric.version + 1
        hosts_now = list(self._hosts.values())
        self.fabric = build(
            hosts_now, self._told, self._rows, version, self._management, self._topology
        )

    def _of_layout(self, run: NodeFrames) -> ChunkRates:
        """What turns a run's counters into rates: the same as before, unless its layout changed."""
        known = self._counts.get(run.node)
        if known is None or (known[0] is not run.hello and not run.hello.counts_like(known[0])):
            places = _places(self._hosts[run.node], self._hosts, run.hello, self._rows)
            known = self._counts[run.node] = (run.hello, ChunkRates(ChunkLayout(run.hello, places)))
        return known[1]

    def _put(
        self,
        interval_s: float,
        times: NDArray[np.int64],
        inside: NDArray[np.bool_],
        found: Mapping[int, tuple[NDArray[np.intp], Floats]],
    ) -> None:
        length_ns = int(max(1, round(CHUNK_S / interval_s)) * interval_s * 1e9)
        number = times // length_ns
        for each in np.unique(number).tolist():
            start_ns = each * length_ns
            key = (start_ns, interval_s)
            opened = self._open.get(key)
            if opened is None:
                opened = self._open[key] = _Open(start_ns, interval_s, len(self._rows))
            here = number == each
            at = ((times[here] - start_ns) / (interval_s * 1e9)).astype(np.intp)
            at = np.minimum(at, opened.ticks - 1)
            for way in range(len(_WAYS)):
                if way in found:
                    rows, values = found[way]
                    opened.put(way, at, rows, values[inside][here])
        if _RATE in found and len(times):
            rows, values = found[_RATE]
            last = values[-1]
            told = np.isfinite(last) & (last > 0)
            rates = zip(rows[told].tolist(), last[told].tolist(), strict=True)
            self._line_rate |= dict(rates)

    def _done(self, before_ns: int) -> Iterator[RateChunk]:
        for key in sorted(self._open):
            opened = self._open[key]
            if opened.start_ns + opened.ticks * opened.interval_s * 1e9 <= before_ns:
                del self._open[key]
                yield self._closed(opened)

    def _closed(self, opened: _Open) -> RateChunk:
        ports = len(self.fabric.ports)
        missing = ports - opened.bps.shape[2]
        bps = np.pad(opened.bps, ((0, 0), (0, 0), (0, missing)), constant_values=np.nan)
        rate = line_rate_overrides(self.fabric.ports, self._hosts)
        for row, told in self._line_rate.items():
            if np.isnan(rate[row]):
                rate[row] = told
        return RateChunk(opened.start_ns, opened.interval_s, self.fabric, bps[0], bps[1], rate)


def _places(
    speaker: Host, given: Mapping[str, Host], hello: Hello, rows: PortRows
) -> list[ValuePosition]:
    """Where a node's frame has what its ports send and receive, and their line rates."""
    wanted = {
        template.format(way): (number, rank, float(bits))
        for number, way in enumerate(_WAYS)
        for rank, (template, bits) in enumerate(WIRE)
    }
    wanted |= {name: (_RATE, rank, 1.0) for rank, name in enumerate(RATES)}
    places = []
    position = 0
    for number, block in enumerate(hello.blocks):
        clock = position
        position += 1
        for item in block.objects:
            node = owner_of(item, speaker, given)
            for place, name in enumerate(item.metrics):
                if name in wanted and item.port is not None and node is not None:
                    what, rank, bits = wanted[name]
                    row = rows.of(node, item.port)
                    where = position + place
                    places.append(ValuePosition(what, row, rank, bits, where, clock, number, name))
            position += len(item.metrics)
    return places
