"""PromQL for the watched series, and rounds of queries at one time.

All queries of a round name the same time, a little in the past, when the samples scraped by then
are stored. The read times are queried before the values and again after them: where the two differ,
a sample was stored in between, and that block is used in the next round.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fabmon.fabric.wire.messages import clean
from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import (
    INSTANCE_LABEL,
    SOURCE_AGE_METRIC,
    SOURCE_UP_METRIC,
    KnownMetric,
)
from fabmon.feeds.prometheus.responses import (
    BadAccess,
    ExportedSamples,
    QueryRefused,
    VectorResult,
    parse_exported_labels,
    parse_labels,
)
from fabmon.feeds.prometheus.series_table import BlockKey, ReadTimes, SeriesTable
from fabmon.feeds.scrape.text_format import Floats

_LOG = logging.getLogger("fabmon.feeds")

_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RECENT = "5m"

_MAX_EXPORT_S = 300.0
"""As far as a query looks back for a series' last sample."""

_DISCOVERY_S = 130.0
"""Long enough for two samples of what is scraped once a minute."""

_EXPORT_OVERLAP_S = 3.0
"""Samples this much older than the last export are exported again: they may have come late."""

_MOST_LATENESS_S = 120.0
_LATE_SHARE = 0.1

_MANY_SERIES = 1000
_USUAL_SHARE = 0.8

_READ_TIMES, _FAILED_SOURCES, _UP = "the agents' read times", "the sources that failed", "up"
"""Names of queries in log lines."""


def parse_matchers(text: str) -> str:
    """The matchers in `{job="x",cluster=~"a.*"}`, or in the same without braces, without braces.

    Raises BadAccess for anything else, so that nothing but matchers gets into a query.
    """
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    parts, at = [], 0
    while at < len(inner):
        match = _MATCHER.match(inner, at)
        if match is None or match[1] == "__name__":
            raise BadAccess(
                f"--match {clean(text)!r}: write matchers of labels, without a metric's name, as "
                'in {job="fabmon",cluster="a"}'
            )
        parts.append("".join(match.groups()))
        at = match.end()
        if at < len(inner):
            if inner[at] != ",":
                raise BadAccess(f"--match {clean(text)!r}: a comma is missing after {match[0]!r}")
            at += 1
    return ",".join(parts)


def parse_label(text: str) -> str:
    """The name of a label. Raises BadAccess."""
    if _LABEL.fullmatch(text) is None:
        raise BadAccess(f"{clean(text)!r} is not the name of a label")
    return text


class SeriesSelection:
    """The watched series, as PromQL: those that match any of `selections`, of `only` those nodes.

    `selections` are matchers without braces. `only` are names of nodes in the label `node`, where a
    domain or port may follow; empty for all nodes.
    """

    def __init__(self, selections: Sequence[str], node: str, only: Sequence[str] = ()) -> None:
        self.node = node
        restriction = [self._nodes_matcher(only, "(", "")] if only else []
        self._selections = [_joined(each, *restriction) for each in selections or [""]]

    def values(
        self, metric: KnownMetric, unlike: float | None = None, nodes: Sequence[str] = ()
    ) -> str:
        """Query for the values of a metric, or those `unlike` one, of all nodes or of some: the
        largest where two replicas scrape a target."""
        page = () if metric.is_agents else (INSTANCE_LABEL,)
        by = ", ".join(dict.fromkeys([self.node, *page, *metric.labels]))
        of = [self._nodes_matcher(nodes, r"\[?(", "]")] if nodes else []
        query = f"max by ({by}) ({self.any_of(metric.name, *of)})"
        return query if unlike is None else f"{query} != {unlike!r}"

    def scrape_times(self, metric: KnownMetric) -> str:
        """Query for the times at which the pages that have a metric were scraped."""
        times = self.any_of(metric.name, wrap="timestamp({})")
        by = ", ".join(dict.fromkeys([self.node, INSTANCE_LABEL, "job"]))
        return f"max by ({by}) ({times})"

    def agent_read_times(self) -> str:
        """Query for the times at which agents read their sources; they report the age."""
        times = self.any_of(SOURCE_AGE_METRIC, wrap="(timestamp({}) - {})")
        return f"max by ({self.node}, source, job) ({times})"

    def failed_sources(self) -> str:
        """Query for the sources that agents cannot read, and the reasons."""
        return f"max by ({self.node}, source, reason) (({self.any_of(SOURCE_UP_METRIC)}) == 0)"

    def down(self, jobs: Iterable[str]) -> str:
        """Query for the targets of some jobs that could not be scraped."""
        wanted = "|".join(re.escape(job) for job in sorted(jobs))
        up = self.any_of("up", f"job=~{_quoted(wanted)}")
        return f"max by ({self.node}, job) ({up}) == 0"

    def recent(self, name: str, targets: Iterable[str]) -> list[str]:
        """Range selectors for the stored samples of some targets in the last 5 minutes."""
        restriction = self._nodes_matcher(targets, r"\[?(", "]")
        return [f"{selector}[{_RECENT}]" for selector in self._selectors(name, restriction)]

    def exported(self, names: Iterable[str], nodes: Sequence[str] = ()) -> list[str]:
        """Selectors for the series of several metrics, of all nodes or of some."""
        matchers = [f"__name__=~{_quoted('|'.join(sorted(names)))}"]
        if nodes:
            matchers.append(self._nodes_matcher(nodes, r"\[?(", "]"))
        return [f"{{{_joined(*matchers, each)}}}" for each in self._selections]

    def any_of(self, name: str, *matchers: str, wrap: str = "{}") -> str:
        """Expression for the watched series of a metric; `{}` in `wrap` is a selector."""
        found = self._selectors(name, *matchers)
        return " or ".join(wrap.replace("{}", selector) for selector in found)

    def _selectors(self, name: str, *matchers: str) -> list[str]:
        return [f"{name}{{{_joined(each, *matchers)}}}" for each in self._selections]

    def _nodes_matcher(self, names: Iterable[str], before: str, after: str) -> str:
        nodes = "|".join(re.escape(name) for name in names)
        return f"{self.node}=~" + _quoted(f"{before}{nodes})([{after}.:].*)?")


def _joined(*matchers: str) -> str:
    return ",".join(each for each in matchers if each)


def _quoted(text: str) -> str:
    """A string literal of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


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
    """Runs rounds of queries according to a plan, and stores the values in the table."""

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
        self._exporting = False
        # Nodes of which the other metrics of the plan are queried too.
        self.opened: tuple[str, ...] = ()
        self._has_jobs = False
        self._incomplete: dict[BlockKey, float] = {}
        self._scraped_s: ReadTimes = {}
        self._overdue: frozenset[BlockKey] = frozenset()
        self._lateness_s = 0.0
        self._last_export_s = -math.inf
        self._jobs: set[str] = set()
        self._parsed: dict[bytes, ParsedSeries] = {}

    def use(self, plan: QueryPlan) -> None:
        """Use another plan, and try again what was refused."""
        self.plan = plan
        self._has_jobs = False
        self._usual.clear()
        self._refused.clear()
        self._logged.clear()
        self._parsed.clear()

    async def choose_api(self, at_s: float) -> None:
        """Use the server's export of stored samples from now on, where it has one."""
        self._exporting = await self._client.exports(at_s)

    def drop_empty_metrics(self) -> None:
        """Query no metric that no watched node has, until there is another plan."""
        metrics = [metric for metric in self.plan.metrics if self._table.count(metric)]
        self.plan = self.plan._replace(metrics=metrics)

    async def run(self, at_s: float) -> QueryRound:
        """One round at `at_s`, with the values in the table. Raises PrometheusError."""
        if self._exporting:
            return await self._run_export(at_s)
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
        if self._exporting:
            seconds = self.plan.longest_s + _EXPORT_OVERLAP_S
            self._table.clear()
            ages = await self._exported_ages(at_s, seconds, self.opened)
            await self._store_export(metrics, at_s, seconds, self.opened)
            scraped, _ = self._table.exported_times()
            return {
                key: time_s - ages[key][1] if key in ages else time_s
                for key, time_s in scraped.items()
            }
        times = await self._read_times(at_s)
        results = await asyncio.gather(
            *(self._values(metric, at_s, self.opened, is_full=True) for metric in metrics)
        )
        self._table.clear()
        for metric, vector in zip(metrics, results, strict=True):
            self._table.store_some(metric, vector.keys, vector.values)
        return {key: read_s for key, read_s in times.items() if key[0] in self.opened}

    async def _run_export(self, at_s: float) -> QueryRound:
        """A round by the export. A sample has its time with it; samples of one scrape may still
        become visible one after the other, so an incomplete block is used in the next round."""
        if self.plan.stampers and not self._has_jobs:
            await self._read_times(at_s)
            self._has_jobs = True
        longest_s = self.plan.longest_s
        since_s = min(at_s - self._last_export_s, 2 * longest_s)
        seconds = since_s + self._lateness_s + _EXPORT_OVERLAP_S
        self._last_export_s = at_s
        down, failed = await asyncio.gather(self._down(at_s), self._failed(at_s))
        ages, scraped, incomplete = await self._exported(at_s, seconds)
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
            self._lateness_s = min(_MOST_LATENESS_S, self._lateness_s + max([0.0, *late_s]))
            self._scraped_s.update(scraped)
            overdue = self._overdue_at(at_s)
        else:
            new_s = [time_s for key, time_s in scraped.items() if time_s > before.get(key, 0.0)]
            if new_s:
                # An export that looks back further than it has to has more samples to send.
                needed_s = at_s - since_s - _EXPORT_OVERLAP_S - min(new_s)
                self._lateness_s = max(needed_s, self._lateness_s / 2)
        self._overdue = overdue
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
        self._incomplete = waiting
        # A series that ends makes its block incomplete once: that is no reason to query later.
        is_early = len(waiting) > _LATE_SHARE * len(scraped)
        unsettled = frozenset(waiting if is_early else ())
        return QueryRound(at_s, settled, unsettled, down, failed)

    def _overdue_at(self, at_s: float) -> frozenset[BlockKey]:
        """The blocks of which there should have been a new sample."""
        least_s = at_s - 1.5 * self.plan.longest_s - self._lateness_s
        return frozenset(key for key, time_s in self._scraped_s.items() if time_s < least_s)

    async def _exported(
        self, at_s: float, seconds: float
    ) -> tuple[Mapping[BlockKey, tuple[float, float]], ReadTimes, set[BlockKey]]:
        """Store what was scraped in some seconds before `at_s`. Returns when, and how old they were
        then, for the sources of agents; when for each block; and the incomplete blocks."""
        ages, _ = await asyncio.gather(
            self._exported_ages(at_s, seconds), self._store_all_exported(at_s, seconds)
        )
        return ages, *self._table.exported_times()

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
            self._table.store_exported(known, labels, samples)

    async def _exported_ages(
        self, at_s: float, seconds: float, nodes: Sequence[str] = ()
    ) -> Mapping[BlockKey, tuple[float, float]]:
        """When agents were scraped, and how old their sources were then, by source."""
        if not self.plan.has_agents:
            return {}
        labels = ("__name__", self._table.node, "source", "job")
        samples = await self._export((SOURCE_AGE_METRIC,), labels, at_s, seconds, nodes)
        ages: dict[BlockKey, tuple[float, float]] = {}
        for key, age_s, time_s in zip(
            samples.keys, samples.values.tolist(), samples.times_s.tolist(), strict=True
        ):
            series = self._parse_exported(key, labels)
            self._jobs.add(series.job)
            if series.key[0] and time_s > ages.get(series.key, (0.0, 0.0))[0]:
                ages[series.key] = (time_s, age_s)
        return ages

    def _parse_exported(self, key: bytes, names: Sequence[str]) -> ParsedSeries:
        series = self._parsed.get(key)
        if series is None:
            labels = parse_exported_labels(key, names) or {}
            target, source = self._table.target(labels), labels.get("source", "")
            series = ParsedSeries((target, source), labels.get("job", ""), "")
            self._parsed[key] = series
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

    async def store_values(self, metrics: Sequence[KnownMetric], at_s: float) -> None:
        """Store the values of some metrics in the table, and no others. Raises PrometheusError."""
        if self._exporting:
            self._table.clear()
            await self._store_export(metrics, at_s, _DISCOVERY_S)
            return
        others = self.plan.others if self.opened and metrics is self.plan.metrics else ()
        results = await asyncio.gather(
            *(self._values(metric, at_s) for metric in metrics),
            *(self._values(metric, at_s, self.opened) for metric in others),
        )
        metrics = [*metrics, *others]
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

    def parse_all(self, vector: VectorResult) -> list[tuple[ParsedSeries, float]]:
        """The watched series of a result without ports, and their values."""
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
            self._parsed[key] = series
        return series

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
            for series, read_s in self.parse_all(vector):
                self._jobs.add(series.job)
                times[series.key] = max(read_s, times.get(series.key, 0.0))
        return times

    async def _down(self, at_s: float) -> Mapping[str, frozenset[str]]:
        jobs = self._jobs - {""}
        if not jobs:
            return {}
        found: dict[str, set[str]] = {}
        for series, _ in self.parse_all(await self._state(_UP, self._selection.down(jobs), at_s)):
            found.setdefault(series.key[0], set()).add(series.job)
        return {target: frozenset(jobs) for target, jobs in found.items()}

    async def _failed(self, at_s: float) -> Mapping[BlockKey, str]:
        if not self.plan.has_agents:
            return {}
        query = self._selection.failed_sources()
        vector = await self._state(_FAILED_SOURCES, query, at_s)
        return {series.key: series.reason for series, _ in self.parse_all(vector)}
