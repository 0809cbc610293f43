"""What the metrics of an engine mean, and which of their labels matter.

`fabmon agent` says its own names (fabric/openmetrics.py): each series says by itself which port of
which source it counts. What other exporters say is in tables (feeds/scrape): there the series of a
whole page, a target's, are needed to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from collectors.catalog import CATALOG
from fabmon.fabric.openmetrics import EXPOSED, PREFIX, meant
from fabmon.feeds.scrape.exporter_tables import ExporterTables, MetricGroup, exporter_tables

SOURCE_AGE_METRIC = f"{PREFIX}source_age_seconds"
"""Seconds from the read of a source to the scrape, as an agent tells them."""

SOURCE_UP_METRIC = f"{PREFIX}source_up"
NODE_INFO_METRIC = f"{PREFIX}node_info"
PORT_INFO_METRIC = f"{PREFIX}port_info"

NODE_LABEL = "node"
"""The label by which an agent speaks of another node than its own."""

EXPORTED_NODE_LABEL = "exported_node"
"""The same, where the engine gives targets a label of that name."""

_AGENT = "fabmon"


class KnownMetric(NamedTuple):
    """A metric of an engine that means something to us.

    `labels` tell its series apart, beside the target's. `topic` is the catalog's. `is_agents` says
    that it is of `fabmon agent`.
    """

    name: str
    labels: tuple[str, ...]
    topic: str
    is_agents: bool


class AgentSeries(NamedTuple):
    """Where a series of an agent belongs: an object of a source, and a metric of the catalog.

    `other` is the node that it is about when that is not the target itself. A value times `factor`
    is in the catalog's unit.
    """

    source: str
    other: str | None
    id: str
    port: str
    kind: str
    metric: str
    factor: float


def vocabulary() -> dict[str, KnownMetric]:
    """Every metric that means something, by its name in Prometheus."""
    known = {
        shown.sample: KnownMetric(
            shown.sample,
            ("port", "object", "kind", "source", NODE_LABEL, EXPORTED_NODE_LABEL),
            CATALOG[metric].topic,
            is_agents=True,
        )
        for metric, shown in EXPOSED.items()
        if CATALOG[metric].topic != "probe"
    }
    others = exporters()
    labels = _labels(others)
    for name in labels:
        uses = others.uses.get(name, [])
        topics = [CATALOG[row.to].topic for use in uses for row in use.rows]
        # What only helps to tell what a page's series are is needed wherever they are.
        topic = topics[0] if topics else "state"
        known.setdefault(
            name, KnownMetric(name, tuple(sorted(labels[name])), topic, is_agents=False)
        )
    return known


def exporters() -> ExporterTables:
    """The tables of all exporters but our own agent."""
    found = exporter_tables().by_name
    return ExporterTables({name: table for name, table in found.items() if name != _AGENT})


def agent_series(name: str, labels: Mapping[str, str]) -> AgentSeries | None:
    """Where a series of an agent belongs; None for one that is about no port."""
    known = meant(name)
    source, port = labels.get("source"), labels.get("port")
    if known is None or not source or not port:
        return None
    other = labels.get(EXPORTED_NODE_LABEL) or labels.get(NODE_LABEL) or None
    kind = labels.get("kind") or "ethernet"
    id_ = labels.get("object") or port
    return AgentSeries(source, other, id_, port, kind, known.metric, known.factor)


def _labels(found: ExporterTables) -> dict[str, set[str]]:
    """The labels that the tables look at, by metric. Facts are left out: no two targets say the
    same ones, so that each page would have to be understood by itself."""
    labels: dict[str, set[str]] = {}
    for name, uses in found.uses.items():
        for use in uses:
            matched = [label for row in use.rows for label in row.match]
            labels.setdefault(name, set()).update(_ports_labels(use.group), matched)
    for table in found.by_name.values():
        for group in table.groups:
            for prefix in table.prefixes:
                for name in (*group.require, *group.kinds):
                    labels.setdefault(prefix + name, set()).update(_ports_labels(group))
                for lookup in group.lookups:
                    told = (*lookup.labels.values(), *lookup.patterns, group.labels[lookup.by])
                    labels.setdefault(prefix + lookup.metric, set()).update(told)
    return labels


def _ports_labels(group: MetricGroup) -> Iterable[str]:
    return (*group.labels.values(), *group.patterns, *group.match, *group.skip)
