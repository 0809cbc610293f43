"""Parsers of UFM's data: telemetry in CSV, and the REST API's ports, systems and links.

Telemetry has one row for each port, with the time of the port's own sample:

    timestamp,source_id,tag,node_guid,port_guid,port_num,PortXmitDataExtended,...

Timestamps are microseconds since 1970. The site configures which counters are present; those that
the catalog has are read. Source: NVIDIA UFM Telemetry documentation, "Telemetry fields".
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from collectors.catalog import WRAP64
from collectors.coverage import Coverage, CoverageCount
from collectors.node_description import hca_owner, unnamed_node
from collectors.wire import Object
from fabmon.fabric.model import HOST, SWITCH
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.transports.polled import decode_reply

_WORD_BYTES = 4
"""InfiniBand counts data in words of 4 bytes."""

_COUNTERS: Mapping[str, tuple[str, int]] = {
    "PortXmitData": ("ib_tx_bytes", _WORD_BYTES),
    "PortRcvData": ("ib_rx_bytes", _WORD_BYTES),
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
"""Counters that are 64 bits wide when their name ends in `Extended` or `Ext`, whatever the width of
the metric in the catalog."""

_MOST_LINES = 65_536
"""Lines of telemetry: four times the ports of a fabric. Each costs 5 us and 0.5 kB."""
_MOST_BYTES = 65_536
"""Bytes of a line: a hundred times those of all counters."""

_OTHER_COLUMNS: Mapping[str, str] = {
    "link_down_events": "phy_link_down_events",
    "phy_symbol_errors": "phy_rx_symbol_errors",
    "PortFECUncorrectableBlockCounter": "phy_rx_fec_uncorrectable_blocks",
    "PortFECCorrectableBlockCounter": "phy_rx_fec_corrected_blocks",
}

_COLUMNS: Mapping[str, tuple[str, int]] = {
    **{f"{name}Extended": to for name, to in _COUNTERS.items()},
    **{f"{name}Ext": to for name, to in _COUNTERS.items()},
    **{name: (metric, 1) for name, metric in _OTHER_COLUMNS.items()},
}
"""Column -> metric, and the factor to the unit of the metric."""

KINDS: Mapping[str, str] = dict.fromkeys((metric for metric, _ in _COUNTERS.values()), WRAP64)
"""The width of these counters here; the catalog has the classic ones, which saturate."""

_NO_COUNTERS = frozenset(
    (
        *("timestamp", "source_id", "tag", "node_guid", "port_guid", "port_num", "lid"),
        *("node_description", "node_desc", "node_name", "device_name", "device_id", "port_label"),
        *("sample_time", "status_message", "", "hostname", "system_name", "port_name"),
    )
)
"""Columns that identify a port or a sample."""

_NO_TEXT = "entries of UFM's REST API with values that are no text are left out"
_LEFT_OUT = "rows without a time, or with more or fewer cells than the header, are left out"

_DESCRIPTIONS = ("node_description", "node_desc", "node_name", "device_name")


class TelemetryRow(NamedTuple):
    """One port: `time_us` of its sample, and its values in the order of the metrics.

    GUIDs are 16 hex digits. `number` is the port number. `description` is the node's; empty where
    telemetry has no names.
    """

    time_us: int
    node_guid: str
    port_guid: str
    number: str
    description: str
    values: list[int | None]


class Telemetry(NamedTuple):
    """The metrics of the values in each row, the rows, what of the columns is not read, and as a
    sentence which rows are not."""

    metrics: tuple[str, ...]
    rows: list[TelemetryRow]
    coverage: tuple[Coverage, ...] = ()
    limits: tuple[str, ...] = ()


def parse_telemetry(body: bytes, url: str) -> Telemetry:
    """The rows of a CSV body. A row that is malformed is left out. Raises Misbehaved, also where
    there is no row: that a fabric has no port is never so."""
    if body.count(b"\n") > _MOST_LINES or max(map(len, io.BytesIO(body)), default=0) > _MOST_BYTES:
        raise Misbehaved(
            f"{url}: more than {_MOST_LINES:,} lines, or than {_MOST_BYTES:,} bytes in one"
        )
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(body), "utf-8", "replace", newline=""))
    header = [name.strip() for name in next(lines, [])]
    at = {name: position for position, name in reversed(list(enumerate(header)))}
    for needed in ("timestamp", "port_num"):
        if needed not in at:
            raise Misbehaved(f"{url}: this is no telemetry in CSV: column {needed} is missing")
    columns: dict[str, tuple[int, int]] = {}
    for name, (metric, factor) in _COLUMNS.items():
        if name in at:
            columns.setdefault(metric, (at[name], factor))
    sources = list(columns.values())
    description = next((at[name] for name in _DESCRIPTIONS if name in at), None)
    rows = []
    has_left_out = False
    try:
        for cells in lines:
            if (
                len(cells) == len(header)
                and (time_us := _whole(cells[at["timestamp"]])) is not None
            ):
                rows.append(_row(time_us, cells, at, sources, description))
            elif cells:
                has_left_out = True
    except csv.Error as error:
        raise Misbehaved(f"{url}: this is no CSV: {error}") from None
    if not rows:
        raise Misbehaved(f"{url}: no row with a time and as many cells as the header")
    counters = [name for name in header if name not in _NO_COUNTERS]
    count = CoverageCount()
    count.add("UFM telemetry", counters, _COLUMNS)
    limits = (_LEFT_OUT,) if has_left_out else ()
    return Telemetry(tuple(columns), rows, tuple(count.result()), limits)


def _row(
    time_us: int,
    cells: Sequence[str],
    at: Mapping[str, int],
    sources: Sequence[tuple[int, int]],
    description: int | None,
) -> TelemetryRow:
    def guid(name: str) -> str:
        return _guid(cells[at[name]]) if name in at else ""

    return TelemetryRow(
        time_us,
        guid("node_guid") or guid("source_id") or guid("port_guid"),
        guid("port_guid"),
        cells[at["port_num"]].strip(),
        "" if description is None else cells[description].strip(),
        [_number(cells[position], factor) for position, factor in sources],
    )


def _guid(text: str) -> str:
    """A GUID as 16 hex digits without 0x, the spelling of both telemetry and REST."""
    digits = text.strip().lower().removeprefix("0x")
    return digits.rjust(16, "0") if digits else ""


def _whole(text: str) -> int | None:
    """A number of up to 20 digits; None for any other text."""
    return int(text) if text.isdecimal() and len(text) <= 20 else None


def _number(text: str, factor: int) -> int | None:
    """A counter of 64 bits; None for an empty cell or one that is no such number (`N/A`)."""
    number: int | float | None = _whole(text)
    try:
        number = float(text) if number is None else number
    except ValueError:
        return None
    return int(number) * factor if 0 <= number < 2**64 / factor else None


_LANE_GBPS = {
    "SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100,
    "XDR": 200,
}  # fmt: skip
_STATES = {"down": 1, "init": 2, "initialize": 2, "armed": 3, "active": 4}
_PHYSICAL = {"sleep": 1, "polling": 2, "disabled": 3, "training": 4, "link up": 5, "linkup": 5}

_MANAGED = re.compile(r"MF0;([^:;]+):.*")
_HCA_MODEL = re.compile(r"MT\d+ (?!Infiniscale)")
"""The description of an HCA whose host has set none; Infiniscale are switches."""

_PORT_METRICS = ("ib_state", "ib_phys_state", "ib_rate_bps")


_KEYS: Mapping[str, tuple[str, ...]] = {
    "ports": (
        *("name", "guid", "number", "system_name", "systemID", "dname", "node_description"),
        *("logical_state", "physical_state", "active_speed", "active_width"),
    ),
    "systems": ("guid", "system_guid", "system_name", "type"),
    "links": ("source_guid", "source_port", "destination_guid", "destination_port"),
}
"""Resource of the REST API -> the keys of its entries that are used."""

_Entry = Mapping[str, str]


class PortName(NamedTuple):
    """The name of a port, and of its node. `role` is `host` or `switch`."""

    node: str
    port: str
    role: str


class UfmFabric(NamedTuple):
    """The REST API's view of the fabric.

    `names` are by `GUID_number`. `states` are the values of `ports`: three for each port. `limits`
    says, as a sentence, what was left out.
    """

    names: Mapping[str, PortName] = {}
    ports: tuple[Object, ...] = ()
    states: Sequence[int | None] = ()
    cables: tuple[Object, ...] = ()
    limits: tuple[str, ...] = ()

    def name_of(self, row: TelemetryRow) -> PortName:
        """The port of a row by its name in REST, else by the description in the row."""
        for guid in (row.node_guid, row.port_guid):
            named = self.names.get(f"{guid}_{row.number}")
            if named is not None:
                return named
        return name_from_description(row.description, row.node_guid, row.number)


def parse_fabric(ports: bytes, systems: bytes, links: bytes) -> UfmFabric:
    """The fabric in three replies of the REST API. Raises Misbehaved, also where there is no port:
    a manager that starts knows none yet."""
    names: dict[str, PortName] = {}
    types = {}
    listed, has_bad_port = _items(ports, "ports")
    all_systems, has_bad_system = _items(systems, "systems")
    all_links, has_bad_link = _items(links, "links")
    if not listed:
        raise Misbehaved("resources/ports: no port")
    for system in all_systems:
        for guid in (system["guid"], system["system_guid"]):
            types[_guid(guid)] = system["type"]
        types[system["system_name"]] = system["type"]
    objects, states = [], []
    for port in listed:
        kind = types.get(port["system_name"]) or types.get(_guid(port["systemID"])) or ""
        name = names[_key(port)] = _port_name(port, kind)
        names.setdefault(f"{_guid(port['guid'])}_{port['number']}", name)
        info = {"rdma": name.port, "guid": _guid(port["guid"]), "node_role": name.role}
        objects.append(Object(_key(port), "infiniband", name.port, info, _PORT_METRICS, name.node))
        states += _state(port)
    cables = []
    for link in all_links:
        ends = [
            names.get(f"{_guid(link[f'{end}_guid'])}_{link[f'{end}_port']}")
            for end in ("source", "destination")
        ]
        for end, other in (ends, ends[::-1]):
            if end is not None and other is not None:
                cables.append(_cable(end, other))
    limits = (_NO_TEXT,) if has_bad_port or has_bad_system or has_bad_link else ()
    return UfmFabric(names, tuple(objects), states, tuple(cables), limits)


def name_from_description(description: str, guid: str, number: str) -> PortName:
    """The name in a node description: `host device`, `MF0;switch:model/U1`; else the GUID.

    Descriptions such as `Quantum Mellanox Technologies`, which all unmanaged switches share, are
    not used.
    """
    managed = _MANAGED.fullmatch(description)
    if managed:
        return PortName(managed[1], number, SWITCH)
    node, port = _host_port(description, guid)
    return PortName(node, port or number, HOST) if node else PortName(guid, number, SWITCH)


def _host_port(description: str, guid: str) -> tuple[str, str]:
    """The host and the device of an HCA by its description; the host is empty if it is none of an
    HCA, the device if it has none."""
    if _HCA_MODEL.match(description):
        return unnamed_node(guid), ""
    host, device = hca_owner(description)
    if not host and device:
        return unnamed_node(guid), ""
    is_device = device and " " not in device and not device.startswith("HCA-")
    return (host, device) if is_device else ("", "")


def _port_name(port: _Entry, kind: str) -> PortName:
    """UFM's name of the system, with the port number on a switch and the device on a host."""
    guid = _guid(port["systemID"] or port["guid"])
    host, device = _host_port(port["node_description"], guid)
    role = (SWITCH if kind.lower() == "switch" else HOST) if kind else (HOST if host else SWITCH)
    node = port["system_name"]
    if role == SWITCH:
        return PortName(node or _guid(port["guid"]), port["number"], SWITCH)
    if not hca_owner(node)[0]:
        node = host or unnamed_node(guid)
    return PortName(node, device or port["dname"] or port["number"], HOST)


def _key(port: _Entry) -> str:
    """`GUID_number`, UFM's identifier of a port."""
    guid, separator, number = port["name"].rpartition("_")
    return f"{_guid(guid)}_{number}" if separator else f"{_guid(port['guid'])}_{port['number']}"


def _state(port: _Entry) -> list[int | None]:
    """The values of `_PORT_METRICS`."""
    lane_gbps = _LANE_GBPS.get(port["active_speed"].upper())
    width = _whole(port["active_width"].lower().removesuffix("x"))
    rate_bps = int(lane_gbps * 1e9) * width if lane_gbps and width and width < 100 else None
    return [
        _STATES.get(port["logical_state"].lower()),
        _PHYSICAL.get(port["physical_state"].lower()),
        rate_bps,
    ]


def _cable(end: PortName, other: PortName) -> Object:
    info = {
        "dev": end.port,
        "peer_node": other.node,
        "peer_port": other.port,
        "node_role": end.role,
    }
    return Object(f"{end.node}/{end.port}", "neighbour", None, info, (), end.node)


def _items(body: bytes, what: str) -> tuple[list[_Entry], bool]:
    """The entries of a JSON list, with the text of the keys that are used, empty for no value; and
    whether some are left out, in which one of these is neither text nor an integer. Raises
    Misbehaved."""
    found = decode_reply(body, Any, f"resources/{what}")
    if not isinstance(found, list):
        raise Misbehaved(f"resources/{what}: this is no list")
    entries: list[_Entry] = []
    for item in found:
        if isinstance(item, Mapping):
            known = {key: item.get(key) for key in _KEYS[what] if item.get(key) is not None}
            if all(isinstance(value, (str, int)) for value in known.values()):
                texts = {key: str(value) for key, value in known.items()}
                entries.append(defaultdict(str, texts))
    return entries, len(entries) < len(found)
