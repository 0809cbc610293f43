"""The simulated fabric in motion: jobs that send, equilibria between events, and counters.

Nothing changes between two events (a transfer ends, a program continues, a fault begins), so the
world advances from event to event, at most MAX_STEP_S at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from tests.world.flows import Flow, FlowTable, sums
from tests.world.topology import NIC, STORAGE, Floats, Hop, Ints, Topology
from tests.world.transport import (
    CNP_INTERVAL_S,
    INFINIBAND,
    PACKET_BYTES,
    ROCE,
    TCP,
    TCP_PACKET_BYTES,
    State,
    Transport,
)

MIN_STEP_S, MAX_STEP_S = 0.005, 0.25
MANY, MIN_STEP_OF_MANY_S = 100, 0.04
"""With so many groups, those that end at nearly the same time end at the same."""

NOISE_S = 0.25
"""How often the background of marks changes."""

(
    TX, TX_RDMA, PAUSED_US, MARKED_TX, MARKED_RX, CNP_SENT, CNP_HANDLED, DROPPED, DAMAGED, SYMBOLS,
    FEC_BITS, RESENT, OUT_OF_ORDER, BUFFER_EVENTS, NO_BUFFER, CARRIER, LINK_DOWN, STORMS,
    ACK_TIMEOUTS,
) = range(19)  # fmt: skip
"""Rows of the counters, [rows, ports]. TX and PAUSED_US are of the port that sends; what a port
receives is what its peer sends."""
ROWS = 19


@dataclass(frozen=True)
class Sleep:
    """A program computes for so long."""

    seconds: float


@dataclass(frozen=True)
class Part:
    """Bytes that each flow of a group is to move, beginning `delay_s` from now."""

    group: int
    bytes: float
    delay_s: float = 0.0


@dataclass(frozen=True)
class Transfer:
    """A program waits until all these parts have moved."""

    parts: Sequence[Part]


Program = Generator[Sleep | Transfer, None, None]
Observer = Callable[[float, float, State], None]
Taken = Callable[[Ints, Floats, Floats], None]
"""Gets ports, their counters and those of their peers, [rows, ports], when these are sampled."""


class _Running:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.waits_for = 0
        self.groups: set[int] = set()
        self.stopped = False


class World:
    """Advances the fabric; `observe` is called with (start, seconds, equilibrium) of each step."""

    def __init__(
        self, topology: Topology, transport: Transport, observe: Observer, seed: int
    ) -> None:
        self.topology = topology
        self.transport = transport
        self.table = FlowTable()
        self.rng = np.random.default_rng([seed, 77])
        self.now = 0.0
        self.counters: Floats = np.zeros((ROWS, topology.ports))
        self.rates: Floats = np.zeros((ROWS, topology.ports))
        self.up = np.ones(topology.ports, np.bool_)
        self.pcie_stalled = np.zeros(topology.host_ports)
        self.error_rate = np.zeros(topology.ports)
        """Damaged packets/s that a port receives, beside those that the loss of its link means."""
        self.dirty = True
        self.state: State | None = None
        self._observe = observe
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._owner: dict[int, _Running] = {}
        self._noise: Floats = np.ones(topology.ports)
        self._marks_base: Floats = np.zeros((2, topology.ports))
        self._next_noise = 0.0
        self._started: list[int] = []
        self._was_queued = np.zeros(topology.links, np.bool_)
        ports = topology.host_ports
        self._bias = self.rng.lognormal(0.0, 0.35, topology.ports)
        """Background marks differ from receiver to receiver."""
        self._is_rdma_nic = np.isin(topology.role[:ports], (NIC, STORAGE))

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        """Call `do` at a time."""
        heapq.heappush(self._timers, (time_s, next(self._order), do))

    def start(self, program: Program, time_s: float) -> _Running:
        """Run a program from a time on."""
        running = _Running(program)
        self.at(time_s, lambda: self._resume(running))
        return running

    def stop(self, running: _Running) -> None:
        """End a program and its transfers."""
        running.stopped = True
        for group in running.groups:
            self.table.active[group] = False
        self.dirty = True

    def add_group(self, flows: Sequence[Flow], tcp: bool = False) -> int:
        """New flows that progress in step. Congestion control favours some a little."""
        tcp = tcp or self.transport.settings.transport == TCP
        weight = float(np.exp(self.rng.normal(0, 0.15 if tcp else 0.05)))
        return self.table.add_group(flows, tcp, weight)

    def advance(self, until: float, sample_at: Floats, taken: Taken) -> None:
        """Advance to `until`. `sample_at` [ports] are the times at which ports are sampled."""
        order = np.argsort(sample_at, kind="stable")
        times = sample_at[order]
        place = int(np.searchsorted(times, self.now, "left"))
        while self.now < until - 1e-9:
            place = self._step(until, order, times, place, taken)

    def _step(
        self,
        until: float,
        order: Ints,
        times: Floats,
        place: int,
        taken: Taken,
    ) -> int:
        while self._timers and self._timers[0][0] <= self.now + 1e-9:
            heapq.heappop(self._timers)[2]()
        if self.dirty:
            self._settle()
        if self.now >= self._next_noise:
            self._new_noise()
        state, table = self.state, self.table
        assert state is not None
        end = min(until, self.now + MAX_STEP_S, self._next_noise)
        if self._timers:
            end = min(end, self._timers[0][0])
        groups = state.entries.groups
        left = table.remaining[groups]
        with np.errstate(divide="ignore", invalid="ignore"):
            needs = np.where(state.rate > 0, left / state.rate, np.inf)
        if len(needs):
            least = MIN_STEP_S if len(groups) < MANY else MIN_STEP_OF_MANY_S
            end = min(end, self.now + max(least, float(needs.min())))
        step = max(end - self.now, 1e-6)
        done = needs <= step * (1 + 1e-9)
        rates = self.rates
        if done.any():
            rates = self._less(state, done, needs, step)
        last = int(np.searchsorted(times, self.now + step, "left"))
        if last > place:
            self._sample(order[place:last], times[place:last], rates, taken)
        self.counters += rates * step
        if len(groups):
            table.remaining[groups] = np.maximum(0.0, left - state.rate * step)
        self._observe(self.now, step, state)
        self.now += step
        if done.any():
            for group in groups[done].tolist():
                self._finished(group)
        return last

    def _less(self, state: State, done: np.ndarray, needs: Floats, step: float) -> Floats:
        """The rates of a step in which some groups end before its end."""
        entries = state.entries
        over = np.where(done, state.rate * (1 - np.minimum(1.0, needs / step)), 0.0)
        picked = np.flatnonzero(done[entries.group] & (entries.link < self.topology.ports))
        excess = np.bincount(
            entries.link[picked],
            over[entries.group[picked]] * entries.share[picked],
            self.topology.ports,
        )
        rates = self.rates.copy()
        rates[TX] = np.maximum(0.0, rates[TX] - excess)
        rdma = picked[~self.table.tcp[entries.flow[picked]]]
        if len(rdma):
            excess = np.bincount(
                entries.link[rdma],
                over[entries.group[rdma]] * entries.share[rdma],
                self.topology.ports,
            )
            rates[TX_RDMA] = np.maximum(0.0, rates[TX_RDMA] - excess)
        return rates

    def _sample(self, ports: Ints, times: Floats, rates: Floats, taken: Taken) -> None:
        ahead = times - self.now
        peers = self.topology.peer[ports]
        own = self.counters[:, ports] + rates[:, ports] * ahead
        taken(ports, own, self.counters[:, peers] + rates[:, peers] * ahead)

    def _resume(self, running: _Running) -> None:
        if running.stopped:
            return
        step = next(running.program, None)
        if step is None:
            return
        if isinstance(step, Sleep):
            self.at(self.now + step.seconds, lambda: self._resume(running))
            return
        running.waits_for = len(step.parts)
        if not step.parts:
            self.at(self.now, lambda: self._resume(running))
        for part in step.parts:
            self._owner[part.group] = running
            running.groups.add(part.group)
            if part.delay_s > 0:
                self.at(self.now + part.delay_s, lambda part=part: self._begin(part))  # type: ignore[misc]
            else:
                self._begin(part)

    def _begin(self, part: Part) -> None:
        if self._owner[part.group].stopped:
            return
        self.table.active[part.group] = True
        self.table.remaining[part.group] = max(part.bytes, 1.0)
        self._started.append(part.group)
        self.dirty = True

    def _finished(self, group: int) -> None:
        self.table.active[group] = False
        self.dirty = True
        running = self._owner[group]
        running.waits_for -= 1
        if running.waits_for == 0:
            self._resume(running)

    def _settle(self) -> None:
        """The new equilibrium, and the rates of the counters in it."""
        self.dirty = False
        table, transport = self.table, self.transport
        table.compile()
        state = self.state = transport.equilibrium(table)
        topology, settings = self.topology, transport.settings
        ports = topology.ports
        rates = self.rates
        rates[:] = 0.0
        rates[TX], rates[TX_RDMA] = state.load[:ports], state.load_rdma[:ports]
        rates[PAUSED_US] = state.paused[:ports] * 1e6
        packets = rates[TX_RDMA] / PACKET_BYTES
        rates[MARKED_TX] = packets * state.marking[:ports]
        per_flow = state.flow_rate / PACKET_BYTES
        inside = ~table.tcp & (table.dst >= 0)
        back = settings.background if settings.transport == ROCE else 0.0
        dst, src = table.dst[inside], table.src[inside]
        marked = per_flow[inside] * state.flow_marked[inside]
        base = per_flow[inside] * back * self._bias[dst]
        cnp = marked / (1 + marked * CNP_INTERVAL_S)
        # The background comes in trains, at most one CNP each: a sender that got more would not
        # be at line rate.
        cnp_base = base / settings.train_packets
        if settings.transport == ROCE:
            rates[MARKED_RX] = np.bincount(dst, marked, ports)
            if settings.dcqcn:
                rates[CNP_SENT] = np.bincount(dst, cnp, ports)
                handled = src >= 0
                rates[CNP_HANDLED] = np.bincount(src[handled], cnp[handled], ports)
            self._marks_base = np.stack(
                [np.bincount(dst, base, ports), np.bincount(dst, cnp_base, ports)]
            )
            self._cnp_pairs = (src, dst, cnp_base)
        rates[DROPPED] = (rates[TX] - rates[TX_RDMA]) / TCP_PACKET_BYTES * state.dropping[:ports]
        self._damage(state, packets)
        self._busy = np.minimum(1.0, rates[TX] / topology.speed)
        self._busy[self._busy < 0.02] = 0.0
        self._beginnings(state)
        self._constant = rates.copy()
        self._apply_noise()

    def _damage(self, state: State, packets: Floats) -> None:
        """Damaged packets, corrected bits, retransmissions, and a NIC whose buffer is full."""
        topology, rates, table = self.topology, self.rates, self.table
        ports = topology.ports
        loss = self.transport.loss[:ports]
        at_receiver = topology.peer
        sent = rates[TX] / np.where(rates[TX_RDMA] > 0, PACKET_BYTES, TCP_PACKET_BYTES)
        rates[DAMAGED, at_receiver] = sent * loss
        rates[DAMAGED] += self.error_rate * self.up
        rates[SYMBOLS] = rates[DAMAGED] * 3
        rates[FEC_BITS] = 200.0 * self.up + rates[DAMAGED] * 2e4
        overtaken = self.transport.settings.overtaken
        if loss.any() or overtaken:
            entries = state.entries
            link_loss = self.transport.loss[entries.link] * entries.share
            flow_loss = sums(entries.flow, link_loss, len(table.group))
            flow_loss[entries.flow[entries.share < 1]] += overtaken
            again = state.flow_rate / PACKET_BYTES * flow_loss
            inside = ~table.tcp & (table.src >= 0) & (table.dst >= 0)
            rates[RESENT] = np.bincount(table.src[inside], again[inside], ports)
            rates[OUT_OF_ORDER] = np.bincount(table.dst[inside], again[inside], ports)
            rates[ACK_TIMEOUTS] = rates[RESENT] * 0.01
        sinks = np.flatnonzero(state.queued[ports:]) % topology.host_ports
        if len(sinks) and self.transport.settings.transport != INFINIBAND:
            paused = state.paused[topology.peer[sinks]]
            rates[BUFFER_EVENTS, sinks] = 1500 * paused
            rates[STORMS, sinks] = np.where(paused > 0.85, 1.0, 0.0)

    def _beginnings(self, state: State) -> None:
        """What a burst does before congestion control reacts: a few milliseconds of queue."""
        table, topology, settings = self.table, self.topology, self.transport.settings
        counters, rng = self.counters, self.rng
        newly_queued = state.queued & ~self._was_queued
        self._was_queued = state.queued
        if settings.transport == ROCE and self._started:
            fresh = np.zeros(len(table.active), np.bool_)
            fresh[self._started] = True
            flows = np.flatnonzero(fresh[table.group] & ~table.tcp & (table.dst >= 0))
            strength = 0.05 + min(1.0, settings.background * 50)
            marks = (
                state.flow_rate[flows] / PACKET_BYTES * 0.002 * strength
                * rng.uniform(0.0, 0.5, len(flows))
            )  # fmt: skip
            np.add.at(counters[MARKED_RX], table.dst[flows], marks)
            if settings.dcqcn:
                cnp = np.minimum(marks, 40 * strength)
                np.add.at(counters[CNP_SENT], table.dst[flows], cnp)
                np.add.at(counters[CNP_HANDLED], np.maximum(0, table.src[flows]), cnp)
        self._started.clear()
        if settings.transport == ROCE and newly_queued.any():
            entries = state.entries
            at = newly_queued[entries.link] & (entries.before >= 0)
            at &= (entries.before < topology.ports) & state.slowed[entries.flow]
            before = np.unique(entries.before[at])
            counters[PAUSED_US, before] += rng.uniform(200, 2500, len(before))

    def _new_noise(self) -> None:
        self._next_noise = self.now + NOISE_S
        self._noise = self.rng.lognormal(-0.18, 0.6, self.topology.ports)
        self._apply_noise()

    def _apply_noise(self) -> None:
        """The background of marks, waits and retransmissions on loaded paths."""
        settings = self.transport.settings
        if self.state is None or (settings.background == 0 and settings.background_pause == 0):
            return
        rates, noise = self.rates, self._noise
        if settings.transport == ROCE:
            rates[MARKED_RX] = self._constant[MARKED_RX] + self._marks_base[0] * noise
            if settings.dcqcn:
                src, dst, cnp = self._cnp_pairs
                rates[CNP_SENT] = self._constant[CNP_SENT] + self._marks_base[1] * noise
                known = src >= 0
                rates[CNP_HANDLED] = self._constant[CNP_HANDLED] + np.bincount(
                    src[known], (cnp * noise[dst])[known], self.topology.ports
                )
            rates[MARKED_TX] = self._constant[MARKED_TX] + (
                rates[TX_RDMA] / PACKET_BYTES * settings.background * 0.4 * noise * self._bias
            )
            pause = settings.background_pause * self._busy * noise * 1e6
            rates[PAUSED_US] = np.minimum(1e6, self._constant[PAUSED_US] + pause)
        elif settings.transport == INFINIBAND:
            wait = settings.background * self._busy * noise * self._bias * 1e6
            rates[PAUSED_US] = np.minimum(1e6, self._constant[PAUSED_US] + wait)
        else:
            again = rates[TX] / TCP_PACKET_BYTES * settings.background * noise
            rates[DROPPED] = self._constant[DROPPED] + again * 0.5


def path_flow(topology: Topology, src: int, dst: int, key: int, routing: str) -> Flow:
    """A flow between two NICs."""
    return Flow(src, dst, tuple(topology.path(src, dst, key, routing)), key)


def outside_flow(topology: Topology, port: int, inwards: bool) -> Flow:
    """A flow between a host's port and the outside of the fabric."""
    hops: list[Hop] = topology.from_outside(port) if inwards else topology.to_outside(port)
    return Flow(-1, port, tuple(hops)) if inwards else Flow(port, -1, tuple(hops))
