"""Asking the kernel over rtnetlink: dumps, and the news of what changed since.

Why not pyroute2: docs/decisions/0001-rtnetlink-without-pyroute2.md. No privilege is needed; what is
seen is the network namespace of whoever asks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Iterator, List, Optional, Tuple

from collectors.rtmessages import BODY_BYTES, Fact, parse

_ERROR, _DONE = 2, 3
_REQUEST = 0x1
_DUMP_REQUEST = 0x301
_HEADER = struct.Struct("=IHHII")
_RECEIVE_BYTES = 1 << 16
_DUMP_TIMEOUT_S = 5.0
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_NEWS = (3, 5, 7, 9, 11, 32)
"""Multicast groups: neighbours, addresses v4, routes v4, addresses v6, routes v6, nexthops."""


class Netlink:
    """A socket that asks: for dumps, or for one thing. `channel` is another than the kernel's."""

    def __init__(self, channel: Optional[socket.socket] = None) -> None:
        self._socket = channel or _open()
        self._socket.settimeout(_DUMP_TIMEOUT_S)
        self._sequence = 0

    def dump(self, kind: int, family: int = 0) -> Iterator[Fact]:
        """All the facts of one kind, of one address family or of all.

        Raises OSError; EOPNOTSUPP and EINVAL when this kernel knows no such kind.
        """
        self._send(kind, _DUMP_REQUEST, bytes([family]).ljust(BODY_BYTES[kind], b"\0"))
        while True:
            for answer, sequence, payload in _messages(self._socket.recv(_RECEIVE_BYTES)):
                if sequence != self._sequence:
                    continue
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    raise OSError(-struct.unpack_from("=i", payload)[0], f"netlink dump {kind}")
                fact = parse(answer, payload)
                if fact is not None:
                    yield fact

    def ask(self, kind: int, body: bytes) -> bytes:
        """The payload of the one answer to a request. Raises OSError with what the kernel says."""
        self._send(kind, _REQUEST, body)
        while True:
            for answer, sequence, payload in _messages(self._socket.recv(_RECEIVE_BYTES)):
                if sequence != self._sequence:
                    continue
                if answer == _ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    raise OSError(code, os.strerror(code), f"netlink request {kind}")
                return payload

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        length = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(length, kind, flags, self._sequence, 0) + body)


class News:
    """A socket on which the kernel announces changes of neighbours, addresses and routes."""

    def __init__(self) -> None:
        self._socket = _open()
        self._socket.setblocking(False)
        for group in _NEWS:
            with contextlib.suppress(OSError):  # nexthops are unknown before Linux 5.3
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def drain(self) -> Optional[List[Tuple[bool, Fact]]]:
        """What changed since the last call: (whether it is there now, what).

        None when more was announced than the socket could hold.
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
                fact = parse(kind, payload)
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
