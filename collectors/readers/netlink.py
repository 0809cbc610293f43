"""Routes, neighbours and addresses from the kernel over rtnetlink: dumps, and later changes.

Why not pyroute2: docs/decisions/0001-rtnetlink-without-pyroute2.md. No privilege is needed; the
answers are about the network namespace of this process. Message layouts are those of
linux/{rtnetlink,neighbour,if_addr,if_link,nexthop}.h, in the machine's own byte order except for
addresses.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

GETLINK, GETADDR, GETROUTE, GETNEIGH, GETNEXTHOP = 18, 22, 26, 30, 106
BODY_BYTES = {GETLINK: 16, GETADDR: 8, GETROUTE: 12, GETNEIGH: 12, GETNEXTHOP: 8}
"""The kinds of dump, and the size of the fixed part that each request has."""

INET, INET6 = int(socket.AF_INET), int(socket.AF_INET6)

_ATTRIBUTE = struct.Struct("=HH")
_ATTRIBUTE_MASK = 0x3FFF
_HOP = struct.Struct("=HBBi")
_DEAD = 0x01 | 0x10  # RTNH_F_DEAD, RTNH_F_LINKDOWN
_CLONED = 0x200
_UNICAST = 1
MAIN_TABLE, _LOCAL_TABLE = 254, 255


class Link(NamedTuple):
    """An interface's index and name."""

    ifindex: int
    name: str


class Address(NamedTuple):
    """An address of an interface, with its prefix length: `10.1.0.2/31`."""

    ifindex: int
    address: str


class Neighbour(NamedTuple):
    """One ARP or NDP entry; `mac` is None while it is not known. `state` is a set of NUD bits."""

    ifindex: int
    ip: str
    mac: Optional[str]
    state: int


class Hop(NamedTuple):
    """A next hop of a route: interface, gateway (None: direct), weight from 1, not known dead."""

    ifindex: int
    via: Optional[str]
    weight: int
    alive: bool


class Route(NamedTuple):
    """One unicast route. `nexthop_id` names a nexthop object, which then has the hops; else 0.

    `table` is 254 for the main one; others are used for some traffic only, by a rule or a VRF.
    """

    family: int
    destination: str
    nexthop_id: int
    hops: Tuple[Hop, ...]
    table: int = MAIN_TABLE


class Nexthop(NamedTuple):
    """A nexthop object: one hop, or a group of (id of another, weight)."""

    id: int
    hop: Optional[Hop]
    group: Tuple[Tuple[int, int], ...]


Fact = Union[Link, Address, Neighbour, Route, Nexthop]


def parse_message(kind: int, payload: bytes) -> Optional[Fact]:
    """The fact in a message (NEW or DEL of a kind); None for messages of no interest."""
    parser = _PARSERS.get(kind)
    return None if parser is None else parser(payload)


def _link(data: bytes) -> Optional[Fact]:
    (index,) = struct.unpack_from("=i", data, 4)
    name = parse_attributes(data, 16).get(3, b"").rstrip(b"\0").decode("utf-8", "replace")
    return Link(index, name)


def _address(data: bytes) -> Optional[Fact]:
    family, prefix, _, _, index = struct.unpack_from("=BBBBI", data)
    attributes = parse_attributes(data, 8)
    # IFA_LOCAL is the own end of a point-to-point address, IFA_ADDRESS the other one.
    ip = attributes.get(2) or attributes.get(1)
    if family not in (INET, INET6) or ip is None:
        return None
    return Address(index, f"{_ip(ip)}/{prefix}")


def _neighbour(data: bytes) -> Optional[Fact]:
    family, index, state = struct.unpack_from("=B3xiH", data)
    attributes = parse_attributes(data, 12)
    ip, mac = attributes.get(1), attributes.get(2)
    if family not in (INET, INET6) or ip is None:
        return None
    return Neighbour(
        index, _ip(ip), ":".join(f"{byte:02x}" for byte in mac) if mac else None, state
    )


def _route(data: bytes) -> Optional[Fact]:
    family, prefix, _, _, table, _, _, kind, flags = struct.unpack_from("=BBBBBBBBI", data)
    if kind != _UNICAST or flags & _CLONED or table == _LOCAL_TABLE:
        return None
    if family not in (INET, INET6):
        return None
    attributes = parse_attributes(data, 12)
    destination = attributes.get(1)
    ip = _ip(destination) if destination else ("0.0.0.0" if family == INET else "::")
    if 9 in attributes:
        hops = _multipath(attributes[9])
    elif 4 in attributes:
        hops = [_hop(_number(attributes[4]), 0, flags, attributes)]
    else:
        hops = []
    # The header has one byte for the table; a greater number is in RTA_TABLE.
    table = _number(attributes[15]) if 15 in attributes else table
    return Route(family, f"{ip}/{prefix}", _number(attributes.get(30)), tuple(hops), table)


def _multipath(data: bytes) -> List[Hop]:
    """The hops in RTA_MULTIPATH: `rtnexthop`s, each followed by its own attributes."""
    hops = []
    offset = 0
    while offset + _HOP.size <= len(data):
        length, flags, more_weight, index = _HOP.unpack_from(data, offset)
        if length < _HOP.size:
            break
        own = parse_attributes(data[offset : offset + length], _HOP.size)
        hops.append(_hop(index, more_weight, flags, own))
        offset += (length + 3) & ~3
    return hops


def _hop(index: int, more_weight: int, flags: int, attributes: Dict[int, bytes]) -> Hop:
    via = attributes.get(5)
    if via is None and 18 in attributes:
        via = attributes[18][2:]  # RTA_VIA: a gateway of another family, after its number
    return Hop(index, _ip(via) if via else None, more_weight + 1, not flags & _DEAD)


def _nexthop(data: bytes) -> Optional[Fact]:
    (flags,) = struct.unpack_from("=I", data, 4)
    attributes = parse_attributes(data, 8)
    identity = _number(attributes.get(1))
    if 2 in attributes:
        group = tuple(
            (member, low + (high << 8) + 1)
            for member, low, high in struct.iter_unpack("=IBB2x", attributes[2])
        )
        return Nexthop(identity, None, group)
    if 5 not in attributes:
        return Nexthop(identity, None, ())  # a blackhole
    via = attributes.get(6)
    hop = Hop(_number(attributes[5]), _ip(via) if via else None, 1, not flags & _DEAD)
    return Nexthop(identity, hop, ())


# NEW and DEL of each kind; GET is the one after DEL.
_PARSERS: Dict[int, Callable[[bytes], Optional[Fact]]] = {
    kind - before: parser
    for kind, parser in (
        (GETLINK, _link),
        (GETADDR, _address),
        (GETROUTE, _route),
        (GETNEIGH, _neighbour),
        (GETNEXTHOP, _nexthop),
    )
    for before in (1, 2)
}


def parse_attributes(data: bytes, offset: int) -> Dict[int, bytes]:
    """The netlink attributes after a message's fixed part, by kind, up to the first invalid one."""
    found: Dict[int, bytes] = {}
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _ATTRIBUTE_MASK] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


def _ip(data: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def _number(data: Optional[bytes]) -> int:
    return 0 if data is None else int.from_bytes(data[:4], sys.byteorder)


_ERROR, _DONE = 2, 3
_REQUEST = 0x1
_DUMP_REQUEST = 0x301
_HEADER = struct.Struct("=IHHII")
_RECEIVE_BYTES = 1 << 16
_DUMP_TIMEOUT_S = 5.0
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_CHANGE_GROUPS = (3, 5, 7, 9, 11, 32)
"""Multicast groups: neighbours, addresses v4, routes v4, addresses v6, routes v6, nexthops."""


class Netlink:
    """A netlink socket for dumps and single requests. `channel` replaces the kernel's in tests."""

    def __init__(self, channel: Optional[socket.socket] = None) -> None:
        self._socket = channel or _open()
        self._socket.settimeout(_DUMP_TIMEOUT_S)
        self._sequence = 0

    def dump(self, kind: int, family: int = 0) -> Iterator[Fact]:
        """All facts of one kind, of one address family or of all.

        Raises OSError; EOPNOTSUPP and EINVAL when this kernel does not support the kind.
        """
        body = bytes([family]).ljust(BODY_BYTES[kind], b"\0")
        for answer, payload in self._answers(kind, _DUMP_REQUEST, body):
            if answer == _DONE:
                return
            fact = parse_message(answer, payload)
            if fact is not None:
                yield fact

    def ask(self, kind: int, body: bytes) -> bytes:
        """The payload of the one answer to a request. Raises OSError with the kernel's error."""
        return next(self._answers(kind, _REQUEST, body))[1]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _answers(self, kind: int, flags: int, body: bytes) -> Iterator[Tuple[int, bytes]]:
        """Send a request; the kind and payload of each answer. Raises OSError."""
        self._sequence += 1
        length = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(length, kind, flags, self._sequence, 0) + body)
        while True:
            for answer, sequence, payload in _messages(self._socket.recv(_RECEIVE_BYTES)):
                if sequence != self._sequence:
                    continue
                if answer == _ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    raise OSError(code, os.strerror(code), f"netlink request {kind}")
                yield answer, payload


class ChangeListener:
    """A socket on which the kernel announces changes of neighbours, addresses and routes."""

    def __init__(self) -> None:
        self._socket = _open()
        self._socket.setblocking(False)
        for group in _CHANGE_GROUPS:
            with contextlib.suppress(OSError):  # nexthops are unknown before Linux 5.3
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def drain(self) -> Optional[List[Tuple[bool, Fact]]]:
        """The changes since the last call: (whether the fact exists now, the fact).

        None when the kernel announced more than the socket could hold.
        """
        facts: List[Tuple[bool, Fact]] = []
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return facts
            except OSError:
                return None
            for kind, _, payload in _messages(data):
                fact = parse_message(kind, payload)
                if fact is not None:
                    facts.append((kind % 4 == 0, fact))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _open() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    channel.bind((0, 0))
    return channel


def _messages(data: bytes) -> Iterator[Tuple[int, int, bytes]]:
    """The kind, sequence number and payload of each message in a datagram."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _, sequence, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size:
            return
        yield kind, sequence, data[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3
