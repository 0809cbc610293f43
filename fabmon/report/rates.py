"""Rates as a table: a row a port and tick, for CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from fabmon.fabric.filter import Mask
from fabmon.fabric.model import RAIL, Fabric, Port
from fabmon.fabric.snapshot import HEAT, Floats, Snapshot
from fabmon.report.records import link_state, rounded_or_none, utc

NAMES = ("node", "port", "label", "role", "rail", "kind", "peer")
"""What a port is, in the first columns behind the time."""

_IN_UNITS = {
    "tx_bps": "tx_bps",
    "rx_bps": "rx_bps",
    "pause_rx": "pause_rx_ratio",
    "pause_tx": "pause_tx_ratio",
    "xoff": "xoff_per_s",
    "stall": "stall_ratio",
    "ecn": "ecn_packets_per_s",
    "cnp_sent": "cnp_sent_per_s",
    "cnp": "cnp_handled_per_s",
    "errors": "errors_per_s",
    "drops": "drops_per_s",
    "damage": "damage_errors_per_s",
    "flaps": "carrier_changes_per_s",
    "bus": "pcie_stall_ratio",
}
"""Column of HEAT -> what it is called here, with its unit."""

NUMBERS = ("line_rate_bps", "tx_util_ratio", "rx_util_ratio", *_IN_UNITS.values(), "age_s")
_FORMULA = frozenset("=+-@")
"""What spreadsheets begin formulas with."""

COLUMNS = ("time", *NAMES, "state", *NUMBERS)


@dataclass(frozen=True, slots=True)
class Rates:
    """One tick: `rows` of the moment, by node as they are shown; `numbers` [NUMBERS, rows], NaN is
    absent; `names` and `states` are parallel to the rows."""

    time_ns: int
    names: Sequence[tuple[str | None, ...]]
    states: Sequence[str]
    numbers: Floats


class RateTable:
    """Makes rows of moments; what a port is called is worked out once for each fabric."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._ports: list[Port] = []
        self._names: list[tuple[str | None, ...]] = []

    def of(self, snapshot: Snapshot, wanted: Mask | None) -> Rates:
        """The rows of a moment: of all ports, or of the wanted ones."""
        if self._fabric is not snapshot.fabric:
            self._fabric = snapshot.fabric
            self._ports = [port for node in snapshot.fabric.nodes for port in node.ports]
            self._names = [_names(port, snapshot.fabric) for port in self._ports]
        places = [
            place for place, port in enumerate(self._ports) if wanted is None or wanted[port.row]
        ]
        rows = [self._ports[place].row for place in places]
        heat = [snapshot.heat[HEAT.index(column)] for column in _IN_UNITS]
        parts = [snapshot.line_rate_bps, snapshot.tx_util, snapshot.rx_util, *heat, snapshot.age_s]
        numbers = np.stack([part[rows] for part in parts])
        numbers[~np.isfinite(numbers)] = np.nan
        return Rates(
            snapshot.time_ns,
            [self._names[place] for place in places],
            [link_state(snapshot, self._ports[place]) for place in places],
            numbers,
        )


class CsvRates:
    """Rates as CSV; what is absent is empty, and no name is a formula."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._table = RateTable()
        self._write([COLUMNS])

    def accept(self, snapshot: Snapshot, wanted: Mask | None) -> None:
        """Add the rows of a tick. Raises OSError."""
        self._write(_rows(self._table.of(snapshot, wanted)))

    def close(self) -> None:
        """Nothing is left to do."""

    def _write(self, rows: Iterator[Sequence[object]] | list[tuple[str, ...]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._stream.write(text.getvalue().encode())


def _rows(rates: Rates) -> Iterator[Sequence[object]]:
    time = utc(rates.time_ns).isoformat().replace("+00:00", "Z")
    for place, (names, state) in enumerate(zip(rates.names, rates.states, strict=True)):
        numbers = [rounded_or_none(value) for value in rates.numbers[:, place]]
        yield (
            time,
            *map(_as_text, names),
            state,
            *("" if value is None else value for value in numbers),
        )


def _as_text(name: str | None) -> str | None:
    """A name that no spreadsheet takes for a formula: nodes name their ports as they like."""
    return f"'{name}" if name and name[0] in _FORMULA else name


def _names(port: Port, fabric: Fabric) -> tuple[str | None, ...]:
    peer = None if port.peer is None else fabric.ports[port.peer].id
    rail = str(port.index) if port.role == RAIL else None
    known = peer if peer and peer != "/" else None
    return (port.node, port.name, port.label, port.role, rail, port.kind, known)
