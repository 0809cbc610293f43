"""UFM Telemetry's CSV: one row a port, with the time of its own sample.

    timestamp,source_id,tag,node_guid,port_guid,port_num,PortXmitDataExtended,...

Timestamps are microseconds since 1970. Which counters are there is the site's configuration; those
that the catalog has are taken. NVIDIA UFM Telemetry documentation, "Telemetry fields".
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from collectors.catalog import WRAP64
from collectors.wire import Object
from fabmon.fabric.model import HOST, SWITCH
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


class TelemetryRow(NamedTuple):
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
    rows: list[TelemetryRow]


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
) -> TelemetryRow:
    def guid(name: str) -> str:
        return guid_of(cells[at[name]]) if name in at else ""

    return TelemetryRow(
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


# What UFM's REST API knows of the fabric: what nodes and ports are called, their state, cables.


Kind = TypeVar("Kind", bound=msgspec.Struct)

_LANE_GBPS = {
    "SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100,
    "XDR": 200,
}  # fmt: skip
_STATES = {"down": 1, "init": 2, "initialize": 2, "armed": 3, "active": 4}
_PHYSICAL = {"sleep": 1, "polling": 2, "disabled": 3, "training": 4, "link up": 5, "linkup": 5}

_MANAGED = re.compile(r"MF0;([^:;]+):.*")
_HOST = re.compile(r"(\S+) ((?!HCA-|Mellanox|Technologies)\S+)")

PORT_METRICS = ("ib_state", "ib_phys_state", "ib_rate_bps")


class PortName(NamedTuple):
    """What a port is called, and the node it is on. `role` is `host` or `switch`."""

    node: str
    port: str
    role: str


class _Port(msgspec.Struct):
    name: str = ""
    guid: str = ""
    number: int | str = ""
    system_name: str = ""
    systemID: str = ""
    dname: str = ""
    node_description: str = ""
    logical_state: str = ""
    physical_state: str = ""
    active_speed: str = ""
    active_width: str = ""


class _System(msgspec.Struct):
    guid: str = ""
    system_guid: str = ""
    system_name: str = ""
    type: str = ""


class _Link(msgspec.Struct):
    source_guid: str = ""
    source_port: int | str = ""
    destination_guid: str = ""
    destination_port: int | str = ""


class UfmFabric:
    """Names by `guid_number`, the objects of ports with their state, and the cables."""

    def __init__(self) -> None:
        self.names: dict[str, PortName] = {}
        self.ports: tuple[Object, ...] = ()
        self.states: list[int | None] = []
        self.cables: tuple[Object, ...] = ()

    def name_of(self, row: TelemetryRow) -> PortName:
        """A row's node and port, by what REST said, else by the row's own description."""
        for guid in (row.node_guid, row.port_guid):
            named = self.names.get(f"{guid}_{row.number}")
            if named is not None:
                return named
        return described(row.description, row.node_guid, row.number)


def fabric_of(ports: bytes, systems: bytes, links: bytes) -> UfmFabric:
    """The fabric as three answers of REST have it. Raises Misbehaved."""
    made = UfmFabric()
    types = {}
    for system in _items(systems, _System, "systems"):
        for guid in (system.guid, system.system_guid):
            types[guid_of(guid)] = system.type
        types[system.system_name] = system.type
    objects = []
    for port in _items(ports, _Port, "ports"):
        kind = types.get(port.system_name) or types.get(guid_of(port.systemID)) or ""
        named = _named(port, kind)
        key = _key(port)
        made.names[key] = named
        made.names.setdefault(f"{guid_of(port.guid)}_{port.number}", named)
        info = {"rdma": named.port, "guid": guid_of(port.guid), "node_role": named.role}
        objects.append(Object(key, "infiniband", named.port, info, PORT_METRICS, named.node))
        made.states += _state(port)
    made.ports = tuple(objects)
    cables = []
    for link in _items(links, _Link, "links"):
        ends = [
            made.names.get(f"{guid_of(guid)}_{number}")
            for guid, number in (
                (link.source_guid, link.source_port),
                (link.destination_guid, link.destination_port),
            )
        ]
        for end, other in (ends, ends[::-1]):
            if end is not None and other is not None:
                cables.append(_cable(end, other))
    made.cables = tuple(cables)
    return made


def described(description: str, guid: str, number: str) -> PortName:
    """A port by the description of its node: `host device`, `MF0;switch:model/U1`, else its GUID.

    `Quantum Mellanox Technologies` and the like are what unmanaged switches are all called.
    """
    managed = _MANAGED.fullmatch(description)
    if managed:
        return PortName(managed[1], number, SWITCH)
    host = _HOST.fullmatch(description)
    if host:
        return PortName(host[1], host[2], HOST)
    return PortName(guid, number, SWITCH)


def _named(port: _Port, kind: str) -> PortName:
    """UFM's own name of the system; its port by the number on a switch, by the device on a host."""
    number = str(port.number)
    host = _HOST.fullmatch(port.node_description)
    role = (SWITCH if kind.lower() == "switch" else HOST) if kind else (HOST if host else SWITCH)
    node = port.system_name or (host[1] if host else "") or guid_of(port.guid)
    if role == SWITCH:
        return PortName(node, number, SWITCH)
    return PortName(node, host[2] if host else port.dname or number, HOST)


def _key(port: _Port) -> str:
    """`guid_number`, which is what UFM calls a port."""
    guid, line, number = port.name.rpartition("_")
    return f"{guid_of(guid)}_{number}" if line else f"{guid_of(port.guid)}_{port.number}"


def _state(port: _Port) -> list[int | None]:
    lane = _LANE_GBPS.get(port.active_speed.upper())
    width = port.active_width.lower().removesuffix("x")
    rate = int(lane * 1e9) * int(width) if lane and width.isdigit() else None
    return [
        _STATES.get(port.logical_state.lower()),
        _PHYSICAL.get(port.physical_state.lower()),
        rate,
    ]


def _cable(end: PortName, other: PortName) -> Object:
    info = {
        "dev": end.port,
        "peer_node": other.node,
        "peer_port": other.port,
        "node_role": end.role,
    }
    return Object(f"{end.node}/{end.port}", "neighbour", None, info, (), end.node)


def _items(data: bytes, kind: type[Kind], what: str) -> list[Kind]:
    """The entries of a list that have the expected form."""
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misbehaved(f"resources/{what} is not JSON: {error}") from None
    entries = []
    for item in found if isinstance(found, list) else []:
        if isinstance(item, Mapping):
            known = {key: value for key, value in item.items() if value is not None}
            try:
                entries.append(msgspec.convert(known, kind))
            except msgspec.ValidationError:
                continue
    return entries
