"""OpenConfig leaves of gNMI notifications as metrics of ports: interfaces, queues, LLDP.

The models are openconfig-interfaces, -if-ethernet, -qos and -lldp (openconfig/public). None has a
leaf for PFC; vendors add their own, which are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from collectors.catalog import require
from fabmon.malformed_json import MALFORMED

Keys = Mapping[str, str]

MOST_PORTS = 2048
"""Interfaces of a device, as of a node."""
_MOST_QUEUES = 8
_MOST_DEPTH = 12
_MODULE = re.compile(r"^[A-Za-z][\w.-]*:")

COUNTERS, STATE, QUEUES, NEIGHBOURS = "gnmi", "gnmi_state", "gnmi_queues", "lldp"
"""Sources: what is sampled of ports, their state, their queues, LLDP."""

_COUNTERS = {
    "in-octets": "phy_rx_bytes",
    "out-octets": "phy_tx_bytes",
    "in-pkts": "phy_rx_packets",
    "out-pkts": "phy_tx_packets",
    "in-discards": "phy_rx_discards",
    "out-discards": "phy_tx_discards",
    "in-errors": "phy_rx_errors",
    "out-errors": "phy_tx_errors",
    "in-fcs-errors": "phy_rx_crc_errors",
    "carrier-transitions": "netdev_carrier_changes",
}
_ETHERNET = {
    "in-mac-pause-frames": "pause_rx_frames",
    "out-mac-pause-frames": "pause_tx_frames",
}
_QUEUE = {
    "transmit-octets": "tx_bytes",
    "transmit-pkts": "tx_packets",
    "dropped-pkts": "tx_drops",
    "ecn-marked-pkts": "tx_ecn_marked",
}
require(
    *_COUNTERS.values(),
    *_ETHERNET.values(),
    *(f"queue{number}_{what}" for number in range(_MOST_QUEUES) for what in _QUEUE.values()),
)

_SPEEDS = re.compile(r"SPEED_(\d+)(MB|GB)$")
_ETHERNET_TYPE = "ethernetCsmacd"


class Leaf(NamedTuple):
    """A value of a port: of the source `source`, with a metric of the catalog or the name of a
    fact (`ifindex`, `type`, `system-name` ...). `neighbour` is the id of an LLDP neighbour."""

    source: str
    port: str
    name: str
    value: int | str
    neighbour: str = ""


def leaves(path: tuple[tuple[str, Keys], ...], value: Any) -> Iterator[Leaf | None]:
    """The leaves at or below a path, None for one that is not known. JSON of a container is taken
    apart."""
    for names, keys, found in _flat(path, value, 0):
        yield _leaf(names, keys, found)


def json_value(data: bytes) -> Any:
    """The value of JSON in a notification; None for what is no JSON."""
    try:
        return msgspec.json.decode(data)
    except MALFORMED:
        return None


def _flat(
    path: tuple[tuple[str, Keys], ...], value: Any, depth: int
) -> Iterator[tuple[tuple[str, ...], dict[str, str], Any]]:
    """(names, keys, value) of every leaf below a path."""
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            plain = _MODULE.sub("", str(name))
            if isinstance(inner, list) and all(isinstance(each, dict) for each in inner):
                for each in inner:
                    keys = {
                        _MODULE.sub("", str(key)): str(key_value)
                        for key, key_value in each.items()
                        if isinstance(key_value, (str, int))
                    }
                    yield from _flat((*path, (plain, keys)), each, depth + 1)
            else:
                yield from _flat((*path, (plain, {})), inner, depth + 1)
        return
    keys = {}
    for name, own in path:
        keys |= {f"{name}/{key}": key_value for key, key_value in own.items()}
    yield tuple(name for name, _ in path), keys, value


def _leaf(names: tuple[str, ...], keys: Mapping[str, str], value: Any) -> Leaf | None:
    if not names or value is None:
        return None
    last = names[-1]
    if names[:1] == ("interfaces",):
        port = keys.get("interface/name", "")
        return _interface_leaf(names[2:-1], port, last, value) if port else None
    if names[:2] == ("qos", "interfaces"):
        port = keys.get("interface/interface-id", "")
        number = queue_number(keys.get("queue/name", ""))
        metric = _QUEUE.get(last)
        counted = _number(value)
        if port and number is not None and metric and counted is not None and "output" in names:
            return Leaf(QUEUES, port, f"queue{number}_{metric}", counted)
        return None
    if names[:2] == ("lldp", "interfaces") and "neighbor" in names:
        port = keys.get("interface/name", "")
        neighbour = keys.get("neighbor/id", "")
        if port and last in ("system-name", "port-id", "port-description"):
            return Leaf(NEIGHBOURS, port, last, str(value), neighbour)
    return None


def _interface_leaf(inner: tuple[str, ...], port: str, last: str, value: Any) -> Leaf | None:
    """A leaf of /interfaces/interface[name]; `inner` are the containers between."""
    number = _number(value)
    if inner == ("state", "counters") and last in _COUNTERS and number is not None:
        return Leaf(COUNTERS, port, _COUNTERS[last], number)
    if inner == ("ethernet", "state", "counters") and last in _ETHERNET and number is not None:
        return Leaf(COUNTERS, port, _ETHERNET[last], number)
    if inner == ("ethernet", "state") and last == "port-speed":
        speed_bps = speed(str(value))
        return Leaf(STATE, port, "netdev_speed_bps", speed_bps) if speed_bps else None
    if inner == ("state",):
        if last == "oper-status":
            return Leaf(STATE, port, "netdev_up", int(str(value).upper() == "UP"))
        if last == "mtu" and number is not None:
            return Leaf(STATE, port, "netdev_mtu", number)
        if last == "ifindex" and number is not None:
            return Leaf(STATE, port, "ifindex", number)
        if last == "type":
            return Leaf(STATE, port, "type", _MODULE.sub("", str(value)))
    return None


def is_port(facts: Mapping[str, int | str]) -> bool:
    """Whether an interface is a hardware port: of Ethernet, or of a type that is not reported."""
    return facts.get("type", _ETHERNET_TYPE) == _ETHERNET_TYPE


def speed(text: str) -> int | None:
    """`SPEED_400GB` (ETHERNET_SPEED of openconfig-if-ethernet) in bits a second."""
    match = _SPEEDS.search(text)
    if match is None:
        return None
    return int(match[1][:6]) * (10**6 if match[2] == "MB" else 10**9)


def queue_number(name: str) -> int | None:
    """The number of a queue by its name (`3`, `UC3`, `Ethernet1-3`); None beyond 7."""
    match = re.search(r"(\d{1,3})$", name)
    number = int(match[1]) if match else _MOST_QUEUES
    return number if number < _MOST_QUEUES else None


def _number(value: Any) -> int | None:
    """A counter: JSON_IETF writes 64-bit numbers as texts."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 1 << 64 else None
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None
