"""OpenConfig of a gNMI device: leaves as metrics of ports, and their last values as blocks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from collectors.catalog import require
from collectors.wire import Object
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.transports.polled import SampleClock, SourceBlock, too_many_interfaces
from fabmon.malformed_json import MALFORMED, values_in

Keys = Mapping[str, str]

MOST_PORTS = 2048
"""Interfaces of a device, as of a node."""
_MOST_QUEUES = 8
MOST_DEPTH = 12
KEYS = ("name", "interface-id", "id")
"""Keys of lists that are read."""
_MOST_JSON_VALUES = 131_072
"""Values of one document: more than a device may send in a second where none is known, 100,000."""
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
    """The leaves at or below a path, None for one that is not known and for a container. JSON of a
    container is taken apart."""
    for found in _flat(path, value, 0):
        yield None if found is None else _leaf(*found)


def path_element(name: str, keys: Iterable[tuple[str, str]]) -> tuple[str, Keys]:
    """An element of a path, with the keys that are read: every leaf below is looked at with them.

    A text is cut, or left out as a key, where it is longer than any name.
    """
    known = {key: value for key, value in keys if key in KEYS and len(value) <= _MOST_TEXT}
    return name[:_MOST_TEXT], known


def json_value(data: bytes) -> Any:
    """The value of JSON in a notification; None for what is no JSON. Raises Misbehaved for more
    values than a device may send in a second."""
    if values_in(data) > _MOST_JSON_VALUES:
        raise Misbehaved(f"gNMI: JSON of more than {_MOST_JSON_VALUES:,} values", "flood")
    try:
        return msgspec.json.decode(data)
    except MALFORMED:
        return None


def _flat(
    path: tuple[tuple[str, Keys], ...], value: Any, depth: int
) -> Iterator[tuple[tuple[str, ...], dict[str, str], Any] | None]:
    """(names, keys, value) of every leaf below a path; None for every container, which takes time
    too."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, dict):
        yield None
        for name, inner in value.items():
            plain = _MODULE.sub("", str(name))
            if isinstance(inner, list) and all(isinstance(each, dict) for each in inner):
                for each in inner:
                    keys = (
                        (_MODULE.sub("", str(key)), str(key_value))
                        for key, key_value in each.items()
                        if isinstance(key_value, (str, int))
                    )
                    yield from _flat((*path, path_element(plain, keys)), each, depth + 1)
            else:
                yield from _flat((*path, path_element(plain, ())), inner, depth + 1)
        return
    yield tuple(name for name, _ in path), _keys(path), value


def _keys(path: tuple[tuple[str, Keys], ...]) -> dict[str, str]:
    """The keys of a path as `interface/name`."""
    return {f"{name}/{key}": value for name, own in path for key, value in own.items()}


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
    match = re.search(r"(\d{1,3})$", name[-3:])
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


_TOLERANCE_S = 5.0
_SETTLE_S = 0.05
"""A sample comes in several notifications: one that is newer is complete at the next poll."""
_MISSED_SAMPLES = 3
_GONE_S = 600.0
"""An interface whose counters, which are sampled, do not come for this long is gone."""
_MOST_TEXT = 256
_MOST_NEIGHBOURS = 4096
_NEIGHBOURS_LEFT_OUT = f"more than {_MOST_NEIGHBOURS:,} LLDP neighbours: the others are not read"
_TURNED_BACK_NS = 1_000_000_000
"""A time that is earlier by more is of a clock that was set, not of a late notification."""


class _Port:
    """What is known of one interface: its values by source, and the device's times of them.

    `said_s` is when the last value of a source came, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.said_s: dict[str, float] = {}
        self.facts: dict[str, int | str] = {}
        self.values: dict[str, dict[str, int]] = {}
        self.stamps_ns: dict[str, int] = {}
        self.sent_ns: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.clocks: dict[str, SampleClock] = {}
        self.blocks: dict[str, SourceBlock] = {}


class _Neighbour:
    """The facts of an LLDP neighbour, and when the device sent one last, by the monotonic clock."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.said_s = 0.0


class GnmiValues:
    """The last values of the interfaces of one device.

    `sample_s` is by source how often the device was asked to send its values; None: on change.
    """

    def __init__(self, interval_s: float) -> None:
        self.sample_s: dict[str, float | None] = {}
        self._interval_s = interval_s
        self._ports: dict[str, _Port] = {}
        self._neighbours: dict[tuple[str, str], _Neighbour] = {}
        self._lldp: tuple[Object, ...] = ()
        self._left_out_s: dict[str, float] = {}

    @property
    def has_counters(self) -> bool:
        """Whether the counters of any interface have come."""
        return any(COUNTERS in port.values for port in self._ports.values())

    def add(self, leaf: Leaf, stamp_ns: int) -> None:
        """Take a value, of the device's time `stamp_ns`."""
        now_s = time.monotonic()
        if len(leaf.port) > _MOST_TEXT or len(leaf.neighbour) > _MOST_TEXT:
            return
        if leaf.source == NEIGHBOURS:
            key = (leaf.port, leaf.neighbour)
            if key not in self._neighbours and len(self._neighbours) >= _MOST_NEIGHBOURS:
                self._left_out_s[_NEIGHBOURS_LEFT_OUT] = now_s
                return
            neighbour = self._neighbours.setdefault(key, _Neighbour())
            neighbour.facts[leaf.name] = str(leaf.value)[:_MOST_TEXT]
            neighbour.said_s = now_s
            return
        if leaf.port not in self._ports and len(self._ports) >= MOST_PORTS:
            self._left_out_s[too_many_interfaces(MOST_PORTS)] = now_s
            return
        port = self._ports.setdefault(leaf.port, _Port())
        if leaf.name in ("ifindex", "type"):
            value = leaf.value
            port.facts[leaf.name] = value[:_MOST_TEXT] if isinstance(value, str) else value
        elif isinstance(leaf.value, int):
            port.values.setdefault(leaf.source, {})[leaf.name] = leaf.value
            port.said_s[leaf.source] = now_s
            before_ns = port.stamps_ns.get(leaf.source, 0)
            is_late = before_ns - _TURNED_BACK_NS < stamp_ns <= before_ns
            port.stamps_ns[leaf.source] = before_ns + 1 if is_late else stamp_ns

    def delete(self, path: tuple[tuple[str, Keys], ...]) -> None:
        """An interface or a neighbour that is gone."""
        keys = _keys(path)
        port = keys.get("interface/name", "")
        names = [name for name, _ in path]
        if names[:1] == ["lldp"]:
            self._neighbours.pop((port, keys.get("neighbor/id", "")), None)
        elif names == ["interfaces", "interface"]:
            self._ports.pop(port, None)

    def forget(self, source: str) -> None:
        """Drop what a subscription that ended has said: nothing says any more whether it is so."""
        for port in self._ports.values():
            port.values.pop(source, None)
        if source == NEIGHBOURS:
            self._neighbours.clear()

    def blocks(self) -> list[SourceBlock]:
        """The blocks of all interfaces, with the values that have come since the last call."""
        if self._left_out_s:
            self._forget_gone(time.monotonic())
        found = [
            block for name in sorted(self._ports) for block in self._blocks(name, self._ports[name])
        ]
        neighbours = self._neighbour_objects()
        if neighbours:
            found.append(SourceBlock(NEIGHBOURS, neighbours, [], time.monotonic_ns()))
        if found and self._left_out_s:
            found[0] = found[0]._replace(limits=tuple(sorted(self._left_out_s)))
        return found

    def _forget_gone(self, now_s: float) -> None:
        """Make room: drop neighbours and interfaces that the device does not send any more, without
        a word of their end, and what was left out long ago. Some devices number their neighbours
        anew with each change."""
        since_s = now_s - _GONE_S
        self._neighbours = {
            key: each
            for key, each in self._neighbours.items()
            if self._is_current(NEIGHBOURS, each.said_s)
        }
        self._ports = {
            name: port
            for name, port in self._ports.items()
            if COUNTERS not in port.values or port.said_s[COUNTERS] > since_s
        }
        self._left_out_s = {text: at for text, at in self._left_out_s.items() if at > since_s}

    def _blocks(self, name: str, port: _Port) -> Iterator[SourceBlock]:
        """The blocks of an interface: one of each source, with the device's clock."""
        if not is_port(port.facts):
            return
        now_ns = time.monotonic_ns()
        for source, values in port.values.items():
            stamp_ns = port.stamps_ns[source]
            metrics = tuple(values)
            facts = {"netdev": name, "driver": "gnmi", "ifindex": port.facts.get("ifindex")}
            known = {key: value for key, value in facts.items() if value is not None}
            objects = (Object(name, "ethernet", name, known, metrics),)
            before = port.blocks.get(source)
            if before is not None and before.objects == objects:
                objects = before.objects
            block = SourceBlock(source, objects, None, now_ns, self._every(source))
            if source == STATE:
                # On change: what is not sent again is still so.
                if self._is_current(source, port.said_s[source]):
                    block = block._replace(values=list(values.values()))
            elif now_ns / 1e9 - port.said_s[source] < _SETTLE_S and source not in port.waiting:
                port.waiting.add(source)
            elif stamp_ns != port.sent_ns.get(source):
                port.waiting.discard(source)
                clock = port.clocks.setdefault(source, SampleClock(_TOLERANCE_S))
                at_ns = clock.at(stamp_ns, now_ns)
                if at_ns is not None:
                    block = block._replace(values=list(values.values()), mono_ns=at_ns)
                port.sent_ns[source] = stamp_ns
            port.blocks[source] = block
            yield block

    def _neighbour_objects(self) -> tuple[Object, ...]:
        found = []
        for (dev, number), neighbour in sorted(self._neighbours.items()):
            facts = neighbour.facts
            if facts.get("system-name") and self._is_current(NEIGHBOURS, neighbour.said_s):
                info = {"dev": dev, "peer_node": facts["system-name"]}
                for key, name in (("peer_port", "port-id"), ("peer_port_name", "port-description")):
                    if facts.get(name):
                        info[key] = facts[name]
                found.append(Object(f"{dev}/{number}", "neighbour", None, info, ()))
        objects = tuple(found)
        self._lldp = self._lldp if objects == self._lldp else objects
        return self._lldp

    def _is_current(self, source: str, said_s: float) -> bool:
        """Whether what was said is still so: samples that stay away are of what is gone."""
        sample_s = self.sample_s.get(source)
        return sample_s is None or time.monotonic() - said_s <= _MISSED_SAMPLES * sample_s

    def _every(self, source: str) -> int:
        return max(1, round((self.sample_s.get(source) or 0.0) / self._interval_s))
