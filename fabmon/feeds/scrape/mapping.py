"""From an exporter's series to ports and the catalog's metrics: worked out once for a layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from collectors.wire import Object
from fabmon.fabric.names import natural
from fabmon.feeds.scrape import naming
from fabmon.feeds.scrape.exposition import Series
from fabmon.feeds.scrape.naming import Unnamed
from fabmon.feeds.scrape.tables import Group, Placed, Row, Table, Tables


class Cell(NamedTuple):
    """One value of a port: the series at `places` of the page, joined as the row says.

    Times the row's factor it is in the catalog's unit. Between any pair of `blanks` it means none.
    """

    row: Row
    places: tuple[int, ...]
    blanks: tuple[tuple[float, float], ...]


class Mapped(NamedTuple):
    """The ports that a page tells of; a cell for each of their metrics, in that order.

    `refresh_s` is how long the exporter may answer from the same snapshot.
    """

    objects: tuple[Object, ...]
    cells: tuple[Cell, ...]
    refresh_s: float


class _Entry(NamedTuple):
    """A series with a row for it, and what it is about."""

    row: Row
    roles: dict[str, str]
    place: int


class _Thing:
    """A port as one group tells of it: its roles, the series of its metrics, its facts."""

    def __init__(self, table: Table, group: Group, roles: dict[str, str]) -> None:
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

    def unnamed(self) -> Unnamed:
        """What its name is made of."""
        group = self.group
        return Unnamed(group.shape, group.stem, bool(group.node_role), self.roles)


class _PageOf(NamedTuple):
    """A page's series by name; `prefix` stands before the names of its exporter."""

    series: Sequence[Series]
    values: Sequence[float]
    places: Mapping[str, list[int]]
    prefix: str

    def of(self, name: str) -> Iterator[tuple[int, dict[str, str]]]:
        """Where a metric's series are, and their labels."""
        for place in self.places.get(self.prefix + name, ()):
            yield place, self.series[place].labels


def mapped(series: Sequence[Series], values: Sequence[float], tables: Tables) -> Mapped:
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


def _assembled(things: Sequence[_Thing]) -> Mapped:
    """The objects of the wire, what several groups tell of one port put together."""
    names = naming.named([thing.unnamed() for thing in things])
    ports: dict[tuple[str | None, str], list[tuple[naming.Named, _Thing]]] = {}
    for named, thing in zip(names, things, strict=True):
        ports.setdefault((named.node, named.name), []).append((named, thing))
    objects: list[Object] = []
    cells: list[Cell] = []
    for key in sorted(ports, key=lambda key: (key[0] or "", natural(key[1]))):
        parts = ports[key]
        found: dict[str, Cell] = {}
        info: dict[str, Any] = {}
        for named, thing in parts:
            info = {**named.info, **thing.info, **info}
            blanks = tuple(thing.table.blanks)
            for metric, entries in thing.entries.items():
                at = tuple(entry.place for entry in entries)
                found.setdefault(metric, Cell(entries[0].row, at, blanks))
        first, thing = parts[0]
        info.setdefault("exporter", thing.table.name)
        whole = first._replace(info=info)
        objects.append(naming.object_of(whole, thing.kind, thing.group.node_role, tuple(found)))
        cells += found.values()
    refresh_s = max((thing.table.refresh_s for thing in things), default=0.0)
    return Mapped(tuple(objects), tuple(cells), refresh_s)


def _things(placed: Placed, page: _PageOf) -> list[_Thing]:
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
                    thing.info.update(naming.facts(told))
    return found


def _entries(
    placed: Placed, page: _PageOf, looked_up: Mapping[tuple[str, str], Mapping[str, str]]
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


def _by_values(group: Group, page: _PageOf, things: list[_Thing]) -> list[_Thing]:
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


def _looked_up(group: Group, page: _PageOf) -> dict[tuple[str, str], dict[str, str]]:
    """(role, its value) -> the roles that a lookup's metric adds."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for lookup in group.lookups:
        for _, labels in page.of(lookup.metric):
            key = labels.get(group.labels[lookup.by], "")
            more = _said(lookup.labels, lookup.patterns, labels)
            found.setdefault((lookup.by, key), {}).update(more)
    return found


def _roles(
    group: Group,
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
