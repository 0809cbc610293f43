"""What EOS' show commands say, as objects and values of the wire.

Every interface is read by itself: one that has another form than expected is left out, the others
are not. A counter that an interface does not have is no metric of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from collectors.catalog.ethernet import PRIORITIES, QUEUES
from collectors.wire import Object
from fabmon.fabric.names import mac_of

Kind = TypeVar("Kind", bound=msgspec.Struct)

_CLASS = re.compile(r"(?:TC)?(\d)")
_NO_TEXT = ("", "not available", "description not available")


class ShowResult(NamedTuple):
    """One command's objects and their values; `refreshed_ns` is when the switch counted."""

    objects: tuple[Object, ...]
    values: list[int | None]
    refreshed_ns: int | None = None


class _In(msgspec.Struct, rename="camel"):
    rx_pause: int | None = None
    fcs_errors: int | None = None
    symbol_errors: int | None = None


class _Out(msgspec.Struct, rename="camel"):
    tx_pause: int | None = None


class _Counters(msgspec.Struct, rename="camel"):
    in_octets: int | None = None
    out_octets: int | None = None
    in_ucast_pkts: int | None = None
    in_multicast_pkts: int | None = None
    in_broadcast_pkts: int | None = None
    out_ucast_pkts: int | None = None
    out_multicast_pkts: int | None = None
    out_broadcast_pkts: int | None = None
    in_discards: int | None = None
    out_discards: int | None = None
    total_in_errors: int | None = None
    total_out_errors: int | None = None
    link_status_changes: int | None = None
    counter_refresh_time: float | None = None
    input_errors_detail: _In = msgspec.field(default_factory=_In)
    output_errors_detail: _Out = msgspec.field(default_factory=_Out)


class _Interface(msgspec.Struct, rename="camel"):
    hardware: str = ""
    line_protocol_status: str = ""
    bandwidth: int = 0
    mtu: int | None = None
    description: str = ""
    physical_address: str = ""
    burned_in_address: str = ""
    interface_counters: _Counters | None = None


class _Frames(msgspec.Struct, rename="camel"):
    rx_frames: int | None = None
    tx_frames: int | None = None


class _Queue(msgspec.Struct, rename="camel"):
    enqueued_bytes: int | None = None
    enqueued_packets: int | None = None
    dropped_packets: int | None = None


def interfaces(result: Mapping[str, Any]) -> ShowResult:
    """`show interfaces`: state, speed and counters of the physical Ethernet ports."""
    objects, values, refreshed_s = [], [], 0.0
    for name, item in _items(result.get("interfaces")):
        interface = _as(_Interface, item)
        if interface is None or interface.hardware != "ethernet":
            continue
        counters = interface.interface_counters or _Counters()
        refreshed_s = max(refreshed_s, counters.counter_refresh_time or 0.0)
        made, numbers = _object(name, _interface_values(interface, counters))
        objects.append(made._replace(info=_facts(name, interface)))
        values += numbers
    return ShowResult(tuple(objects), values, round(refreshed_s * 1e6) * 1000 or None)


def pfc(result: Mapping[str, Any]) -> ShowResult:
    """`show priority-flow-control counters`: frames of all priorities."""
    found = {}
    for name, item in _items(result.get("interfaceCounters")):
        frames = _as(_Frames, item)
        if frames is not None:
            found[name] = {"pfc_rx_frames": frames.rx_frames, "pfc_tx_frames": frames.tx_frames}
    return _read(found)


def pfc_priorities(result: Mapping[str, Any]) -> ShowResult:
    """`show priority-flow-control counters detail`: frames of each priority."""
    found: dict[str, dict[str, int | None]] = {}
    for name, item in _items(result.get("interfaces") or result.get("interfaceCounters")):
        for priority, each in _items(item.get("priorities")):
            frames = _as(_Frames, each)
            if frames is not None and priority.isdigit() and int(priority) in PRIORITIES:
                values = found.setdefault(name, {})
                values[f"pfc_rx_frames_prio{priority}"] = frames.rx_frames
                values[f"pfc_tx_frames_prio{priority}"] = frames.tx_frames
    return _read(found)


def queues(result: Mapping[str, Any]) -> ShowResult:
    """`show interfaces counters queue`: what was queued and dropped, by unicast queue.

    The drops of all queues are the port's discards, which `show interfaces` has. Trident counts
    egress queues, with a drop precedence; Jericho counts virtual output queues.
    """
    found: dict[str, dict[str, int | None]] = {}
    for name, item in _items(_at(result, "egressQueueCounters", "interfaces")):
        _add_queues(found.setdefault(name, {}), _at(item, "ucastQueues", "trafficClasses"))
    for name, item in _items(_at(result, "ingressVoqCounters", "interfaces")):
        _add_queues(found.setdefault(name, {}), item.get("trafficClasses"))
    return _read(found)


def ecn(result: Mapping[str, Any]) -> ShowResult:
    """`show qos interfaces ecn counters queue`: packets that were marked, by queue.

    A queue without ECN has a `-`.
    """
    found: dict[str, dict[str, int | None]] = {}
    for name, item in _items(result.get("intfQueueCounters")):
        marked = {}
        for queue, count in (item.get("queueCounters") or {}).items():
            match = _CLASS.fullmatch(str(queue))
            if match and int(match[1]) in QUEUES and str(count).isdigit():
                marked[f"queue{match[1]}_tx_ecn_marked"] = int(count)
        if marked:
            found[name] = {**marked, "phy_tx_ecn_marked": sum(marked.values())}
    return _read(found)


def neighbours(result: Mapping[str, Any]) -> ShowResult:
    """`show lldp neighbors detail`: who is at the other end, by name and by MAC address."""
    objects = []
    for dev, item in _items(result.get("lldpNeighbors")):
        for number, each in enumerate(item.get("lldpNeighborInfo") or []):
            if isinstance(each, dict):
                info = _peer(dev, each)
                objects.append(Object(f"{dev}/{number}", "neighbour", None, info, ()))
    return ShowResult(tuple(objects), [])


def _interface_values(interface: _Interface, counters: _Counters) -> dict[str, int | None]:
    received = (counters.in_ucast_pkts, counters.in_multicast_pkts, counters.in_broadcast_pkts)
    sent = (counters.out_ucast_pkts, counters.out_multicast_pkts, counters.out_broadcast_pkts)
    return {
        "netdev_up": int(interface.line_protocol_status == "up"),
        "netdev_speed_bps": interface.bandwidth or None,
        "netdev_mtu": interface.mtu,
        "netdev_carrier_changes": counters.link_status_changes,
        "phy_rx_bytes": counters.in_octets,
        "phy_tx_bytes": counters.out_octets,
        "phy_rx_packets": _sum(received),
        "phy_tx_packets": _sum(sent),
        "phy_rx_errors": counters.total_in_errors,
        "phy_tx_errors": counters.total_out_errors,
        "phy_rx_discards": counters.in_discards,
        "phy_tx_discards": counters.out_discards,
        "phy_rx_crc_errors": counters.input_errors_detail.fcs_errors,
        "phy_rx_symbol_errors": counters.input_errors_detail.symbol_errors,
        "pause_rx_frames": counters.input_errors_detail.rx_pause,
        "pause_tx_frames": counters.output_errors_detail.tx_pause,
    }


def _facts(name: str, interface: _Interface) -> dict[str, Any]:
    facts = {"netdev": name, "driver": "eos"}
    mac = mac_of(interface.burned_in_address or interface.physical_address)
    if mac is not None:
        facts["mac"] = mac
    if interface.description.lower() not in _NO_TEXT:
        facts["description"] = interface.description
    return facts


def _peer(dev: str, said: Mapping[str, Any]) -> dict[str, Any]:
    port = said.get("neighborInterfaceInfo")
    port = port if isinstance(port, dict) else {}
    # EOS quotes what came as text.
    name = str(port.get("interfaceId", "")).strip('"')
    mac = mac_of(name) if port.get("interfaceIdType") == "macAddress" else None
    info = {"dev": dev, "peer_node": str(said.get("systemName", ""))}
    if mac is not None:
        # The description is then what the neighbour calls its port.
        return {
            **info,
            "peer_port": str(port.get("interfaceDescription", "")).strip('"'),
            "mac": mac,
        }
    return {**info, "peer_port": name}


def _add_queues(values: dict[str, int | None], classes: Any) -> None:
    for number, queue in _queues(classes):
        if number in QUEUES:
            values[f"queue{number}_tx_bytes"] = queue.enqueued_bytes
            values[f"queue{number}_tx_packets"] = queue.enqueued_packets
            values[f"queue{number}_tx_drops"] = queue.dropped_packets


def _queues(classes: Any) -> Iterator[tuple[int, _Queue]]:
    """Each traffic class' queue, its drop precedences added up."""
    for name, item in _items(classes):
        match = _CLASS.fullmatch(name)
        precedences = [_as(_Queue, each) for _, each in _items(item.get("dropPrecedences"))]
        parts = [part for part in precedences or [_as(_Queue, item)] if part is not None]
        if match and parts:
            yield (
                int(match[1]),
                _Queue(
                    _sum(part.enqueued_bytes for part in parts),
                    _sum(part.enqueued_packets for part in parts),
                    _sum(part.dropped_packets for part in parts),
                ),
            )


def _read(found: Mapping[str, Mapping[str, int | None]]) -> ShowResult:
    objects, values = [], []
    for name, numbers in found.items():
        made, given = _object(name, numbers)
        if made.metrics:
            objects.append(made)
            values += given
    return ShowResult(tuple(objects), values)


def _object(name: str, values: Mapping[str, int | None]) -> tuple[Object, list[int | None]]:
    """A port with the metrics that it has."""
    given = {metric: value for metric, value in values.items() if value is not None}
    return Object(name, "ethernet", name, {}, tuple(given)), list(given.values())


def _items(mapping: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The members of an object that are objects; nothing of anything else."""
    if isinstance(mapping, dict):
        for name, item in mapping.items():
            if isinstance(item, dict):
                yield name, item


def _at(mapping: Any, *path: str) -> Any:
    for step in path:
        mapping = mapping.get(step) if isinstance(mapping, dict) else None
    return mapping


def _as(kind: type[Kind], item: Any) -> Kind | None:
    try:
        return msgspec.convert(item, kind, strict=False)
    except msgspec.ValidationError:
        return None


def _sum(parts: Sequence[int | None] | Iterator[int | None]) -> int | None:
    """The sum of what is there; None when nothing is."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
