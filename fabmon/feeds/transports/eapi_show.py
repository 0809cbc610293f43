"""Results of EOS show commands as objects and values of the wire.

Each interface is read separately: one whose data has an unexpected form is left out, which is said,
and the others are kept. A counter that an interface does not have is not among its metrics.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from collectors.catalog.ethernet import PRIORITIES, QUEUES
from collectors.coverage import Coverage, CoverageCount
from collectors.wire import Object
from fabmon.fabric.names import mac_of
from fabmon.feeds.transports.polled import port_layout, sum_known

_PRIORITIES = frozenset(map(str, PRIORITIES))
_CLASS = re.compile(r"(?:TC)?([0-9])")
_NO_TEXT = ("", "not available", "description not available")

_PORT_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "netdev_carrier_changes": ("linkStatusChanges",),
    "phy_rx_bytes": ("inOctets",),
    "phy_tx_bytes": ("outOctets",),
    "phy_rx_packets": ("inUcastPkts", "inMulticastPkts", "inBroadcastPkts"),
    "phy_tx_packets": ("outUcastPkts", "outMulticastPkts", "outBroadcastPkts"),
    "phy_rx_errors": ("totalInErrors",),
    "phy_tx_errors": ("totalOutErrors",),
    "phy_rx_discards": ("inDiscards",),
    "phy_tx_discards": ("outDiscards",),
    "phy_rx_crc_errors": ("inputErrorsDetail/fcsErrors",),
    "phy_rx_symbol_errors": ("inputErrorsDetail/symbolErrors",),
    "pause_rx_frames": ("inputErrorsDetail/rxPause",),
    "pause_tx_frames": ("outputErrorsDetail/txPause",),
}
"""Metric -> the keys of `interfaceCounters` whose values are added up for it."""

_KNOWN_COUNTERS = frozenset(key for keys in _PORT_COUNTERS.values() for key in keys)

_QUEUE_COUNTERS: Mapping[str, str] = {
    "bytes": "enqueuedBytes",
    "packets": "enqueuedPackets",
    "drops": "droppedPackets",
}

Numbers = dict[str, int | None]
_Time = Annotated[float, msgspec.Meta(ge=0, le=2**63 / 1e9)]
"""Seconds since 1970 that fit into nanoseconds of 64 bits."""


class ShowResult(NamedTuple):
    """The objects of one command and their values; `refreshed_ns` is when the switch counted those
    of each interface, `coverage` what of its counters is not read, `limits` what was left out, as a
    sentence."""

    objects: tuple[Object, ...]
    values: list[int | None]
    refreshed_ns: Mapping[str, int] = {}
    coverage: tuple[Coverage, ...] = ()
    limits: tuple[str, ...] = ()


def interfaces(result: Mapping[str, Any]) -> ShowResult:
    """`show interfaces`: state, speed and counters of the physical Ethernet ports."""
    ports, refreshed_ns = [], {}
    listed = _mapping(result.get("interfaces"))
    left_out = {name for name, item in listed.items() if not isinstance(item, dict)}
    count = CoverageCount()
    for name, item in _items(listed):
        if item.get("hardware") != "ethernet":
            continue
        counters = _mapping(item.get("interfaceCounters"))
        count.add("EOS interfaceCounters", _counter_names(counters), _KNOWN_COUNTERS)
        try:
            numbers: Numbers = {
                "netdev_up": int(item.get("lineProtocolStatus") == "up"),
                "netdev_speed_bps": _number(item.get("bandwidth")) or None,
                "netdev_mtu": _number(item.get("mtu")),
                **{
                    metric: sum_known(_number(_at(counters, *key.split("/"))) for key in keys)
                    for metric, keys in _PORT_COUNTERS.items()
                },
            }
            counted_s = msgspec.convert(_at(counters, "counterRefreshTime") or 0.0, _Time)
        except msgspec.ValidationError:
            left_out.add(name)
            continue
        if counted_s:
            refreshed_ns[name] = round(counted_s * 1e6) * 1000
        ports.append((_port(name)._replace(info=_facts(name, item)), numbers))
    coverage = tuple(count.result())
    return ShowResult(*port_layout(ports), refreshed_ns, coverage, _limits(left_out))


def _limits(left_out: Collection[str]) -> tuple[str, ...]:
    """What is not observable of interfaces that were left out, as a sentence; empty for none."""
    if not left_out:
        return ()
    return (f"interfaces with values that are no counters are left out, such as {min(left_out)}",)


def _counter_names(counters: Mapping[str, Any]) -> Iterator[str]:
    """The counters in `interfaceCounters`, those of a part as `inputErrorsDetail/fcsErrors`."""
    for name, value in counters.items():
        if isinstance(value, Mapping):
            yield from (f"{name}/{part}" for part in value)
        elif name != "counterRefreshTime":
            yield name


def pfc(result: Mapping[str, Any]) -> ShowResult:
    """`show priority-flow-control counters`: frames of all priorities together."""
    found: dict[str, Numbers] = {}
    left_out = {
        name
        for name, item in _items(result.get("interfaceCounters"))
        if not _add_pfc(found, name, item, "")
    }
    return _by_port(found, left_out)


def pfc_priorities(result: Mapping[str, Any]) -> ShowResult:
    """`show priority-flow-control counters detail`: frames of each priority."""
    found: dict[str, Numbers] = {}
    left_out = {
        name
        for name, item in _items(result.get("interfaces") or result.get("interfaceCounters"))
        for priority, frames in _items(item.get("priorities"))
        if priority in _PRIORITIES and not _add_pfc(found, name, frames, f"_prio{priority}")
    }
    return _by_port(found, left_out)


def queues(result: Mapping[str, Any]) -> ShowResult:
    """`show interfaces counters queue`: bytes, packets and drops of each unicast queue.

    The drops of all queues together are the port's discards, which `show interfaces` has. Trident
    counts egress queues, by drop precedence; Jericho counts virtual output queues.
    """
    found: dict[str, Numbers] = {}
    classes = [
        *(
            (name, _at(item, "ucastQueues", "trafficClasses"))
            for name, item in _items(_at(result, "egressQueueCounters", "interfaces"))
        ),
        *(
            (name, item.get("trafficClasses"))
            for name, item in _items(_at(result, "ingressVoqCounters", "interfaces"))
        ),
    ]
    left_out = {name for name, each in classes if not _add_queues(found.setdefault(name, {}), each)}
    return _by_port(found, left_out)


def ecn(result: Mapping[str, Any]) -> ShowResult:
    """`show qos interfaces ecn counters queue`: packets marked, by queue.

    A queue without ECN has a `-`.
    """
    found: dict[str, Numbers] = {}
    for name, item in _items(result.get("intfQueueCounters")):
        marked = {}
        for queue, count in _mapping(item.get("queueCounters")).items():
            match = _CLASS.fullmatch(str(queue))
            if (
                match
                and int(match[1]) in QUEUES
                and str(count).isdecimal()
                and len(str(count)) < 20
            ):
                marked[f"queue{match[1]}_tx_ecn_marked"] = int(count)
        if marked:
            found[name] = {**marked, "phy_tx_ecn_marked": sum(marked.values())}
    return _by_port(found)


def _mapping(value: Any) -> Mapping[str, Any]:
    """An object of the reply; empty for anything else."""
    return value if isinstance(value, dict) else {}


def neighbours(result: Mapping[str, Any]) -> ShowResult:
    """`show lldp neighbors detail`: the device at the other end, by name and by MAC address."""
    objects = []
    for dev, item in _items(result.get("lldpNeighbors")):
        listed = item.get("lldpNeighborInfo")
        for number, neighbour in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(neighbour, dict):
                info = _peer(dev, neighbour)
                objects.append(Object(f"{dev}/{number}", "neighbour", None, info, ()))
    return ShowResult(tuple(objects), [])


def _facts(name: str, interface: Mapping[str, Any]) -> dict[str, Any]:
    facts = {"netdev": name, "driver": "eos"}
    mac = mac_of(str(interface.get("burnedInAddress") or interface.get("physicalAddress") or ""))
    if mac is not None:
        facts["mac"] = mac
    description = str(interface.get("description") or "")
    if description.lower() not in _NO_TEXT:
        facts["description"] = description
    return facts


def _peer(dev: str, neighbour: Mapping[str, Any]) -> dict[str, Any]:
    port = neighbour.get("neighborInterfaceInfo")
    port = port if isinstance(port, dict) else {}
    # EOS puts text in quotes.
    name = str(port.get("interfaceId", "")).strip('"')
    mac = mac_of(name) if port.get("interfaceIdType") == "macAddress" else None
    info = {"dev": dev, "peer_node": str(neighbour.get("systemName", ""))}
    if mac is not None:
        # The description is then the neighbour's own name of the port.
        name = str(port.get("interfaceDescription", "")).strip('"')
        return {**info, "peer_port": name, "mac": mac}
    return {**info, "peer_port": name}


def _add_pfc(found: dict[str, Numbers], name: str, frames: Mapping[str, Any], suffix: str) -> bool:
    """Add the frames of an interface; whether they are numbers."""
    try:
        received, sent = _number(frames.get("rxFrames")), _number(frames.get("txFrames"))
    except msgspec.ValidationError:
        return False
    numbers = found.setdefault(name, {})
    numbers[f"pfc_rx_frames{suffix}"] = received
    numbers[f"pfc_tx_frames{suffix}"] = sent
    return True


def _add_queues(numbers: Numbers, classes: Any) -> bool:
    """Add the counters of each traffic class; those of its drop precedences are summed. Whether
    they are numbers."""
    are_numbers = True
    for name, item in _items(classes):
        match = _CLASS.fullmatch(name)
        if match is None or int(match[1]) not in QUEUES:
            continue
        precedences = [each for _, each in _items(item.get("dropPrecedences"))] or [item]
        counted = [found for each in precedences if (found := _queue_numbers(each)) is not None]
        are_numbers = are_numbers and len(counted) == len(precedences)
        for what, values in zip(_QUEUE_COUNTERS, zip(*counted, strict=True), strict=False):
            numbers[f"queue{match[1]}_tx_{what}"] = sum_known(values)
    return are_numbers


def _queue_numbers(item: Mapping[str, Any]) -> list[int | None] | None:
    """The values of `_QUEUE_COUNTERS`; None if one is malformed."""
    try:
        return [_number(item.get(key)) for key in _QUEUE_COUNTERS.values()]
    except msgspec.ValidationError:
        return None


def _by_port(found: Mapping[str, Numbers], left_out: Collection[str] = ()) -> ShowResult:
    layout = port_layout((_port(name), numbers) for name, numbers in found.items())
    return ShowResult(*layout, limits=_limits(left_out))


def _port(name: str) -> Object:
    return Object(name, "ethernet", name, {}, ())


def _items(mapping: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The members of a JSON object that are JSON objects; none of any other value."""
    if isinstance(mapping, dict):
        for name, item in mapping.items():
            if isinstance(item, dict):
                yield name, item


def _at(mapping: Any, *path: str) -> Any:
    for step in path:
        mapping = mapping.get(step) if isinstance(mapping, dict) else None
    return mapping


def _number(value: Any) -> int | None:
    """A counter, also when it is written as text. Raises ValidationError for anything else."""
    return msgspec.convert(value, int | None, strict=False)
