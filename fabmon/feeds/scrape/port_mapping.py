"""Maps the series of an exporter's page to ports and metrics of the catalog, once per layout.

A port gets the name that the probe would give it on that node; the probe's rule is in
collectors/readers/ports.py. An exporter reports less than sysfs: an interface is known to belong to
an RDMA device only where both names contain the same PCI slot, as in `rocep24s0f0` and
`enp24s0f0np0`, or where the table says so. Otherwise it is a port of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Any, NamedTuple

from collectors.node_description import hca_owner, is_model, is_unnamed, unnamed_node, unnamed_note
from collectors.wire import Object
from fabmon.fabric.model import HOST
from fabmon.fabric.names import natural
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.scrape.exporter_tables import (
    ExporterTable,
    ExporterTables,
    MetricGroup,
    MetricRow,
    PrefixedGroup,
)
from fabmon.feeds.scrape.text_format import SeriesName

_SLOT_IN_DEVICE = re.compile(r"(?:roce|ib)((?:P\d+)?(?:p\d+)?[sox]\w+)")
_SLOT_IN_NETDEV = re.compile(r"(?:en|ib)((?:P\d+)?(?:p\d+)?[sox]\w+?)(?:np\d+)?")
_PCI = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


_MAX_PORTS = 1 << 14
_MAX_VALUES = 1 << 16
_MAX_MATCHES = 1 << 20
"""Limits of a page. Every match of a series with a port takes a microsecond."""


class PageTooLarge(Misbehaved):
    """A page with more than any exporter of a fabric has."""

    cause = "too large"


class MetricCell(NamedTuple):
    """One value of a port: the series at `positions` of the page, joined as the row says.

    The value times the row's factor is in the unit of the catalog. A value between any pair of
    `blanks` means that there is none.
    """

    row: MetricRow
    positions: tuple[int, ...]
    blanks: tuple[tuple[float, float], ...]


class MappedPage(NamedTuple):
    """The ports of a page, and a cell for each of their metrics in the same order.

    `refresh_s` is how long the exporter may serve the same snapshot. `understood` has the positions
    of all series that a table uses or leaves out on purpose, `notes` what the page does not show.
    """

    objects: tuple[Object, ...]
    cells: tuple[MetricCell, ...]
    refresh_s: float
    understood: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def map_page(
    series: Sequence[SeriesName], values: Sequence[float], tables: ExporterTables
) -> MappedPage:
    """The ports and cells of a page with these series and values; none if no table matches.

    Raises PageTooLarge.
    Values matter only where a table tests some that do not change, such as an interface's type.
    """
    positions: dict[str, list[int]] = {}
    for position, each in enumerate(series):
        if each.name in tables.wanted:
            positions.setdefault(each.name, []).append(position)
    ports: list[_Port] = []
    understood: set[int] = set()
    for prefixed in tables.groups:
        if not prefixed.metrics.keys().isdisjoint(positions):
            reader = _GroupReader(prefixed, series, values, positions)
            ports += reader.ports()
            understood |= reader.understood
    page = _merged(ports)
    if len(page.cells) > _MAX_VALUES:
        raise PageTooLarge(f"{len(page.cells)} values of ports, {_MAX_VALUES} at most")
    notes = tuple(_notes(positions.keys(), ports, tables))
    return page._replace(understood=frozenset(understood), notes=notes)


def _notes(names: Set[str], ports: Iterable[_Port], tables: ExporterTables) -> Iterator[str]:
    """What a page with metrics of these names and these ports does not show."""
    for table in tables.by_name.values():
        for note in table.notes:
            if not names.isdisjoint(note.present) and names.isdisjoint(note.absent):
                yield note.text
    unnamed = {port.device for port in ports if is_unnamed(port.node or "")}
    if unnamed:
        yield unnamed_note(len(unnamed))


class _Entry(NamedTuple):
    """A series with the row that matches it, and the roles of its port."""

    row: MetricRow
    roles: dict[str, str]
    position: int


class _Port:
    """A port in one group: its roles, the series of its metrics, its facts."""

    def __init__(self, table: ExporterTable, group: MetricGroup, roles: dict[str, str]) -> None:
        self.table = table
        self.group = group
        self.roles = roles
        self.kind = roles.get("kind") or group.kind
        self.info: dict[str, Any] = {}
        self.entries: dict[str, list[_Entry]] = {}

    @property
    def node(self) -> str | None:
        """The node of the port; None for the node that was scraped."""
        named, guid = self.roles.get("node"), self.roles.get("guid")
        if named or not guid or not self.group.node_role:
            return named
        return unnamed_node(guid) if self.group.node_role == HOST else guid

    @property
    def device(self) -> tuple[str | None, str]:
        """The node and the RDMA device."""
        return self.node, self.roles.get("device", "")

    def add(self, entry: _Entry) -> None:
        """Add a series. Of rows that map to one metric the first is used, or all are joined."""
        found = self.entries.setdefault(entry.row.to, [])
        joined = entry.row.join != "first"
        if not found or (joined and found[0].row.join == entry.row.join):
            found.append(entry)
        self.kind = entry.row.kind or self.kind


class _PortIndex:
    """Finds the ports of a group by roles, in a time that does not grow with their number."""

    def __init__(self, ports: Sequence[_Port]) -> None:
        self._by_names: dict[frozenset[str], list[_Port]] = {}
        for port in ports:
            self._by_names.setdefault(frozenset(port.roles), []).append(port)
        self._by_values: dict[tuple[frozenset[str], tuple[str, ...]], dict[Any, list[_Port]]] = {}
        self._found = 0

    def find(self, roles: Mapping[str, str]) -> Iterator[_Port]:
        """The ports that have the same values of those of the roles that they have.

        Raises PageTooLarge if too many were found in all, as by series that match every port.
        """
        for names, ports in self._by_names.items():
            common = tuple(sorted(names & roles.keys()))
            by_values = self._by_values.get((names, common))
            if by_values is None:
                by_values = self._by_values[names, common] = {}
                for port in ports:
                    values = tuple(port.roles[role] for role in common)
                    by_values.setdefault(values, []).append(port)
            found = by_values.get(tuple(roles[role] for role in common), ())
            self._found += len(found)
            if self._found > _MAX_MATCHES:
                raise PageTooLarge(f"more than {_MAX_MATCHES} matches of series and ports")
            yield from found


class _GroupReader:
    """Finds the ports of one group on a page. `positions` are by metric name.

    `understood`, known after `ports`, has the positions of the series that the group uses, or
    leaves out on purpose.
    """

    def __init__(
        self,
        prefixed: PrefixedGroup,
        series: Sequence[SeriesName],
        values: Sequence[float],
        positions: Mapping[str, list[int]],
    ) -> None:
        self._prefixed = prefixed
        self._group = prefixed.group
        self._series = series
        self._values = values
        self._positions = positions
        self.understood: set[int] = set()
        self._looked_up: dict[tuple[str, str], dict[str, str]] = {}
        for lookup in self._group.lookups:
            for _, labels in self._labels_of(lookup.metric):
                key = (lookup.by, labels.get(self._group.labels[lookup.by], ""))
                more = _roles_in(lookup.labels, {}, labels) | _described(
                    lookup.descriptions, labels
                )
                self._looked_up.setdefault(key, {}).update(more)

    def ports(self) -> list[_Port]:
        """The ports with their series and facts."""
        group = self._group
        ports: dict[tuple[str | None, ...], _Port] = {}
        partial: list[_Entry] = []
        for entry in self._entries():
            if all(entry.roles.get(role) for role in group.roles):
                # Nodes without a name differ by the GUID.
                key = tuple(entry.roles.get(role) for role in ("node", "guid", *group.roles))
                if key not in ports:
                    ports[key] = _Port(self._prefixed.table, group, entry.roles)
                    if len(ports) > _MAX_PORTS:
                        raise PageTooLarge(f"more than {_MAX_PORTS} ports")
                ports[key].add(entry)
            elif any(role in entry.roles for role in ("node", "guid", *group.roles)):
                partial.append(entry)
        found = self._filtered(list(ports.values()))
        index = _PortIndex(found)
        for entry in partial:
            for port in index.find(entry.roles):
                port.add(entry)
        for fact in group.facts:
            for _, labels in self._labels_of(fact.metric):
                roles = self._roles(labels)
                facts = _facts(_roles_in(fact.labels, {}, labels))
                for port in index.find(roles):
                    port.info.update(facts)
        return found

    def _labels_of(self, metric: str) -> Iterator[tuple[int, dict[str, str]]]:
        """Position and labels of each series of a metric, its name without the prefix."""
        for position in self._positions.get(self._prefixed.prefix + metric, ()):
            self.understood.add(position)
            yield position, self._series[position].labels

    def _entries(self) -> Iterator[_Entry]:
        group = self._group
        for name, rows in self._prefixed.metrics.items():
            for position in self._positions.get(name, ()):
                labels = self._series[position].labels
                roles = self._roles(labels)
                texts = {**labels, **roles}
                if not all(_matches(group.match, texts)):
                    continue
                if any(_matches(group.skip, texts)):
                    self.understood.add(position)
                    continue
                row = next(
                    (
                        row
                        for row in rows
                        if all(_matches(row.match, texts)) and self._is_beside(row)
                    ),
                    None,
                )
                if row is not None:
                    self.understood.add(position)
                    more = {**roles, **row.roles} if row.roles else roles
                    yield _Entry(row, more, position)

    def _is_beside(self, row: MetricRow) -> bool:
        """Whether the page has a metric that the row needs beside it."""
        return not row.beside or any(name in self._positions for name in row.beside)

    def _filtered(self, ports: list[_Port]) -> list[_Port]:
        """The ports that the group's `require` allows, with kinds as its `kinds` say."""
        group = self._group
        index = _PortIndex(ports)
        refused = {
            number
            for metric, allowed in group.require.items()
            for number, value in self._values_of(metric, index).items()
            if value not in allowed
        }
        virtual = self._virtual(index)
        if any(id(port) not in refused | virtual for port in ports):
            refused |= virtual
        for metric, kinds in group.kinds.items():
            for position, labels in self._labels_of(metric):
                kind = kinds.get(f"{self._values[position]:g}")
                roles = _roles_in(group.labels, group.patterns, labels)
                if kind is not None:
                    for port in index.find(roles):
                        port.kind = kind
        return [port for port in ports if id(port) not in refused]

    def _virtual(self, index: _PortIndex) -> set[int]:
        """The ids of the ports that the group's `prefer` leaves out."""
        group = self._group
        found = {
            number
            for metric, allowed in group.prefer.items()
            for number, value in self._values_of(metric, index).items()
            if value not in allowed
        }
        if not found or not group.hardware:
            return found
        levels = [self._values_of(metric, index) for metric in group.unstacked]
        hardware = [
            (self._values_of(metric, index), allowed) for metric, allowed in group.hardware.items()
        ]
        return {
            number
            for number in found
            if len({level.get(number) for level in levels}) > 1
            or any(values.get(number) not in allowed for values, allowed in hardware)
        }

    def _values_of(self, metric: str, index: _PortIndex) -> dict[int, float]:
        """The values of a metric by the id of each port that its labels match."""
        group = self._group
        return {
            id(port): self._values[position]
            for position, labels in self._labels_of(metric)
            for port in index.find(_roles_in(group.labels, group.patterns, labels))
        }

    def _roles(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The roles of the port of a series."""
        group = self._group
        found = _roles_in(group.labels, group.patterns, labels)
        roles = {**group.constants, **found, **_described(group.descriptions, labels)}
        for lookup in group.lookups:
            roles.update(self._looked_up.get((lookup.by, roles.get(lookup.by, "")), {}))
        if group.node_role and "guid" in roles and is_model(roles.get("node", "")):
            del roles["node"]  # All switches of a model have this name.
        return roles


def _roles_in(
    names: Mapping[str, str], patterns: Mapping[str, str], labels: Mapping[str, str]
) -> dict[str, str]:
    """The roles in labels: `names` maps roles to labels, `patterns` labels to patterns."""
    found = {role: labels[label] for role, label in names.items() if labels.get(label)}
    for label, pattern in patterns.items():
        match = _compiled(pattern).fullmatch(labels.get(label, ""))
        if match is not None:
            found.update({role: text for role, text in match.groupdict().items() if text})
    return found


def _described(descriptions: Iterable[str], labels: Mapping[str, str]) -> dict[str, str]:
    """The roles in the labels that have node descriptions. `HCA-1` is no name of a device: all
    hosts have one."""
    found = {}
    for label in descriptions:
        node, device = hca_owner(labels.get(label, ""))
        device = device.partition(" ")[0]
        if node:
            found["node"] = node
        if node and device and not device.startswith("HCA-"):
            found["device"] = device
    return found


def _matches(patterns: Mapping[str, str], texts: Mapping[str, str]) -> Iterator[bool]:
    for key, pattern in patterns.items():
        yield _compiled(pattern).fullmatch(texts.get(key, "")) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _facts(found: Mapping[str, str]) -> dict[str, Any]:
    """Facts as the probe reports them: PCI addresses in one spelling."""
    if "pci" not in found:
        return dict(found)
    address = found["pci"].lower()
    match = _PCI.fullmatch(address)
    return {**found, "pci": match[1] if match else address}


def _merged(ports: Sequence[_Port]) -> MappedPage:
    """The objects of the wire; a port that is in several groups becomes one object."""
    by_name: dict[tuple[str | None, str], list[tuple[dict[str, Any], _Port]]] = {}
    for (name, info), port in zip(_named(ports), ports, strict=True):
        by_name.setdefault((port.node, name), []).append((info, port))
    objects: list[Object] = []
    cells: list[MetricCell] = []
    for node, name in sorted(by_name, key=lambda key: (key[0] or "", natural(key[1]))):
        found: dict[str, MetricCell] = {}
        merged: dict[str, Any] = {}
        for info, port in by_name[node, name]:
            merged = {**info, **port.info, **merged}
            for metric, entries in port.entries.items():
                positions = tuple(entry.position for entry in entries)
                cell = MetricCell(entries[0].row, positions, tuple(port.table.blanks))
                found.setdefault(metric, cell)
        _, first = by_name[node, name][0]
        merged.setdefault("exporter", first.table.name)
        if node is not None and first.group.node_role:
            merged["node_role"] = first.group.node_role
        id_ = name if node is None else f"{node}/{name}"
        objects.append(Object(id_, first.kind, name, merged, tuple(found), node))
        cells += found.values()
    refresh_s = max((port.table.refresh_s for port in ports), default=0.0)
    return MappedPage(tuple(objects), tuple(cells), refresh_s)


def _named(ports: Sequence[_Port]) -> list[tuple[str, dict[str, Any]]]:
    """The name and the facts in the name of each port; see `MetricGroup` for the shapes."""
    numbers: dict[tuple[str | None, str], set[str]] = {}
    for port in ports:
        if port.group.shape == "rdma":
            numbers.setdefault(port.device, set()).add(port.roles["port"])
    device_in_slot = {
        match[1]: device
        for (node, device), found in numbers.items()
        if node is None and found == {"1"} and (match := _SLOT_IN_DEVICE.fullmatch(device))
    }
    return [_name(port, numbers, device_in_slot) for port in ports]


def _name(
    port: _Port,
    numbers: Mapping[tuple[str | None, str], set[str]],
    device_in_slot: Mapping[str, str],
) -> tuple[str, dict[str, Any]]:
    roles, shape = port.roles, port.group.shape
    if shape == "rdma":
        device, number = roles["device"], roles["port"]
        name = device if numbers[port.device] == {"1"} else f"{device}/{number}"
        return name, {"rdma": device, "rdma_port": _integer(number)}
    if shape == "netdev":
        netdev = roles["netdev"]
        match = _SLOT_IN_NETDEV.fullmatch(netdev) if port.node is None else None
        name = netdev if match is None else device_in_slot.get(match[1], netdev)
        return name, {"netdev": netdev}
    if shape == "port":
        return roles["port"], {}
    gpu = f"gpu{roles['gpu']}" if roles["gpu"].isdecimal() else roles["gpu"]
    if shape == "gpu":
        return gpu, {}
    name = f"{gpu}/{port.group.stem}{roles['link']}"
    return name, {"gpu": gpu, "link": _integer(roles["link"])}


def _integer(text: str) -> int | str:
    return int(text) if text.isdecimal() and len(text) < 10 else text
