"""Rounds of PromQL queries at one time.

All queries of a round name the same time, a little in the past, when the samples scraped by then
are stored. The read times are queried before the values and again after them: where the two differ,
a sample was stored in between, and that block is used in the next round.

Labels are parsed in threads: a server, and one exporter behind it, can have others in each round.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import INSTANCE_LABEL, KnownMetric
from fabmon.feeds.prometheus.responses import QueryRefused, VectorResult, parse_labels
from fabmon.feeds.prometheus.series_selection import SeriesSelection
from fabmon.feeds.prometheus.series_slots import BlockKey, ReadTimes
from fabmon.feeds.prometheus.series_table import SeriesTable
from fabmon.feeds.scrape.text_format import Floats

_LOG = logging.getLogger("fabmon.feeds")

_MANY_SERIES = 1000
_USUAL_SHARE = 0.8

_MOST_AHEAD_S = 60.0
"""A read may be so much later than the time that was asked for: the agent's clock may be ahead."""

_MOST_PARSED = 262_144
_MOST_KEY_BYTES = 1024
"""What is kept of the labels of states: those of 16,384 nodes with 16 sources; no longer ones."""
_MOST_JOBS = 1024

_READ_TIMES, _FAILED_SOURCES, _UP = "the agents' read times", "the sources that failed", "up"
"""Names of queries in log lines."""
_BAD_TIMES = "times that are not used"


class QueryPlan(NamedTuple):
    """What to query, as the last discovery found it.

    `metrics` are queried of all nodes, `others` of the opened ones. `stampers` are metrics whose
    timestamps are the scrape times of exporters' pages; agents report the read times of their
    sources themselves. `longest_s` is the longest interval between two reads. `is_large`: there are
    many nodes.
    """

    metrics: Sequence[KnownMetric]
    stampers: Sequence[KnownMetric]
    has_agents: bool
    others: Sequence[KnownMetric] = ()
    longest_s: float = 60.0
    is_large: bool = False


class ParsedSeries(NamedTuple):
    """The labels of a series without a port. The target is empty if it is not watched."""

    key: BlockKey
    job: str
    reason: str


class QueryRound(NamedTuple):
    """The result of one round, apart from the values in the table.

    `read_s` are the read times that are settled; the blocks in `unsettled` got a sample during the
    round. `down` has the jobs that Prometheus cannot scrape, by target; `failed` the sources that
    an agent cannot read, with the reason.
    """

    at_s: float
    read_s: ReadTimes
    unsettled: frozenset[BlockKey]
    down: Mapping[str, frozenset[str]]
    failed: Mapping[BlockKey, str]


class QueryRunner:
    """Runs rounds of instant queries according to a plan, and stores the values in the table."""

    def __init__(
        self, client: PrometheusClient, selection: SeriesSelection, table: SeriesTable
    ) -> None:
        self.plan = QueryPlan((), (), has_agents=False)
        self._client = client
        self._selection = selection
        self._table = table
        self._refused: set[str] = set()
        self._logged: set[str] = set()
        # Values that nearly all series of a metric have, as the last full result had them.
        self._usual: dict[str, float] = {}
        # Nodes of which the other metrics of the plan are queried too.
        self.opened: tuple[str, ...] = ()
        self._jobs: set[str] = set()
        self._parsed: dict[bytes, ParsedSeries] = {}

    def use(self, plan: QueryPlan) -> None:
        """Use another plan, and try again what was refused."""
        self.plan = plan
        self._usual.clear()
        self._refused.clear()
        self._logged.clear()
        self._parsed.clear()

    def drop_empty_metrics(self) -> None:
        """Query no metric that no watched node has, until there is another plan."""
        metrics = [metric for metric in self.plan.metrics if self._table.count(metric)]
        self.plan = self.plan._replace(metrics=metrics)

    async def run(self, at_s: float) -> QueryRound:
        """One round at `at_s`, with the values in the table. Raises PrometheusError."""
        before = await self._read_times(at_s)
        down, failed, _ = await asyncio.gather(
            self._down(at_s), self._failed(at_s), self.store_values(self.plan.metrics, at_s)
        )
        after = await self._read_times(at_s)
        unsettled = frozenset(key for key, read_s in after.items() if before.get(key) != read_s)
        settled = {key: read_s for key, read_s in after.items() if key not in unsettled}
        return QueryRound(at_s, settled, unsettled, down, failed)

    async def read_opened(self, at_s: float) -> ReadTimes:
        """Store the values that opened nodes had at a time, and no others; returns their read
        times. Raises PrometheusError."""
        metrics = [*self.plan.metrics, *self.plan.others]
        times = await self._read_times(at_s)
        results = await asyncio.gather(
            *(self._values(metric, at_s, self.opened, is_full=True) for metric in metrics)
        )
        self._table.clear()
        for metric, vector in zip(metrics, results, strict=True):
            await asyncio.to_thread(self._table.store_some, metric, vector.keys, vector.values)
        return {key: read_s for key, read_s in times.items() if key[0] in self.opened}

    async def store_values(self, metrics: Sequence[KnownMetric], at_s: float) -> None:
        """Store the values of some metrics in the table, and no others. Raises PrometheusError."""
        others = self.plan.others if self.opened and metrics is self.plan.metrics else ()
        results = await asyncio.gather(
            *(self._values(metric, at_s) for metric in metrics),
            *(self._values(metric, at_s, self.opened) for metric in others),
        )
        await asyncio.to_thread(self._store, [*metrics, *others], results)

    def _store(self, metrics: Sequence[KnownMetric], results: Sequence[VectorResult]) -> None:
        self._table.clear()
        for metric, vector in zip(metrics, results, strict=True):
            usual = self._usual.get(metric.name)
            if usual is not None:
                self._table.store_unusual(metric, usual, vector.keys, vector.values)
                continue
            self._table.store(metric, vector.keys, vector.values)
            usual = _usual_value(vector.values)
            if usual is not None:
                self._usual[metric.name] = usual

    async def parse_all(self, vector: VectorResult) -> list[tuple[ParsedSeries, float]]:
        """The watched series of a result without ports, and their values."""
        return await asyncio.to_thread(self._parse_all, vector)

    def _parse_all(self, vector: VectorResult) -> list[tuple[ParsedSeries, float]]:
        parsed = zip(map(self.parse, vector.keys), vector.values.tolist(), strict=True)
        return [(series, value) for series, value in parsed if series.key[0]]

    def parse(self, key: bytes) -> ParsedSeries:
        """The block, job and reason in the labels of a series. Raises NotPrometheus."""
        series = self._parsed.get(key)
        if series is None:
            labels = parse_labels(key)
            block = labels.get("source") or labels.get(INSTANCE_LABEL, "")
            target = self._table.target(labels)
            series = ParsedSeries((target, block), labels.get("job", ""), labels.get("reason", ""))
            self._keep_parsed(key, series)
        return series

    def _keep_parsed(self, key: bytes, series: ParsedSeries) -> None:
        """Keep what is in the labels of a series: a server may have others in each result."""
        if len(self._parsed) >= _MOST_PARSED:
            self._parsed.clear()
        if len(key) <= _MOST_KEY_BYTES:
            self._parsed[key] = series

    def _add_job(self, job: str) -> None:
        if len(self._jobs) < _MOST_JOBS:
            self._jobs.add(job)

    async def _values(
        self,
        metric: KnownMetric,
        at_s: float,
        nodes: Sequence[str] = (),
        *,
        is_full: bool = False,
    ) -> VectorResult:
        """The values of a metric; empty, until there is another plan, after a refusal."""
        if metric.name not in self._refused:
            try:
                usual = None if is_full else self._usual.get(metric.name)
                return await self._client.instant(
                    self._selection.values(metric, usual, nodes), at_s
                )
            except QueryRefused as error:
                self._refused.add(metric.name)
                _LOG.warning("%s; %s is not read", error, metric.name)
        return VectorResult([], np.empty(0))

    async def _state(self, name: str, query: str, at_s: float) -> VectorResult:
        """The result of a query on which the state of nodes depends.

        It is empty after a refusal, which is logged once; the next round tries again.
        """
        try:
            return await self._client.instant(query, at_s)
        except QueryRefused as error:
            if name not in self._logged:
                self._logged.add(name)
                _LOG.warning("%s; %s is missing for now", error, name)
            return VectorResult([], np.empty(0))

    async def _read_times(self, at_s: float) -> ReadTimes:
        queries = {
            f"the scrape time of {metric.name}": self._selection.scrape_times(metric)
            for metric in self.plan.stampers
        }
        if self.plan.has_agents:
            queries[_READ_TIMES] = self._selection.agent_read_times()
        results = await asyncio.gather(
            *(self._state(name, query, at_s) for name, query in queries.items())
        )
        times: ReadTimes = {}
        for vector in results:
            for series, read_s in await self.parse_all(vector):
                self._add_job(series.job)
                if self.can_use(read_s, at_s):
                    times[series.key] = max(read_s, times.get(series.key, 0.0))
        return times

    def can_use(self, read_s: float, at_s: float) -> bool:
        """Whether a read time can be that of a sample which is known at `at_s`. Others are left
        out, which is logged once: one of the future would keep its node up for ever."""
        if 0.0 < read_s <= at_s + _MOST_AHEAD_S:
            return True
        if _BAD_TIMES not in self._logged:
            self._logged.add(_BAD_TIMES)
            text = "%s reports a read at %s s since 1970, at %.0f s: such times are not used"
            _LOG.warning(text, self._client.url, read_s, at_s)
        return False

    async def _down(self, at_s: float) -> Mapping[str, frozenset[str]]:
        jobs = self._jobs - {""}
        if not jobs:
            return {}
        found: dict[str, set[str]] = {}
        vector = await self._state(_UP, self._selection.down(jobs), at_s)
        for series, _ in await self.parse_all(vector):
            found.setdefault(series.key[0], set()).add(series.job)
        return {target: frozenset(jobs) for target, jobs in found.items()}

    async def _failed(self, at_s: float) -> Mapping[BlockKey, str]:
        if not self.plan.has_agents:
            return {}
        query = self._selection.failed_sources()
        vector = await self._state(_FAILED_SOURCES, query, at_s)
        return {series.key: series.reason for series, _ in await self.parse_all(vector)}


def _usual_value(values: Floats) -> float | None:
    """The value that nearly all series of a metric have, if there are many: a server takes half the
    time, and this console a tenth, for the others alone."""
    if len(values) < _MANY_SERIES:
        return None
    found, counts = np.unique(values, return_counts=True)
    most = int(np.argmax(counts))
    usual = float(found[most])
    is_usual = counts[most] >= _USUAL_SHARE * len(values) and math.isfinite(usual)
    return usual if is_usual else None
