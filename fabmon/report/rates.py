"""Rates as a table with one row per port and tick, for CSV and Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from fabmon.analysis.evidence.doubtful_rates import DoubtfulRates, doubts_by_row
from fabmon.fabric.filter import Mask
from fabmon.fabric.heat_columns import COLUMNS as HEAT_COLUMNS
from fabmon.fabric.model import RAIL, Fabric, Port
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_wording import utc
from fabmon.report.json_records import rounded_or_none

NAMES = ("node", "port", "label", "role", "rail", "kind", "peer")
"""Columns that identify a port, after the time."""

_RATES = tuple(each.exported for each in HEAT_COLUMNS)
NUMBERS = ("line_rate_bps", "tx_util_ratio", "rx_util_ratio", *_RATES, "age_s")
_FORMULA = re.compile('(^|[;"])(?=[=+\\-@\uff1d\uff0b\uff0d\uff20])')  # Full-width ones: in Asia.
"""Where a formula begins in spreadsheets. Where a comma is the decimal sign, cells end with `;`,
and a quote within one is none."""

COLUMNS = ("time", *NAMES, "state", *NUMBERS, "doubt")


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one tick; rows are ports in the order of the screen.

    `names` (columns NAMES) and `states` have one item per row. `numbers` is [NUMBERS, rows], NaN
    where absent. `doubts` say why the traffic of a row cannot be what it counts, None of others.
    """

    time_ns: int
    names: Sequence[tuple[str | None, ...]]
    states: Sequence[str]
    numbers: Floats
    doubts: Sequence[str | None]


class RateTable:
    """Converts snapshots to rows; the names of ports are computed once for each fabric."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._ports: list[tuple[Port, tuple[str | None, ...]]] = []
        self._doubtful = DoubtfulRates()

    def of(self, snapshot: Snapshot, wanted: Mask | None) -> Rates:
        """The rates of a snapshot, of all ports or of the wanted ones."""
        if self._fabric is not snapshot.fabric:
            self._fabric = snapshot.fabric
            ports = [port for node in snapshot.fabric.nodes for port in node.ports]
            self._ports = [(port, _names(port, snapshot.fabric)) for port in ports]
        chosen = [each for each in self._ports if wanted is None or wanted[each[0].row]]
        rows = [port.row for port, _ in chosen]
        utils = (snapshot.tx_util, snapshot.rx_util)
        parts = [snapshot.line_rate_bps, *utils, *snapshot.heat, snapshot.age_s]
        numbers = np.stack([part[rows] for part in parts])
        numbers[~np.isfinite(numbers)] = np.nan
        states = [snapshot.state(port.row) for port, _ in chosen]
        doubts = doubts_by_row(snapshot, self._doubtful.of(snapshot))
        names = [names for _, names in chosen]
        return Rates(snapshot.time_ns, names, states, numbers, list(map(doubts.get, rows)))


class CsvRates:
    """Writes rates as CSV: absent values are empty, and no name is a formula."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._table = RateTable()
        self._write([COLUMNS])

    def accept(self, snapshot: Snapshot, wanted: Mask | None) -> None:
        """Write the rows of a tick. Raises OSError."""
        self._write(_rows(self._table.of(snapshot, wanted)))

    def close(self) -> None:
        """Do nothing: a CSV file needs no end."""

    def _write(self, rows: Iterable[Sequence[object]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._stream.write(text.getvalue().encode())


def csv_of(snapshot: Snapshot, wanted: Mask | None) -> bytes:
    """The rows of one tick as CSV, with the columns' names; `wanted` None: all ports."""
    text = io.BytesIO()
    CsvRates(text).accept(snapshot, wanted)
    return text.getvalue()


def _rows(rates: Rates) -> Iterator[Sequence[object]]:
    time = utc(rates.time_ns).isoformat().replace("+00:00", "Z")
    rows = zip(rates.names, rates.states, rates.doubts, strict=True)
    for place, (names, state, doubt) in enumerate(rows):
        numbers = map(rounded_or_none, rates.numbers[:, place])
        # Names are what nodes report: a quote keeps a spreadsheet from taking one for a formula.
        *texts, why = (name and _FORMULA.sub(r"\1'", name) for name in (*names, doubt))
        yield time, *texts, state, *("" if value is None else value for value in numbers), why


def _names(port: Port, fabric: Fabric) -> tuple[str | None, ...]:
    peer = None if port.peer is None else fabric.ports[port.peer].id
    rail = str(port.index) if port.role == RAIL else None
    known_peer = peer if peer and peer != "/" else None
    return (port.node, port.name, port.label, port.role, rail, port.kind, known_peer)
