"""The questions, in PromQL. Each asks for one metric of all targets, and for no label too many."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fabmon.feeds.prometheus.selector import Scope, quoted
from fabmon.feeds.prometheus.table import INSTANCE
from fabmon.feeds.prometheus.vocabulary import AGENT_AGE, AGENT_UP, Sense

_RECENTLY = "5m"


def value(sense: Sense, scope: Scope) -> str:
    """A metric's values, one for each object. The largest, where two replicas scrape a target."""
    page = () if sense.is_agents else (INSTANCE,)
    by = ", ".join(dict.fromkeys([scope.node, *page, *sense.labels]))
    return f"max by ({by}) ({scope.either(sense.name)})"


def stamp(sense: Sense, scope: Scope) -> str:
    """When the pages that have a metric were scraped."""
    stamps = scope.either(sense.name, wrap="timestamp({})")
    by = ", ".join(dict.fromkeys([scope.node, INSTANCE, "job"]))
    return f"max by ({by}) ({stamps})"


def read_at(scope: Scope) -> str:
    """When agents read their sources: they tell how long before the scrape that was."""
    times = scope.either(AGENT_AGE, wrap="(timestamp({}) - {})")
    return f"max by ({scope.node}, source, job) ({times})"


def lost(scope: Scope) -> str:
    """The sources that agents cannot read, and why."""
    return f"max by ({scope.node}, source, reason) (({scope.either(AGENT_UP)}) == 0)"


def scraped(scope: Scope, jobs: Iterable[str]) -> str:
    """Whether the targets of some jobs could be scraped: 1 or 0."""
    wanted = "|".join(re.escape(job) for job in sorted(jobs))
    return f"max by ({scope.node}, job) ({scope.either('up', f'job=~{quoted(wanted)}')})"


def recent(name: str, scope: Scope, targets: Iterable[str]) -> list[str]:
    """The samples of some targets in the last minutes, as they were stored."""
    names = "|".join(re.escape(target) for target in targets)
    restriction = f"{scope.node}=~" + quoted(rf"\[?({names})([].:].*)?")
    return [f"{selector}[{_RECENTLY}]" for selector in scope.pick(name, restriction)]
