"""Finds out what Prometheus has: which known metrics, of which targets, read how often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from fabmon.fabric.wire.hello_limits import NOT_TEXT
from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import (
    EXPORTED_NODE_LABEL,
    INSTANCE_LABEL,
    NODE_INFO_METRIC,
    NODE_LABEL,
    PORT_INFO_METRIC,
    SOURCE_AGE_METRIC,
    KnownMetric,
    other_exporters,
    overview_metrics,
    without_sums,
)
from fabmon.feeds.prometheus.queries import QueryPlan, QueryRunner
from fabmon.feeds.prometheus.responses import parse_labels
from fabmon.feeds.prometheus.series_selection import SeriesSelection
from fabmon.feeds.prometheus.series_table import SeriesTable
from fabmon.feeds.scrape.page_coverage import names_coverage
from fabmon.feeds.scrape.text_format import Floats

_RECENT_S = 600.0
"""Metrics that had samples within this time are considered present."""

_SAMPLED_TARGETS = 8
"""Targets whose intervals are measured: those of the others are assumed to be the same."""

_MAX_STAMPERS = 16
"""Metrics whose scrape times are queried; a page without any of them has no read time."""

_LARGE_NODES = 2000
"""With more nodes only the metrics of the overview are queried of all of them."""

_USUAL_INTERVAL_S = 60.0
"""Prometheus' own default, where no interval could be measured."""

SAME_READ_S = 0.05
"""Two scrapes may report the same read, with times that differ by some milliseconds."""

_LONGEST_GAP_S = 300.0
"""The samples by which intervals are measured are of so long: their times are no further apart."""

_INTERVAL_CHANGE = 1.5
"""Factor by which an interval must differ to be a new one: measured intervals always vary."""


class _Number(NamedTuple):
    """A fact that is a number: what reads it, and the smallest that it may be."""

    read: Callable[[str], float]
    least: float


_NUMBERS = {
    "pcie_speed_gtps": _Number(float, 0),
    "pcie_width": _Number(int, 0),
    "numa_node": _Number(int, -1),
    "rdma_port": _Number(int, 0),
}
_LARGEST_NUMBER = 1e6
_NO_FACTS = (
    *("__name__", "job", INSTANCE_LABEL, "port", "kind", "source"),
    *(NODE_LABEL, EXPORTED_NODE_LABEL),
)
_NODE_FACTS = ("hostname", "kernel", "probe")


class Discovery:
    """Finds out what to query.

    `interval_s` has the seconds between two reads by block: a source of agents, or the page of an
    exporter by its instance. `names` are those of all metrics of the server.
    """

    def __init__(
        self,
        client: PrometheusClient,
        selection: SeriesSelection,
        known: Mapping[str, KnownMetric],
        table: SeriesTable,
        runner: QueryRunner,
    ) -> None:
        self.interval_s: dict[str, float] = {}
        self.names: frozenset[str] = frozenset()
        self._client = client
        self._selection = selection
        self._known = known
        self._tables = other_exporters()
        self._table = table
        self._runner = runner

    async def run(self, at_s: float) -> QueryPlan:
        """The plan for what is present at `at_s`. Raises PrometheusError.

        Afterwards the table knows the series of exporters' pages; those of agents are added by the
        first round of queries.
        """
        self.names = names = frozenset(await self._client.names(at_s - _RECENT_S))
        metrics = [self._known[name] for name in sorted(names) if name in self._known]
        coverage = names_coverage(names, self._known.keys(), self._tables)
        if coverage != self._table.coverage:
            self._table.coverage = coverage
            self._table.changed.update(self._table.targets)
        await self._learn_facts(names, at_s)
        overview, others = overview_metrics(metrics)
        await self._learn_pages(overview, at_s)
        overview = [each for each in overview if each.is_agents or self._table.count(each)]
        has_agents = SOURCE_AGE_METRIC in names
        plan = QueryPlan(overview, self._stampers(overview), has_agents, others)
        agents = await self._learn_intervals(plan, at_s)
        plan = plan._replace(longest_s=max(self.interval_s.values(), default=_USUAL_INTERVAL_S))
        if max(agents, sum(1 for _ in self._table.targets)) > _LARGE_NODES:
            return plan._replace(is_large=True)
        await self._learn_pages(others, at_s)
        metrics = [each for each in metrics if each.is_agents or self._table.count(each)]
        return plan._replace(metrics=without_sums(metrics), others=())

    async def _learn_pages(self, metrics: Sequence[KnownMetric], at_s: float) -> None:
        """Add the series of exporters' pages to the table, as far as they are not in the plan."""
        planned = set(self._runner.plan.metrics)
        new = [metric for metric in metrics if not (metric.is_agents or metric in planned)]
        await self._runner.store_values(new, at_s)

    async def _learn_facts(self, names: Set[str], at_s: float) -> None:
        if NODE_INFO_METRIC in names:
            for labels in await self._labels_of(NODE_INFO_METRIC, at_s):
                target = self._table.target(labels)
                if NODE_LABEL in labels and self._selection.node != NODE_LABEL:
                    self._table.relabelled.add(target)
                facts = {key: labels[key] for key in _NODE_FACTS if labels.get(key)}
                self._table.learn(target, None, None, facts)
        if PORT_INFO_METRIC in names:
            for labels in await self._labels_of(PORT_INFO_METRIC, at_s):
                target = self._table.target(labels)
                other = labels.get(EXPORTED_NODE_LABEL)
                if other is None and target not in self._table.relabelled:
                    other = labels.get(NODE_LABEL)
                facts_of_port = _facts(labels, self._selection.node)
                self._table.learn(target, other, labels.get("port"), facts_of_port)

    async def _labels_of(self, name: str, at_s: float) -> list[dict[str, str]]:
        vector = await self._client.instant(self._selection.any_of(name), at_s)
        return list(map(parse_labels, vector.keys))

    def _stampers(self, metrics: Iterable[KnownMetric]) -> list[KnownMetric]:
        """A small set of metrics of which every page has one (greedy set cover)."""
        by_name = {metric.name: metric for metric in metrics if not metric.is_agents}
        blocks = {name: self._table.blocks_with(metric) for name, metric in by_name.items()}
        uncovered = set().union(*blocks.values())
        chosen: list[KnownMetric] = []
        while uncovered and len(chosen) < _MAX_STAMPERS:
            best = max(blocks, key=lambda name: len(blocks[name] & uncovered))
            chosen.append(by_name[best])
            uncovered -= blocks[best]
        return chosen

    async def _learn_intervals(self, plan: QueryPlan, at_s: float) -> int:
        """Measure intervals in the stored samples of some targets. Returns the number of agents."""
        agents = 0
        if plan.has_agents:
            found: dict[str, list[float]] = {}
            vector = await self._client.instant(self._selection.agent_read_times(), at_s)
            parsed = await self._runner.parse_all(vector)
            targets = dict.fromkeys(series.key[0] for series, _ in parsed)
            agents = len(targets)
            some = list(targets)[:_SAMPLED_TARGETS]
            for query in self._selection.recent(SOURCE_AGE_METRIC, some):
                for stored in await self._client.samples(query, at_s):
                    source = parse_labels(stored.key).get("source", "")
                    found.setdefault(source, []).extend(_gaps_s(stored.times_s - stored.values))
            for source, gaps_s in found.items():
                self._learn_interval(source, gaps_s)
        for metric in plan.stampers:
            pages = self._table.blocks_with(metric)
            some = list({target for target, _ in pages})[:_SAMPLED_TARGETS]
            gaps_s = []
            for query in self._selection.recent(metric.name, some):
                for stored in await self._client.samples(query, at_s):
                    gaps_s += _gaps_s(stored.times_s)
            for _, page in pages:
                self._learn_interval(page, gaps_s)
        return agents

    def _learn_interval(self, block: str, gaps_s: Sequence[float]) -> None:
        if gaps_s:
            interval_s = float(np.median(gaps_s))
            before_s = self.interval_s.get(block, 0.0)
            if not before_s / _INTERVAL_CHANGE < interval_s < before_s * _INTERVAL_CHANGE:
                self.interval_s[block] = interval_s


def _facts(labels: Mapping[str, str], node: str) -> dict[str, object]:
    """The facts in the labels of an info metric, numbers as numbers. One that is not what its name
    says is left out."""
    found: dict[str, object] = {}
    for key, text in labels.items():
        if text and key not in _NO_FACTS and key != node:
            number = _NUMBERS.get(key)
            value: object = text
            if number is not None:
                value = _read(number, text)
            elif key in NOT_TEXT:
                continue
            if value is not None:
                found[key] = value
    return found


def _read(number: _Number, text: str) -> float | None:
    try:
        value = number.read(text)
    except ValueError:
        return None
    return value if number.least <= value <= _LARGEST_NUMBER else None


def _gaps_s(times_s: Floats) -> list[float]:
    """Seconds from one read to the next."""
    gaps_s = np.diff(np.sort(times_s[np.isfinite(times_s)]))
    return [float(gap_s) for gap_s in gaps_s if SAME_READ_S < gap_s <= _LONGEST_GAP_S]
