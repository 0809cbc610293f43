"""How a port is called that an exporter tells of: as the probe would call it on that node.

The probe's rule is in collectors/readers/ports.py. An exporter says less than sysfs: an interface
is known to be an RDMA device's only where both are called by their place, as in `rocep24s0f0` and
`enp24s0f0np0`, or where the table says so. Otherwise it is a port of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from collectors.wire import Object
from fabmon.fabric.names import natural
from fabmon.feeds.scrape.exporter_tables import (
    ExporterTable,
    ExporterTables,
    MetricGroup,
    MetricRow,
    PrefixedGroup,
)
from fabmon.feeds.scrape.text_format import SeriesName

_PLACED_DEVICE = re.compile(r"(?:roce|ib)((?:P\d+)?(?:p\d+)?[sox]\w+)")
_PLACED_NETDEV = re.compile(r"(?:en|ib)((?:P\d+)?(?:p\d+)?[sox]\w+?)(?:np\d+)?")
_PCI = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


class NamedPort(NamedTuple):
    """A port's name, the node it is on where that is another one, and its facts."""

    node: str | None
    name: str
    info: dict[str, Any]


class PortRoles(NamedTuple):
    """What a port's name is made of; see `tables.Group`."""

    shape: str
    stem: str
    of_others: bool
    roles: Mapping[str, str]

    @property
    def node(self) -> str | None:
        """The node that it is on; None for the one that was asked."""
        return self.roles.get("node") or (self.roles.get("guid") if self.of_others else None)

    @property
    def device(self) -> tuple[str | None, str]:
        """The RDMA device, over all nodes."""
        return self.node, self.roles.get("device", "")


def named(ports: Sequence[PortRoles]) -> list[NamedPort]:
    """The names of ports that were told of together, in their order."""
    numbers: dict[tuple[str | None, str], set[str]] = {}
    for port in ports:
        if port.shape == "rdma":
            numbers.setdefault(port.device, set()).add(port.roles["port"])
    netdevs = {
        match[1]: device
        for (node, device), found in numbers.items()
        if node is None and found == {"1"} and (match := _PLACED_DEVICE.fullmatch(device))
    }
    return [_named(port, numbers, netdevs) for port in ports]


def facts(found: Mapping[str, str]) -> dict[str, Any]:
    """Facts from labels as the probe has them: PCI addresses in one spelling."""
    told: dict[str, Any] = dict(found)
    if "pci" in told:
        address = str(told["pci"]).lower()
        match = _PCI.fullmatch(address)
        told["pci"] = match[1] if match else address
    return told


def object_of(named: NamedPort, kind: str, node_role: str, metrics: tuple[str, ...]) -> Object:
    """The port as the wire has it."""
    info = dict(named.info)
    if named.node is not None and node_role:
        info["node_role"] = node_role
    id_ = named.name if named.node is None else f"{named.node}/{named.name}"
    return Object(id_, kind, named.name, info, metrics, named.node)


def _named(
    port: PortRoles,
    numbers: Mapping[tuple[str | None, str], set[str]],
    netdevs: Mapping[str, str],
) -> NamedPort:
    roles, node = port.roles, port.node
    if port.shape == "rdma":
        device, number = roles["device"], roles["port"]
        name = device if numbers[port.device] == {"1"} else f"{device}/{number}"
        info = {"rdma": device, "rdma_port": int(number) if number.isdecimal() else number}
        return NamedPort(node, name, info)
    if port.shape == "netdev":
        netdev = roles["netdev"]
        match = _PLACED_NETDEV.fullmatch(netdev)
        device = netdevs.get(match[1], netdev) if match is not None and node is None else netdev
        return NamedPort(node, device, {"netdev": netdev})
    if port.shape == "gpu":
        return NamedPort(node, _gpu(roles["gpu"]), {})
    if port.shape == "link":
        gpu, link = _gpu(roles["gpu"]), roles["link"]
        number_or_name = int(link) if link.isdecimal() else link
        return NamedPort(node, f"{gpu}/{port.stem}{link}", {"gpu": gpu, "link": number_or_name})
    return NamedPort(node, roles["port"], {})


def _gpu(text: str) -> str:
    return f"gpu{text}" if text.isdecimal() else text


# From an exporter's series to ports and the catalog's metrics: worked out once for a layout.


class MetricCell(NamedTuple):
    """One value of a port: the series at `places` of the page, joined as the row says.

    Times the row's factor it is in the catalog's unit. Between any pair of `blanks` it means none.
    """

    row: MetricRow
    places: tuple[int, ...]
    blanks: tuple[tuple[float, float], ...]


class MappedPage(NamedTuple):
    """The ports that a page tells of; a cell for each of their metrics, in that order.

    `refresh_s` is how long the exporter may answer from the same snapshot.
    """

    objects: tuple[Object, ...]
    cells: tuple[MetricCell, ...]
    refresh_s: float


class _Entry(NamedTuple):
    """A series with a row for it, and what it is about."""

    row: MetricRow
    roles: dict[str, str]
    place: int


class _Thing:
    """A port as one group tells of it: its roles, the series of its metrics, its facts."""

    def __init__(self, table: ExporterTable, group: MetricGroup, roles: dict[str, str]) -> None:
        self.table = table
        self.group = group
        self.roles = roles
        self.kind = roles.get("kind") or group.kind
        self.info: dict[str, Any] = {}
        self.entries: dict[str, list[_Entry]] = {}

    def add(self, entry: _Entry) -> None:
        """Take a value. Of rows that lead to the same metric the first wins, or they are joined."""
        found = self.entries.setdefault(entry.row.to, [])
        joined = entry.row.join != "first"
        if not found or (joined and found[0].row.join == entry.row.join):
            found.append(entry)
        self.kind = entry.row.kind or self.kind

    def fits(self, roles: Mapping[str, str]) -> bool:
        """Whether those roles, which may be some of them only, are this port's."""
        return all(self.roles[role] == value for role, value in roles.items() if role in self.roles)

    def unnamed(self) -> PortRoles:
        """What its name is made of."""
        group = self.group
        return PortRoles(group.shape, group.stem, bool(group.node_role), self.roles)


class _PageOf(NamedTuple):
    """A page's series by name; `prefix` stands before the names of its exporter."""

    series: Sequence[SeriesName]
    values: Sequence[float]
    places: Mapping[str, list[int]]
    prefix: str

    def of(self, name: str) -> Iterator[tuple[int, dict[str, str]]]:
        """Where a metric's series are, and their labels."""
        for place in self.places.get(self.prefix + name, ()):
            yield place, self.series[place].labels


def mapped(
    series: Sequence[SeriesName], values: Sequence[float], tables: ExporterTables
) -> MappedPage:
    """What a page with these series and values tells, by these tables.

    The values are looked at where a table requires some that do not change with time, such as the
    type of an interface. Without objects where the page tells nothing.
    """
    places: dict[str, list[int]] = {}
    for place, each in enumerate(series):
        if each.name in tables.wanted:
            places.setdefault(each.name, []).append(place)
    things: list[_Thing] = []
    for placed in tables.groups:
        if not placed.metrics.keys().isdisjoint(places):
            things += _things(placed, _PageOf(series, values, places, placed.prefix))
    return _assembled(things)


def _assembled(things: Sequence[_Thing]) -> MappedPage:
    """The objects of the wire, what several groups tell of one port put together."""
    names = named([thing.unnamed() for thing in things])
    ports: dict[tuple[str | None, str], list[tuple[NamedPort, _Thing]]] = {}
    for port, thing in zip(names, things, strict=True):
        ports.setdefault((port.node, port.name), []).append((port, thing))
    objects: list[Object] = []
    cells: list[MetricCell] = []
    for key in sorted(ports, key=lambda key: (key[0] or "", natural(key[1]))):
        parts = ports[key]
        found: dict[str, MetricCell] = {}
        info: dict[str, Any] = {}
        for port, thing in parts:
            info = {**port.info, **thing.info, **info}
            blanks = tuple(thing.table.blanks)
            for metric, entries in thing.entries.items():
                at = tuple(entry.place for entry in entries)
                found.setdefault(metric, MetricCell(entries[0].row, at, blanks))
        first, thing = parts[0]
        info.setdefault("exporter", thing.table.name)
        whole = first._replace(info=info)
        objects.append(object_of(whole, thing.kind, thing.group.node_role, tuple(found)))
        cells += found.values()
    refresh_s = max((thing.table.refresh_s for thing in things), default=0.0)
    return MappedPage(tuple(objects), tuple(cells), refresh_s)


def _things(placed: PrefixedGroup, page: _PageOf) -> list[_Thing]:
    """The ports of one group, with their values and facts."""
    table, group = placed.table, placed.group
    looked_up = _looked_up(group, page)
    things: dict[tuple[str | None, ...], _Thing] = {}
    partial: list[_Entry] = []
    for entry in _entries(placed, page, looked_up):
        if all(entry.roles.get(role) for role in group.roles):
            key = tuple(entry.roles.get(role) for role in ("node", *group.roles))
            if key not in things:
                things[key] = _Thing(table, group, entry.roles)
            things[key].add(entry)
        elif any(role in entry.roles for role in ("node", "guid", *group.roles)):
            partial.append(entry)
    found = _by_values(group, page, list(things.values()))
    for entry in partial:
        for thing in found:
            if thing.fits(entry.roles):
                thing.add(entry)
    for fact in group.facts:
        for _, labels in page.of(fact.metric):
            roles = _roles(group, labels, looked_up)
            told = {name: labels[label] for name, label in fact.labels.items() if labels.get(label)}
            for thing in found:
                if thing.fits(roles):
                    thing.info.update(facts(told))
    return found


def _entries(
    placed: PrefixedGroup, page: _PageOf, looked_up: Mapping[tuple[str, str], Mapping[str, str]]
) -> Iterator[_Entry]:
    group = placed.group
    for name, rows in placed.metrics.items():
        for place in page.places.get(name, ()):
            labels = page.series[place].labels
            roles = _roles(group, labels, looked_up)
            said = {**labels, **roles}
            if not _fits_all(group.match, said) or _fits_any(group.skip, said):
                continue
            row = next((row for row in rows if _fits_all(row.match, said)), None)
            if row is not None:
                yield _Entry(row, {**roles, **row.roles} if row.roles else roles, place)


def _by_values(group: MetricGroup, page: _PageOf, things: list[_Thing]) -> list[_Thing]:
    """The ports without those that the group's `require` refuses; kinds as its `kinds` say."""
    for metric, allowed in group.require.items():
        for place, labels in page.of(metric):
            if page.values[place] not in allowed:
                roles = _said(group.labels, group.patterns, labels)
                things = [thing for thing in things if not thing.fits(roles)]
    for metric, kinds in group.kinds.items():
        for place, labels in page.of(metric):
            kind = kinds.get(f"{page.values[place]:g}")
            roles = _said(group.labels, group.patterns, labels)
            for thing in things:
                if kind is not None and thing.fits(roles):
                    thing.kind = kind
    return things


def _looked_up(group: MetricGroup, page: _PageOf) -> dict[tuple[str, str], dict[str, str]]:
    """(role, its value) -> the roles that a lookup's metric adds."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for lookup in group.lookups:
        for _, labels in page.of(lookup.metric):
            key = labels.get(group.labels[lookup.by], "")
            more = _said(lookup.labels, lookup.patterns, labels)
            found.setdefault((lookup.by, key), {}).update(more)
    return found


def _roles(
    group: MetricGroup,
    labels: Mapping[str, str],
    looked_up: Mapping[tuple[str, str], Mapping[str, str]],
) -> dict[str, str]:
    """What a series says of the port that it is about."""
    roles = {**group.constants, **_said(group.labels, group.patterns, labels)}
    for lookup in group.lookups:
        roles.update(looked_up.get((lookup.by, roles.get(lookup.by, "")), {}))
    return roles


def _said(
    names: Mapping[str, str], patterns: Mapping[str, str], labels: Mapping[str, str]
) -> dict[str, str]:
    found = {role: labels[label] for role, label in names.items() if labels.get(label)}
    for label, pattern in patterns.items():
        match = _compiled(pattern).fullmatch(labels.get(label, ""))
        if match is not None:
            found.update({role: text for role, text in match.groupdict().items() if text})
    return found


def _fits_all(match: Mapping[str, str], said: Mapping[str, str]) -> bool:
    return all(_compiled(pattern).fullmatch(said.get(key, "")) for key, pattern in match.items())


def _fits_any(skip: Mapping[str, str], said: Mapping[str, str]) -> bool:
    return any(_compiled(pattern).fullmatch(said.get(key, "")) for key, pattern in skip.items())


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
