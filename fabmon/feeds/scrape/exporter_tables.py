"""What exporters call the catalog's metrics: one file of rows for each exporter, checked at load.

A table (`tables/*.toml`) has groups; a group is metrics that name what they are about by the same
labels. Its rows map an exporter's metric to one of the catalog. Whether that is a counter or a
gauge is what the catalog says of the metric: what the exporter claims to be a counter or a gauge is
wrong often enough to be ignored.

Keys of a row in TOML:

    name = "ib_tx_bytes"                          the metric, in the catalog's unit already
    name = { to = "ib_rate_bps", factor = 8 }     times 8
    name = [{...}, {...}]                         the first whose `match` fits
    "name_{prio:0-7}" = "metric_prio{prio}"       eight rows, `prio` a role in each

For a metric of the catalog that several rows lead to, the first that the exporter offers is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple

import msgspec

from collectors.catalog import CATALOG
from fabmon.fabric.openmetrics import EXPOSED

_RANGE = re.compile(r"\{(\w+):(\d+)-(\d+)\}")
_ROLES = {
    "rdma": ("device", "port"),
    "netdev": ("netdev",),
    "gpu": ("gpu",),
    "link": ("gpu", "link"),
    "port": ("port",),
}

_OWN_FACTS = ("netdev", "rdma", "link_layer", "driver", "pci", "mac", "guid", "hca_type", "fw_ver")

Shape = Literal["rdma", "netdev", "gpu", "link", "port"]
Join = Literal["first", "sum", "product"]


class TableError(Exception):
    """A table that cannot be used: which file, and what is wrong in it."""


class MetricRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one metric of an exporter is.

    `to` is the catalog's metric; the exporter's value times `factor` is in its unit. `match` maps
    labels, or roles, to patterns that their whole values must fit; what is not there is empty. With
    `join`, all the series that lead to the same value are added or multiplied. `kind` overrides
    that of the group: a counter that only such ports have. `roles` adds to those of the labels.
    """

    to: str
    factor: float = 1.0
    match: dict[str, str] = {}
    join: Join = "first"
    kind: str = ""
    roles: dict[str, str] = {}


class LabelFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric whose labels tell something: the fact's name -> the label that has it.

    The facts go to the `info` of every port that the metric's other labels fit.
    """

    metric: str
    labels: dict[str, str]


class RoleLookup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that tells the roles missing elsewhere: those of `labels`, found by the role `by`.

    `patterns` are as a group's.
    """

    metric: str
    by: str
    labels: dict[str, str]
    patterns: dict[str, str] = {}


class MetricGroup(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"shape": "object"}
):
    """Metrics that name what they are about in the same way.

    `shape` says how a port is called by its roles:

        rdma    `device` and `port`, a number: `mlx5_0`, or `mlx5_0/2` of a device with several
        netdev  `netdev`; the RDMA port's name where it is known to be the same port
        gpu     `gpu`, a number: `gpu0`
        link    `gpu` and `link`, numbers, and the group's `stem`: `gpu0/nv3`
        port    `port` as it is

    Any of them may have a `node` that it is about, of `node_role`. `labels` are role -> label;
    `patterns` label -> pattern whose named groups are roles; `constants` roles that are the same
    everywhere. `match` is as a row's; `skip` leaves out what fits one of its patterns. `require`
    leaves out what has one of those metrics with none of those values, `kinds` maps values of a
    metric to the kind of port that they mean. A value without the labels of some roles is given to
    all ports that the others fit.
    """

    shape: Shape
    kind: str
    rows: dict[str, str | MetricRow | list[MetricRow]]
    prefix: str = ""
    labels: dict[str, str] = {}
    patterns: dict[str, str] = {}
    constants: dict[str, str] = {}
    stem: str = ""
    node_role: str = ""
    match: dict[str, str] = {}
    skip: dict[str, str] = {}
    require: dict[str, list[float]] = {}
    kinds: dict[str, dict[str, str]] = {}
    facts: list[LabelFact] = []
    lookups: list[RoleLookup] = []

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that a port's name is made of."""
        return _ROLES[self.shape]

    def metrics(self) -> dict[str, tuple[MetricRow, ...]]:
        """The exporter's names, whole and with ranges spelled out, and their rows."""
        found: dict[str, tuple[MetricRow, ...]] = {}
        for name, what in self.rows.items():
            given = (
                what
                if isinstance(what, list)
                else [MetricRow(what) if isinstance(what, str) else what]
            )
            for spelled, roles in _spelled(self.prefix + name):
                found[spelled] = tuple(_filled(row, roles) for row in given)
        return found


class ExporterTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"groups": "group"}
):
    """All that is known of one exporter.

    `ports` are the TCP ports it usually listens on. `refresh_s` is how long it may answer from the
    same snapshot: answers that are equal within that time are one answer. `period_s` is how often
    to ask at most, and how long to wait: an answer costs it, or the fabric, that much. `prefixes`
    may stand before any of its names. Values in one of the `blanks`, each a pair of the lowest and
    the highest, mean none.
    """

    name: str
    about: str
    groups: list[MetricGroup]
    ports: list[int] = []
    refresh_s: float = 0.0
    period_s: float = 0.0
    prefixes: tuple[str, ...] = ("",)
    blanks: list[tuple[float, float]] = []


class MetricUse(NamedTuple):
    """One meaning of an exporter's metric."""

    table: ExporterTable
    group: MetricGroup
    rows: tuple[MetricRow, ...]


class PrefixedGroup(NamedTuple):
    """A group as an exporter has it that puts `prefix` before its names; those are in `metrics`."""

    table: ExporterTable
    group: MetricGroup
    prefix: str
    metrics: dict[str, tuple[MetricRow, ...]]


class ExporterTables:
    """Some tables, by the names of the metrics that are in them."""

    def __init__(self, tables: Mapping[str, ExporterTable]) -> None:
        self.by_name = dict(tables)
        self._single: dict[str, ExporterTables] = {}
        self.groups: list[PrefixedGroup] = []
        self.uses: dict[str, list[MetricUse]] = {}
        self.wanted: set[str] = set()
        for table in tables.values():
            for prefix in table.prefixes:
                for group in table.groups:
                    self._add(table, group, prefix)

    def of(self, name: str) -> ExporterTables:
        """Those of one exporter, the same object each time. Raises KeyError for an unknown one."""
        if name not in self._single:
            self._single[name] = ExporterTables({name: self.by_name[name]})
        return self._single[name]

    def _add(self, table: ExporterTable, group: MetricGroup, prefix: str) -> None:
        metrics = {prefix + name: rows for name, rows in group.metrics().items()}
        self.groups.append(PrefixedGroup(table, group, prefix, metrics))
        for name, rows in metrics.items():
            self.uses.setdefault(name, []).append(MetricUse(table, group, rows))
        others = [*group.require, *group.kinds, *(fact.metric for fact in group.facts)]
        others += [lookup.metric for lookup in group.lookups]
        self.wanted.update(metrics, (prefix + name for name in others))

    def at(self, port: int) -> str | None:
        """The exporter that usually listens on a TCP port."""
        found = [name for name, table in self.by_name.items() if port in table.ports]
        return found[0] if len(found) == 1 else None


@cache
def exporter_tables() -> ExporterTables:
    """All tables that come with fabmon, that of its own agent included. Raises TableError."""
    found = {}
    folder = resources.files(__package__).joinpath("tables")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            table = load(file.read_text(encoding="utf-8"), file.name)
            found[table.name] = table
    own = _own()
    return ExporterTables({**found, own.name: own})


def load(text: str, where: str) -> ExporterTable:
    """One table from its TOML. Raises TableError with `where` and what is wrong."""
    try:
        table = msgspec.toml.decode(text, type=ExporterTable)
        for group in table.groups:
            _check(group)
    except (msgspec.DecodeError, ValueError, re.error) as error:
        raise TableError(f"{where}: {error}") from None
    return table


def _check(group: MetricGroup) -> None:
    """Raise ValueError for what the types cannot say, re.error for a pattern that is none."""
    roles = {*group.labels, *group.constants}
    for pattern in group.patterns.values():
        roles.update(re.compile(pattern).groupindex)
    for lookup in group.lookups:
        roles.update(lookup.labels)
        for pattern in lookup.patterns.values():
            roles.update(re.compile(pattern).groupindex)
    for name, rows in group.metrics().items():
        for row in rows:
            if row.to not in CATALOG:
                raise ValueError(f"{name}: the catalog has no {row.to}")
            missing = {*group.roles} - roles - {*row.roles}
            if missing:
                raise ValueError(f"{name}: no label says the {', '.join(sorted(missing))}")
            for pattern in row.match.values():
                re.compile(pattern)
    for pattern in (*group.match.values(), *group.skip.values()):
        re.compile(pattern)


def _own() -> ExporterTable:
    """What `fabmon agent` exports: the whole catalog, by the rule of openmetrics.py."""
    rows: dict[str, str | MetricRow | list[MetricRow]] = {
        shown.sample: MetricRow(name, shown.factor) for name, shown in EXPOSED.items()
    }
    group = MetricGroup(
        shape="port",
        kind="ethernet",
        labels={"port": "port", "kind": "kind", "node": "node"},
        rows=rows,
        facts=[LabelFact("fabmon_port_info", {name: name for name in _OWN_FACTS})],
    )
    return ExporterTable("fabmon", "fabmon agent", [group])


def _spelled(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A name with its range spelled out, and the role that the range fills."""
    match = _RANGE.search(name)
    if match is None:
        yield name, {}
        return
    for number in range(int(match[2]), int(match[3]) + 1):
        yield name.replace(match[0], str(number)), {match[1]: str(number)}


def _filled(row: MetricRow, roles: Mapping[str, str]) -> MetricRow:
    if not roles:
        return row
    to = re.sub(r"\{(\w+)\}", lambda found: roles.get(found[1], found[0]), row.to)
    return msgspec.structs.replace(row, to=to, roles={**roles, **row.roles})
