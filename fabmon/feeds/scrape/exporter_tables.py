"""The tables that map metrics of exporters to the catalog: one TOML file for each exporter.

A table (`tables/*.toml`) has groups. A group is a set of metrics that identify their port by the
same labels; its rows map each of them to a metric of the catalog. Whether a metric is a counter or
a gauge is taken from the catalog, because the TYPE that exporters declare is often wrong.

Keys of a row in TOML:

    name = "ib_tx_bytes"                          in the unit of the catalog already
    name = { to = "ib_rate_bps", factor = 8 }     multiplied by 8
    name = [{...}, {...}]                         the first row whose `match` and `beside` fit
    "name_{prio:0-7}" = "metric_prio{prio}"       eight rows, `prio` a role in each

Where several rows map to the same metric of the catalog, the first that the exporter has is used.
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

_AGENT_FACTS = (
    "netdev",
    "rdma",
    "link_layer",
    "driver",
    "pci",
    "mac",
    "guid",
    "hca_type",
    "fw_ver",
)

Shape = Literal["rdma", "netdev", "gpu", "link", "port"]
Join = Literal["first", "sum", "product", "largest"]


class TableError(Exception):
    """A table that cannot be used; the message names the file and the error in it."""


class MetricRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mapping of one metric of an exporter.

    `to` is the metric of the catalog; the exporter's value times `factor` is in its unit. `match`
    maps labels or roles to patterns that must match their whole value; a label that is missing has
    an empty value. `beside` has full names of metrics, one of which the page must have: those of a
    version of the exporter. With `join`, all series that map to the same value are added or
    multiplied, or the largest is used. A value of `stuck` is the maximum of a counter that
    saturates: no value. `kind` overrides the kind of port of the group, for a counter that only
    such ports have. `roles` adds to the roles of the labels.
    """

    to: str
    factor: float = 1.0
    match: dict[str, str] = {}
    beside: list[str] = []
    join: Join = "first"
    kind: str = ""
    roles: dict[str, str] = {}
    stuck: float | None = None


class LabelFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric whose labels carry facts: name of the fact -> label.

    The facts are added to the `info` of every port that matches the metric's other labels.
    """

    metric: str
    labels: dict[str, str]


class RoleLookup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that supplies roles missing elsewhere: those of `labels`, looked up by role `by`.

    `descriptions` are as in a group.
    """

    metric: str
    by: str
    labels: dict[str, str] = {}
    descriptions: list[str] = []


class PageNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a page with one of the metrics `present` and none of `absent` does not show: a sentence.

    Names are full ones.
    """

    text: str
    present: list[str]
    absent: list[str]


class MetricGroup(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"shape": "object"}
):
    """Metrics that identify their port in the same way.

    `shape` says how the name of a port is made from its roles:

        rdma    `device` and `port`, a number: `mlx5_0`, or `mlx5_0/2` of a device with several
        netdev  `netdev`; the RDMA port's name where it is known to be the same port
        gpu     `gpu`, a number: `gpu0`
        link    `gpu` and `link`, numbers, and the group's `stem`: `gpu0/nv3`
        port    `port`, unchanged

    Each may have a role `node`, another node than the one scraped, with `node_role`. `labels` maps
    roles to labels, `patterns` maps labels to patterns whose named groups are roles, `descriptions`
    are labels with the node description of an HCA, for the roles `node` and `device`, `constants`
    has roles with a fixed value. `match` is as in a row; `skip` leaves out series that match one of
    its patterns. `require` leaves out ports that have one of its metrics with another value than
    those listed. `prefer` does so too, unless the port has all of `hardware`, or it would leave out
    every port; a port whose metrics `unstacked` differ is on top of another interface. `kinds` maps
    values of a metric to the kind of port. A value that lacks the labels of some roles is given to
    all ports that match its other roles.
    """

    shape: Shape
    kind: str
    rows: dict[str, str | MetricRow | list[MetricRow]]
    prefix: str = ""
    labels: dict[str, str] = {}
    patterns: dict[str, str] = {}
    descriptions: list[str] = []
    constants: dict[str, str] = {}
    stem: str = ""
    node_role: str = ""
    match: dict[str, str] = {}
    skip: dict[str, str] = {}
    require: dict[str, list[float]] = {}
    prefer: dict[str, list[float]] = {}
    hardware: dict[str, list[float]] = {}
    unstacked: list[str] = []
    kinds: dict[str, dict[str, str]] = {}
    facts: list[LabelFact] = []
    lookups: list[RoleLookup] = []

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles in the name of a port."""
        return _ROLES[self.shape]

    @property
    def tested(self) -> list[str]:
        """The metrics whose values decide which ports there are, and of which kind."""
        refusing = (*self.require, *self.prefer, *self.hardware, *self.unstacked)
        return [*refusing, *self.kinds]

    def metrics(self) -> dict[str, tuple[MetricRow, ...]]:
        """Full metric names, with ranges expanded -> rows."""
        found: dict[str, tuple[MetricRow, ...]] = {}
        for name, value in self.rows.items():
            rows = value if isinstance(value, list) else [value]
            for expanded, roles in _expanded(self.prefix + name):
                found[expanded] = tuple(
                    _filled(MetricRow(row) if isinstance(row, str) else row, roles) for row in rows
                )
        return found


class ExporterTable(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"groups": "group", "notes": "note"},
):
    """The mapping of one exporter.

    `ports` are the TCP ports it usually listens on. `refresh_s` is how long it may serve the same
    snapshot: equal pages within that time are one sample. `sign_of_reading` is a metric that has
    another value whenever the exporter reads the counters for a scrape. `period_s` is the shortest
    time between two scrapes, and their timeout, of an exporter whose page is expensive for it or
    for the fabric. Any of `prefixes` may precede its metric names. A value within one of `blanks`,
    pairs of the lowest and the highest, means that there is no value. Metric names that begin as
    one of `covers` (those of its groups' prefixes by default) are this exporter's, whether a row
    maps them or not.
    """

    name: str
    about: str
    groups: list[MetricGroup]
    notes: list[PageNote] = []
    ports: list[int] = []
    refresh_s: float = 0.0
    sign_of_reading: str = ""
    period_s: float = 0.0
    prefixes: tuple[str, ...] = ("",)
    blanks: list[tuple[float, float]] = []
    covers: list[str] = []

    def covered(self) -> tuple[str, ...]:
        """The beginnings of this exporter's metric names, with every prefix."""
        stems = {*self.covers, *(group.prefix for group in self.groups if group.prefix)}
        return tuple(sorted(prefix + stem for prefix in self.prefixes for stem in stems))


class PrefixedGroup(NamedTuple):
    """A group with one of its table's prefixes; `metrics` are by the full names."""

    table: ExporterTable
    group: MetricGroup
    prefix: str
    metrics: dict[str, tuple[MetricRow, ...]]


class ExporterTables:
    """Some tables, and all metric names in them.

    `groups` has every group with every prefix. `wanted` are all metric names that are needed, those
    for facts and lookups included; `covered` maps each of them to its exporter, `stems` the
    beginnings of an exporter's names to it.
    """

    def __init__(self, tables: Mapping[str, ExporterTable]) -> None:
        self.by_name = dict(tables)
        self._single: dict[str, ExporterTables] = {}
        self.groups: list[PrefixedGroup] = []
        self.wanted: set[str] = set()
        self.covered: dict[str, str] = {}
        self.stems: dict[str, str] = {}
        for table in tables.values():
            self.stems.update(dict.fromkeys(table.covered(), table.name))
            for prefix in table.prefixes:
                for group in table.groups:
                    self._add(table, group, prefix)

    def of(self, name: str) -> ExporterTables:
        """The table of one exporter, the same object each time. Raises KeyError if unknown."""
        if name not in self._single:
            self._single[name] = ExporterTables({name: self.by_name[name]})
        return self._single[name]

    def _add(self, table: ExporterTable, group: MetricGroup, prefix: str) -> None:
        metrics = {prefix + name: rows for name, rows in group.metrics().items()}
        self.groups.append(PrefixedGroup(table, group, prefix, metrics))
        others = [*group.tested, *(fact.metric for fact in group.facts)]
        others += [lookup.metric for lookup in group.lookups]
        others += [each for rows in metrics.values() for row in rows for each in row.beside]
        wanted = {*metrics, *(prefix + name for name in others)}
        self.wanted |= wanted
        for name in wanted:
            self.covered.setdefault(name, table.name)

    def at(self, port: int) -> str | None:
        """The exporter that usually listens on a TCP port; None for none or several."""
        found = [name for name, table in self.by_name.items() if port in table.ports]
        return found[0] if len(found) == 1 else None


@cache
def exporter_tables() -> ExporterTables:
    """All tables of fabmon, including that of `fabmon agent`. Raises TableError."""
    found = {}
    folder = resources.files(__package__).joinpath("tables")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            table = load_table(file.read_text(encoding="utf-8"), file.name)
            found[table.name] = table
    agent = _agent_table()
    return ExporterTables({**found, agent.name: agent})


def load_table(text: str, where: str) -> ExporterTable:
    """One table from its TOML. Raises TableError, which begins with `where`."""
    try:
        table = msgspec.toml.decode(text, type=ExporterTable)
        for group in table.groups:
            _check(group)
    except (msgspec.DecodeError, ValueError, re.error) as error:
        raise TableError(f"{where}: {error}") from None
    return table


def _check(group: MetricGroup) -> None:
    """Raise ValueError for an error that the types do not show, re.error for a bad pattern."""
    roles = {*group.labels, *group.constants}
    for pattern in group.patterns.values():
        roles.update(re.compile(pattern).groupindex)
    for lookup in group.lookups:
        roles.update(lookup.labels)
    if group.descriptions or any(lookup.descriptions for lookup in group.lookups):
        roles.add("device")
    for name, rows in group.metrics().items():
        for row in rows:
            if row.to not in CATALOG:
                raise ValueError(f"{name}: the catalog has no metric {row.to}")
            missing = {*group.roles} - roles - {*row.roles}
            if missing:
                raise ValueError(f"{name}: no label for {', '.join(sorted(missing))}")
            for pattern in row.match.values():
                re.compile(pattern)
    for pattern in (*group.match.values(), *group.skip.values()):
        re.compile(pattern)


def _agent_table() -> ExporterTable:
    """The table of `fabmon agent`: the whole catalog, named as in fabric/openmetrics.py."""
    rows: dict[str, str | MetricRow | list[MetricRow]] = {
        shown.sample: MetricRow(name, shown.factor) for name, shown in EXPOSED.items()
    }
    group = MetricGroup(
        shape="port",
        kind="ethernet",
        labels={"port": "port", "kind": "kind", "node": "node"},
        rows=rows,
        facts=[LabelFact("fabmon_port_info", {name: name for name in _AGENT_FACTS})],
    )
    return ExporterTable("fabmon", "fabmon agent", [group])


def _expanded(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The names in a name with a range, and the role that the range fills."""
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
