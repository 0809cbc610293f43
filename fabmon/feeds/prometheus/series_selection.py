"""PromQL for the watched series, and the matchers of labels that select them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fabmon.fabric.wire.messages import clean
from fabmon.feeds.prometheus.metric_names import (
    INSTANCE_LABEL,
    SOURCE_AGE_METRIC,
    SOURCE_UP_METRIC,
    KnownMetric,
)
from fabmon.feeds.prometheus.responses import BadAccess

_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RECENT = "5m"


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
