"""The tables of IF-MIB, EtherLike-MIB and LLDP-MIB, as objects and values of the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from collectors.wire import Object
from fabmon.fabric.names import mac_of
from fabmon.feeds.transports.snmp_client import Oid, SnmpTable

_IF: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
_IFX: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
_PAUSE: Oid = (1, 3, 6, 1, 2, 1, 10, 7, 10, 1)
_LLDP_LOCAL: Oid = (1, 0, 8802, 1, 1, 2, 1, 3, 7, 1)
_LLDP_REMOTE: Oid = (1, 0, 8802, 1, 1, 2, 1, 4, 1, 1)

IF_TYPE: Oid = (*_IF, 3)
IF_MTU: Oid = (*_IF, 4)
IF_MAC: Oid = (*_IF, 6)
IF_OPER: Oid = (*_IF, 8)
IF_NAME: Oid = (*_IFX, 1)
IF_ALIAS: Oid = (*_IFX, 18)
IF_SPEED: Oid = (*_IFX, 15)
IN_OCTETS: Oid = (*_IFX, 6)
OUT_OCTETS: Oid = (*_IFX, 10)

NAMES = (IF_TYPE, IF_MTU, IF_MAC, IF_NAME, IF_ALIAS, IF_SPEED)
"""What an interface is."""

TRAFFIC = (IN_OCTETS, OUT_OCTETS, IF_OPER)
"""What is asked for every time."""

_IN_PACKETS: tuple[Oid, ...] = tuple((*_IFX, column) for column in (7, 8, 9))
_OUT_PACKETS: tuple[Oid, ...] = tuple((*_IFX, column) for column in (11, 12, 13))
_WIDE: dict[Oid, str] = {(*_PAUSE, 5): "pause_rx_frames", (*_PAUSE, 6): "pause_tx_frames"}
_NARROW: dict[Oid, str] = {
    (*_IF, 13): "phy_rx_discards",
    (*_IF, 14): "phy_rx_errors",
    (*_IF, 19): "phy_tx_discards",
    (*_IF, 20): "phy_tx_errors",
}
"""Counters of 32 bits, which the catalog has with 64."""

DETAIL = (*_IN_PACKETS, *_OUT_PACKETS, *_NARROW, *_WIDE)
"""What is asked for less often."""

_PORT_SUBTYPE: Oid = (*_LLDP_REMOTE, 6)
_PORT_ID: Oid = (*_LLDP_REMOTE, 7)
_PORT_TEXT: Oid = (*_LLDP_REMOTE, 8)
_SYSTEM: Oid = (*_LLDP_REMOTE, 9)
LLDP_REMOTE = (_PORT_SUBTYPE, _PORT_ID, _PORT_TEXT, _SYSTEM)
_LOCAL_SUBTYPE: Oid = (*_LLDP_LOCAL, 2)
_LOCAL_ID: Oid = (*_LLDP_LOCAL, 3)
_LOCAL_TEXT: Oid = (*_LLDP_LOCAL, 4)
LLDP_LOCAL = (_LOCAL_SUBTYPE, _LOCAL_ID, _LOCAL_TEXT)

_ETHERNET, _INFINIBAND = (6, 62, 69, 117), (199,)
"""ifType (IANA): hardware ports; not the loopback, VLANs, tunnels or link aggregations."""

_UP = 1
_MAC, _IF_NAME = 3, 5
"""Subtypes of an LLDP port id."""


class Interface(NamedTuple):
    """A port of the agent: its `row` in the tables, and what is known of it."""

    row: Oid
    name: str
    kind: str
    info: dict[str, Any]
    speed_bps: int | None
    mtu: int | None


def ports_of(table: SnmpTable) -> list[Interface]:
    """The hardware ports among the interfaces. One without a name is called `if` and its index."""
    ports = []
    for index, kind in table.columns[IF_TYPE].items():
        if kind not in (*_ETHERNET, *_INFINIBAND):
            continue
        name = _text(table, IF_NAME, index) or f"if{index[-1]}"
        mac = table.columns[IF_MAC].get(index)
        info = {
            "netdev": name,
            "driver": "snmp",
            "ifindex": index[-1],
            "mac": mac_of(mac.hex()) if isinstance(mac, bytes) else None,
            "alias": _text(table, IF_ALIAS, index),
        }
        speed = _number(table, IF_SPEED, index)
        ports.append(
            Interface(
                index,
                name,
                "infiniband" if kind in _INFINIBAND else "ethernet",
                {key: value for key, value in info.items() if value},
                speed * 1_000_000 if speed else None,
                _number(table, IF_MTU, index),
            )
        )
    return ports


def traffic(table: SnmpTable, port: Interface) -> dict[str, int | None]:
    """Bytes and state of a port."""
    oper = _number(table, IF_OPER, port.row)
    return {
        "netdev_up": None if oper is None else int(oper == _UP),
        "netdev_speed_bps": port.speed_bps,
        "netdev_mtu": port.mtu,
        "phy_rx_bytes": _number(table, IN_OCTETS, port.row),
        "phy_tx_bytes": _number(table, OUT_OCTETS, port.row),
    }


def detail(table: SnmpTable, port: Interface, wide: Counter32Extender) -> dict[str, int | None]:
    """Packets, errors, discards and pause frames of a port."""
    return {
        "phy_rx_packets": _sum(table, _IN_PACKETS, port.row),
        "phy_tx_packets": _sum(table, _OUT_PACKETS, port.row),
        **{
            metric: wide.of((port.name, metric), _number(table, column, port.row))
            for column, metric in _NARROW.items()
        },
        **{metric: _number(table, column, port.row) for column, metric in _WIDE.items()},
    }


class Counter32Extender:
    """Makes counters of 32 bits count on past their end."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}

    def of(self, counter: tuple[str, str], value: int | None) -> int | None:
        """The wide value of a counter that now says `value`.

        A step of more than half the range is a reset: then the counter starts anew.
        """
        if value is None:
            return None
        before, wide = self._seen.get(counter, (value, value))
        step = (value - before) % (1 << 32)
        wide = wide + step if step < 1 << 31 else value
        self._seen[counter] = (value, wide)
        return wide


def peers(
    remote: SnmpTable, local: SnmpTable, ports: Mapping[Oid, Interface]
) -> tuple[Object, ...]:
    """The neighbours that LLDP tells of. Rows are (time mark, local port, number)."""
    by_name = {port.name: port for port in ports.values()}
    objects = []
    for index, subtype in sorted(remote.columns[_PORT_SUBTYPE].items(), key=lambda row: row[0]):
        if len(index) != 3:
            continue
        port = _local_port((index[1],), local, ports, by_name)
        if port is not None:
            info = {"dev": port.name, **_peer(remote, index, subtype)}
            objects.append(Object(f"{port.name}/{index[2]}", "neighbour", None, info, ()))
    return tuple(objects)


def _local_port(
    number: Oid,
    local: SnmpTable,
    ports: Mapping[Oid, Interface],
    by_name: Mapping[str, Interface],
) -> Interface | None:
    """LLDP numbers ports in its own way: by name where it gives one, else it is the ifIndex."""
    for column in (_LOCAL_ID, _LOCAL_TEXT):
        named = by_name.get(_text(local, column, number))
        if named is not None:
            return named
    return ports.get(number)


def _peer(remote: SnmpTable, index: Oid, subtype: int | bytes) -> dict[str, str]:
    info = {"peer_node": _text(remote, _SYSTEM, index)}
    raw = remote.columns[_PORT_ID].get(index)
    mac = mac_of(raw.hex()) if subtype == _MAC and isinstance(raw, bytes) else None
    if mac is not None:
        # The description is then what the neighbour calls its port.
        return {**info, "peer_port": _text(remote, _PORT_TEXT, index), "mac": mac}
    return {**info, "peer_port": _text(remote, _PORT_ID, index)}


def _text(table: SnmpTable, column: Oid, index: Oid) -> str:
    value = table.columns[column].get(index)
    return value.decode("utf-8", "replace").strip("\0 ") if isinstance(value, bytes) else ""


def _number(table: SnmpTable, column: Oid, index: Oid) -> int | None:
    value = table.columns[column].get(index)
    return value if isinstance(value, int) else None


def _sum(table: SnmpTable, columns: tuple[Oid, ...], index: Oid) -> int | None:
    known = [value for column in columns if (value := _number(table, column, index)) is not None]
    return sum(known) if known else None
