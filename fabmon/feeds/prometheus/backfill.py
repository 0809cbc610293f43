"""The last minutes by range queries, as far as they arrive in time.

The newest window is fetched first, then older ones while there is time and memory, so that what was
fetched always reaches up to now. It is kept as one array per metric until it is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import KnownMetric
from fabmon.feeds.prometheus.queries import QueryRound, QueryRunner
from fabmon.feeds.prometheus.responses import MatrixResult, NoResponse, QueryRefused
from fabmon.feeds.prometheus.series_selection import SeriesSelection
from fabmon.feeds.prometheus.series_slots import BlockKey, ReadTimes
from fabmon.feeds.prometheus.series_table import SeriesTable

_LOG = logging.getLogger("fabmon.feeds")

_WINDOW_VALUES = 600_000
"""Values queried at once: about 20 MB of responses."""

_MAX_VALUES = 3_000_000
"""Values in memory: 24 MB."""

_MIN_STEPS = 60
"""Steps for which a metric must fit into memory to be fetched."""

_TOPICS = ("traffic", "state", "pause", "congestion", "error", "drop")
"""Topics of metrics that the screen and the detectors use, the most important first."""

_REQUIRED_TOPICS = _TOPICS[:2]


class _Window(NamedTuple):
    start_s: float
    values: Sequence[tuple[KnownMetric, MatrixResult]]
    read_times: Sequence[tuple[Sequence[BlockKey], MatrixResult]]


class Backfill:
    """Fetches the past into a table of its own, which has fewer metrics than that of now."""

    def __init__(
        self,
        client: PrometheusClient,
        selection: SeriesSelection,
        now: SeriesTable,
        runner: QueryRunner,
    ) -> None:
        self.table = now.empty_copy()
        self._client = client
        self._selection = selection
        self._now = now
        self._runner = runner
        self._windows: deque[_Window] = deque()
        self._step_s = 1.0
        self._steps = 0

    async def fetch(self, until_s: float, step_s: float, seconds: float, within_s: float) -> None:
        """Fetch up to `until_s`, in steps of `step_s`, for at most `within_s`.

        Raises PrometheusError. If the server stops answering, what was fetched before is kept.
        """
        self._step_s = step_s
        wanted = int(seconds / step_s)
        metrics = self._affordable(wanted)
        series = sum(self._now.count(metric) for metric in metrics)
        if not series or not wanted:
            return
        self._steps = max(2, min(wanted, _WINDOW_VALUES // series))
        windows = max(1, min(wanted, _MAX_VALUES // series) // self._steps)
        try:
            async with asyncio.timeout(within_s):
                for number in range(1, windows + 1):
                    start_s = until_s - number * self._steps * step_s
                    self._windows.appendleft(await self._window(metrics, start_s))
        except TimeoutError:
            _LOG.info("fetched the last %g s of history in time", self.seconds)
        except NoResponse as error:
            _LOG.warning("%s; history has the last %g s only", error, self.seconds)

    @property
    def seconds(self) -> float:
        """How far back the fetched history reaches."""
        return len(self._windows) * self._steps * self._step_s

    def rounds(self) -> Iterator[QueryRound]:
        """The past as rounds of queries, oldest first; the table has the values of the last one."""
        while self._windows:
            window = self._windows.popleft()
            for step in range(self._steps):
                self.table.clear()
                for metric, matrix in window.values:
                    self.table.store(metric, matrix.keys, matrix.values[:, step])
                at_s = window.start_s + step * self._step_s
                read_times: ReadTimes = {}
                for keys, matrix in window.read_times:
                    for key, read_s in zip(keys, matrix.values[:, step].tolist(), strict=True):
                        is_sample = key[0] and read_s == read_s
                        if is_sample and self._runner.can_use(read_s, at_s):
                            read_times[key] = max(read_s, read_times.get(key, 0.0))
                yield QueryRound(at_s, read_times, frozenset(), {}, {})

    def _affordable(self, steps: int) -> list[KnownMetric]:
        """The most important metrics whose values of some minutes fit into memory together."""
        ordered = sorted(
            (metric for metric in self._runner.plan.metrics if metric.topic in _TOPICS),
            key=lambda metric: _TOPICS.index(metric.topic),
        )
        room, chosen = _MAX_VALUES / max(1, min(steps, _MIN_STEPS)), []
        for metric in ordered:
            room -= self._now.count(metric)
            if room < 0 and metric.topic not in _REQUIRED_TOPICS:
                break
            chosen.append(metric)
        return chosen

    async def _window(self, metrics: Sequence[KnownMetric], start_s: float) -> _Window:
        plan = self._runner.plan
        queries = [self._selection.values(metric) for metric in metrics]
        queries += [self._selection.scrape_times(metric) for metric in plan.stampers]
        if plan.has_agents:
            queries.append(self._selection.agent_read_times())
        results = await asyncio.gather(*(self._range(query, start_s) for query in queries))
        read_times = [
            ([self._runner.parse(key).key for key in matrix.keys], matrix)
            for matrix in results[len(metrics) :]
        ]
        return _Window(start_s, list(zip(metrics, results, strict=False)), read_times)

    async def _range(self, query: str, start_s: float) -> MatrixResult:
        try:
            return await self._client.range(query, start_s, self._step_s, self._steps)
        except QueryRefused:
            return MatrixResult([], np.empty((0, self._steps)))
