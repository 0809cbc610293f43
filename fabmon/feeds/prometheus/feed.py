"""The feed from an engine: a look an interval, told as the hellos and frames of its targets."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.names import natural
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Hello, Notice
from fabmon.feeds.log_digest import LogDigest
from fabmon.feeds.prometheus.backfill import Backfill
from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.discovery import Discovery
from fabmon.feeds.prometheus.metric_names import exporters, vocabulary
from fabmon.feeds.prometheus.node_states import NodeStates
from fabmon.feeds.prometheus.queries import QueryRound, QueryRunner, SeriesSelection
from fabmon.feeds.prometheus.responses import PrometheusError
from fabmon.feeds.prometheus.series_table import BlockKey, SeriesTable
from fabmon.feeds.prometheus.target_blocks import PageInterpreter
from fabmon.feeds.ticks import Clock, RealClock, TickSchedule

_LOG = logging.getLogger("fabmon.feeds")

_DEFAULT_INTERVAL_S = 15.0
_SHORTEST_S, _LONGEST_S = 0.5, 300.0
_REDISCOVER_S = 60.0

_SETTLED_S = 0.5
_LONGEST_SETTLED_S = 15.0
_SETTLE_FACTOR = 1.5
_SAME_READ_S = 0.05
"""A clock that moved by less is that of the same read."""


class TickBuilder:
    """Turns looks into the content of ticks: hellos where they are new, frames where clocks are."""

    def __init__(self, table: SeriesTable, interval_s: float, about: Mapping[str, object]) -> None:
        self._table = table
        self._about = {**about, "interval_s": interval_s}
        self._interval_s = interval_s
        self._every: dict[str, int] = {}
        self._last: dict[BlockKey, float] = {}
        self._seq = 0

    def pace(self, interval_s: Mapping[str, float]) -> None:
        """Take how often each source is read; hellos say it in ticks."""
        every = {
            source: max(1, math.ceil(each_s / self._interval_s - 0.2))
            for source, each_s in interval_s.items()
        }
        if every != self._every:
            self._every = every
            self._table.changed.update(self._table.targets)

    def tell(self, look: QueryRound) -> tuple[list[tuple[str, Hello]], list[tuple[str, Frame]]]:
        """What is new in the table since the last look."""
        clocks = {}
        for key, clock in look.clocks.items():
            if clock > self._last.get(key, 0.0) + _SAME_READ_S:
                self._last[key] = clock
                clocks[key] = round(clock * 1e3) * 1_000_000
        self._table.settle()
        blocks = self._table.frames(clocks)
        hellos = [
            (target, self._table.hello(target, self._about, self._every))
            for target in sorted(self._table.changed, key=natural)
        ]
        self._table.changed.clear()
        newest: dict[str, int] = {}
        for (target, _), clock in clocks.items():
            newest[target] = max(clock, newest.get(target, 0))
        frames = [
            (target, Frame(self._seq, newest[target], newest[target], each))
            for target, each in blocks.items()
        ]
        self._seq += 1
        return hellos, frames


class PrometheusFeed:
    """An async iterator of ticks from an engine, one every `interval_s`.

    `open` it first: it finds out what is there and, unless it is told, how often it is scraped,
    which is its interval. `past` are ticks of the time before; the live ones follow.

    `hosts` are the nodes to watch, with their roles and groups, all that the engine has for none.
    `selections` are matchers, any of which a series must match. `node` is the label that names a
    node. `settled_s` is how long ago the engine is asked about at first; where samples still come
    in that late, more.
    """

    def __init__(
        self,
        engine: PrometheusClient,
        *,
        hosts: Sequence[Host] = (),
        selections: Sequence[str] = (),
        node: str = "instance",
        interval_s: float | None = None,
        settled_s: float = _SETTLED_S,
        clock: Clock | None = None,
    ) -> None:
        names = [host.name for host in hosts]
        self.hosts = tuple(hosts)
        self.interval_s = interval_s or _DEFAULT_INTERVAL_S
        self._given_s = interval_s
        self._engine = engine
        self._selections = tuple(selections)
        self._scope = SeriesSelection(selections, node, names)
        self._table = SeriesTable(
            node, PageInterpreter(exporters()), frozenset(names) if names else None
        )
        self._reader = QueryRunner(engine, self._scope, self._table)
        self._discovery = Discovery(engine, self._scope, vocabulary(), self._table, self._reader)
        self._news = LogDigest()
        self._standings = NodeStates(names, self._news)
        self._clock = clock or RealClock()
        self._timeline = TickSchedule(self._clock, self.interval_s, 0.0)
        self._teller = TickBuilder(self._table, self.interval_s, {})
        self._known = set(names)
        self._lost: dict[BlockKey, str] = {}
        self._settled_s = settled_s
        self._discovered_at = -math.inf
        self._trouble = ""
        self._seq = 0
        self._is_live = False
        self._has_looked = False
        self._closed = asyncio.Event()

    @property
    def title(self) -> str:
        """The engine, in a word."""
        return urlsplit(self._engine.url).netloc

    @property
    def nothing(self) -> str:
        """Why nothing is there, and what would help; empty while something is, or nobody looked."""
        if not self._has_looked or any(True for _ in self._table.targets):
            return ""
        asked = " or ".join(f"{{{each}}}" for each in self._selections)
        named = f" of the {len(self.hosts)} nodes named" if self.hosts else ""
        return (
            f"{self._engine.url} has no metrics that fabmon knows{named}"
            f"{f', matching {asked}' if asked else ''}; "
            f"nodes are found by the label {self._scope.node!r} (node_label under [prometheus])"
        )

    async def open(self) -> None:
        """See what the engine has. Raises EngineError."""
        await self._engine.meet()
        await self._discover()
        found = self._discovery.interval_s.values()
        if self._given_s is None:
            measured_s = min(found, default=_DEFAULT_INTERVAL_S)
            self.interval_s = round(min(max(measured_s, _SHORTEST_S), _LONGEST_S), 1)
        self._timeline = TickSchedule(self._clock, self.interval_s, 0.0)
        about = {"probe": f"{self._engine.url}, every {self.interval_s:g} s"}
        self._teller = TickBuilder(self._table, self.interval_s, about)
        self._teller.pace(self._discovery.interval_s)

    async def past(self, seconds: float, *, within_s: float = 3.0) -> AsyncIterator[Tick]:
        """Ticks of the last `seconds`, as many as can be had in `within_s`, the oldest first.

        The last of them makes the first live tick one with rates. Nothing comes where the engine
        does not answer: the live ticks will tell.
        """
        until_s = self._engine.now_s() - self._settled_s - 1.5 * self.interval_s
        try:
            look = await self._reader.look(until_s)
            self._reader.leave_out_what_is_empty()
            self._has_looked = True
            if self.nothing:
                _LOG.warning("%s", self.nothing)
            if seconds:
                past = Backfill(self._engine, self._scope, self._table, self._reader)
                await past.fetch(until_s, self.interval_s, seconds, within_s)
                teller = TickBuilder(past.table, self.interval_s, {})
                teller.pace(self._discovery.interval_s)
                for earlier in past.looks():
                    yield self._tick(earlier, teller, is_past=True)
        except PrometheusError as error:
            _LOG.warning("no history: %s", error)
            return
        yield self._tick(look, self._teller, is_past=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Tick:
        if self._is_live and not self._closed.is_set():
            await self._wait()
        if self._closed.is_set():
            raise StopAsyncIteration
        self._is_live = True
        return await self.look()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. Ticks end."""
        self._closed.set()
        await self._engine.aclose()
        self._news.flush()

    async def look(self) -> Tick:
        """The tick of now, whatever happens."""
        tick = await self._look()
        self._news.flush()
        return tick

    async def _look(self) -> Tick:
        self._engine.warnings.clear()
        try:
            if self._clock.monotonic() - self._discovered_at > _REDISCOVER_S:
                await self._engine.meet()
                await self._discover()
                self._teller.pace(self._discovery.interval_s)
            look = await self._reader.look(self._engine.now_s() - self._settled_s)
        except PrometheusError as error:
            if self._closed.is_set():
                raise StopAsyncIteration from None
            if self._trouble != error.cause:
                self._trouble = error.cause
                _LOG.warning("%s", error)
            now_ns = self._timeline.now_ns()
            statuses = self._standings.engine_lost(str(error), now_ns)
            return self._numbered(Tick(0, now_ns, statuses=tuple(statuses)))
        if self._trouble:
            self._trouble = ""
            _LOG.warning("%s: it answers again", self._engine.url)
        if look.unsettled:
            self._settled_s = min(_LONGEST_SETTLED_S, self._settled_s * _SETTLE_FACTOR)
        return self._tick(look, self._teller)

    async def _discover(self) -> None:
        self._reader.follow(await self._discovery.run(self._engine.now_s() - self._settled_s))
        self._discovered_at = self._clock.monotonic()

    def _tick(self, look: QueryRound, teller: TickBuilder, *, is_past: bool = False) -> Tick:
        time_ns = int(look.at_s * 1e9) if is_past else self._timeline.now_ns()
        hellos, frames = teller.tell(look)
        statuses = self._standings.judge(look, self._periods(), time_ns, is_past=is_past)
        notices = [] if is_past else self._notices(look)
        if not is_past:
            self._table.sweep()
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
        tick = msgspec.structs.replace(tick, seq=self._seq)
        self._seq += 1
        return tick

    def _periods(self) -> dict[str, float]:
        """Seconds between the reads of a target: of its source that is read most often."""
        interval_s = self._discovery.interval_s
        return {
            target: min(
                (interval_s.get(unit, 0.0) for unit in self._table.units(target)),
                default=0.0,
            )
            or max(self.interval_s, _SHORTEST_S)
            for target in self._table.targets
        }

    def _notices(self, look: QueryRound) -> list[tuple[str, Notice]]:
        """Sources that agents cannot read any more, or can again."""
        known = set(self._table.targets)
        told = [
            (target, Notice("lost", source, reason=reason, text="its agent cannot read it"))
            for (target, source), reason in look.lost.items()
            if self._lost.get((target, source)) != reason and target in known
        ]
        told += [
            (target, Notice("recovered", source))
            for target, source in self._lost.keys() - look.lost.keys()
        ]
        self._lost = dict(look.lost)
        return told

    def _new_hosts(self, told: Sequence[str], statuses: Sequence[NodeStatus]) -> list[Host]:
        named = {*told, *(status.node for status in statuses)} - self._known
        self._known |= named
        return [Host(name=name, via="exporters") for name in sorted(named, key=natural)]

    async def _wait(self) -> None:
        """Return when the next tick is due, or the feed is closed."""
        sleep = asyncio.ensure_future(self._clock.sleep(self._timeline.until_next_s()))
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait([sleep, closed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            closed.cancel()
            await asyncio.gather(sleep, closed, return_exceptions=True)
