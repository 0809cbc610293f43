"""One look at an engine: every metric's values, and when each target's sources were read.

All questions of a look name the same time, a little ago, when what was scraped by then is in the
engine. The clocks are asked for before the values and after them: where the two differ, a sample
came late and in between, and that source's turn is the next look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fabmon.feeds.prometheus import questions
from fabmon.feeds.prometheus.answers import Vector, labels
from fabmon.feeds.prometheus.client import Engine
from fabmon.feeds.prometheus.errors import QueryRefused
from fabmon.feeds.prometheus.selector import Scope
from fabmon.feeds.prometheus.table import INSTANCE, Key, Table
from fabmon.feeds.prometheus.vocabulary import Sense

_LOG = logging.getLogger("fabmon.feeds")

_READ_AT, _LOST, _SCRAPED = "the agents' clocks", "what agents cannot read", "up"

Clocks = dict[Key, float]
"""When units were read, in seconds since 1970 by the engine's clock."""


class Plan(NamedTuple):
    """What to ask for: what there is, as found out lately.

    `stampers` are metrics that stand for the scrapes of exporters' pages; agents tell the clocks of
    their sources by themselves.
    """

    senses: Sequence[Sense]
    stampers: Sequence[Sense]
    has_agents: bool


class Row(NamedTuple):
    """What a series without a port is about."""

    key: Key
    job: str
    reason: str


class Look(NamedTuple):
    """What a look found. `clocks` are settled; `unsettled` have a sample that came in between.

    `down` are jobs that the engine cannot scrape, by target; `lost` are sources that an agent
    cannot read, with its reason.
    """

    at_s: float
    clocks: Clocks
    unsettled: frozenset[Key]
    down: Mapping[str, frozenset[str]]
    lost: Mapping[Key, str]


class Reader:
    """Asks the engine what the table needs, as planned."""

    def __init__(self, engine: Engine, scope: Scope, table: Table) -> None:
        self.plan = Plan((), (), has_agents=False)
        self._engine = engine
        self._scope = scope
        self._table = table
        self._refused: set[str] = set()
        self._jobs: set[str] = set()
        self._parsed: dict[bytes, Row] = {}

    def follow(self, plan: Plan) -> None:
        """Ask for other things from now on, and once more for what was refused."""
        self.plan = plan
        self._refused.clear()
        self._parsed.clear()

    def leave_out_what_is_empty(self) -> None:
        """Do not ask again for metrics that no node has that is watched, until another plan."""
        senses = [sense for sense in self.plan.senses if self._table.count(sense)]
        self.plan = self.plan._replace(senses=senses)

    async def look(self, at_s: float) -> Look:
        """The values of `at_s` into the table, and their clocks. Raises EngineError."""
        before = await self._clocks(at_s)
        down, lost, _ = await asyncio.gather(
            self._down(at_s), self._lost(at_s), self.values(self.plan.senses, at_s)
        )
        after = await self._clocks(at_s)
        unsettled = frozenset(key for key, clock in after.items() if before.get(key) != clock)
        settled = {key: clock for key, clock in after.items() if key not in unsettled}
        return Look(at_s, settled, unsettled, down, lost)

    async def values(self, senses: Sequence[Sense], at_s: float) -> None:
        """The values of some metrics into the table, and no others. Raises EngineError."""
        answers = await asyncio.gather(
            *(
                self.permitted(sense.name, questions.value(sense, self._scope), at_s)
                for sense in senses
            )
        )
        self._table.clear()
        for sense, vector in zip(senses, answers, strict=True):
            self._table.put(self._table.places(sense, vector.keys), vector.values)

    async def permitted(self, name: str, query: str, at_s: float) -> Vector:
        """An answer; an empty one to what the engine refuses, until another plan comes."""
        if name not in self._refused:
            try:
                return await self._engine.instant(query, at_s)
            except QueryRefused as error:
                self._refused.add(name)
                _LOG.warning("%s; left out: %s", error, name)
        return Vector([], np.empty(0))

    async def _clocks(self, at_s: float) -> Clocks:
        asked = [
            self.permitted(f"the time of {sense.name}", questions.stamp(sense, self._scope), at_s)
            for sense in self.plan.stampers
        ]
        if self.plan.has_agents:
            asked.append(self.permitted(_READ_AT, questions.read_at(self._scope), at_s))
        clocks: Clocks = {}
        for vector in await asyncio.gather(*asked):
            for row, stamp in self.rows(vector):
                self._jobs.add(row.job)
                clocks[row.key] = max(stamp, clocks.get(row.key, 0.0))
        return clocks

    async def _down(self, at_s: float) -> Mapping[str, frozenset[str]]:
        jobs = self._jobs - {""}
        if not jobs:
            return {}
        vector = await self.permitted(_SCRAPED, questions.scraped(self._scope, jobs), at_s)
        found: dict[str, set[str]] = {}
        for row, is_up in self.rows(vector):
            if not is_up:
                found.setdefault(row.key[0], set()).add(row.job)
        return {target: frozenset(jobs) for target, jobs in found.items()}

    async def _lost(self, at_s: float) -> Mapping[Key, str]:
        if not self.plan.has_agents:
            return {}
        vector = await self.permitted(_LOST, questions.lost(self._scope), at_s)
        return {row.key: row.reason for row, _ in self.rows(vector)}

    def rows(self, vector: Vector) -> list[tuple[Row, float]]:
        """What the series of an answer are about, and their values; of those that are watched."""
        rows = zip(map(self.row, vector.keys), vector.values.tolist(), strict=True)
        return [(row, value) for row, value in rows if row.key[0]]

    def row(self, key: bytes) -> Row:
        """What a series is about; its target is empty when it is not watched."""
        row = self._parsed.get(key)
        if row is None:
            said = labels(key)
            unit = said.get("source") or said.get(INSTANCE, "")
            target = self._table.target(said)
            row = Row((target, unit), said.get("job", ""), said.get("reason", ""))
            self._parsed[key] = row
        return row
