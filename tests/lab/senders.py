"""Sockets that send at the rates of a plan: `python -m tests.lab.senders`.

On its standard input it is given the traffic, on a line. Once all is connected it says so, and
waits for a second line: when it begins, on the machine's monotonic clock.

One process for all hosts: each socket is made in the namespace of its host, and bound to its NIC.
Unlike iperf3 a stream changes its rate at once and keeps its ports. What the streams of a
collective send depends on what has arrived, as in a synchronous job.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
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
_CONNECT_S = 60.0
_READ_BYTES = 1 << 18
_SEND_BUFFER_BYTES = 1 << 18
"""The kernel doubles it: more than a path and its queue hold, less than an iteration."""
_ZEROS = memoryview(bytes(1 << 16))
_UNEVEN = 0.03
"""Computing takes so much more or less, as a share, by host and iteration."""


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
    rates: tuple[tuple[float, float, float], ...] = ()
    congestion: str = "reno"


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """A synchronous job over TCP: its hosts compute for `compute_s`, then each stream moves
    `stream_bytes`, once both of its hosts have computed; when all has arrived, they compute again.

    `late` are (namespace of a host, from when on, how much longer it computes), in seconds. `seed`
    is that of how much more or less they compute.
    """

    streams: tuple[Stream, ...]
    stream_bytes: int
    compute_s: float
    start_s: float
    late: tuple[tuple[str, float, float], ...]
    seed: int


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What to send until `end_s` seconds after the beginning."""

    streams: tuple[Stream, ...]
    collectives: tuple[Collective, ...]
    end_s: float


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


@dataclass(slots=True)
class _Part:
    """A connection of a collective, and what it has still to send and to receive."""

    stream: Stream
    out: socket.socket
    into: socket.socket
    to_send: int = 0
    to_receive: int = 0


class _Iterations:
    def __init__(self, job: Collective, parts: list[_Part]) -> None:
        self._job = job
        self._parts = parts
        self._random = random.Random(job.seed)
        self._ready_s: dict[str, float] = {}
        self._begin(job.start_s)

    def _begin(self, now_s: float) -> None:
        for host in sorted({each.src_ns for each in self._job.streams}):
            compute_s = self._job.compute_s * self._random.uniform(1 - _UNEVEN, 1 + _UNEVEN)
            extra_s = sum(
                extra for late, from_s, extra in self._job.late if late == host and now_s >= from_s
            )
            self._ready_s[host] = now_s + compute_s + extra_s
        for part in self._parts:
            part.to_send = part.to_receive = self._job.stream_bytes

    def turn(self, now_s: float) -> None:
        """Send what can be sent now; begin again when all has arrived."""
        for part in self._parts:
            ends = part.stream.src_ns, part.stream.dst_ns
            if part.to_send and now_s >= max(self._ready_s[host] for host in ends):
                with contextlib.suppress(BlockingIOError):
                    while part.to_send:
                        part.to_send -= part.out.send(_ZEROS[: part.to_send])
        if not any(part.to_receive for part in self._parts):
            self._begin(now_s)


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
    out, into = _connected(stream)
    bits = _TCP_CHUNK_BYTES * 8
    return _Sender(list(stream.rates), out, into, bytes(_TCP_CHUNK_BYTES), bits)


def _part(stream: Stream) -> _Part:
    out, into = _connected(stream)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return _Part(stream, out, into)


def _connected(stream: Stream) -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection."""
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
    # Reno: every kernel has it, and unlike some it slows down for a full queue alone, as RoCE does.
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, stream.congestion.encode())
    into.setblocking(False)
    return out, into


def _bound(stream: Stream, kind: socket.SocketKind) -> socket.socket:
    out = netns.make_socket(stream.src_ns, socket.AF_INET, kind)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, stream.nic.encode() + b"\0")
    out.bind((stream.src, stream.sport))
    return out


def main() -> None:
    """Connect every stream, say so, and send until the end."""
    traffic = msgspec.json.decode(sys.stdin.readline(), type=Traffic)
    senders = [_tcp(each) if each.protocol == "tcp" else _udp(each) for each in traffic.streams]
    jobs = [(job, [_part(each) for each in job.streams]) for job in traffic.collectives]
    parts = {part.into.fileno(): part for _, its_parts in jobs for part in its_parts}
    readers = {part.into.fileno(): part.into for part in parts.values()}
    for sender, each in zip(senders, traffic.streams, strict=True):
        sender.out.setblocking(False)
        if each.protocol == "tcp":
            readers[sender.into.fileno()] = sender.into
    for part in parts.values():
        part.out.setblocking(False)
    arrivals = select.epoll()
    for number in readers:
        arrivals.register(number, select.EPOLLIN)
    # A NIC does not wait for a CPU either.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    print("ready", flush=True)
    begin_s = float(sys.stdin.readline())
    iterations = [_Iterations(job, its_parts) for job, its_parts in jobs]
    before_s = time.monotonic()
    while before_s - begin_s < traffic.end_s:
        time.sleep(_TURN_S)
        now_s = time.monotonic()
        for sender in senders:
            sender.turn(now_s - begin_s, now_s - before_s)
        for number, _ in arrivals.poll(0):
            with contextlib.suppress(BlockingIOError):
                received = len(readers[number].recv(_READ_BYTES))
                if number in parts:
                    parts[number].to_receive -= received
        for each_job in iterations:
            each_job.turn(now_s - begin_s)
        before_s = now_s


if __name__ == "__main__":
    main()
