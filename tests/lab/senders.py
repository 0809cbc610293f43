"""Sockets that send at the rates of a plan: `python -m tests.lab.senders`.

On its standard input it is given the streams, on a line. Once they are connected it says so, and
waits for a second line: when they begin, on the machine's monotonic clock.

One process for all hosts: each socket is made in the namespace of its host, and bound to its NIC.
Unlike iperf3 a stream changes its rate at once and keeps its ports, so a job can beat time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from dataclasses import dataclass

import msgspec

from tests.lab import netns
from tests.lab.traffic import OVERHEAD_BYTES, PAYLOAD_BYTES

_TURN_S = 0.002
_BEHIND_S = 0.01
"""What could not be sent for longer than this is never sent: a NIC does not catch up either."""
_TCP_CHUNK_BYTES = 8_192
_CONNECT_S = 10.0
_READ_BYTES = 1 << 18


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A connection, and how fast it sends when.

    `rates` are (from, to, Mb/s on the wire), in seconds after the beginning. `src` and `dst` are
    addresses, `nic` is the port that it leaves by.
    """

    src_ns: str
    src: str
    nic: str
    sport: int
    dst_ns: str
    dst: str
    dport: int
    protocol: str
    rates: tuple[tuple[float, float, float], ...]


@dataclass(slots=True)
class _Sender:
    rates: list[tuple[float, float, float]]
    out: socket.socket
    into: socket.socket
    chunk: bytes
    wire_bits: int
    owed: float = 0.0
    place: int = 0

    def turn(self, now_s: float, passed_s: float) -> None:
        """Send what is due after `passed_s`."""
        while self.place < len(self.rates) and now_s >= self.rates[self.place][1]:
            self.place += 1
        if self.place == len(self.rates) or now_s < self.rates[self.place][0]:
            return
        per_s = self.rates[self.place][2] * 1e6 / self.wire_bits
        self.owed = min(self.owed + per_s * passed_s, max(1.0, per_s * _BEHIND_S))
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError, OSError):
            while self.owed >= 1.0:
                self.owed -= 1.0
                self.out.send(self.chunk)


def _udp(stream: Stream) -> _Sender:
    into = netns.make_socket(stream.dst_ns, socket.AF_INET, socket.SOCK_DGRAM)
    # Nobody reads: what comes after the buffer is full is dropped behind the port's counters.
    into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    into.bind((stream.dst, stream.dport))
    out = _bound(stream, socket.SOCK_DGRAM)
    out.connect((stream.dst, stream.dport))
    bits = (PAYLOAD_BYTES + OVERHEAD_BYTES) * 8
    return _Sender(list(stream.rates), out, into, bytes(PAYLOAD_BYTES), bits)


def _tcp(stream: Stream) -> _Sender:
    with netns.make_socket(stream.dst_ns, socket.AF_INET, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((stream.dst, stream.dport))
        door.listen()
        door.settimeout(_CONNECT_S)
        out = _bound(stream, socket.SOCK_STREAM)
        out.settimeout(_CONNECT_S)
        out.connect((stream.dst, stream.dport))
        into, _ = door.accept()
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Every kernel has it, and unlike some it slows down for a full queue alone, as RoCE does.
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    into.setblocking(False)
    return _Sender(list(stream.rates), out, into, bytes(_TCP_CHUNK_BYTES), _TCP_CHUNK_BYTES * 8)


def _bound(stream: Stream, kind: socket.SocketKind) -> socket.socket:
    out = netns.make_socket(stream.src_ns, socket.AF_INET, kind)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, stream.nic.encode() + b"\0")
    out.bind((stream.src, stream.sport))
    return out


def main() -> None:
    """Connect every stream, say so, and send until the last one ends."""
    streams = msgspec.json.decode(sys.stdin.readline(), type=tuple[Stream, ...])
    senders = [_tcp(each) if each.protocol == "tcp" else _udp(each) for each in streams]
    pairs = zip(senders, streams, strict=True)
    readers = [sender.into for sender, each in pairs if each.protocol == "tcp"]
    for sender in senders:
        sender.out.setblocking(False)
    # A NIC does not wait for a CPU either.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    print("ready", flush=True)
    begin_s = float(sys.stdin.readline())
    end_s = max((end for each in streams for _, end, _ in each.rates), default=0.0)
    before_s = time.monotonic()
    while before_s - begin_s < end_s:
        time.sleep(_TURN_S)
        now_s = time.monotonic()
        for sender in senders:
            sender.turn(now_s - begin_s, now_s - before_s)
        for reader in readers:
            with contextlib.suppress(BlockingIOError):
                reader.recv(_READ_BYTES)
        before_s = now_s


if __name__ == "__main__":
    main()
