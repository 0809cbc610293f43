"""The metric names that Prometheus may have and fabmon knows, and which of their labels matter.

`fabmon agent` exports metrics of its own (fabric/openmetrics.py): each series names its port and
source. The metrics of other exporters are in tables (feeds/scrape): there the port of a series is
known only together with the other series of the page, that is of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from collectors.catalog import CATALOG
from fabmon.fabric.openmetrics import EXPOSED, PREFIX, meant
from fabmon.feeds.scrape.exporter_tables import ExporterTables, MetricGroup, exporter_tables

SOURCE_AGE_METRIC = f"{PREFIX}source_age_seconds"
"""Seconds from the read of a source to the scrape, as the agent reports them."""

SOURCE_UP_METRIC = f"{PREFIX}source_up"
NODE_INFO_METRIC = f"{PREFIX}node_info"
PORT_INFO_METRIC = f"{PREFIX}port_info"

INSTANCE_LABEL = "instance"
"""The label that distinguishes the pages of exporters; targets may be named by another one."""

NODE_LABEL = "node"
"""The label with which an agent names another node than its own."""

EXPORTED_NODE_LABEL = "exported_node"
"""NODE_LABEL as Prometheus renames it when targets have a label of that name."""

_AGENT = "fabmon"
_AGENT_LABELS = ("port", "object", "kind", "source", NODE_LABEL, EXPORTED_NODE_LABEL)


class KnownMetric(NamedTuple):
    """A metric that fabmon can use.

    `labels` distinguish its series, apart from the label of the target. `topic` is the catalog's.
    `is_agents` says that it is exported by `fabmon agent`.
    """

    name: str
    labels: tuple[str, ...]
    topic: str
    is_agents: bool


class AgentSeries(NamedTuple):
    """A series of an agent: its source, its object, and its metric in the catalog.

    `other` is the node of the port if it is not the target itself. The value times `factor` is in
    the unit of the catalog.
    """

    source: str
    other: str | None
    id: str
    port: str
    kind: str
    metric: str
    factor: float


def known_metrics() -> dict[str, KnownMetric]:
    """Every metric that fabmon can use, by its name in Prometheus."""
    known = {
        shown.sample: KnownMetric(
            shown.sample, _AGENT_LABELS, CATALOG[metric].topic, is_agents=True
        )
        for metric, shown in EXPOSED.items()
        if CATALOG[metric].topic != "probe"
    }
    tables = other_exporters()
    topics: dict[str, str] = {}
    for prefixed in tables.groups:
        for name, rows in prefixed.metrics.items():
            topics.setdefault(name, CATALOG[rows[0].to].topic)
    for name, labels in _labels_by_metric(tables).items():
        # Metrics that only identify ports are needed as often as the state of ports.
        topic = topics.get(name, "state")
        known.setdefault(name, KnownMetric(name, tuple(sorted(labels)), topic, is_agents=False))
    return known


def other_exporters() -> ExporterTables:
    """The tables of all exporters except `fabmon agent`."""
    tables = exporter_tables().by_name
    return ExporterTables({name: table for name, table in tables.items() if name != _AGENT})


def agent_series(name: str, labels: Mapping[str, str]) -> AgentSeries | None:
    """The meaning of a series of an agent; None for one that belongs to no port."""
    known = meant(name)
    source, port = labels.get("source"), labels.get("port")
    if known is None or not source or not port:
        return None
    other = labels.get(EXPORTED_NODE_LABEL) or labels.get(NODE_LABEL) or None
    kind = labels.get("kind") or "ethernet"
    id_ = labels.get("object") or port
    return AgentSeries(source, other, id_, port, kind, known.metric, known.factor)


def _labels_by_metric(tables: ExporterTables) -> dict[str, set[str]]:
    """The labels that the tables use, by metric.

    Metrics of facts are left out: their labels differ between any two targets, so that no two pages
    would have the same series and each would have to be mapped separately.
    """
    labels: dict[str, set[str]] = {}
    for prefixed in tables.groups:
        group = prefixed.group
        for name, rows in prefixed.metrics.items():
            matched = [label for row in rows for label in row.match]
            labels.setdefault(name, set()).update(_port_labels(group), matched)
        for name in group.tested:
            labels.setdefault(prefixed.prefix + name, set()).update(_port_labels(group))
        for lookup in group.lookups:
            used = (*lookup.labels.values(), *lookup.patterns, group.labels[lookup.by])
            labels.setdefault(prefixed.prefix + lookup.metric, set()).update(used)
    return labels


def _port_labels(group: MetricGroup) -> Iterable[str]:
    return (*group.labels.values(), *group.patterns, *group.match, *group.skip)
