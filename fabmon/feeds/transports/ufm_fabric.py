"""What UFM's REST API knows of the fabric: what nodes and ports are called, their state, cables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from collectors.wire import Object
from fabmon.fabric.model import HOST, SWITCH
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.transports.ufm_telemetry import Row, guid_of

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


class Name(NamedTuple):
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


class Fabric:
    """Names by `guid_number`, the objects of ports with their state, and the cables."""

    def __init__(self) -> None:
        self.names: dict[str, Name] = {}
        self.ports: tuple[Object, ...] = ()
        self.states: list[int | None] = []
        self.cables: tuple[Object, ...] = ()

    def name_of(self, row: Row) -> Name:
        """A row's node and port, by what REST said, else by the row's own description."""
        for guid in (row.node_guid, row.port_guid):
            named = self.names.get(f"{guid}_{row.number}")
            if named is not None:
                return named
        return described(row.description, row.node_guid, row.number)


def fabric_of(ports: bytes, systems: bytes, links: bytes) -> Fabric:
    """The fabric as three answers of REST have it. Raises Misbehaved."""
    made = Fabric()
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


def described(description: str, guid: str, number: str) -> Name:
    """A port by the description of its node: `host device`, `MF0;switch:model/U1`, else its GUID.

    `Quantum Mellanox Technologies` and the like are what unmanaged switches are all called.
    """
    managed = _MANAGED.fullmatch(description)
    if managed:
        return Name(managed[1], number, SWITCH)
    host = _HOST.fullmatch(description)
    if host:
        return Name(host[1], host[2], HOST)
    return Name(guid, number, SWITCH)


def _named(port: _Port, kind: str) -> Name:
    """UFM's own name of the system; its port by the number on a switch, by the device on a host."""
    number = str(port.number)
    host = _HOST.fullmatch(port.node_description)
    role = (SWITCH if kind.lower() == "switch" else HOST) if kind else (HOST if host else SWITCH)
    node = port.system_name or (host[1] if host else "") or guid_of(port.guid)
    if role == SWITCH:
        return Name(node, number, SWITCH)
    return Name(node, host[2] if host else port.dname or number, HOST)


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


def _cable(end: Name, other: Name) -> Object:
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
