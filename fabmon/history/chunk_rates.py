"""Rates of recorded counters, many ticks at once, by the rules of `rates.py`.

`RateChunkBuilder` turns the raw chunks of a recording into rate chunks of five minutes: the traffic
of every port at every tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.fabric_builder import FabricBuilder, PortRows
from fabmon.fabric.flows.queue_pairs import QueuePairs, queue_pairs_of
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.model import HOST, Fabric, Host
from fabmon.fabric.node_facts import owner_of
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.roles.port_roles import PortRoles
from fabmon.fabric.roles.rules import RoleRules
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import NodeFrames, RawChunk
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import Hello
from fabmon.history.derived_metrics import line_rate_overrides, line_rates
from fabmon.history.rates import (
    LINE_RATE,
    RX,
    SOURCE_NUMBERS,
    TX,
    BestSources,
    Bools,
    CounterKinds,
    Float64s,
    Indices,
    counter_rates,
    elapsed_between,
    is_stale,
)

CHUNK_S = 300
"""Seconds of a rate chunk: many iterations of a job, and little enough to hold in memory."""


Times = NDArray[np.int64]
PortRates = Mapping[int, tuple[Indices, Floats]]
"""By quantity (TX, RX, LINE_RATE): rows of ports [n], and their bits/s [ticks, n]."""


@dataclass(frozen=True, slots=True)
class RateChunk:
    """Bits/s of every port, [ticks, ports] for each direction; NaN where unknown.

    Ticks are `interval_s` apart, beginning at `start_ns`. `line_rate_bps` is [ports]. Rows are
    those of the fabric. `jobs` are the jobs on its nodes, each table with the time from which on it
    is true; the first is true before that too.
    """

    start_ns: int
    interval_s: float
    fabric: Fabric
    tx_bps: Floats
    rx_bps: Floats
    line_rate_bps: Floats
    jobs: tuple[tuple[int, JobTable], ...] = ()


class RateChunkBuilder:
    """Builds rate chunks from raw chunks; `fabric` is what has been reported of it so far."""

    def __init__(self, roles: RoleRules | None = None, topology: Topology | None = None) -> None:
        """`roles` and `topology` are as for a History."""
        self._rows = PortRows()
        self._builder = FabricBuilder(self._rows, PortRoles(roles), topology)
        self._hosts: dict[str, Host] = {}
        self._hellos: dict[str, Hello] = {}
        self._nodes: dict[str, _NodeRates] = {}
        self._open: dict[tuple[int, float], _OpenChunk] = {}
        self._line_rate_bps: dict[int, float] = {}
        self._queue_pairs: dict[str, QueuePairs] = {}
        self._jobs: list[tuple[int, JobTable]] = []
        self.fabric: Fabric = self._builder.build([], {}, 0)

    def of(
        self, raw_chunks: Iterable[RawChunk], from_ns: int = 0, until_ns: int = LATEST_NS
    ) -> Iterator[RateChunk]:
        """All rate chunks between two times, in order of time, as the raw chunks have to be."""
        for raw_chunk in raw_chunks:
            yield from self._complete(raw_chunk.start_ns)
            if self._update_fabric(raw_chunk) or raw_chunk.jobs:
                self._update_jobs(raw_chunk)
            for frames in raw_chunk.frames:
                times_ns, rates = self._node(frames).accept(frames)
                inside = (times_ns >= from_ns) & (times_ns <= until_ns)
                self._put(raw_chunk.interval_s, times_ns[inside], inside, rates)
            if len(self._rows) > len(self.fabric.ports):
                # Ports that came and went within the chunk: only its last hellos are known before.
                self._build_fabric()
        yield from self._complete(LATEST_NS)

    def _update_fabric(self, raw_chunk: RawChunk) -> bool:
        """Build the fabric again when a node has reported something new; returns whether it is."""
        hosts = {host.name: host for host in raw_chunk.hosts}
        hellos = raw_chunk.hellos.items()
        changed = {name: hello for name, hello in hellos if self._hellos.get(name) is not hello}
        if not changed and hosts.keys() <= self._hosts.keys():
            return False
        # As History has it: a node that nobody named is one.
        unnamed = {name: Host(name=name) for name in changed if name not in self._hosts}
        self._hosts |= unnamed | hosts
        self._hellos |= changed
        for name, hello in changed.items():
            pairs = queue_pairs_of(hello)
            if pairs is not None:
                self._queue_pairs[name] = pairs
            else:
                self._queue_pairs.pop(name, None)
        self._build_fabric()
        return True

    def _build_fabric(self) -> None:
        hosts = list(self._hosts.values())
        self.fabric = self._builder.build(hosts, self._hellos, self.fabric.version + 1)

    def _update_jobs(self, raw_chunk: RawChunk) -> None:
        """Note the jobs of a raw chunk; those of processes are known at its end only."""
        hosts = [node.name for node in self.fabric.nodes if node.role == HOST]
        last = self._jobs[-1][1].report if self._jobs else None
        for from_ns, report in raw_chunk.jobs or ((raw_chunk.start_ns, last),):
            self._jobs.append((from_ns, JobTable(report, hosts, self._queue_pairs)))

    def _jobs_between(self, start_ns: int, until_ns: int) -> tuple[tuple[int, JobTable], ...]:
        """The tables of a time; those before it are not needed again."""
        begun = [place for place, (from_ns, _) in enumerate(self._jobs) if from_ns <= start_ns]
        del self._jobs[: begun[-1] if begun else 0]
        return tuple(each for each in self._jobs if each[0] < until_ns)

    def _node(self, frames: NodeFrames) -> _NodeRates:
        """The rates of a node: the same object as before, unless its layout has changed."""
        node = self._nodes.get(frames.node)
        if node is None or (
            node.hello is not frames.hello and not frames.hello.has_same_layout(node.hello)
        ):
            sender = self._hosts[frames.node]
            node = self._nodes[frames.node] = _NodeRates(
                frames.hello, sender, self._hosts, self._rows
            )
        return node

    def _put(self, interval_s: float, times_ns: Times, inside: Bools, rates: PortRates) -> None:
        """Copy a node's rates at some ticks to the chunks that these are part of."""
        length_ns = int(_ticks(interval_s) * interval_s * 1e9)
        number = times_ns // length_ns
        for each in np.unique(number).tolist():
            start_ns = each * length_ns
            key = (start_ns, interval_s)
            chunk = self._open.get(key)
            if chunk is None:
                chunk = self._open[key] = _OpenChunk(start_ns, interval_s, len(self._rows))
            here = number == each
            tick = ((times_ns[here] - start_ns) / (interval_s * 1e9)).astype(np.intp)
            for direction in (TX, RX):
                if direction in rates:
                    rows, values = rates[direction]
                    chunk.put(direction, tick, rows, values[inside][here])
        if LINE_RATE in rates and len(times_ns):
            rows, values = rates[LINE_RATE]
            known = values[-1] > 0
            latest = zip(rows[known].tolist(), values[-1][known].tolist(), strict=True)
            self._line_rate_bps |= dict(latest)

    def _complete(self, before_ns: int) -> Iterator[RateChunk]:
        """The chunks that end before a time, which are complete."""
        for key in sorted(self._open):
            chunk = self._open[key]
            if chunk.start_ns + len(chunk.bps[TX]) * chunk.interval_s * 1e9 <= before_ns:
                del self._open[key]
                yield self._rate_chunk(chunk)

    def _rate_chunk(self, chunk: _OpenChunk) -> RateChunk:
        ports = self.fabric.ports
        chunk.widen(len(ports))
        reported_bps = np.full(len(ports), np.nan, np.float32)
        reported_bps[list(self._line_rate_bps)] = list(self._line_rate_bps.values())
        line_rate_bps = line_rates(reported_bps, line_rate_overrides(self.fabric, self._hosts))
        tx_bps, rx_bps = chunk.bps
        until_ns = chunk.start_ns + int(len(tx_bps) * chunk.interval_s * 1e9)
        return RateChunk(
            chunk.start_ns,
            chunk.interval_s,
            self.fabric,
            tx_bps,
            rx_bps,
            line_rate_bps,
            self._jobs_between(chunk.start_ns, until_ns),
        )


def _ticks(interval_s: float) -> int:
    """Ticks of a rate chunk."""
    return max(1, round(CHUNK_S / interval_s))


class _OpenChunk:
    """A rate chunk that is being filled; `bps` is [directions, ticks, ports]."""

    def __init__(self, start_ns: int, interval_s: float, ports: int) -> None:
        self.start_ns = start_ns
        self.interval_s = interval_s
        self.bps = np.full((2, _ticks(interval_s), ports), np.nan, np.float32)

    def put(self, direction: int, tick: Indices, rows: Indices, values: Floats) -> None:
        """Set [ticks, ports] of one direction; a tick after the end counts as the last one."""
        self.widen(int(rows.max(initial=-1)) + 1)
        tick = np.minimum(tick, self.bps.shape[1] - 1)
        self.bps[direction, tick[:, None], rows[None, :]] = values

    def widen(self, ports: int) -> None:
        """Make room for as many ports."""
        self.bps = grown(self.bps, ports, np.nan)


class _Block:
    """The wanted values of one source of a node, and its last read, for the next run of frames.

    `number` is that of the block in a frame, `period_s` the time between its reads. `positions` in
    a frame are those of the clock and of the values, `columns` those of the values in the node's
    rates.
    """

    def __init__(
        self,
        number: int,
        period_s: float,
        positions: Sequence[int],
        columns: Indices,
        kinds: CounterKinds,
    ) -> None:
        self.columns = columns
        self._number = number
        self._period_s = period_s
        self._positions = positions
        self._kinds = kinds
        self._values = np.zeros((1, len(positions)), np.uint64)
        self._known = np.zeros((1, len(positions)), np.bool_)
        self._last_ns = 0
        self._last_rates = np.full((1, len(columns)), np.nan)

    def rates(self, frames: NodeFrames, times_ns: Times, tick: Indices) -> Float64s | None:
        """[ticks, values] at `times_ns`, of frames at these ticks; None without a read."""
        values, known = frames.read(self._positions)
        # Of several reads at one tick the last one counts; the rate is the mean over all of them.
        reads = np.flatnonzero(frames.was_read[:, self._number] & known[:, 0])
        if not len(reads):
            return None
        reads = reads[np.append(tick[reads][1:] != tick[reads][:-1], True)]
        if len(reads) != len(values):
            values, known = values[reads], known[reads]
        values = np.concatenate([self._values, values])
        known = np.concatenate([self._known, known])
        self._values, self._known = values[-1:].copy(), known[-1:].copy()
        elapsed_ns = elapsed_between(values[1:, :1], values[:-1, :1])
        rates, _ = counter_rates(
            values[1:, 1:], values[:-1, 1:], known[1:, 1:], known[:-1, 1:], elapsed_ns, self._kinds
        )
        read_ns = times_ns[tick[reads]]
        at_every_tick = rates
        if len(reads) != len(times_ns):
            at_every_tick = self._hold(rates, read_ns, times_ns)
        self._last_ns, self._last_rates = int(read_ns[-1]), rates[-1:].copy()
        return at_every_tick

    def _hold(self, rates: Float64s, read_ns: Times, times_ns: Times) -> Float64s:
        """[ticks, values]: at a tick without a read, the last read's rate until it is stale."""
        rates = np.concatenate([self._last_rates, rates])
        read_ns = np.concatenate([[self._last_ns], read_ns])
        last = np.searchsorted(read_ns, times_ns, side="right") - 1
        latest: Float64s = rates[last]
        latest[is_stale((times_ns - read_ns[last]) / 1e9, self._period_s)] = np.nan
        return latest


class _NodeRates:
    """Turns runs of frames of one node and layout into rates of its ports.

    It remembers the last read of every source between runs.
    """

    def __init__(
        self, hello: Hello, sender: Host, given: Mapping[str, Host], rows: PortRows
    ) -> None:
        self.hello = hello
        names, of_block, of_position, of_row = [], [], [], []
        for number, first, item in hello.objects():
            node = owner_of(item, sender, given)
            if item.port is None or node is None:
                continue
            for offset, name in enumerate(item.metrics):
                if name in SOURCE_NUMBERS:
                    names.append(name)
                    of_block.append(number)
                    of_position.append(first + offset)
                    of_row.append(rows.of(node, item.port))
        source = np.array([SOURCE_NUMBERS[name] for name in names], np.intp)
        self._sources = BestSources(source, np.array(of_row, np.intp))
        order = self._sources.order
        self._width = len(order)
        kinds = CounterKinds.of(hello, names)
        block, position = (np.array(each, np.intp)[order] for each in (of_block, of_position))
        self._blocks = []
        clock = 0
        for number, info in enumerate(hello.blocks):
            columns = np.flatnonzero(block == number)
            if len(columns):
                ours = order[columns]
                self._blocks.append(
                    _Block(
                        number,
                        info.every * hello.interval_s,
                        [clock, *position[columns].tolist()],
                        columns,
                        CounterKinds(kinds.code[ours], kinds.maximum[ours]),
                    )
                )
            clock += info.width()

    def accept(self, frames: NodeFrames) -> tuple[Times, PortRates]:
        """The times of the frames' ticks, and the rates at these."""
        times_ns, tick = frames.time_ns, np.arange(len(frames.time_ns))
        if not (times_ns[1:] > times_ns[:-1]).all():
            times_ns, tick = np.unique(times_ns, return_inverse=True)
        rates = np.full((len(times_ns), self._width), np.nan)
        for block in self._blocks:
            block_rates = block.rates(frames, times_ns, tick)
            if block_rates is not None:
                rates[:, block.columns] = block_rates
        return times_ns, self._sources.rates_bps(rates)
