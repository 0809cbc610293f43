"""The path of a flow: UDP datagrams of its 5-tuple whose TTL grows from 1.

Addresses and ports never change, so every router hashes each datagram as it hashes the flow (the
idea of Paris traceroute). A router that drops an expired datagram says so by ICMP, which the kernel
hands to the sending socket's error queue: no privilege is needed.

Few datagrams are sent, `SPACING_S` apart. A Linux router answers one host six times at once and
then once a second (net.ipv4.icmp_ratelimit): a datagram without an answer is repeated a second
later.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from collectors import clock
from collectors.loop.requests import BadRequest, Reply, number_between

MAX_SPORTS = 32
MAX_HOPS = 64
MAX_PROBES = 3
MAX_SECONDS = 120.0

SPACING_S = 0.02
_WAIT_S = 0.5
_RETRY_S = 1.05
"""Time from a datagram without an answer to the next one: long enough for a router that limits its
answers to send another one."""

_TRIES = 2
_PATIENCE_S = 2.5
"""A hop is asked again while other flows were answered at the same distance this recently."""

_MAX_SILENT = 3
"""Hops in a row without an answer, after which a flow is not followed any further."""

_RECEIVE_BYTES = 512
_SO_BINDTODEVICE = 25
_RECVERR = {socket.AF_INET: (0, 11), socket.AF_INET6: (41, 25)}
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
_ADDRESS_AT = {socket.AF_INET: (4, 8), socket.AF_INET6: (8, 24)}
_ICMP, _ICMP6 = 2, 3
_EXPIRED = {_ICMP: 11, _ICMP6: 3}
_UNREACHABLE = {_ICMP: 3, _ICMP6: 1}
_NO_PORT = {_ICMP: 3, _ICMP6: 4}
_REASONS = {
    (_ICMP, 0): "network unreachable",
    (_ICMP, 1): "host unreachable",
    (_ICMP, 3): "port unreachable",
    (_ICMP, 9): "network prohibited",
    (_ICMP, 10): "host prohibited",
    (_ICMP, 13): "prohibited by a filter",
    (_ICMP6, 0): "no route",
    (_ICMP6, 1): "prohibited by a filter",
    (_ICMP6, 3): "address unreachable",
    (_ICMP6, 4): "port unreachable",
}

_NO_PACKET = bytes([0xFF, 0])
_MARK = b"fabmon trace"
"""The datagram begins as no RoCE packet may (an unknown opcode, no partition, queue pair 0), so
that a NIC that takes it for one drops it. Its third and fourth byte are the TTL and the attempt."""


class TraceParameters(NamedTuple):
    """A console's request: the path of UDP from `src` to `dst`:`dport` for each of `sports`.

    `dev` is the outgoing interface, None for the route's. `tos` is the whole byte. `probes` are the
    answers wanted of each hop; `seconds` bound the whole trace.
    """

    src: str
    dst: str
    sports: List[int]
    dport: int
    dev: Optional[str]
    tos: int
    max_hops: int
    probes: int
    seconds: float


def parse_trace(given: Dict[str, Any]) -> TraceParameters:
    """Parse the value of the key `trace` of a control line. Raises BadRequest."""
    sports = given.get("sports")
    if not isinstance(sports, list) or not 1 <= len(sports) <= MAX_SPORTS:
        raise BadRequest(f"sports must be a list of 1 to {MAX_SPORTS} ports")
    dev = given.get("dev")
    if dev is not None and not (isinstance(dev, str) and 0 < len(dev.encode()) < 16):
        raise BadRequest(f"dev must be the name of an interface, not {dev!r}")
    src, dst = (_address(name, given.get(name)) for name in ("src", "dst"))
    if (":" in src) != (":" in dst):
        raise BadRequest(f"{src} and {dst} are not of one address family")
    return TraceParameters(
        src,
        dst,
        sorted({int(number_between("a port", sport, 1, 65535)) for sport in sports}),
        int(number_between("dport", given.get("dport", 4791), 1, 65535)),
        dev,
        int(number_between("tos", given.get("tos", 0), 0, 255)),
        int(number_between("max_hops", given.get("max_hops", 16), 1, MAX_HOPS)),
        int(number_between("probes", given.get("probes", 1), 1, MAX_PROBES)),
        number_between("seconds", given.get("seconds", 30.0), 1, MAX_SECONDS),
    )


def trace(given: Dict[str, Any], reply: Reply) -> None:
    """Follow each flow and reply with its path as soon as it is known. Raises BadRequest."""
    parameters = parse_trace(given)
    flows: List[_Flow] = []
    try:
        for sport in parameters.sports:
            flow = _Flow(parameters, sport)
            if flow.end:
                reply({"path": flow.path()})
            else:
                flows.append(flow)
        if any(flow.is_unbound for flow in flows):
            dev = parameters.dev
            reply({"note": f"this kernel lets only root choose {dev}: the route decides"})
        _follow(flows, parameters, reply)
    finally:
        for flow in flows:
            flow.close()


class _Answer(NamedTuple):
    """An ICMP answer: its sender, and the `ttl` and `attempt` of the datagram that it quotes.

    `ttl` is None where too little is quoted. `end` is set when the flow gets no further, as in
    `_Flow.end`.
    """

    address: str
    ttl: Optional[int]
    attempt: int
    end: str = ""
    text: str = ""


class _Flow:
    """One 5-tuple and the hops found so far.

    `end` is how it ended: `reached` the destination, `silent` (several hops in a row did not
    answer), `refused` (a router, or this host, reports that it gets no further), `failed` (this
    host cannot send it), `far` (not within the hops allowed), `late` (not in time); empty while it
    is followed.
    """

    def __init__(self, parameters: TraceParameters, sport: int) -> None:
        self.sport = sport
        self.end = ""
        self.text = ""
        self.ttl = 1
        self.due_s = 0.0
        self.is_waiting = False
        self.is_unbound = False
        self._parameters = parameters
        self._attempt = 0
        self._misses = 0
        self._silent = 0
        self._hops: List[List[Tuple[str, int]]] = [[]]
        self._sent_ns: Dict[Tuple[int, int], int] = {}
        self._family = socket.AF_INET6 if ":" in parameters.src else socket.AF_INET
        self._socket = socket.socket(self._family, socket.SOCK_DGRAM)
        self.fileno = self._socket.fileno
        self.close = self._socket.close
        try:
            self._open()
        except OSError as error:
            self._socket.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise BadRequest(f"{parameters.src} is no address of this host") from None
            self.finish("failed", _error_text(error, sport))

    def _open(self) -> None:
        level, kind = _RECVERR[self._family]
        self._socket.setblocking(False)
        self._socket.setsockopt(level, kind, 1)
        self._set(socket.IP_TOS, socket.IPV6_TCLASS, self._parameters.tos)
        if self._parameters.dev is not None:
            try:
                name = self._parameters.dev.encode() + b"\0"
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, name)
            except PermissionError:  # before Linux 5.7
                self.is_unbound = True
        self._socket.bind((self._parameters.src, self.sport))

    def _set(self, option4: int, option6: int, value: int) -> None:
        """Set an option of the IP header, which has a number of its own in IPv6."""
        if self._family == socket.AF_INET:
            self._socket.setsockopt(socket.IPPROTO_IP, option4, value)
        else:
            self._socket.setsockopt(socket.IPPROTO_IPV6, option6, value)

    def path(self) -> Dict[str, Any]:
        """The path as it is written on the wire."""
        return {"sport": self.sport, "end": self.end, "text": self.text, "hops": self._hops}

    def send(self) -> None:
        """Send a datagram of the current TTL."""
        now_s = time.monotonic()
        self._set(socket.IP_TTL, socket.IPV6_UNICAST_HOPS, self.ttl)
        self._attempt = (self._attempt + 1) & 0xFF
        data = _NO_PACKET + bytes([self.ttl, self._attempt]) + bytes(8) + _MARK
        self._sent_ns[self.ttl, self._attempt] = clock.monotonic_ns()
        self.is_waiting, self.due_s = True, now_s + _WAIT_S
        try:
            self._socket.sendto(data, (self._parameters.dst, self._parameters.dport))
        except OSError as error:
            if not self._is_of_an_earlier_datagram(error):
                self.finish("failed", _error_text(error, self.sport))

    def _is_of_an_earlier_datagram(self, error: OSError) -> bool:
        """Whether the kernel reported an earlier ICMP answer instead of sending.

        The answer is read next, and this datagram is sent again as one that was lost.
        """
        ready = select.poll()
        ready.register(self._socket, 0)
        return bool(ready.poll(0)) or error.errno in (errno.EAGAIN, errno.ENOBUFS)

    def miss(self, now_s: float, others_at_s: float) -> None:
        """Handle a missing answer: schedule another try, or advance to the next hop.

        `others_at_s` is when any flow was last answered at this TTL.
        """
        self.is_waiting = False
        self._misses += 1
        if self._misses < _TRIES or now_s - others_at_s < _PATIENCE_S:
            self.due_s = now_s + _RETRY_S - _WAIT_S
            return
        self._silent = 0 if self._hops[-1] else self._silent + 1
        if self._silent == _MAX_SILENT:
            self.finish("silent")
        else:
            self._next_hop(now_s)

    def receive(self, now_s: float) -> int:
        """Read the answers that have arrived; the TTL that was answered last, 0 for none."""
        answered = 0
        for answer in self._answers():
            ttl = self.ttl if answer.ttl is None else answer.ttl
            if self.end or not 1 <= ttl <= self.ttl:
                continue
            sent_ns = self._sent_ns.get((ttl, answer.attempt))
            hop = self._hops[ttl - 1]
            if sent_ns is None or len(hop) >= self._parameters.probes:
                continue
            hop.append((answer.address, max(0, (clock.monotonic_ns() - sent_ns) // 1000)))
            answered = ttl
            if answer.end:
                del self._hops[ttl:]
                self.finish(answer.end, answer.text)
            elif ttl == self.ttl:
                self._silent = 0
                self.is_waiting, self._misses, self.due_s = False, 0, now_s
                if len(hop) >= self._parameters.probes:
                    self._next_hop(now_s)
        return answered

    def _next_hop(self, now_s: float) -> None:
        if self.ttl == self._parameters.max_hops:
            self.finish("far")
            return
        self.ttl += 1
        self._hops.append([])
        self._misses, self.due_s = 0, now_s

    def finish(self, end: str, text: str = "") -> None:
        """Set how the flow ended; it is not followed any further."""
        self.end, self.text = end, text

    def _answers(self) -> Iterator[_Answer]:
        while True:
            try:
                data, control, _, _ = self._socket.recvmsg(
                    _RECEIVE_BYTES, _RECEIVE_BYTES, socket.MSG_ERRQUEUE
                )
            except OSError:
                break
            for level, kind, value in control:
                if (level, kind) == _RECVERR[self._family]:
                    answer = self._parse(value, data)
                    if answer is not None:
                        yield answer
        # Clears a pending error, which every poll would report again.
        self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def _parse(self, value: bytes, quoted: bytes) -> Optional[_Answer]:
        """An entry of the error queue: `sock_extended_err`, then the sender of the ICMP message."""
        if len(value) < _EXTENDED_ERROR.size:
            return None
        _, origin, kind, code, _, _, _ = _EXTENDED_ERROR.unpack_from(value)
        start, end = _ADDRESS_AT[self._family]
        offender = value[_EXTENDED_ERROR.size :][start:end]
        if origin not in _EXPIRED or len(offender) != end - start:
            return None
        address = socket.inet_ntop(self._family, offender)
        ttl, attempt = None, self._attempt
        if len(quoted) >= 4 and quoted.startswith(_NO_PACKET):
            ttl, attempt = quoted[2], quoted[3]
        if kind == _EXPIRED[origin] and code == 0:
            return _Answer(address, ttl, attempt)
        if kind != _UNREACHABLE[origin]:
            return None
        if address == self._parameters.dst and code == _NO_PORT[origin]:
            return _Answer(address, ttl, attempt, "reached")
        reason = _REASONS.get((origin, code), f"unreachable, code {code}")
        return _Answer(address, ttl, attempt, "refused", f"{address} says: {reason}")


def _follow(flows: Sequence[_Flow], parameters: TraceParameters, reply: Reply) -> None:
    """Follow the flows side by side, each hop by hop, until all have ended."""
    until_s = time.monotonic() + parameters.seconds
    answered_at_s = [float("-inf")] * (MAX_HOPS + 1)
    poll = select.poll()
    left = {flow.fileno(): flow for flow in flows}
    for fd in left:
        poll.register(fd, 0)
    send_from_s = 0.0
    while left:
        now_s = time.monotonic()
        for flow in left.values():
            if now_s >= until_s:
                flow.finish("late")
            elif flow.due_s > now_s:
                continue
            elif flow.is_waiting:
                flow.miss(now_s, answered_at_s[flow.ttl])
            elif send_from_s <= now_s:
                flow.send()
                send_from_s = now_s + SPACING_S
        for fd, flow in list(left.items()):
            if flow.end:
                poll.unregister(fd)
                del left[fd]
                reply({"path": flow.path()})
        if not left:
            return
        next_s = min(
            max(flow.due_s, 0 if flow.is_waiting else send_from_s) for flow in left.values()
        )
        wait_s = max(0.0, min(next_s, until_s) - time.monotonic())
        for fd, _ in poll.poll(int(wait_s * 1000) + 1):
            now_s = time.monotonic()
            answered_at_s[left[fd].receive(now_s)] = now_s


def _address(name: str, value: object) -> str:
    """The address in the kernel's notation. Raises BadRequest."""
    family = socket.AF_INET6 if ":" in str(value) else socket.AF_INET
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, str(value)))
    except (OSError, ValueError):
        raise BadRequest(f"{name} must be an IP address, not {value!r}") from None


def _error_text(error: OSError, sport: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"UDP port {sport} is in use on this host"
    if error.errno == errno.ENETUNREACH:
        return "this host has no route there"
    return os.strerror(error.errno or 0)
