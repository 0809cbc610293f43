"""The last minutes, by range queries: what is drawn first, and only as much as comes quickly.

The newest window is fetched first and older ones while there is time and room, so that what is had
always reaches up to now. A fabric's past is kept as one array a metric until it is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fabmon.feeds.prometheus import queries
from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import KnownMetric
from fabmon.feeds.prometheus.queries import QueryRound, QueryRunner, ReadTimes, SeriesSelection
from fabmon.feeds.prometheus.responses import MatrixResult, NoResponse, QueryRefused
from fabmon.feeds.prometheus.series_table import BlockKey, SeriesTable

_LOG = logging.getLogger("fabmon.feeds")

_WINDOW_POINTS = 600_000
"""Values asked for at once: some 20 MB of an engine's answers."""

_MOST_POINTS = 3_000_000
"""Values kept until they are told: 24 MB."""

_TOPICS = ("traffic", "state", "pause", "congestion", "error", "drop")
"""What is drawn and judged, the most wanted first."""


class _Window(NamedTuple):
    start_s: float
    values: Sequence[tuple[KnownMetric, MatrixResult]]
    clocks: Sequence[tuple[Sequence[BlockKey], MatrixResult]]


class Backfill:
    """Fetches what was, in a table of its own: it holds fewer metrics than that of now."""

    def __init__(
        self,
        engine: PrometheusClient,
        scope: SeriesSelection,
        now: SeriesTable,
        reader: QueryRunner,
    ) -> None:
        self.table = now.another()
        self._engine = engine
        self._scope = scope
        self._now = now
        self._reader = reader
        self._plan = reader.plan
        self._windows: deque[_Window] = deque()
        self._step_s = 1.0
        self._steps = 0

    async def fetch(self, until_s: float, step_s: float, seconds: float, within_s: float) -> None:
        """Fetch up to `until_s`, in steps, for at most `within_s`. Raises EngineError.

        What was had when the engine stops to answer is kept.
        """
        self._step_s = step_s
        wanted = int(seconds / step_s)
        senses = self._affordable(wanted)
        series = sum(self._now.count(sense) for sense in senses)
        if not series or not wanted:
            return
        self._steps = max(2, min(wanted, _WINDOW_POINTS // series))
        most = max(1, min(wanted, _MOST_POINTS // series) // self._steps)
        try:
            async with asyncio.timeout(within_s):
                for number in range(1, most + 1):
                    start_s = until_s - number * self._steps * step_s
                    self._windows.appendleft(await self._window(senses, start_s))
        except TimeoutError:
            _LOG.info("the engine told the last %g s in time", self.seconds)
        except NoResponse as error:
            _LOG.warning("%s; history of the last %g s only", error, self.seconds)

    @property
    def seconds(self) -> float:
        """How far back it reaches."""
        return len(self._windows) * self._steps * self._step_s

    def looks(self) -> Iterator[QueryRound]:
        """The past look by look, the oldest first; each is in the table while it is the last."""
        while self._windows:
            window = self._windows.popleft()
            for step in range(self._steps):
                self.table.clear()
                for sense, matrix in window.values:
                    places = self.table.places(sense, matrix.keys)
                    self.table.put(places, matrix.values[:, step])
                clocks: ReadTimes = {}
                for keys, matrix in window.clocks:
                    for key, stamp in zip(keys, matrix.values[:, step].tolist(), strict=True):
                        if key[0] and stamp == stamp:
                            clocks[key] = max(stamp, clocks.get(key, 0.0))
                at_s = window.start_s + step * self._step_s
                yield QueryRound(at_s, clocks, frozenset(), {}, {})

    def _affordable(self, steps: int) -> list[KnownMetric]:
        """The most wanted metrics, until there are too many values for one read of all."""
        order = sorted(
            (sense for sense in self._plan.senses if sense.topic in _TOPICS),
            key=lambda sense: _TOPICS.index(sense.topic),
        )
        room, chosen = _MOST_POINTS / max(1, min(steps, 60)), []
        for sense in order:
            room -= self._now.count(sense)
            if room < 0 and sense.topic not in _TOPICS[:2]:
                break
            chosen.append(sense)
        return chosen

    async def _window(self, senses: Sequence[KnownMetric], start_s: float) -> _Window:
        asked = [queries.value(sense, self._scope) for sense in senses]
        asked += [queries.stamp(sense, self._scope) for sense in self._plan.stampers]
        if self._plan.has_agents:
            asked.append(queries.read_at(self._scope))
        answers = await asyncio.gather(*(self._range(query, start_s) for query in asked))
        clocks = [
            ([self._reader.row(key).key for key in matrix.keys], matrix)
            for matrix in answers[len(senses) :]
        ]
        return _Window(start_s, list(zip(senses, answers, strict=False)), clocks)

    async def _range(self, query: str, start_s: float) -> MatrixResult:
        try:
            return await self._engine.range(query, start_s, self._step_s, self._steps)
        except QueryRefused:
            return MatrixResult([], np.empty((0, self._steps)))
