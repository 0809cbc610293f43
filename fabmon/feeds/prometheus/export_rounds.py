"""Rounds by the export of VictoriaMetrics: all samples stored since the last round, in one request.

Samples have their times with them, and a server that knows only the latest value of a series is
asked for nothing twice. What may be late is learned: the export looks back so much further.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence

from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import INSTANCE_LABEL, SOURCE_AGE_METRIC, KnownMetric
from fabmon.feeds.prometheus.queries import ParsedSeries, QueryPlan, QueryRound, QueryRunner
from fabmon.feeds.prometheus.responses import ExportedSamples, parse_exported_labels
from fabmon.feeds.prometheus.series_selection import SeriesSelection
from fabmon.feeds.prometheus.series_slots import BlockKey, ReadTimes
from fabmon.feeds.prometheus.series_table import SeriesTable

_MAX_EXPORT_S = 300.0
"""As far as a query looks back for a series' last sample."""

_DISCOVERY_S = 130.0
"""Long enough for two samples of what is scraped once a minute."""

_OVERLAP_S = 3.0
"""Samples this much older than the last export are exported again: they may have come late."""

_MOST_LATENESS_S = 120.0
_LATE_SHARE = 0.1


class ExportRunner(QueryRunner):
    """Runs rounds according to a plan by the server's export, and stores the values in the table.

    `lateness_s` is how much later than scraped samples were seen to become visible, in seconds.
    """

    def __init__(
        self, client: PrometheusClient, selection: SeriesSelection, table: SeriesTable
    ) -> None:
        super().__init__(client, selection, table)
        self.lateness_s = 0.0
        self._has_jobs = False
        self._incomplete: dict[BlockKey, float] = {}
        self._scraped_s: ReadTimes = {}
        self._overdue: frozenset[BlockKey] = frozenset()
        self._last_export_s = -math.inf

    def use(self, plan: QueryPlan) -> None:
        """Use another plan, and try again what was refused."""
        super().use(plan)
        self._has_jobs = False

    async def run(self, at_s: float) -> QueryRound:
        """One round at `at_s`, with the values in the table. Raises PrometheusError.

        A sample has its time with it; samples of one scrape may still become visible one after the
        other, so an incomplete block is used in the next round.
        """
        if self.plan.stampers and not self._has_jobs:
            await self._read_times(at_s)
            self._has_jobs = True
        longest_s = self.plan.longest_s
        since_s = min(at_s - self._last_export_s, 2 * longest_s)
        seconds = since_s + self.lateness_s + _OVERLAP_S
        down, failed = await asyncio.gather(self._down(at_s), self._failed(at_s))
        ages, scraped, incomplete = await self._exported(at_s, seconds)
        self._last_export_s = at_s
        before, self._scraped_s = self._scraped_s, {**self._scraped_s, **scraped}
        overdue = self._overdue_at(at_s)
        if overdue - self._overdue or not self._scraped_s:
            # Either nodes are down, or their samples come later than the export looks back.
            seen_s = at_s - seconds
            long_s = min(4 * longest_s + _MOST_LATENESS_S, _MAX_EXPORT_S)
            ages, scraped, incomplete = await self._exported(at_s, long_s)
            late_s = [
                seen_s - scraped[key]
                for key in overdue & scraped.keys()
                if scraped[key] > before.get(key, math.inf)
            ]
            if not before and scraped:
                late_s.append(at_s - max(scraped.values()) - longest_s)
            self.lateness_s = min(_MOST_LATENESS_S, self.lateness_s + max([0.0, *late_s]))
            self._scraped_s.update(scraped)
            overdue = self._overdue_at(at_s)
        else:
            new_s = [time_s for key, time_s in scraped.items() if time_s > before.get(key, 0.0)]
            if new_s:
                # An export that looks back further than it has to has more samples to send.
                needed_s = at_s - since_s - _OVERLAP_S - min(new_s)
                self.lateness_s = max(needed_s, self.lateness_s / 2)
        self._overdue = overdue
        settled, waiting = self._settled(ages, scraped, incomplete)
        self._incomplete = waiting
        # A series that ends makes its block incomplete once: that is no reason to query later.
        is_early = len(waiting) > _LATE_SHARE * len(scraped)
        unsettled = frozenset(waiting if is_early else ())
        return QueryRound(at_s, settled, unsettled, down, failed)

    def _settled(
        self,
        ages: Mapping[BlockKey, tuple[float, float]],
        scraped: ReadTimes,
        incomplete: set[BlockKey],
    ) -> tuple[ReadTimes, dict[BlockKey, float]]:
        """The read times of the blocks that are complete, or were not in the round before either;
        and the scrape times of the others, which wait for the next round."""
        settled: ReadTimes = {}
        waiting: dict[BlockKey, float] = {}
        for key, time_s in scraped.items():
            age_s = ages.get(key) if self.plan.has_agents else None
            is_late = key in incomplete or (age_s is not None and age_s[0] != time_s)
            if is_late and self._incomplete.get(key) != time_s:
                waiting[key] = time_s
            elif age_s is not None:
                settled[key] = time_s - age_s[1]
            elif not self._table.is_agents(key):
                settled[key] = time_s
        return settled, waiting

    async def read_opened(self, at_s: float) -> ReadTimes:
        """Store the values that opened nodes had at a time, and no others; returns their read
        times. Raises PrometheusError."""
        metrics = [*self.plan.metrics, *self.plan.others]
        seconds = self.plan.longest_s + _OVERLAP_S
        self._table.clear()
        ages = await self._exported_ages(at_s, seconds, self.opened)
        await self._store_export(metrics, at_s, seconds, self.opened)
        scraped, _ = self._table.exported_times()
        return {
            key: time_s - ages[key][1] if key in ages else time_s
            for key, time_s in self._usable(scraped, at_s).items()
        }

    async def store_values(self, metrics: Sequence[KnownMetric], at_s: float) -> None:
        """Store the values of some metrics in the table, and no others. Raises PrometheusError."""
        self._table.clear()
        await self._store_export(metrics, at_s, _DISCOVERY_S)

    def _overdue_at(self, at_s: float) -> frozenset[BlockKey]:
        """The blocks of which there should have been a new sample."""
        least_s = at_s - 1.5 * self.plan.longest_s - self.lateness_s
        return frozenset(key for key, time_s in self._scraped_s.items() if time_s < least_s)

    async def _exported(
        self, at_s: float, seconds: float
    ) -> tuple[Mapping[BlockKey, tuple[float, float]], ReadTimes, set[BlockKey]]:
        """Store what was scraped in some seconds before `at_s`. Returns when, and how old they were
        then, for the sources of agents; when for each block; and the incomplete blocks."""
        ages, _ = await asyncio.gather(
            self._exported_ages(at_s, seconds), self._store_all_exported(at_s, seconds)
        )
        scraped, incomplete = self._table.exported_times()
        return ages, self._usable(scraped, at_s), incomplete

    def _usable(self, times: ReadTimes, at_s: float) -> ReadTimes:
        return {key: time_s for key, time_s in times.items() if self.can_use(time_s, at_s)}

    async def _store_all_exported(self, at_s: float, seconds: float) -> None:
        self._table.clear()
        await self._store_export(self.plan.metrics, at_s, seconds)
        if self.opened:
            await self._store_export(self.plan.others, at_s, seconds, self.opened)

    async def _store_export(
        self,
        metrics: Sequence[KnownMetric],
        at_s: float,
        seconds: float,
        nodes: Sequence[str] = (),
    ) -> None:
        for is_agents in (True, False):
            known = {each.name: each for each in metrics if each.is_agents is is_agents}
            if not known:
                continue
            names = dict.fromkeys(label for each in known.values() for label in each.labels)
            page = () if is_agents else (INSTANCE_LABEL,)
            labels = list(dict.fromkeys(("__name__", self._table.node, *page, *names)))
            samples = await self._export(known, labels, at_s, seconds, nodes)
            await asyncio.to_thread(self._table.store_exported, known, labels, samples)

    async def _exported_ages(
        self, at_s: float, seconds: float, nodes: Sequence[str] = ()
    ) -> Mapping[BlockKey, tuple[float, float]]:
        """When agents were scraped, and how old their sources were then, by source."""
        if not self.plan.has_agents:
            return {}
        labels = ("__name__", self._table.node, "source", "job")
        samples = await self._export((SOURCE_AGE_METRIC,), labels, at_s, seconds, nodes)
        return await asyncio.to_thread(self._ages, samples, labels, at_s)

    def _ages(
        self, samples: ExportedSamples, labels: Sequence[str], at_s: float
    ) -> Mapping[BlockKey, tuple[float, float]]:
        ages: dict[BlockKey, tuple[float, float]] = {}
        for key, age_s, time_s in zip(
            samples.keys, samples.values.tolist(), samples.times_s.tolist(), strict=True
        ):
            series = self._parse_exported(key, labels)
            self._add_job(series.job)
            is_new = series.key[0] and time_s > ages.get(series.key, (0.0, 0.0))[0]
            if is_new and self.can_use(time_s - age_s, at_s):
                ages[series.key] = (time_s, age_s)
        return ages

    def _parse_exported(self, key: bytes, names: Sequence[str]) -> ParsedSeries:
        series = self._parsed.get(key)
        if series is None:
            labels = parse_exported_labels(key, names) or {}
            target, source = self._table.target(labels), labels.get("source", "")
            series = ParsedSeries((target, source), labels.get("job", ""), "")
            self._keep_parsed(key, series)
        return series

    async def _export(
        self,
        names: Iterable[str],
        labels: Sequence[str],
        at_s: float,
        seconds: float,
        nodes: Sequence[str] = (),
    ) -> ExportedSamples:
        start_s = at_s - min(seconds, _MAX_EXPORT_S)
        selectors = self._selection.exported(names, nodes)
        return await self._client.export(selectors, labels, start_s, at_s)
