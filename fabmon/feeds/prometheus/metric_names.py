"""The metric names that Prometheus may have and fabmon knows, and which of their labels matter.

`fabmon agent` exports metrics of its own (fabric/openmetrics.py): each series names its port and
source. The metrics of other exporters are in tables (feeds/scrape): there the port of a series is
known only together with the other series of the page, that is of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from collectors.catalog import CATALOG
from collectors.catalog.ethernet import PRIORITIES
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


_ERRORS = (
    *("phy_rx_crc_errors", "phy_rx_symbol_errors", "phy_rx_fec_uncorrectable_blocks"),
    *("phy_rx_errors", "ib_symbol_errors", "ib_link_error_recovery"),
    *("ib_local_link_integrity_errors", "ib_rx_errors", "netdev_rx_errors"),
    *("nvlink_crc_errors", "nvlink_replays", "nvlink_symbol_errors", "nvlink_effective_errors"),
)
_DROPS = (
    *("ib_tx_discards", "ib_vl15_dropped", "netdev_rx_drops", "netdev_tx_drops"),
    *("phy_rx_discards", "phy_tx_discards", "phy_rx_out_of_buffer"),
    *("rdma_out_of_buffer", "rdma_rx_drops", "rdma_tx_drops"),
)


class RecordedSum(NamedTuple):
    """What a recording rule sums by port and source: metrics of the catalog, into one of them."""

    to: str
    parts: tuple[str, ...]


RECORDED: Mapping[str, RecordedSum] = {
    "fabmon:port_errors:sum": RecordedSum("port_errors", _ERRORS),
    "fabmon:port_drops:sum": RecordedSum("port_drops", _DROPS),
    **{
        f"fabmon:port_pause_{way}_{unit}:sum": RecordedSum(
            f"pause_{way}_{metric}",
            (
                f"pause_{way}_{metric}",
                *(f"pfc_{way}_{pfc}_prio{prio}" for prio in PRIORITIES),
            ),
        )
        for way in ("rx", "tx")
        for unit, metric, pfc in (
            ("seconds", "us", "pause_us"),
            ("transitions", "transitions", "transitions"),
        )
    },
}
"""The rules of config/prometheus/fabmon.rules.yml, by the names that they record."""

_OVERVIEW_TOPICS = ("traffic", "state", "pause", "congestion", "error", "drop")
"""Topics of the metrics that the overview and the detectors use."""

_ALWAYS = (
    *("phy_rx_crc_errors", "phy_rx_errors", "ib_rx_errors", "netdev_rx_errors"),
    *("rdma_out_of_buffer", "phy_rx_out_of_buffer", "phy_rx_discards", "rdma_rx_drops"),
)
"""Counters that detectors use one by one, beside the sums."""

_SUMMED_TOPICS = ("pause", "error", "drop")


class KnownMetric(NamedTuple):
    """A metric that fabmon can use.

    `labels` distinguish its series, apart from the label of the target. `topic` is the catalog's.
    `is_agents` says that it is exported by `fabmon agent`, `is_recorded` that a rule records it:
    its time is that of the rule's evaluation.
    """

    name: str
    labels: tuple[str, ...]
    topic: str
    is_agents: bool
    is_recorded: bool = False


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
    for name, rule in RECORDED.items():
        topic = CATALOG[rule.to].topic
        known[name] = KnownMetric(name, _AGENT_LABELS, topic, is_agents=True, is_recorded=True)
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


def overview_metrics(
    metrics: Sequence[KnownMetric],
) -> tuple[list[KnownMetric], list[KnownMetric]]:
    """The metrics of the overview and the findings, and the others.

    Where rules record sums, the counters in them are among the others.
    """
    present = {metric.name for metric in metrics}
    summed = {
        EXPOSED[part].sample
        for name, rule in RECORDED.items()
        if name in present
        for part in rule.parts
    } - {EXPOSED[name].sample for name in _ALWAYS}
    # Beside the sums there are a hundred counters of errors and drops, most parts of others.
    has_sums = bool(summed)
    always = {EXPOSED[name].sample for name in _ALWAYS}
    overview: list[KnownMetric] = []
    others: list[KnownMetric] = []
    for metric in metrics:
        is_part = metric.name in summed or (
            has_sums
            and metric.is_agents
            and metric.topic in _SUMMED_TOPICS
            and metric.name not in always
        )
        is_wanted = metric.topic in _OVERVIEW_TOPICS and (metric.is_recorded or not is_part)
        (overview if is_wanted else others).append(metric)
    return overview, others


def without_sums(metrics: Sequence[KnownMetric]) -> list[KnownMetric]:
    """The metrics without the recorded sums whose parts are among them: on sites where all parts
    are read, a sum is older than they are, by the interval of its rule."""
    present = {metric.name for metric in metrics}
    return [
        metric
        for metric in metrics
        if metric.name not in RECORDED
        or present.isdisjoint(EXPOSED[part].sample for part in RECORDED[metric.name].parts)
    ]


def other_exporters() -> ExporterTables:
    """The tables of all exporters except `fabmon agent`."""
    tables = exporter_tables().by_name
    return ExporterTables({name: table for name, table in tables.items() if name != _AGENT})


def agent_series(name: str, labels: Mapping[str, str]) -> AgentSeries | None:
    """The meaning of a series of an agent; None for one that belongs to no port."""
    rule = RECORDED.get(name)
    known = meant(EXPOSED[rule.to].sample) if rule is not None else meant(name)
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
            used = (*lookup.labels.values(), *lookup.descriptions, group.labels[lookup.by])
            labels.setdefault(prefixed.prefix + lookup.metric, set()).update(used)
    return labels


def _port_labels(group: MetricGroup) -> Iterable[str]:
    identifying = (*group.labels.values(), *group.patterns, *group.descriptions)
    return (*identifying, *group.match, *group.skip)
