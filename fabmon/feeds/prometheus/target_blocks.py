"""Blocks of the wire made of a target's series: a source of its agent, or the page of an exporter.

The pages of a cluster of ten thousand nodes have few different sets of series: each set is mapped
to ports once, and the mapping is used for every page with the same series.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

import numpy as np

from collectors import wire
from fabmon.fabric.names import natural
from fabmon.feeds.prometheus.metric_names import AgentSeries
from fabmon.feeds.scrape.exporter_tables import ExporterTables
from fabmon.feeds.scrape.page_reader import Indices, PageArithmetic
from fabmon.feeds.scrape.port_mapping import PageTooLarge, map_page
from fabmon.feeds.scrape.text_format import Floats, SeriesName

LabelledSeries = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its metric and its labels, sorted, without those that Prometheus adds to targets."""

_MAX_PAGES = 500


class InterpretedPage(NamedTuple):
    """The meaning of pages with the same series: their objects and how values are computed."""

    exporter: str
    objects: tuple[wire.Object, ...]
    arithmetic: PageArithmetic
    refresh_s: float
    notes: tuple[str, ...]


class PageInterpreter:
    """Maps pages to ports by the exporters' tables, and keeps the results."""

    def __init__(self, tables: ExporterTables) -> None:
        self._tables = tables
        self._tested = {
            prefixed.prefix + name for prefixed in tables.groups for name in prefixed.group.tested
        }
        self._known: dict[object, InterpretedPage] = {}

    def interpret(self, series: tuple[LabelledSeries, ...], values: Floats) -> InterpretedPage:
        """The meaning of a page with these series. Only values that tables test are used."""
        tested = tuple(
            float(values[at])
            for at, (name, _) in enumerate(series)
            if name in self._tested and values[at] == values[at]
        )
        key = (series, tested)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MAX_PAGES:
                self._known.clear()
            names = [SeriesName(name, dict(labels)) for name, labels in series]
            page = map_page(names, values.tolist(), self._tables)
            exporters = sorted({str(item.info.get("exporter", "")) for item in page.objects})
            found = self._known[key] = InterpretedPage(
                "+".join(exporters),
                page.objects,
                PageArithmetic(page.cells),
                page.refresh_s,
                page.notes,
            )
        return found


class _Block:
    """Base of blocks of the wire, whose series are in slots of the series table.

    `slots` are those of all its series. `picked` has the slot of each value, whose factor to the
    unit of the catalog is in `factors`. `refresh_s` is how long its exporter may repeat values,
    `notes` are sentences on what it does not show. `refusal` is why nothing is read of it, empty
    where all is well.
    """

    refresh_s = 0.0
    notes: tuple[str, ...] = ()
    refusal = ""

    def __init__(self, source: str) -> None:
        self.source = source
        self.objects: list[wire.Object] = []
        self.slots: Indices = np.empty(0, np.intp)
        self.picked: Indices = self.slots
        self.factors: Floats = np.empty(0)

    def computed(self, values: Floats) -> Floats | None:
        """All values, if some are computed from several series; None if `picked` suffices."""
        return None


class AgentBlock(_Block):
    """A source of an agent: each series names its object and metric."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        # By node and id: the port and kind, and slot and factor by metric. Of the series only these
        # are kept: there are 164,000 of them for a thousand nodes.
        self._ports: dict[tuple[str | None, str], tuple[str, str]] = {}
        self._cells: dict[tuple[str | None, str], dict[str, tuple[int, float]]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no series is left."""
        return not self._cells

    def has(self, series: AgentSeries) -> bool:
        """Whether another series has the same object and metric."""
        return series.metric in self._cells.get((series.other, series.id), {})

    def add(self, slot: int, series: AgentSeries) -> None:
        """Add the series in a slot."""
        key = (series.other, series.id)
        self._ports.setdefault(key, (series.port, series.kind))
        self._cells.setdefault(key, {})[series.metric] = (slot, series.factor)

    def drop(self, slots: Set[int]) -> None:
        """Remove the series in some slots."""
        for key, cells in list(self._cells.items()):
            left = {name: cell for name, cell in cells.items() if cell[0] not in slots}
            self._cells[key] = left
            if not left:
                del self._cells[key], self._ports[key]

    def settle(self, values: Floats) -> None:
        """Apply what was added and dropped: sort the objects by node and name."""
        self.objects = []
        picked: list[tuple[int, float]] = []
        for other, id_ in sorted(self._cells, key=lambda key: (key[0] or "", natural(key[1]))):
            cells = self._cells[other, id_]
            port, kind = self._ports[other, id_]
            self.objects.append(wire.Object(id_, kind, port, {}, tuple(cells), other))
            picked += cells.values()
        self.slots = self.picked = np.array([slot for slot, _ in picked], np.intp)
        self.factors = np.array([factor for _, factor in picked], np.float64)


class PageBlock(_Block):
    """The page of an exporter: its meaning is known when all of its series are."""

    def __init__(self, interpreter: PageInterpreter) -> None:
        super().__init__("exporter")
        self._interpreter = interpreter
        self._series: dict[int, LabelledSeries] = {}
        self._arithmetic: PageArithmetic | None = None
        self._is_settled = True

    @property
    def is_empty(self) -> bool:
        """Whether no series is left."""
        return not self._series

    def add(self, slot: int, name: str, labels: Mapping[str, str]) -> None:
        """Add the series in a slot."""
        self._series[slot] = (name, tuple(sorted(labels.items())))
        self._is_settled = False

    def drop(self, slots: Set[int]) -> None:
        """Remove the series in some slots."""
        for slot in slots:
            self._series.pop(slot, None)
        self._is_settled = False

    def settle(self, values: Floats) -> None:
        """Apply what was added and dropped; `values` are those of the table."""
        if self._is_settled:
            return
        self._is_settled = True
        order = sorted(self._series, key=lambda slot: self._series[slot])
        self.slots = np.array(order, np.intp)
        series = tuple(self._series[slot] for slot in order)
        try:
            page = self._interpreter.interpret(series, values[self.slots])
        except PageTooLarge as error:
            # Of one node: the others go on, and so does this one when its series change.
            self.refusal, self.objects, self._arithmetic = str(error), [], None
            self.picked, self.factors = np.empty(0, np.intp), np.empty(0)
            return
        self.refusal = ""
        self.source = page.exporter or "exporter"
        self.objects = list(page.objects)
        self.refresh_s, self.notes = page.refresh_s, page.notes
        self._arithmetic = page.arithmetic
        self.picked, self.factors = self.slots[page.arithmetic.first], page.arithmetic.factors

    def computed(self, values: Floats) -> Floats | None:
        """All values, if some are joined from several series or may be blank."""
        arithmetic = self._arithmetic
        if arithmetic is None or not (
            arithmetic.joined or arithmetic.blanks or len(arithmetic.stuck)
        ):
            return None
        return arithmetic.values(values[self.slots])


SeriesBlock = AgentBlock | PageBlock
