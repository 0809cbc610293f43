"""Decodes sFlow version 5 datagrams (sflow.org, sflow_version_5.txt), of which nothing is trusted.

A datagram is read with every length checked. Samples and records of formats that are not known are
skipped, as the specification demands; one that contradicts its own length makes the whole datagram
invalid, since what follows it cannot be found.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Any, NamedTuple

from fabmon.fabric.flows.sampled import FlowKey

MOST_BYTES = 65_535
"""The largest UDP payload."""

_VERSION = 5
_MOST_SAMPLES = 512
"""Samples of a datagram, and records of a sample; real ones have some ten."""
_MOST_NAME_BYTES = 255
"""The longest ifName (RFC 2863)."""
_FLOW, _COUNTERS, _FLOW_EXPANDED, _COUNTERS_EXPANDED = 1, 2, 3, 4
_RAW_HEADER, _IPV4, _IPV6 = 1, 3, 4
_IF_COUNTERS, _PORT_NAME = 1, 1005

_IF_INDEX = 0
"""The format of an input or output that is an ifIndex."""
_INTERNAL = 0x3FFFFFFF
"""The ifIndex of the agent itself."""

_IF_COUNTERS_LAYOUT = struct.Struct(">IIQIIQIIIIIIQIIIIII")
_IPV4_LAYOUT = struct.Struct(">II4s4sIIII")
_IPV6_LAYOUT = struct.Struct(">II16s16sIIII")

_UP = 2
"""The bit of ifOperStatus in ifStatus."""


class DatagramError(Exception):
    """Bytes that are no sFlow 5 datagram; the message says why."""


class PacketFields(NamedTuple):
    """Addresses, protocol and ports of a packet whose agent sends those instead of its header."""

    src: str
    dst: str
    protocol: int
    sport: int
    dport: int


class FlowSample(NamedTuple):
    """One sampled packet of `frame_bytes` on the wire, one of `rate` that passed `source`.

    `source`, `input` and `output` are ifIndexes, None where the agent names none (a packet that was
    dropped, flooded to several ports, or is for the agent). `header` are the first bytes of the
    packet, `header_protocol` is what they begin with: 1 Ethernet, 11 IPv4, 12 IPv6. `fields` are
    there instead of a header, else None.
    """

    source: int
    rate: int
    input: int | None
    output: int | None
    frame_bytes: int
    header_protocol: int
    header: bytes
    fields: PacketFields | None


class PortCounters(NamedTuple):
    """The generic counters of an interface. Octets are 64 bits wide, the others 32.

    A counter that the agent does not have is None: agents send all ones for it.
    """

    if_index: int
    if_type: int
    speed_bps: int
    is_up: bool
    rx_bytes: int | None
    rx_packets: tuple[int | None, int | None, int | None]
    rx_discards: int | None
    rx_errors: int | None
    tx_bytes: int | None
    tx_packets: tuple[int | None, int | None, int | None]
    tx_discards: int | None
    tx_errors: int | None
    name: str = ""


class Datagram(NamedTuple):
    """One datagram. `agent` is the address by which the agent names itself, `sub_agent` the part of
    it, `sequence` the number of the datagram, `uptime_ms` the agent's clock. `skipped` counts
    samples of formats that are not read."""

    agent: str
    sub_agent: int
    sequence: int
    uptime_ms: int
    flows: tuple[FlowSample, ...]
    counters: tuple[PortCounters, ...]
    skipped: int


class _Reader:
    """Reads XDR from a part of a datagram. Raises DatagramError at its end."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data = data
        self._at = start
        self._end = end

    def words(self, count: int) -> tuple[int, ...]:
        """Some unsigned 32-bit numbers."""
        start = self._advance(4 * count)
        return struct.unpack_from(f">{count}I", self._data, start)

    def word(self) -> int:
        """An unsigned 32-bit number."""
        return self.words(1)[0]

    def data(self, count: int) -> bytes:
        """Some bytes, and the padding after them."""
        start = self._advance(count + -count % 4)
        return self._data[start : start + count]

    def part(self, count: int) -> _Reader:
        """A reader of the next bytes, which are then behind this one."""
        start = self._advance(count + -count % 4)
        return _Reader(self._data, start, start + count)

    def structure(self, layout: struct.Struct) -> tuple[Any, ...]:
        """A structure of numbers and bytes; what follows it in this part is of a later version."""
        return layout.unpack_from(self._data, self._advance(layout.size))

    def _advance(self, count: int) -> int:
        start = self._at
        if count > self._end - start:
            raise DatagramError("it ends in the middle of a structure")
        self._at = start + count
        return start


def decode(data: bytes) -> Datagram:
    """The content of a datagram. Raises DatagramError."""
    if len(data) > MOST_BYTES:
        raise DatagramError(f"{len(data)} bytes")
    reader = _Reader(data, 0, len(data))
    version, address_type = reader.words(2)
    if version != _VERSION:
        raise DatagramError(f"version {version}, not {_VERSION}")
    agent = _address(reader, address_type)
    sub_agent, sequence, uptime_ms, count = reader.words(4)
    if count > _MOST_SAMPLES:
        raise DatagramError(f"{count} samples")
    flows: list[FlowSample] = []
    counters: list[PortCounters] = []
    skipped = 0
    for _ in range(count):
        kind, length = reader.words(2)
        sample = reader.part(length)
        if kind in (_FLOW, _FLOW_EXPANDED):
            flow = _flow_sample(sample, kind == _FLOW_EXPANDED)
            flows += [flow] if flow is not None else []
        elif kind in (_COUNTERS, _COUNTERS_EXPANDED):
            port = _counter_sample(sample, kind == _COUNTERS_EXPANDED)
            counters += [port] if port is not None else []
        else:
            skipped += 1
    return Datagram(agent, sub_agent, sequence, uptime_ms, tuple(flows), tuple(counters), skipped)


def _address(reader: _Reader, kind: int) -> str:
    """The agent's address. Raises DatagramError."""
    if kind == 1:
        return str(ipaddress.IPv4Address(reader.data(4)))
    if kind == 2:
        return str(ipaddress.IPv6Address(reader.data(16)))
    raise DatagramError(f"address type {kind}")


def _flow_sample(reader: _Reader, is_expanded: bool) -> FlowSample | None:
    """A sampled packet; None where none of its records is of a known format."""
    if is_expanded:
        _, _, source, rate, *_ = reader.words(6)
        input_format, input_value, output_format, output_value, count = reader.words(5)
    else:
        _, source_id, rate, _, _, given_input, given_output, count = reader.words(8)
        source = source_id & 0xFFFFFF
        input_format, input_value = given_input >> 30, given_input & 0x3FFFFFFF
        output_format, output_value = given_output >> 30, given_output & 0x3FFFFFFF
    input_port = _if_index(input_format, input_value)
    output_port = _if_index(output_format, output_value)
    header, header_protocol, frame_bytes, fields = b"", 0, 0, None
    for kind, record in _records(reader, count):
        if kind == _RAW_HEADER:
            header_protocol, frame_bytes, _, length = record.words(4)
            header = record.data(length)
        elif kind == _IPV4 and fields is None:
            frame_bytes, fields = _fields(record, _IPV4_LAYOUT)
        elif kind == _IPV6 and fields is None:
            frame_bytes, fields = _fields(record, _IPV6_LAYOUT)
    if not header and fields is None:
        return None
    return FlowSample(
        source,
        rate,
        input_port,
        output_port,
        frame_bytes,
        header_protocol,
        header,
        None if header else fields,
    )


def _records(reader: _Reader, count: int) -> list[tuple[int, _Reader]]:
    if count > _MOST_SAMPLES:
        raise DatagramError(f"{count} records in a sample")
    found = []
    for _ in range(count):
        kind, length = reader.words(2)
        found.append((kind, reader.part(length)))
    return found


def _if_index(kind: int, value: int) -> int | None:
    return value if kind == _IF_INDEX and 0 < value < _INTERNAL else None


def _fields(record: _Reader, layout: struct.Struct) -> tuple[int, PacketFields]:
    """The length of a packet without its Ethernet header, and its fields."""
    length, protocol, src, dst, sport, dport, *_ = record.structure(layout)
    fields = PacketFields(
        str(ipaddress.ip_address(src)),
        str(ipaddress.ip_address(dst)),
        protocol & 0xFF,
        sport & 0xFFFF,
        dport & 0xFFFF,
    )
    return length, fields


def _counter_sample(reader: _Reader, is_expanded: bool) -> PortCounters | None:
    """The counters of an interface; None for a sample without generic ones."""
    *_, count = reader.words(4 if is_expanded else 3)
    found, name = None, ""
    for kind, record in _records(reader, count):
        if kind == _IF_COUNTERS:
            found = _if_counters(record)
        elif kind == _PORT_NAME:
            name = record.data(record.word())[:_MOST_NAME_BYTES].decode("utf-8", "replace")
    return None if found is None else found._replace(name=name)


def _if_counters(record: _Reader) -> PortCounters:
    values = record.structure(_IF_COUNTERS_LAYOUT)
    index, kind, speed_bps, _, status, *counted = values
    rx_bytes, *rx, _, tx_bytes, ucast, mcast, bcast, tx_discards, tx_errors, _ = counted
    rx_packets = (_known(rx[0]), _known(rx[1]), _known(rx[2]))
    tx_packets = (_known(ucast), _known(mcast), _known(bcast))
    return PortCounters(
        index,
        kind,
        speed_bps,
        bool(status & _UP),
        _known(rx_bytes, 64),
        rx_packets,
        _known(rx[3]),
        _known(rx[4]),
        _known(tx_bytes, 64),
        tx_packets,
        _known(tx_discards),
        _known(tx_errors),
    )


def _known(value: int, bits: int = 32) -> int | None:
    return None if value == (1 << bits) - 1 else value


ROCE_PORT = 4791

_ETHERNET, _IPV4_FIRST, _IPV6_FIRST = 1, 11, 12
"""What a header begins with (sFlow's header_protocol)."""

_VLAN_TYPES = (0x8100, 0x88A8, 0x9100)
_MOST_TAGS = 4
_IPV4_TYPE, _IPV6_TYPE = 0x0800, 0x86DD
_TCP, _UDP = 6, 17
_EXTENSIONS = frozenset((0, 43, 60, 135, 139, 140))
"""IPv6 extension headers whose length is in units of eight bytes."""
_FRAGMENT = 44
_MOST_EXTENSIONS = 8
_BTH_BYTES = 12


def flow_of(sample: FlowSample) -> FlowKey | None:
    """The flow of a sampled packet by its first bytes, of RoCE v2 with the destination queue pair;
    None where its header is not of IP, or cut off before it."""
    fields = sample.fields
    if fields is not None:
        return FlowKey(*fields)
    header, start, kind = sample.header, 0, 0
    if sample.header_protocol == _ETHERNET:
        start, kind = _after_ethernet(header)
    elif sample.header_protocol == _IPV4_FIRST:
        kind = _IPV4_TYPE
    elif sample.header_protocol == _IPV6_FIRST:
        kind = _IPV6_TYPE
    if kind == _IPV4_TYPE:
        return _ipv4(header, start)
    if kind == _IPV6_TYPE:
        return _ipv6(header, start)
    return None


def _after_ethernet(header: bytes) -> tuple[int, int]:
    """Where the payload begins, behind any VLAN tags, and its type; type 0 where it is cut off."""
    at = 12
    for _ in range(_MOST_TAGS):
        if at + 2 > len(header):
            return at, 0
        (kind,) = struct.unpack_from(">H", header, at)
        if kind not in _VLAN_TYPES:
            return at + 2, kind
        at += 4
    return at, 0


def _ipv4(header: bytes, at: int) -> FlowKey | None:
    if at + 20 > len(header) or header[at] >> 4 != 4:
        return None
    words = (header[at] & 0xF) * 4
    (fragment,) = struct.unpack_from(">H", header, at + 6)
    src, dst = (str(ipaddress.IPv4Address(header[at + n : at + n + 4])) for n in (12, 16))
    is_later_fragment = bool(fragment & 0x1FFF)
    start = len(header) if is_later_fragment or words < 20 else at + words
    return _with_ports(src, dst, header[at + 9], header, start)


def _ipv6(header: bytes, at: int) -> FlowKey | None:
    if at + 40 > len(header) or header[at] >> 4 != 6:
        return None
    protocol = header[at + 6]
    src, dst = (str(ipaddress.IPv6Address(header[at + n : at + n + 16])) for n in (8, 24))
    at += 40
    for _ in range(_MOST_EXTENSIONS):
        if protocol in _EXTENSIONS and at + 2 <= len(header):
            protocol, at = header[at], at + 8 * (header[at + 1] + 1)
        elif protocol == _FRAGMENT and at + 8 <= len(header):
            (fragment,) = struct.unpack_from(">H", header, at + 2)
            protocol, at = header[at], at + 8 if fragment < 8 else len(header)
        else:
            break
    return _with_ports(src, dst, protocol, header, at)


def _with_ports(src: str, dst: str, protocol: int, header: bytes, at: int) -> FlowKey:
    """The flow with its ports and queue pair, as far as the header goes."""
    if protocol not in (_TCP, _UDP) or at + 4 > len(header):
        return FlowKey(src, dst, protocol)
    sport, dport = struct.unpack_from(">HH", header, at)
    bth = at + 8
    if protocol != _UDP or dport != ROCE_PORT or bth + _BTH_BYTES > len(header):
        return FlowKey(src, dst, protocol, sport, dport)
    qp = int.from_bytes(header[bth + 5 : bth + 8], "big")
    return FlowKey(src, dst, protocol, sport, dport, qp)
