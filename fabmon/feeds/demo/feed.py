"""The demo feed: a simulated fabric as ticks, in real time, faster, or as fast as it goes."""

from __future__ import annotations

import asyncio
from typing import Self

from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Hello
from fabmon.feeds.demo.counters import Counters, CounterTable
from fabmon.feeds.demo.hellos import Hellos, Owner, QueuePairReports
from fabmon.feeds.demo.scenario import Scenario
from fabmon.feeds.demo.world import World
from fabmon.feeds.ticks import Clock, RealClock

START_NS = 1_795_270_000_000_000_000
"""2026-11-21 14:06:40 UTC: the default start of simulated time."""

_LOST_AFTER_TICKS = 3
_PROBE_US, _PROBE_BYTES = 940, 19_000_000
_USERS = ("anna", "ben", "carla")


class DemoFeed:
    """An async iterator of ticks, one per `interval_s` of simulated time.

    `speed` is simulated seconds per second; None is as fast as possible, without sleeping. The
    first tick has every node's hello and first frame. The feed does not end by itself. `start_ns`
    is the wall clock of the first tick. Equal scenarios give equal ticks. Raises ScenarioError.
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
        self._node_hellos = Hellos(hardware, self._counters, interval_s)
        self._interval_s = interval_s
        self._speed = speed
        self._start_ns = start_ns
        self._clock = clock or RealClock()
        self._began_s: float | None = None
        self._closed = asyncio.Event()
        self._seq = 0
        self._hellos: dict[str, object] = {}
        self._queue_pairs: tuple[object, QueuePairReports] | None = None
        self._silent_since: dict[int, int] = {}
        self._boots: dict[str, int] = {}
        self._crashed: set[int] = set()
        self._running: tuple[int, ...] | None = None

    @property
    def hosts(self) -> list[Host]:
        """The watched nodes, as a hosts file would list them."""
        return self._node_hellos.hosts()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        if not self._closed.is_set():
            await self._wait()
        if self._closed.is_set():
            raise StopAsyncIteration
        # A thousand hosts take a second where conditions change; the screen answers meanwhile.
        return await asyncio.to_thread(self.step)

    def age_s(self, time_ns: int) -> float:
        """How long ago a simulated time was due; 0 without a schedule."""
        if self._speed is None or self._began_s is None:
            return 0.0
        due_s = self._began_s + (time_ns - self._start_ns) / 1e9 / self._speed
        return max(0.0, self._clock.monotonic() - due_s)

    def reached_speed(self) -> float:
        """Simulated seconds a second since the first tick; 0 before the second one."""
        if self._began_s is None or self._seq <= 1:
            return 0.0
        elapsed_s = max(1e-9, self._clock.monotonic() - self._began_s)
        return (self._seq - 1) * self._interval_s / elapsed_s

    async def aclose(self) -> None:
        """End the feed."""
        self._closed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def step(self) -> Tick:
        """Simulate and return the next tick, without waiting."""
        seconds = self._interval_s if self._seq else 0.0
        moved = self.world.advance(seconds)
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
            jobs=self._new_jobs(time_ns),
        )
        self._seq += 1
        return tick

    async def _wait(self) -> None:
        """Wait until the next tick is due."""
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
        """Changes of state: all nodes up at the start, then nodes lost and recovered."""
        if not self._seq:
            names = self._node_hellos.names
            return tuple(NodeStatus(name, NodeState.UP, time_ns) for name in names)
        changed = []
        names = self.world.hardware.host_names
        silent = self.world.conditions.silent
        for host in sorted(silent):
            ticks = self._seq - self._silent_since.setdefault(host, self._seq)
            if ticks == _LOST_AFTER_TICKS:
                reason = "the session ended: no route to host"
                changed.append(NodeStatus(names[host], NodeState.LOST, time_ns, reason, "no route"))
        for host in sorted(set(self._silent_since) - silent):
            if self._seq - self._silent_since.pop(host) > _LOST_AFTER_TICKS:
                changed.append(NodeStatus(names[host], NodeState.UP, time_ns))
                self._hellos.pop(names[host], None)
        return tuple(changed)

    def _new_hellos(self) -> tuple[tuple[str, Hello], ...]:
        """The hellos of nodes that have sent none, or whose hello has changed."""
        conditions, hardware = self.world.conditions, self.world.hardware
        swapped = conditions.rules.peer != hardware.cabling
        odd = {hardware.node_of(int(port)) for port in swapped.nonzero()[0]}
        odd |= {hardware.node_of(int(port)) for port in conditions.pcie.nonzero()[0]}
        changed = []
        silent = {hardware.host_names[host] for host in conditions.silent}
        queue_pairs = self._connected_pairs()
        versions = [queue_pairs.version(host) for host in range(hardware.hosts)]
        for place, name in enumerate(self._node_hellos.names):
            version = versions[place] if place < hardware.hosts else 0
            facts = (name in odd, self._boots.get(name, 0), version)
            if name in silent or self._hellos.get(name) == facts:
                continue
            self._hellos[name] = facts
            changed.append((name, self._node_hellos.hello(name, conditions, facts[1], queue_pairs)))
        return tuple(changed)

    def _new_jobs(self, time_ns: int) -> JobReport | None:
        """The jobs as a scheduler reports them; None where they are those of the tick before."""
        running = tuple(number for number, _ in self.world.connected if number is not None)
        if running == self._running:
            return None
        self._running = running
        names, jobs = self.world.hardware.host_names, self.world.scenario.job
        reported = [
            Job(
                id=_job_id(number),
                name=jobs[number].name,
                user=_USERS[number % len(_USERS)],
                partition="train",
                nodes=tuple(names[host] for host in self.world.hosts_of[number]),
                start_ns=self._start_ns + int(jobs[number].start * 1e9),
            )
            for number in running
        ]
        return JobReport(source="the simulation", read_ns=time_ns, jobs=tuple(reported))

    def _connected_pairs(self) -> QueuePairReports:
        """The connected queue pairs; computed again when jobs or flows of faults change."""
        connected = self.world.connected
        key = tuple((job, id(flows)) for job, flows in connected)
        if self._queue_pairs is None or self._queue_pairs[0] != key:
            parts = [(flows, _owner(job)) for job, flows in connected]
            self._queue_pairs = (key, QueuePairReports(self.world.hardware, parts))
        return self._queue_pairs[1]

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
                said = [
                    None if rows is None else rows[number]
                    for bank, rows in zip(banks, blocks, strict=True)
                    if banks is not counters.hosts or self._node_hellos.has_source(number, bank)
                ]
                frames.append((name, Frame(seq, time_ns, mono_ns, [*said, *still, probe])))

        # Routes, neighbours and queue pairs are in hellos, not in frames.
        add(hardware.host_names, counters.hosts, silent, 2)
        if hardware.topology.visible == "all":
            add(hardware.leaf_names, counters.leaves, set(), 1)
            add(hardware.spine_names, counters.spines, set(), 1)
        return tuple(frames)


def _owner(job: int | None) -> Owner:
    """The process that the flows of a job, or of a fault, belong to."""
    if job is None:
        return {"comm": "ib_write_bw", "pid": 52_000}
    return {"comm": "python3", "pid": 41_000 + 100 * job, "job": _job_id(job)}


def _job_id(number: int) -> str:
    return str(8801 + number)
