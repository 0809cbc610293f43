"""What an engine has of what we know: which metrics, of which targets, read how often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fabmon.feeds.prometheus import queries
from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import (
    EXPORTED_NODE_LABEL,
    NODE_INFO_METRIC,
    NODE_LABEL,
    PORT_INFO_METRIC,
    SOURCE_AGE_METRIC,
    KnownMetric,
)
from fabmon.feeds.prometheus.queries import QueryPlan, QueryRunner, SeriesSelection
from fabmon.feeds.prometheus.responses import Floats, labels
from fabmon.feeds.prometheus.series_table import SeriesTable

_RECENT_S = 600.0

_ASKED_ABOUT = 8
"""Targets whose intervals are found out: the others are alike."""

_MOST_STAMPERS = 16
"""Metrics whose clocks are asked for; a page that has none of them has no clock."""

_SAME_READ_S = 0.05
"""Two scrapes may tell of the same read; its time is told to some milliseconds."""

_OTHER = 1.5
"""An interval has changed when it did by this factor: it is measured, and never twice the same."""

_NUMBERS: Mapping[str, Callable[[str], object]] = {
    "pcie_speed_gtps": float,
    "pcie_width": int,
    "numa_node": int,
    "rdma_port": int,
}
_NO_FACTS = (
    "__name__",
    "job",
    "instance",
    "port",
    "kind",
    "source",
    NODE_LABEL,
    EXPORTED_NODE_LABEL,
)
_NODE_FACTS = ("hostname", "kernel", "probe")


class Discovery:
    """Finds out what to ask for. `interval_s` are seconds between the reads
    of each unit: an agent's source, or an exporter's page by its instance."""

    def __init__(
        self,
        engine: PrometheusClient,
        scope: SeriesSelection,
        vocabulary: Mapping[str, KnownMetric],
        table: SeriesTable,
        reader: QueryRunner,
    ) -> None:
        self.interval_s: dict[str, float] = {}
        self._engine = engine
        self._scope = scope
        self._vocabulary = vocabulary
        self._table = table
        self._reader = reader

    async def run(self, at_s: float) -> QueryPlan:
        """Look around as of `at_s`. Raises EngineError.

        The table knows the series of exporters' pages then; those of agents it learns by looking.
        """
        names = set(await self._engine.names(at_s - _RECENT_S))
        senses = [self._vocabulary[name] for name in sorted(names) if name in self._vocabulary]
        await self._learn_facts(names, at_s)
        seen = set(self._reader.plan.senses)
        unseen = [sense for sense in senses if not (sense.is_agents or sense in seen)]
        await self._reader.values(unseen, at_s)
        senses = [sense for sense in senses if sense.is_agents or self._table.count(sense)]
        stampers = self._stampers(senses)
        plan = QueryPlan(senses, stampers, has_agents=SOURCE_AGE_METRIC in names)
        await self._learn_intervals(plan, at_s)
        return plan

    async def _learn_facts(self, names: set[str], at_s: float) -> None:
        if NODE_INFO_METRIC in names:
            vector = await self._engine.instant(self._scope.either(NODE_INFO_METRIC), at_s)
            for said in map(labels, vector.keys):
                target = self._table.target(said)
                if NODE_LABEL in said and self._scope.node != NODE_LABEL:
                    self._table.relabelled.add(target)
                known = {key: said[key] for key in _NODE_FACTS if said.get(key)}
                self._table.learn(target, None, None, known)
        if PORT_INFO_METRIC in names:
            vector = await self._engine.instant(self._scope.either(PORT_INFO_METRIC), at_s)
            for said in map(labels, vector.keys):
                target = self._table.target(said)
                other = said.get(EXPORTED_NODE_LABEL)
                if other is None and target not in self._table.relabelled:
                    other = said.get(NODE_LABEL)
                self._table.learn(target, other, said.get("port"), _facts(said, self._scope.node))

    def _stampers(self, senses: Iterable[KnownMetric]) -> list[KnownMetric]:
        """The fewest metrics, or nearly, that every page has one of."""
        by_name = {sense.name: sense for sense in senses if not sense.is_agents}
        covers = {name: self._table.coverage(sense) for name, sense in by_name.items()}
        uncovered = set().union(*covers.values())
        chosen: list[KnownMetric] = []
        while uncovered and len(chosen) < _MOST_STAMPERS:
            best = max(covers, key=lambda name: len(covers[name] & uncovered))
            chosen.append(by_name[best])
            uncovered -= covers[best]
        return chosen

    async def _learn_intervals(self, plan: QueryPlan, at_s: float) -> None:
        """From the samples of a few targets, as they were stored."""
        if plan.has_agents:
            found: dict[str, list[float]] = {}
            vector = await self._engine.instant(queries.read_at(self._scope), at_s)
            told = {row.key[0]: None for row, _ in self._reader.rows(vector)}
            some = list(told)[:_ASKED_ABOUT]
            for query in queries.recent(SOURCE_AGE_METRIC, self._scope, some):
                for one in await self._engine.samples(query, at_s):
                    source = labels(one.key).get("source", "")
                    found.setdefault(source, []).extend(_steps(one.times_s - one.values))
            for source, steps in found.items():
                self._learn_interval(source, steps)
        for sense in plan.stampers:
            pages = self._table.coverage(sense)
            targets = list({target for target, _ in pages})[:_ASKED_ABOUT]
            steps = []
            for query in queries.recent(sense.name, self._scope, targets):
                for one in await self._engine.samples(query, at_s):
                    steps += _steps(one.times_s)
            for _, page in pages:
                self._learn_interval(page, steps)

    def _learn_interval(self, unit: str, steps: Sequence[float]) -> None:
        if steps:
            interval_s = float(np.median(steps))
            before_s = self.interval_s.get(unit, 0.0)
            if not before_s / _OTHER < interval_s < before_s * _OTHER:
                self.interval_s[unit] = interval_s


def _facts(said: Mapping[str, str], node: str) -> dict[str, object]:
    """What an info metric says, numbers as numbers."""
    found: dict[str, object] = {}
    for key, text in said.items():
        if text and key not in _NO_FACTS and key != node:
            try:
                found[key] = _NUMBERS.get(key, str)(text)
            except ValueError:
                found[key] = text
    return found


def _steps(times_s: Floats) -> list[float]:
    """Seconds from one read to the next."""
    steps = np.diff(np.sort(times_s))
    return [float(step) for step in steps if step > _SAME_READ_S]
