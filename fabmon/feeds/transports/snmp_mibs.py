"""The tables of IF-MIB, EtherLike-MIB and LLDP-MIB as objects and values of the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from collectors.wire import Object
from fabmon.fabric.names import mac_of
from fabmon.feeds.transports.polled import Counter32Extender, sum_known
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
"""Columns that identify an interface, read rarely."""

TRAFFIC = (IN_OCTETS, OUT_OCTETS, IF_OPER)
"""Columns read in every poll."""

_IN_PACKETS: tuple[Oid, ...] = tuple((*_IFX, column) for column in (7, 8, 9))
_OUT_PACKETS: tuple[Oid, ...] = tuple((*_IFX, column) for column in (11, 12, 13))
_COUNTERS_64: dict[Oid, str] = {(*_PAUSE, 5): "pause_rx_frames", (*_PAUSE, 6): "pause_tx_frames"}
_COUNTERS_32: dict[Oid, str] = {
    (*_IF, 13): "phy_rx_discards",
    (*_IF, 14): "phy_rx_errors",
    (*_IF, 19): "phy_tx_discards",
    (*_IF, 20): "phy_tx_errors",
}
"""Counters of 32 bits, which are 64 bits wide in the catalog."""

DETAIL = (*_IN_PACKETS, *_OUT_PACKETS, *_COUNTERS_32, *_COUNTERS_64)
"""Columns read less often: packets, errors, discards, pause frames."""

_PORT_SUBTYPE: Oid = (*_LLDP_REMOTE, 6)
_PORT_ID: Oid = (*_LLDP_REMOTE, 7)
_PORT_DESCRIPTION: Oid = (*_LLDP_REMOTE, 8)
_SYSTEM_NAME: Oid = (*_LLDP_REMOTE, 9)
LLDP_REMOTE = (_PORT_SUBTYPE, _PORT_ID, _PORT_DESCRIPTION, _SYSTEM_NAME)
_LOCAL_SUBTYPE: Oid = (*_LLDP_LOCAL, 2)
_LOCAL_ID: Oid = (*_LLDP_LOCAL, 3)
_LOCAL_DESCRIPTION: Oid = (*_LLDP_LOCAL, 4)
LLDP_LOCAL = (_LOCAL_SUBTYPE, _LOCAL_ID, _LOCAL_DESCRIPTION)

_ETHERNET, _INFINIBAND = (6, 62, 69, 117), (199,)
"""ifType (IANA) of hardware ports; not of loopbacks, VLANs, tunnels or link aggregations."""

_UP = 1
"""ifOperStatus."""

_MAC_SUBTYPE = 3
"""Subtype of an LLDP port id that is a MAC address."""


class Interface(NamedTuple):
    """A port of the agent: its `row` index in the tables, and its properties."""

    row: Oid
    name: str
    kind: str
    info: dict[str, Any]
    speed_bps: int | None
    mtu: int | None

    def object(self) -> Object:
        """The port as an object of the wire, without metrics."""
        return Object(self.name, self.kind, self.name, self.info, ())


def interfaces(table: SnmpTable) -> list[Interface]:
    """The hardware ports. One without a name is called `if` and its index."""
    ports = []
    for row, kind in table.columns[IF_TYPE].items():
        if kind not in (*_ETHERNET, *_INFINIBAND):
            continue
        name = table.text(IF_NAME, row) or f"if{row[-1]}"
        info = {
            "netdev": name,
            "driver": "snmp",
            "ifindex": row[-1],
            "mac": mac_of(table.raw(IF_MAC, row).hex()),
            "alias": table.text(IF_ALIAS, row),
        }
        speed_mbps = table.number(IF_SPEED, row)
        ports.append(
            Interface(
                row,
                name,
                "infiniband" if kind in _INFINIBAND else "ethernet",
                {key: value for key, value in info.items() if value},
                speed_mbps * 1_000_000 if speed_mbps else None,
                table.number(IF_MTU, row),
            )
        )
    return ports


def traffic(table: SnmpTable, port: Interface) -> dict[str, int | None]:
    """Byte counters and state of a port."""
    status = table.number(IF_OPER, port.row)
    return {
        "netdev_up": None if status is None else int(status == _UP),
        "netdev_speed_bps": port.speed_bps,
        "netdev_mtu": port.mtu,
        "phy_rx_bytes": table.number(IN_OCTETS, port.row),
        "phy_tx_bytes": table.number(OUT_OCTETS, port.row),
    }


def detail(table: SnmpTable, port: Interface, extender: Counter32Extender) -> dict[str, int | None]:
    """Packets, errors, discards and pause frames of a port."""
    return {
        "phy_rx_packets": sum_known(table.number(column, port.row) for column in _IN_PACKETS),
        "phy_tx_packets": sum_known(table.number(column, port.row) for column in _OUT_PACKETS),
        **{
            metric: extender.extend((port.name, metric), table.number(column, port.row))
            for column, metric in _COUNTERS_32.items()
        },
        **{metric: table.number(column, port.row) for column, metric in _COUNTERS_64.items()},
    }


def peers(
    remote: SnmpTable, local: SnmpTable, ports: Mapping[Oid, Interface]
) -> tuple[Object, ...]:
    """The neighbours that LLDP reports. A row's index is (time mark, local port, number)."""
    by_name = {port.name: port for port in ports.values()}
    objects = []
    for row, subtype in sorted(remote.columns[_PORT_SUBTYPE].items(), key=lambda item: item[0]):
        if len(row) != 3:
            continue
        port = _local_port((row[1],), local, ports, by_name)
        if port is not None:
            info = {"dev": port.name, **_peer(remote, row, subtype)}
            objects.append(Object(f"{port.name}/{row[2]}", "neighbour", None, info, ()))
    return tuple(objects)


def _local_port(
    number: Oid,
    local: SnmpTable,
    ports: Mapping[Oid, Interface],
    by_name: Mapping[str, Interface],
) -> Interface | None:
    """The port for LLDP's own port number: by its name if LLDP has one, else by ifIndex."""
    for column in (_LOCAL_ID, _LOCAL_DESCRIPTION):
        named = by_name.get(local.text(column, number))
        if named is not None:
            return named
    return ports.get(number)


def _peer(remote: SnmpTable, row: Oid, subtype: int | bytes) -> dict[str, str]:
    info = {"peer_node": remote.text(_SYSTEM_NAME, row)}
    mac = mac_of(remote.raw(_PORT_ID, row).hex()) if subtype == _MAC_SUBTYPE else None
    if mac is not None:
        # The description is then the neighbour's own name of the port.
        return {**info, "peer_port": remote.text(_PORT_DESCRIPTION, row), "mac": mac}
    return {**info, "peer_port": remote.text(_PORT_ID, row)}
