"""A target's series as the page that its exporter answered with, put into the wire's words.

Ten thousand nodes of a cluster are of three or four makes: what one page says is worked out once,
and holds for every page of the same series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from collectors import wire
from collectors.wire import Object
from fabmon.fabric.names import natural
from fabmon.feeds.prometheus.metric_names import AgentSeries
from fabmon.feeds.prometheus.responses import Floats
from fabmon.feeds.scrape.exporter_tables import ExporterTables
from fabmon.feeds.scrape.port_mapping import MappedPage, mapped
from fabmon.feeds.scrape.text_format import SeriesName

Indices = NDArray[np.intp]

LabelledSeries = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its name and its labels, sorted, without those that the engine gave the target."""

_MOST_KEPT = 500


class InterpretedPage(NamedTuple):
    """What pages of some series say: the wire's objects, and the arithmetic of their values.

    `first` are places on the page, one for each value of the objects, times `factor`. `joined` are
    values made of several: where they are, of which places, and how. `blanks` mean no value.
    """

    exporter: str
    objects: tuple[Object, ...]
    first: Indices
    factor: Floats
    joined: tuple[tuple[int, Indices, str], ...]
    blanks: tuple[tuple[float, float], ...]
    refresh_s: float

    def values(self, page: Floats) -> Floats:
        """The objects' values from those of a page, in the catalog's units; NaN for none."""
        for low, high in self.blanks:
            page = np.where((page >= low) & (page <= high), np.nan, page)
        found: Floats = page[self.first]
        for at, places, join in self.joined:
            parts = page[places]
            found[at] = parts.sum() if join == "sum" else parts.prod()
        return found * self.factor


class PageInterpreter:
    """Understands pages by the exporters' tables, and remembers."""

    def __init__(self, tables: ExporterTables) -> None:
        self._tables = tables
        self._deciding = {
            prefix + name
            for table in tables.by_name.values()
            for group in table.groups
            for prefix in table.prefixes
            for name in (*group.require, *group.kinds)
        }
        self._known: dict[object, InterpretedPage] = {}

    def understand(self, series: tuple[LabelledSeries, ...], values: Floats) -> InterpretedPage:
        """What a page of these series says; of the values only the kinds of things matter."""
        deciding = tuple(
            float(values[at])
            for at, (name, _) in enumerate(series)
            if name in self._deciding and values[at] == values[at]
        )
        key = (series, deciding)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            spelled = [SeriesName(name, dict(labels)) for name, labels in series]
            found = self._known[key] = _understood(mapped(spelled, values.tolist(), self._tables))
        return found


def _understood(page: MappedPage) -> InterpretedPage:
    exporters = sorted({str(item.info.get("exporter", "")) for item in page.objects})
    return InterpretedPage(
        "+".join(exporters),
        page.objects,
        np.array([cell.places[0] for cell in page.cells], np.intp),
        np.array([cell.row.factor for cell in page.cells], np.float64),
        tuple(
            (at, np.array(cell.places, np.intp), cell.row.join)
            for at, cell in enumerate(page.cells)
            if len(cell.places) > 1
        ),
        tuple(sorted({blank for cell in page.cells for blank in cell.blanks})),
        page.refresh_s,
    )


# What one target says in one go: a source of its agent, or the page of an exporter.


class SeriesBlock(Protocol):
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

    def __init__(self, place: AgentSeries) -> None:
        self.id = place.id
        self.other = place.other
        self.port = place.port
        self.kind = place.kind
        self.cells: dict[str, tuple[int, float]] = {}


class AgentBlock:
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

    def has(self, place: AgentSeries) -> bool:
        """Whether there is such a value already, of another series."""
        item = self._objects.get((place.other, place.id))
        return item is not None and place.metric in item.cells

    def add(self, at: int, place: AgentSeries) -> None:
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


class PageBlock:
    """An exporter's page: what it says is known when all of its series are."""

    def __init__(self, pages: PageInterpreter) -> None:
        self._pages = pages
        self._series: dict[int, LabelledSeries] = {}
        self._places: Indices = np.empty(0, np.intp)
        self._said: InterpretedPage | None = None
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
