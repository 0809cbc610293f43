"""Watching UDP datagrams go through a namespace, as a packet sniffer does."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab import netns

_ETH_P_ALL = 0x0003
_UDP = 17
_HEAD_BYTES = 128
"""Enough of a packet to hold an IP header with options and the UDP header."""

_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
"""A packet costs about 800 bytes here, and the usual buffer holds no more than 270 of them."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """A UDP datagram seen on interface `port`; `sent`: whether it was leaving by it.

    `size_bytes` is the UDP payload.
    """

    port: str
    sent: bool
    src: str
    dst: str
    sport: int
    dport: int
    size_bytes: int


class Tap:
    """Sees every packet of a namespace from the moment it is made until it is closed."""

    def __init__(self, ns: str) -> None:
        """Start watching; packets are kept by the kernel until `watch` takes them."""
        self._socket = netns.make_socket(
            ns, socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL)
        )
        self._socket.settimeout(0.02)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)

    def __enter__(self) -> Tap:
        """Nothing to do: it watches already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._socket.close()

    def watch(self, timeout_s: float) -> Iterator[Datagram]:
        """Yield UDP datagrams as they are seen, for at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                packet, (port, _, kind, *_) = self._socket.recvfrom(_HEAD_BYTES)
            except TimeoutError:
                continue
            if datagram := _parse(packet, port, kind == socket.PACKET_OUTGOING):
                yield datagram


def _parse(packet: bytes, port: str, sent: bool) -> Datagram | None:
    """The UDP datagram in `packet` (from its IPv4 header on), None if it is anything else."""
    head = (packet[0] & 0x0F) * 4 if packet else 0
    if len(packet) < head + 8 or packet[0] >> 4 != 4 or packet[9] != _UDP:
        return None
    sport, dport, length = struct.unpack_from("!HHH", packet, head)
    src, dst = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
    return Datagram(port, sent, src, dst, sport, dport, length - 8)
