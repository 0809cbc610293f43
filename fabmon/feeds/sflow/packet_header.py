"""The flow that a sampled packet belongs to, by its first bytes.

Ethernet with VLAN tags, IPv4, IPv6 and its extension headers, TCP and UDP ports, and of RoCE v2 the
destination queue pair (InfiniBand's base transport header after UDP port 4791).
"""

from __future__ import annotations

import ipaddress
import struct

from fabmon.fabric.flows.sampled import FlowKey
from fabmon.feeds.sflow.datagram import FlowSample

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
    """The flow of a sampled packet; None where its header is not of IP, or cut off before it."""
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
