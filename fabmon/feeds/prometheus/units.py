"""What one target says in one go: a source of its agent, or the page of an exporter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from collectors import wire
from fabmon.fabric.names import natural
from fabmon.feeds.prometheus.answers import Floats
from fabmon.feeds.prometheus.pages import Indices, Labelled, Pages, Understood
from fabmon.feeds.prometheus.vocabulary import Place


class Unit(Protocol):
    """A block of the wire, made of series at places of the table.

    `refresh_s` is how long its exporter may repeat itself. `joins` says that values are made of
    several series: then `joined` has them, instead of the `picked` places times their factors.
    """

    @property
    def source(self) -> str:
        """The block's source."""

    @property
    def refresh_s(self) -> float:
        """Seconds for which equal values are no news."""

    @property
    def joins(self) -> bool:
        """Whether some value is made of several series, or some mean none."""

    @property
    def is_empty(self) -> bool:
        """Whether no series is left."""

    def settle(self, values: Floats) -> None:
        """Take in what was added and dropped; `values` are the table's."""

    def objects(self) -> list[wire.Object]:
        """The block's objects."""

    def metrics(self) -> Iterable[str]:
        """The metric of each value."""

    def places(self) -> Indices:
        """The places of all its series."""

    def picked(self) -> tuple[Indices, Floats]:
        """The place of each value, and its factor."""

    def joined(self, values: Floats) -> Floats:
        """All values from the table's, in the catalog's units."""

    def drop(self, place: int) -> None:
        """Forget a series."""


class _Object:
    """An object of an agent's source, and the places of its metrics."""

    def __init__(self, place: Place) -> None:
        self.id = place.id
        self.other = place.other
        self.port = place.port
        self.kind = place.kind
        self.cells: dict[str, tuple[int, float]] = {}


class AgentUnit:
    """A source of an agent: each series says what it is."""

    refresh_s = 0.0
    joins = False

    def __init__(self, source: str) -> None:
        self._source = source
        self._objects: dict[tuple[str | None, str], _Object] = {}
        self._order: list[_Object] = []
        self._picked: tuple[Indices, Floats] = (np.empty(0, np.intp), np.empty(0))

    @property
    def source(self) -> str:
        """As the agent calls it."""
        return self._source

    @property
    def is_empty(self) -> bool:
        """Whether no series is left."""
        return not self._objects

    def has(self, place: Place) -> bool:
        """Whether there is such a value already, of another series."""
        item = self._objects.get((place.other, place.id))
        return item is not None and place.metric in item.cells

    def add(self, at: int, place: Place) -> None:
        """Take a series that is at a place of the table."""
        item = self._objects.setdefault((place.other, place.id), _Object(place))
        item.cells[place.metric] = (at, place.factor)

    def drop(self, place: int) -> None:
        """Forget a series."""
        for key, item in list(self._objects.items()):
            item.cells = {name: cell for name, cell in item.cells.items() if cell[0] != place}
            if not item.cells:
                del self._objects[key]

    def settle(self, values: Floats) -> None:
        """Put the objects in order."""
        keys = sorted(self._objects, key=lambda key: (key[0] or "", natural(key[1])))
        self._order = [self._objects[key] for key in keys]
        cells = [cell for item in self._order for cell in item.cells.values()]
        self._picked = (
            np.array([place for place, _ in cells], np.intp),
            np.array([factor for _, factor in cells], np.float64),
        )

    def objects(self) -> list[wire.Object]:
        """One for each port and what else has values."""
        return [
            wire.Object(item.id, item.kind, item.port, {}, tuple(item.cells), item.other)
            for item in self._order
        ]

    def metrics(self) -> list[str]:
        """The metric of each value."""
        return [name for item in self._order for name in item.cells]

    def places(self) -> Indices:
        """The places of all its series."""
        return self._picked[0]

    def picked(self) -> tuple[Indices, Floats]:
        """The place of each value, and its factor."""
        return self._picked

    def joined(self, values: Floats) -> Floats:
        """Nothing is joined here."""
        places, factors = self._picked
        found: Floats = values[places] * factors
        return found


class PageUnit:
    """An exporter's page: what it says is known when all of its series are."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._series: dict[int, Labelled] = {}
        self._places: Indices = np.empty(0, np.intp)
        self._said: Understood | None = None
        self._is_settled = True

    @property
    def source(self) -> str:
        """The exporter that the page is of."""
        return (self._said.exporter if self._said is not None else "") or "exporter"

    @property
    def refresh_s(self) -> float:
        """As the exporter's table has it."""
        return self._said.refresh_s if self._said is not None else 0.0

    @property
    def joins(self) -> bool:
        """Whether some value is made of several series, or some mean none."""
        return self._said is not None and bool(self._said.joined or self._said.blanks)

    @property
    def is_empty(self) -> bool:
        """Whether no series is left."""
        return not self._series

    def add(self, at: int, name: str, labels: Mapping[str, str]) -> None:
        """Take a series that is at a place of the table."""
        self._series[at] = (name, tuple(sorted(labels.items())))
        self._is_settled = False

    def drop(self, place: int) -> None:
        """Forget a series."""
        self._series.pop(place, None)
        self._is_settled = False

    def settle(self, values: Floats) -> None:
        """Understand the page."""
        if self._is_settled:
            return
        self._is_settled = True
        order = sorted(self._series, key=lambda place: self._series[place])
        self._places = np.array(order, np.intp)
        series = tuple(self._series[place] for place in order)
        self._said = self._pages.understand(series, values[self._places])

    def objects(self) -> list[wire.Object]:
        """The ports that the page tells of."""
        return list(self._said.objects) if self._said is not None else []

    def metrics(self) -> list[str]:
        """The metric of each value."""
        return [name for item in self.objects() for name in item.metrics]

    def places(self) -> Indices:
        """The places of all its series."""
        return self._places

    def picked(self) -> tuple[Indices, Floats]:
        """The place of each value, of the first series where it is made of several."""
        if self._said is None:
            return np.empty(0, np.intp), np.empty(0)
        return self._places[self._said.first], self._said.factor

    def joined(self, values: Floats) -> Floats:
        """All values from the table's, in the catalog's units."""
        if self._said is None:
            return np.empty(0)
        return self._said.values(values[self._places])
