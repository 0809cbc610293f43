"""A target's series as the page that its exporter answered with, put into the wire's words.

Ten thousand nodes of a cluster are of three or four makes: what one page says is worked out once,
and holds for every page of the same series.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectors.wire import Object
from fabmon.feeds.prometheus.answers import Floats
from fabmon.feeds.scrape.exposition import Series
from fabmon.feeds.scrape.mapping import Mapped, mapped
from fabmon.feeds.scrape.tables import Tables

Indices = NDArray[np.intp]

Labelled = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its name and its labels, sorted, without those that the engine gave the target."""

_MOST_KEPT = 500


class Understood(NamedTuple):
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


class Pages:
    """Understands pages by the exporters' tables, and remembers."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._deciding = {
            prefix + name
            for table in tables.by_name.values()
            for group in table.groups
            for prefix in table.prefixes
            for name in (*group.require, *group.kinds)
        }
        self._known: dict[object, Understood] = {}

    def understand(self, series: tuple[Labelled, ...], values: Floats) -> Understood:
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
            spelled = [Series(name, dict(labels)) for name, labels in series]
            found = self._known[key] = _understood(mapped(spelled, values.tolist(), self._tables))
        return found


def _understood(page: Mapped) -> Understood:
    exporters = sorted({str(item.info.get("exporter", "")) for item in page.objects})
    return Understood(
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
