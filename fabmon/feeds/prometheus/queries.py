"""Which series are meant: PromQL's matchers, from a person and from what is asked for."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fabmon.fabric.wire.messages import clean
from fabmon.feeds.prometheus.client import BadAccess, PrometheusClient
from fabmon.feeds.prometheus.metric_names import SOURCE_AGE_METRIC, SOURCE_UP_METRIC, KnownMetric
from fabmon.feeds.prometheus.responses import QueryRefused, VectorResult, labels
from fabmon.feeds.prometheus.series_table import INSTANCE, BlockKey, SeriesTable

_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def matchers(text: str) -> str:
    """What a person wrote, `{job="x",cluster=~"a.*"}` or the same without braces, without braces.

    Raises BadAccess for anything else; nothing that is not a matcher gets into a query.
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
                raise BadAccess(f"--match {clean(text)!r}: a comma is missing behind {match[0]!r}")
            at += 1
    return ",".join(parts)


def label(text: str) -> str:
    """A label's name. Raises BadAccess."""
    if _LABEL.fullmatch(text) is None:
        raise BadAccess(f"{clean(text)!r} is not the name of a label")
    return text


class SeriesSelection:
    """What is watched: any of the `selections` (matchers, without braces), and of `only` those.

    `only` are nodes by name, with or without a domain and a port behind them in the label `node`;
    all for none.
    """

    def __init__(self, selections: Sequence[str], node: str, only: Iterable[str] = ()) -> None:
        self.node = node
        names = "|".join(re.escape(name) for name in only)
        restriction = [f"{node}=~{quoted(f'({names})([.:].*)?')}"] if names else []
        self._selections = [_joined(each, *restriction) for each in selections or [""]]

    def pick(self, name: str, *more: str) -> list[str]:
        """Selectors of the metric called `name`; `more` are matchers beside."""
        return [f"{name}{{{_joined(each, *more)}}}" for each in self._selections]

    def either(self, name: str, *more: str, wrap: str = "{}") -> str:
        """An expression for the metric, `{}` in `wrap` being each of its selectors."""
        return " or ".join(wrap.replace("{}", each) for each in self.pick(name, *more))


def _joined(*matchers_: str) -> str:
    return ",".join(each for each in matchers_ if each)


def quoted(text: str) -> str:
    """A string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# The questions, in PromQL. Each asks for one metric of all targets, and for no label too many.


_RECENTLY = "5m"


def value(sense: KnownMetric, scope: SeriesSelection) -> str:
    """A metric's values, one for each object. The largest, where two replicas scrape a target."""
    page = () if sense.is_agents else (INSTANCE,)
    by = ", ".join(dict.fromkeys([scope.node, *page, *sense.labels]))
    return f"max by ({by}) ({scope.either(sense.name)})"


def stamp(sense: KnownMetric, scope: SeriesSelection) -> str:
    """When the pages that have a metric were scraped."""
    stamps = scope.either(sense.name, wrap="timestamp({})")
    by = ", ".join(dict.fromkeys([scope.node, INSTANCE, "job"]))
    return f"max by ({by}) ({stamps})"


def read_at(scope: SeriesSelection) -> str:
    """When agents read their sources: they tell how long before the scrape that was."""
    times = scope.either(SOURCE_AGE_METRIC, wrap="(timestamp({}) - {})")
    return f"max by ({scope.node}, source, job) ({times})"


def lost(scope: SeriesSelection) -> str:
    """The sources that agents cannot read, and why."""
    return f"max by ({scope.node}, source, reason) (({scope.either(SOURCE_UP_METRIC)}) == 0)"


def scraped(scope: SeriesSelection, jobs: Iterable[str]) -> str:
    """Whether the targets of some jobs could be scraped: 1 or 0."""
    wanted = "|".join(re.escape(job) for job in sorted(jobs))
    return f"max by ({scope.node}, job) ({scope.either('up', f'job=~{quoted(wanted)}')})"


def recent(name: str, scope: SeriesSelection, targets: Iterable[str]) -> list[str]:
    """The samples of some targets in the last minutes, as they were stored."""
    names = "|".join(re.escape(target) for target in targets)
    restriction = f"{scope.node}=~" + quoted(rf"\[?({names})([].:].*)?")
    return [f"{selector}[{_RECENTLY}]" for selector in scope.pick(name, restriction)]


# One look at an engine: every metric's values, and when each target's sources were read.
#
# All questions of a look name the same time, a little ago, when what was scraped by then is in the
# engine. The clocks are asked for before the values and after them: where the two differ, a sample
# came late and in between, and that source's turn is the next look.


_LOG = logging.getLogger("fabmon.feeds")

_READ_AT, _LOST, _SCRAPED = "the agents' clocks", "what agents cannot read", "up"

ReadTimes = dict[BlockKey, float]
"""When units were read, in seconds since 1970 by the engine's clock."""


class QueryPlan(NamedTuple):
    """What to ask for: what there is, as found out lately.

    `stampers` are metrics that stand for the scrapes of exporters' pages; agents tell the clocks of
    their sources by themselves.
    """

    senses: Sequence[KnownMetric]
    stampers: Sequence[KnownMetric]
    has_agents: bool


class ParsedSeries(NamedTuple):
    """What a series without a port is about."""

    key: BlockKey
    job: str
    reason: str


class QueryRound(NamedTuple):
    """What a look found. `clocks` are settled; `unsettled` have a sample that came in between.

    `down` are jobs that the engine cannot scrape, by target; `lost` are sources that an agent
    cannot read, with its reason.
    """

    at_s: float
    clocks: ReadTimes
    unsettled: frozenset[BlockKey]
    down: Mapping[str, frozenset[str]]
    lost: Mapping[BlockKey, str]


class QueryRunner:
    """Asks the engine what the table needs, as planned."""

    def __init__(
        self, engine: PrometheusClient, scope: SeriesSelection, table: SeriesTable
    ) -> None:
        self.plan = QueryPlan((), (), has_agents=False)
        self._engine = engine
        self._scope = scope
        self._table = table
        self._refused: set[str] = set()
        self._warned: set[str] = set()
        self._jobs: set[str] = set()
        self._parsed: dict[bytes, ParsedSeries] = {}

    def follow(self, plan: QueryPlan) -> None:
        """Ask for other things from now on, and once more for what was refused."""
        self.plan = plan
        self._refused.clear()
        self._warned.clear()
        self._parsed.clear()

    def leave_out_what_is_empty(self) -> None:
        """Do not ask again for metrics that no node has that is watched, until another plan."""
        senses = [sense for sense in self.plan.senses if self._table.count(sense)]
        self.plan = self.plan._replace(senses=senses)

    async def look(self, at_s: float) -> QueryRound:
        """The values of `at_s` into the table, and their clocks. Raises EngineError."""
        before = await self._clocks(at_s)
        down, lost, _ = await asyncio.gather(
            self._down(at_s), self._lost(at_s), self.values(self.plan.senses, at_s)
        )
        after = await self._clocks(at_s)
        unsettled = frozenset(key for key, clock in after.items() if before.get(key) != clock)
        settled = {key: clock for key, clock in after.items() if key not in unsettled}
        return QueryRound(at_s, settled, unsettled, down, lost)

    async def values(self, senses: Sequence[KnownMetric], at_s: float) -> None:
        """The values of some metrics into the table, and no others. Raises EngineError."""
        answers = await asyncio.gather(
            *(self.permitted(sense.name, value(sense, self._scope), at_s) for sense in senses)
        )
        self._table.clear()
        for sense, vector in zip(senses, answers, strict=True):
            self._table.put(self._table.places(sense, vector.keys), vector.values)

    async def permitted(self, name: str, query: str, at_s: float) -> VectorResult:
        """An answer; an empty one to what the engine refuses, until another plan comes."""
        if name not in self._refused:
            try:
                return await self._engine.instant(query, at_s)
            except QueryRefused as error:
                self._refused.add(name)
                _LOG.warning("%s; left out: %s", error, name)
        return VectorResult([], np.empty(0))

    async def _standing(self, name: str, query: str, at_s: float) -> VectorResult:
        """An answer that nodes stand or fall by: what is refused now is asked again next time."""
        try:
            return await self._engine.instant(query, at_s)
        except QueryRefused as error:
            if name not in self._warned:
                self._warned.add(name)
                _LOG.warning("%s; without it for now: %s", error, name)
            return VectorResult([], np.empty(0))

    async def _clocks(self, at_s: float) -> ReadTimes:
        asked = [
            self._standing(f"the time of {sense.name}", stamp(sense, self._scope), at_s)
            for sense in self.plan.stampers
        ]
        if self.plan.has_agents:
            asked.append(self._standing(_READ_AT, read_at(self._scope), at_s))
        clocks: ReadTimes = {}
        for vector in await asyncio.gather(*asked):
            for row, read_s in self.rows(vector):
                self._jobs.add(row.job)
                clocks[row.key] = max(read_s, clocks.get(row.key, 0.0))
        return clocks

    async def _down(self, at_s: float) -> Mapping[str, frozenset[str]]:
        jobs = self._jobs - {""}
        if not jobs:
            return {}
        vector = await self._standing(_SCRAPED, scraped(self._scope, jobs), at_s)
        found: dict[str, set[str]] = {}
        for row, is_up in self.rows(vector):
            if not is_up:
                found.setdefault(row.key[0], set()).add(row.job)
        return {target: frozenset(jobs) for target, jobs in found.items()}

    async def _lost(self, at_s: float) -> Mapping[BlockKey, str]:
        if not self.plan.has_agents:
            return {}
        vector = await self._standing(_LOST, lost(self._scope), at_s)
        return {row.key: row.reason for row, _ in self.rows(vector)}

    def rows(self, vector: VectorResult) -> list[tuple[ParsedSeries, float]]:
        """What the series of an answer are about, and their values; of those that are watched."""
        rows = zip(map(self.row, vector.keys), vector.values.tolist(), strict=True)
        return [(row, value) for row, value in rows if row.key[0]]

    def row(self, key: bytes) -> ParsedSeries:
        """What a series is about; its target is empty when it is not watched."""
        row = self._parsed.get(key)
        if row is None:
            said = labels(key)
            unit = said.get("source") or said.get(INSTANCE, "")
            target = self._table.target(said)
            row = ParsedSeries((target, unit), said.get("job", ""), said.get("reason", ""))
            self._parsed[key] = row
        return row
