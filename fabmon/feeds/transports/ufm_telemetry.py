"""UFM Telemetry's CSV: one row a port, with the time of its own sample.

    timestamp,source_id,tag,node_guid,port_guid,port_num,PortXmitDataExtended,...

Timestamps are microseconds since 1970. Which counters are there is the site's configuration; those
that the catalog has are taken. NVIDIA UFM Telemetry documentation, "Telemetry fields".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from collectors.catalog import WRAP64
from fabmon.feeds.errors import Misbehaved

_WORDS = 4
"""InfiniBand counts data in words of 4 bytes."""

_COUNTERS: Mapping[str, tuple[str, int]] = {
    "PortXmitData": ("ib_tx_bytes", _WORDS),
    "PortRcvData": ("ib_rx_bytes", _WORDS),
    "PortXmitPkts": ("ib_tx_packets", 1),
    "PortRcvPkts": ("ib_rx_packets", 1),
    "PortUniCastXmitPkts": ("ib_tx_unicast_packets", 1),
    "PortUniCastRcvPkts": ("ib_rx_unicast_packets", 1),
    "PortMultiCastXmitPkts": ("ib_tx_multicast_packets", 1),
    "PortMultiCastRcvPkts": ("ib_rx_multicast_packets", 1),
    "PortXmitWait": ("ib_tx_wait", 1),
    "SymbolErrorCounter": ("ib_symbol_errors", 1),
    "LinkErrorRecoveryCounter": ("ib_link_error_recovery", 1),
    "LinkDownedCounter": ("ib_link_downed", 1),
    "PortRcvErrors": ("ib_rx_errors", 1),
    "PortRcvRemotePhysicalErrors": ("ib_rx_remote_physical_errors", 1),
    "PortRcvSwitchRelayErrors": ("ib_rx_switch_relay_errors", 1),
    "PortXmitDiscards": ("ib_tx_discards", 1),
    "PortXmitConstraintErrors": ("ib_tx_constraint_errors", 1),
    "PortRcvConstraintErrors": ("ib_rx_constraint_errors", 1),
    "LocalLinkIntegrityErrors": ("ib_local_link_integrity_errors", 1),
    "ExcessiveBufferOverrunErrors": ("ib_excessive_buffer_overruns", 1),
    "VL15Dropped": ("ib_vl15_dropped", 1),
}
"""Counters that are 64 bits wide under these names and `Extended`, whatever the catalog says of the
classic ones."""

_OTHERS: Mapping[str, str] = {
    "link_down_events": "phy_link_down_events",
    "phy_symbol_errors": "phy_rx_symbol_errors",
    "PortFECUncorrectableBlockCounter": "phy_rx_fec_uncorrectable_blocks",
    "PortFECCorrectableBlockCounter": "phy_rx_fec_corrected_blocks",
}

COLUMNS: Mapping[str, tuple[str, int]] = {
    **{f"{name}Extended": to for name, to in _COUNTERS.items()},
    **{f"{name}Ext": to for name, to in _COUNTERS.items()},
    **{name: (metric, 1) for name, metric in _OTHERS.items()},
}
"""Column -> metric, and how many of its units a 1 is."""

KINDS: Mapping[str, str] = dict.fromkeys((metric for metric, _ in _COUNTERS.values()), WRAP64)
"""The catalog has the classic widths of these, in which they stick at their end."""

_DESCRIPTIONS = ("node_description", "node_desc", "node_name", "device_name")


class Row(NamedTuple):
    """One port: `time_us` of its sample, and its values in the order of the metrics.

    GUIDs are 16 hex digits. `description` is the node's, empty where telemetry has no names.
    """

    time_us: int
    node_guid: str
    port_guid: str
    number: str
    description: str
    values: list[int | None]


class Telemetry(NamedTuple):
    """One answer: what each row's values are, and the rows."""

    metrics: tuple[str, ...]
    rows: list[Row]


def read(data: bytes, where: str) -> Telemetry:
    """The rows of a CSV answer. A row that cannot be read is left out. Raises Misbehaved."""
    lines = csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline=""))
    header = [name.strip() for name in next(lines, [])]
    at = {name: position for position, name in reversed(list(enumerate(header)))}
    for needed in ("timestamp", "port_num"):
        if needed not in at:
            raise Misbehaved(f"{where}: not telemetry in CSV: no column {needed}")
    columns: dict[str, tuple[int, int]] = {}
    for name, (metric, factor) in COLUMNS.items():
        if name in at:
            columns.setdefault(metric, (at[name], factor))
    places = list(columns.values())
    described = next((at[name] for name in _DESCRIPTIONS if name in at), None)
    rows = []
    try:
        for cells in lines:
            if len(cells) == len(header) and cells[at["timestamp"]].isdigit():
                rows.append(_row(cells, at, places, described))
    except csv.Error as error:
        raise Misbehaved(f"{where}: not CSV: {error}") from None
    return Telemetry(tuple(columns), rows)


def _row(
    cells: Sequence[str],
    at: Mapping[str, int],
    places: Sequence[tuple[int, int]],
    described: int | None,
) -> Row:
    def guid(name: str) -> str:
        return guid_of(cells[at[name]]) if name in at else ""

    return Row(
        int(cells[at["timestamp"]]),
        guid("node_guid") or guid("source_id") or guid("port_guid"),
        guid("port_guid"),
        cells[at["port_num"]].strip(),
        "" if described is None else cells[described].strip(),
        [_number(cells[place], factor) for place, factor in places],
    )


def guid_of(text: str) -> str:
    """A GUID as UFM's other half spells it: 16 hex digits, without 0x."""
    digits = text.strip().lower().removeprefix("0x")
    return digits.rjust(16, "0") if digits else ""


def _number(text: str, factor: int) -> int | None:
    """A counter; None for what is empty or no number (`N/A`)."""
    try:
        return int(text) * factor
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) * factor if 0 <= value < 2**64 else None
