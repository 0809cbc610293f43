"""The feed from Prometheus: one round of queries a tick, as hellos and frames of its targets."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import Host
from fabmon.fabric.names import natural
from fabmon.fabric.tick import LastReads, NodeStatus, Tick
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wire.messages import Notice
from fabmon.feeds.prometheus.backfill import Backfill
from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.collectives import PrometheusCollectives
from fabmon.feeds.prometheus.discovery import Discovery
from fabmon.feeds.prometheus.export_rounds import ExportRunner
from fabmon.feeds.prometheus.metric_names import known_metrics, other_exporters
from fabmon.feeds.prometheus.node_states import NodeStates
from fabmon.feeds.prometheus.queries import QueryRound, QueryRunner
from fabmon.feeds.prometheus.responses import PrometheusError
from fabmon.feeds.prometheus.series_selection import SeriesSelection
from fabmon.feeds.prometheus.series_slots import BlockKey
from fabmon.feeds.prometheus.series_table import FrameBlocks, SeriesTable
from fabmon.feeds.prometheus.target_blocks import PageInterpreter
from fabmon.feeds.prometheus.tick_builder import TickBuilder
from fabmon.feeds.ticks import Clock, TickFeed, TickSchedule, wait_for_any

_LOG = logging.getLogger("fabmon.feeds")

_DEFAULT_INTERVAL_S = 15.0
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 0.5, 300.0
_REDISCOVER_S = 60.0

_MOST_SERIES_OF_PAST = 150_000
"""Beyond this many series the past is left out: a range query takes longer than its result helps,
and its values need as much memory as those of now."""

_DELAY_S = 0.5
_MAX_DELAY_S = 15.0
_DELAY_GROWTH = 1.5
_MAX_OPENED = 4
"""Nodes of which all metrics are queried: the last ones that were opened."""


FrameValues = Sequence[Sequence[int | None] | None]


def fits(blocks: FrameValues, before: FrameValues) -> bool:
    """Whether two frames have the same layout, as far as both have the block."""
    return len(blocks) == len(before) and all(
        one is None or other is None or len(one) == len(other)
        for one, other in zip(blocks, before, strict=True)
    )


def last_reads(blocks: FrameValues, before: FrameValues, time_ns: int) -> LastReads:
    """Two frames of a node as its last two reads; values are unknown where a block is None."""
    widths = [len(one or other or []) for one, other in zip(blocks, before, strict=True)]
    now, known = _words(blocks, widths)
    earlier, known_before = _words(before, widths)
    arrived_ns = np.array([0 if each is None else time_ns for each in blocks], np.int64)
    return LastReads(now, earlier, known, known_before, arrived_ns)


def _words(
    blocks: FrameValues, widths: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The values of a frame, 0 where they are absent, and which are known."""
    values = [
        value
        for block, width in zip(blocks, widths, strict=True)
        for value in ([None] * width if block is None else block)
    ]
    known = np.array([value is not None for value in values], np.bool_)
    return np.array([value or 0 for value in values], np.uint64), known


class PrometheusFeed(TickFeed):
    """An async iterator of ticks from Prometheus, one every `interval_s`.

    Call `open` first: it discovers the metrics, and the scrape interval, which is used unless
    `interval_s` is given. `past` yields ticks of the time before; the live ones follow.

    `hosts` are the nodes to watch, with their roles and groups; none for all nodes that Prometheus
    has. `selections` are matchers; a series must match any of them. `node` is the label that names
    a node. `delay_s` is how far in the past queries are at first; it grows while samples are stored
    later than that.
    """

    def __init__(
        self,
        client: PrometheusClient,
        *,
        hosts: Sequence[Host] = (),
        selections: Sequence[str] = (),
        node: str = "instance",
        interval_s: float | None = None,
        delay_s: float = _DELAY_S,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock, interval_s or _DEFAULT_INTERVAL_S, 0.0)
        names = [host.name for host in hosts]
        wanted = frozenset(names) if names else None
        self.hosts = tuple(hosts)
        self._given_interval_s = interval_s
        self._client = client
        self._selections = tuple(selections)
        self._selection = SeriesSelection(selections, node, names)
        self._table = SeriesTable(node, PageInterpreter(other_exporters()), wanted)
        self._use(QueryRunner(client, self._selection, self._table))
        self._collectives = PrometheusCollectives(client, self._selection)
        self._states = NodeStates(names, self._log_digest)
        self._builder = TickBuilder(self._table, self.interval_s, {})
        self._known_nodes = set(names)
        self._failed_sources: dict[BlockKey, str] = {}
        self._delay_s = delay_s
        self._discovered_at_s = -math.inf
        self._logged_cause = ""
        self._opened_before: set[str] = set()
        self._is_live = False
        self._has_queried = False
        self._has_left_out = False

    @property
    def title(self) -> str:
        """The server's address."""
        return urlsplit(self._client.url).netloc

    @property
    def is_large(self) -> bool:
        """Whether there are so many nodes that only the overview's metrics are read of all."""
        return self._runner.plan.is_large

    @property
    def why_empty(self) -> str:
        """Why there are no nodes, and what to do; empty if there are some, or before a query."""
        if not self._has_queried or any(True for _ in self._table.targets):
            return ""
        matching = " or ".join(f"{{{each}}}" for each in self._selections)
        named = f" of the {len(self.hosts)} nodes named" if self.hosts else ""
        return (
            f"{self._client.url} has no metrics that fabmon knows{named}"
            f"{f', matching {matching}' if matching else ''}; "
            f"nodes are found by the label {self._selection.node!r} (node_label under [prometheus])"
        )

    async def open(self) -> None:
        """Connect and discover the metrics. Raises PrometheusError."""
        await self._client.check()
        if await self._client.exports(self._client.now_s()):
            self._use(ExportRunner(self._client, self._selection, self._table))
        await self._discover()
        found = self._discovery.interval_s.values()
        if self._given_interval_s is None:
            measured_s = min(found, default=_DEFAULT_INTERVAL_S)
            self.interval_s = round(min(max(measured_s, _MIN_INTERVAL_S), _MAX_INTERVAL_S), 1)
        self._schedule = TickSchedule(self._clock, self.interval_s, 0.0)
        self._schedule.on_jump += [self._states.follow_clock, self._rediscover]
        about = {"probe": f"{self._client.url}, every {interval(self.interval_s)}"}
        self._builder = TickBuilder(self._table, self.interval_s, about)
        self._builder.set_intervals(self._discovery.interval_s)

    def _use(self, runner: QueryRunner) -> None:
        self._runner = runner
        self._discovery = Discovery(
            self._client, self._selection, known_metrics(), self._table, runner
        )

    async def past(self, seconds: float, *, within_s: float = 3.0) -> AsyncIterator[Tick]:
        """Ticks of the last `seconds`, as many as arrive in `within_s`, the oldest first.

        With the last of them the first live tick has rates. Without an answer there are none; the
        live ticks report that.
        """
        until_s = self._client.now_s() - self._delay_s - 1.5 * self.interval_s
        try:
            latest = await self._runner.run(until_s)
            self._runner.drop_empty_metrics()
            self._has_queried = True
            if self.why_empty:
                _LOG.warning("%s", self.why_empty)
            if seconds and self._table.size <= _MOST_SERIES_OF_PAST:
                backfill = Backfill(self._client, self._selection, self._table, self._runner)
                await backfill.fetch(until_s, self.interval_s, seconds, within_s)
                builder = TickBuilder(backfill.table, self.interval_s, {})
                builder.set_intervals(self._discovery.interval_s)
                for earlier in backfill.rounds():
                    yield await self._tick(earlier, builder, is_past=True)
                self._table.continue_clocks(backfill.table)
        except PrometheusError as error:
            _LOG.warning("no history: %s", error)
            return
        yield await self._tick(latest, self._builder, is_past=True)

    async def __anext__(self) -> Tick:
        if self._is_live and not self._closed.is_set():
            await wait_for_any(self._clock, self._schedule.until_next_s(), self._closed)
        if self._closed.is_set():
            raise StopAsyncIteration
        self._is_live = True
        return await self.poll()

    async def poll(self) -> Tick:
        """The tick of now, without waiting; also when Prometheus does not answer."""
        tick = await self._next_tick()
        self._log_digest.flush()
        return tick

    async def aclose(self) -> None:
        """Close all connections. The iterator ends."""
        self._closed.set()
        await self._client.aclose()
        self._log_digest.flush()

    def _rediscover(self, _: int) -> None:
        """The wall clock was set: the difference to the server's is another one."""
        self._discovered_at_s = -math.inf

    async def _next_tick(self) -> Tick:
        self._schedule.now_ns()  # Whether the clock was set, before the server is asked by it.
        try:
            if self._clock.monotonic() - self._discovered_at_s > _REDISCOVER_S:
                await self._client.check()
                await self._discover()
                self._builder.set_intervals(self._discovery.interval_s)
            at_s = self._client.now_s() - self._delay_s
            before = await self._read_newly_opened(at_s - self.interval_s)
            result = await self._runner.run(at_s)
            collectives = await self._collectives.report(self._discovery.names, at_s)
        except PrometheusError as error:
            if self._closed.is_set():
                raise StopAsyncIteration from None
            if self._logged_cause != error.cause:
                self._logged_cause = error.cause
                _LOG.warning("%s", error)
            now_ns = self._schedule.now_ns()
            statuses = self._states.prometheus_lost(str(error), now_ns)
            return self._numbered(Tick(0, now_ns, statuses=tuple(statuses)))
        if self._logged_cause:
            self._logged_cause = ""
            _LOG.warning("%s: the server answers again", self._client.url)
        if result.unsettled:
            self._delay_s = min(_MAX_DELAY_S, self._delay_s * _DELAY_GROWTH)
        tick = await self._tick(result, self._builder)
        if collectives is not None:
            tick = msgspec.structs.replace(tick, collectives=collectives)
        reads = [
            (node, last_reads(frame.blocks, before[node], tick.time_ns))
            for node, frame in tick.frames
            if node in before and fits(frame.blocks, before[node])
        ]
        return msgspec.structs.replace(tick, reads=tuple(reads)) if reads else tick

    def data_age_s(self) -> float:
        """How old the last samples of half of the nodes are; 0 before any."""
        newest_s = self._states.median_read_s()
        return 0.0 if newest_s is None else max(0.0, self._client.now_s() - newest_s)

    def open_node(self, node: str) -> None:
        """Query all metrics of a node from the next tick on, as those of the last few opened."""
        opened = [each for each in self._runner.opened if each != node]
        self._runner.opened = (*opened[1 - _MAX_OPENED :], node)

    async def _read_newly_opened(self, at_s: float) -> dict[str, FrameBlocks]:
        """The blocks that newly opened nodes had a tick ago: with new series their hello changes,
        and without a read before it they would have no rates in this tick."""
        new = set(self._runner.opened) - self._opened_before
        self._opened_before = set(self._runner.opened)
        if not new or not self._runner.plan.others:
            return {}
        times = await self._runner.read_opened(at_s)
        self._table.settle()
        read_ns = {key: round(each_s * 1e3) * 1_000_000 for key, each_s in times.items()}
        return {node: blocks for node, blocks in self._table.frames(read_ns).items() if node in new}

    async def _discover(self) -> None:
        self._runner.use(await self._discovery.run(self._client.now_s() - self._delay_s))
        self._discovered_at_s = self._clock.monotonic()

    async def _tick(
        self, result: QueryRound, builder: TickBuilder, *, is_past: bool = False
    ) -> Tick:
        time_ns = int(result.at_s * 1e9) if is_past else self._schedule.now_ns()
        # In a thread: the first hello of the largest nodes takes seconds.
        hellos, frames = await asyncio.to_thread(builder.build, result)
        statuses = self._states.update(
            result, self._periods(), time_ns, builder.refused, is_past=is_past
        )
        notices = [] if is_past else self._notices(result)
        if not is_past:
            await asyncio.to_thread(self._table.sweep)
        if self._table.left_out and not self._has_left_out:
            self._has_left_out = True
            text = "%s has more nodes, or series of a node, than are read: %d series are left out"
            _LOG.warning(text, self._client.url, self._table.left_out)
        hosts = self._new_hosts([name for name, _ in hellos], statuses)
        return self._numbered(
            Tick(
                0,
                time_ns,
                hellos=tuple(hellos),
                frames=tuple(frames),
                statuses=tuple(statuses),
                notices=tuple(notices),
                hosts=tuple(hosts),
            )
        )

    def _numbered(self, tick: Tick) -> Tick:
        jumped_ns = self._schedule.take_jumped_ns()
        tick = msgspec.structs.replace(tick, seq=self._seq, clock_jumped_ns=jumped_ns)
        self._seq += 1
        return tick

    def _periods(self) -> dict[str, float]:
        """Seconds between two reads by target: those of the block that is read most often."""
        interval_s = self._discovery.interval_s
        return {
            target: min(
                (interval_s.get(block, 0.0) for block in self._table.blocks(target)),
                default=0.0,
            )
            or max(self.interval_s, _MIN_INTERVAL_S)
            for target in self._table.targets
        }

    def _notices(self, result: QueryRound) -> list[tuple[str, Notice]]:
        """Notices of sources that agents can no longer read, or can read again."""
        known = set(self._table.targets)
        notices = [
            (target, Notice("lost", source, reason=reason, text="its agent cannot read it"))
            for (target, source), reason in result.failed.items()
            if self._failed_sources.get((target, source)) != reason and target in known
        ]
        notices += [
            (target, Notice("recovered", source))
            for target, source in self._failed_sources.keys() - result.failed.keys()
        ]
        self._failed_sources = dict(result.failed)
        return notices

    def _new_hosts(self, targets: Sequence[str], statuses: Sequence[NodeStatus]) -> list[Host]:
        new = {*targets, *(status.node for status in statuses)} - self._known_nodes
        self._known_nodes |= new
        return [Host(name=name, via="exporters") for name in sorted(new, key=natural)]
