"""The demo feed: a simulated fabric as ticks, in real time, faster, or as fast as it goes."""

from __future__ import annotations

import asyncio
from typing import Self

import numpy as np

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Hello
from fabmon.feeds.demo.counter_table import CounterTable
from fabmon.feeds.demo.counters import Counters
from fabmon.feeds.demo.fault_planner import Truth
from fabmon.feeds.demo.hellos import Hellos
from fabmon.feeds.demo.queue_pairs import Owner, QueuePairReports
from fabmon.feeds.demo.scenario import Scenario
from fabmon.feeds.demo.world import World
from fabmon.feeds.ticks import Clock, RealClock

START_NS = 1_795_270_000_000_000_000
"""2026-11-21 14:06:40 UTC: when simulated time begins unless told otherwise."""

_LOST_AFTER_TICKS = 3
_PROBE_US, _PROBE_BYTES = 940, 19_000_000


class DemoFeed:
    """An async iterator of ticks, one every `interval_s` of simulated time.

    `speed` is simulated seconds a second; None for as fast as possible, without sleeping. The
    first tick has every node's hello and first frame. It does not end by itself. `start_ns` is the
    wall clock of the first tick. Equal scenarios give equal ticks. Raises ScenarioError.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        interval_s: float = 1.0,
        speed: float | None = None,
        start_ns: int = START_NS,
        clock: Clock | None = None,
    ) -> None:
        self.world = World(scenario)
        hardware = self.world.hardware
        self._counters = Counters(hardware, scenario.seed)
        self._introductions = Hellos(hardware, self._counters, interval_s)
        self._interval_s = interval_s
        self._speed = speed
        self._start_ns = start_ns
        self._clock = clock or RealClock()
        self._began_s: float | None = None
        self._closed = asyncio.Event()
        self._seq = 0
        self._hellos: dict[str, object] = {}
        self._talk: tuple[object, QueuePairReports] | None = None
        self._silent_since: dict[int, int] = {}
        self._boots: dict[str, int] = {}
        self._crashed: set[int] = set()
        self._queued_s = np.zeros(hardware.ports)

    @property
    def hosts(self) -> list[Host]:
        """The nodes that are watched, as a hosts file would name them."""
        return self._introductions.hosts()

    @property
    def truth(self) -> tuple[Truth, ...]:
        """All that is, was or will be wrong."""
        return self.world.truth

    @property
    def queued(self) -> dict[str, float]:
        """Ports to which more was offered than they can send, and for what share of the last tick.

        Scripted or not: flows that collide by chance make queues too, of which `truth` is silent.
        """
        hardware = self.world.hardware
        return {
            hardware.port_id(port): float(self._queued_s[port]) / self._interval_s
            for port in self._queued_s.nonzero()[0].tolist()
        }

    @property
    def now_s(self) -> float:
        """Simulated seconds since the first tick."""
        return self.world.now_s

    @property
    def planned_cables(self) -> list[tuple[str, str]]:
        """Both ends of every cable as they are meant to be, `node/port` each."""
        hardware = self.world.hardware
        ends = enumerate(hardware.cabling.tolist())
        return [(hardware.port_id(a), hardware.port_id(b)) for a, b in ends if a < b]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        if not self._closed.is_set():
            await self._wait()
        if self._closed.is_set():
            raise StopAsyncIteration
        # A thousand hosts take a second where conditions change; the screen answers meanwhile.
        return await asyncio.to_thread(self.step)

    async def aclose(self) -> None:
        """Ticks end."""
        self._closed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def step(self) -> Tick:
        """The next tick, now."""
        seconds = self._interval_s if self._seq else 0.0
        moved = self.world.advance(seconds)
        self._queued_s = moved.queued_s
        conditions = self.world.conditions
        for host in self._crashed - conditions.crashed:
            name = self.world.hardware.host_names[host]
            self._boots[name] = self._boots.get(name, 0) + 1
            self._counters.reboot(host)
        self._crashed = set(conditions.crashed)
        self._counters.advance(moved, conditions, seconds)
        time_ns = self._start_ns + int(self._seq * self._interval_s * 1e9)
        statuses = self._statuses(time_ns)
        tick = Tick(
            self._seq,
            time_ns,
            hellos=self._new_hellos(),
            frames=self._frames(time_ns),
            statuses=statuses,
        )
        self._seq += 1
        return tick

    async def _wait(self) -> None:
        """Until the next tick is due."""
        if self._speed is None:
            await asyncio.sleep(0)
            return
        now_s = self._clock.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        due_s = self._began_s + self._seq * self._interval_s / self._speed
        waits = [
            asyncio.ensure_future(self._closed.wait()),
            asyncio.ensure_future(self._clock.sleep(due_s - now_s)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _statuses(self, time_ns: int) -> tuple[NodeStatus, ...]:
        """Who is up from the start; who falls silent, is given up, and comes back."""
        if not self._seq:
            names = self._introductions.names
            return tuple(NodeStatus(name, NodeState.UP, time_ns) for name in names)
        told = []
        names = self.world.hardware.host_names
        silent = self.world.conditions.silent
        for host in sorted(silent):
            ticks = self._seq - self._silent_since.setdefault(host, self._seq)
            if ticks == _LOST_AFTER_TICKS:
                reason = "the session ended: no route to host"
                told.append(NodeStatus(names[host], NodeState.LOST, time_ns, reason, "unreachable"))
        for host in sorted(set(self._silent_since) - silent):
            if self._seq - self._silent_since.pop(host) > _LOST_AFTER_TICKS:
                told.append(NodeStatus(names[host], NodeState.UP, time_ns))
                self._hellos.pop(names[host], None)
        return tuple(told)

    def _new_hellos(self) -> tuple[tuple[str, Hello], ...]:
        """The hellos of nodes that have not said one, or have something else to say now."""
        conditions, hardware = self.world.conditions, self.world.hardware
        swapped = conditions.rules.peer != hardware.cabling
        odd = {hardware.node_of(int(port)) for port in swapped.nonzero()[0]}
        odd |= {hardware.node_of(int(port)) for port in conditions.pcie.nonzero()[0]}
        told = []
        silent = {hardware.host_names[host] for host in conditions.silent}
        talk = self._talk_now()
        marks = [talk.mark(host) for host in range(hardware.hosts)]
        for place, name in enumerate(self._introductions.names):
            mark = marks[place] if place < hardware.hosts else 0
            facts = (name in odd, self._boots.get(name, 0), mark)
            if name in silent or self._hellos.get(name) == facts:
                continue
            self._hellos[name] = facts
            told.append((name, self._introductions.hello(name, conditions, facts[1], talk)))
        return tuple(told)

    def _talk_now(self) -> QueuePairReports:
        """Who is connected, made anew when jobs or the flows of faults come and go."""
        connected = self.world.connected
        key = tuple((job, id(flows)) for job, flows in connected)
        if self._talk is None or self._talk[0] != key:
            parts = [(flows, _owner(job)) for job, flows in connected]
            self._talk = (key, QueuePairReports(self.world.hardware, parts))
        return self._talk[1]

    def _frames(self, time_ns: int) -> tuple[tuple[str, Frame], ...]:
        hardware, counters, seq = self.world.hardware, self._counters, self._seq
        silent = self.world.conditions.silent
        mono_ns = int((seq + 1) * self._interval_s * 1e9)
        frames: list[tuple[str, Frame]] = []

        def add(names: list[str], banks: list[CounterTable], quiet: set[int], facts: int) -> None:
            blocks = [bank.rows(seq, mono_ns) for bank in banks]
            probe: list[int | None] = [mono_ns, _PROBE_US * seq, _PROBE_BYTES, 120]
            still: list[list[int | None] | None] = [None] * (facts + hardware.topology.lldp)
            for number, name in enumerate(names):
                if number in quiet:
                    continue
                said = [None if rows is None else rows[number] for rows in blocks]
                frames.append((name, Frame(seq, time_ns, mono_ns, [*said, *still, probe])))

        # Routes, neighbours and the queue pairs of hosts do not tick.
        add(hardware.host_names, counters.hosts, silent, 2)
        if hardware.topology.visible == "all":
            add(hardware.leaf_names, counters.leaves, set(), 1)
            add(hardware.spine_names, counters.spines, set(), 1)
        return tuple(frames)


def _owner(job: int | None) -> Owner:
    """The process on a host that the flows of a job belong to, or those of a fault."""
    if job is None:
        return {"comm": "ib_write_bw", "pid": 52_000}
    return {"comm": "python3", "pid": 41_000 + 100 * job, "job": str(8801 + job)}
