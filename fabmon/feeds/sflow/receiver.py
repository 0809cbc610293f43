"""Receives sFlow datagrams over UDP: adds up sampled flows, keeps the last interface counters.

Anybody who reaches the port can send, and a datagram names its agent itself. What is kept is
bounded by agent and in all: counters only of the hosts file's nodes, of others nothing once they
are silent. A datagram that is no sFlow, or comes while too many do, is counted and dropped. Bytes
are corrected for dropped and lost datagrams by their sequence numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Iterable, Mapping

from fabmon.fabric.flows.addresses import parse_address
from fabmon.fabric.flows.sampled import (
    KEPT_NS,
    MOST_AGENTS,
    RX,
    TX,
    FlowKey,
    FlowSamples,
    SampledFlow,
)
from fabmon.fabric.model import Host
from fabmon.feeds.sflow.datagram import (
    MOST_BYTES,
    Datagram,
    DatagramError,
    FlowSample,
    PortCounters,
    decode,
    flow_of,
)
from fabmon.feeds.sflow.sender_interval import SenderInterval
from fabmon.feeds.ticks import Clock, RealClock

_LOG = logging.getLogger("fabmon.feeds")

DEFAULT_PORT = 6343
BATCH_S = 10.0
"""Samples of that time are passed on together."""

_MOST_FLOWS = 12
"""Flows of a port in one way that are passed on, the largest first."""
_MOST_FLOWS_OF_AGENT = 512
_MOST_KEPT = 8192
"""Flows of an agent that are added up in a batch."""
MOST_PORTS = 2048
"""Interfaces of an agent, as of a node."""
_MOST_SAMPLES_A_SECOND = 10_000
_MOST_SAMPLES_OF_AGENT = 2_500
"""Samples that are read in a second; each takes some 13 us. One agent cannot use up all."""
_BYTES_OF_SAMPLE = 200
"""A datagram counts as one sample for so many bytes at least: those that are skipped cost too."""
_FORGOTTEN_S = 60.0
"""An agent that is no node of the hosts file and sends nothing for this long is forgotten."""
_GONE_NS = 600 * 10**9
"""An interface that sends nothing for this long is gone: agents send once in a minute at least."""
_MOST_SUB_AGENTS = 256
_MOST_MISSING = 10_000
"""A larger gap in sequence numbers is a restart of the agent."""
_MOST_LATE = 100
_MOST_LATE_MS = 10_000
"""A datagram whose number and uptime are smaller by less was overtaken by others."""
_RECOVERED_S = 60.0
"""What was not dropped for this long has ended."""
_MOST_RATE = 1 << 24
_MOST_SIZE = 1 << 60
"""Bytes of a flow, or of all others of a port, in a batch: a record holds less than 2^63."""
_RECEIVE_BYTES = 4 << 20

_Counts = list[int]
"""Samples and bytes."""


class _Agent:
    """What an agent has sent since the last batch, and its last counters."""

    def __init__(self, keeps_counters: bool) -> None:
        self.heard_s = 0.0
        self.quiet_s = 0.0
        self._keeps_counters = keeps_counters
        self.counts: dict[tuple[int, str, FlowKey | None], _Counts] = {}
        self.rates: Counter[int] = Counter()
        self.sequences: dict[int, tuple[int, int]] = {}
        self.received = 0
        self.missing = 0
        self.counters: dict[int, tuple[PortCounters, int, int]] = {}
        self._left_out_ns: int | None = None
        self.interval = SenderInterval()
        self._egress_ns: dict[int, int] = {}

    def take(self, datagram: Datagram, now_ns: int) -> None:
        """Add a datagram that arrived at `now_ns`, by the monotonic clock."""
        is_late = self.note_sequence(datagram)
        self.heard_s = now_ns / 1e9
        for port in datagram.counters if self._keeps_counters else ():
            before = self.counters.get(port.if_index)
            if is_late and before and _signed(datagram.uptime_ms - before[1]) <= 0:
                continue  # newer counters have overtaken these
            if before is not None and before[1] != datagram.uptime_ms:
                self.interval.add((now_ns - before[2]) / 1e9)
            if before is not None or len(self.counters) < MOST_PORTS:
                self.counters[port.if_index] = (port, datagram.uptime_ms, now_ns)
            else:
                self._left_out_ns = now_ns
        for sample in datagram.flows:
            self._add(sample, now_ns)

    @property
    def has_left_out(self) -> bool:
        """Whether it sends counters of more interfaces than are kept."""
        return self._left_out_ns is not None

    def forget(self, now_ns: int) -> None:
        """Forget what was sent more than ten minutes ago: somebody else may have sent it in this
        agent's name, or the interface is gone."""
        since_ns = now_ns - _GONE_NS
        self.counters = {at: each for at, each in self.counters.items() if each[2] > since_ns}
        self._egress_ns = {at: seen for at, seen in self._egress_ns.items() if seen > since_ns}
        if self._left_out_ns is not None and self._left_out_ns <= since_ns:
            self._left_out_ns = None

    def note_sequence(self, datagram: Datagram) -> bool:
        """Count datagrams that are missing before this one; whether it was overtaken by others,
        and so is not missing. Numbers and uptimes wrap; after a restart both begin again."""
        self.received += 1
        before = self.sequences.get(datagram.sub_agent)
        if before is None:
            if len(self.sequences) < _MOST_SUB_AGENTS:
                self.sequences[datagram.sub_agent] = (datagram.sequence, datagram.uptime_ms)
            return False
        step = _signed(datagram.sequence - before[0])
        passed_ms = _signed(datagram.uptime_ms - before[1])
        if -_MOST_LATE < step <= 0 and -_MOST_LATE_MS < passed_ms <= 0:
            self.missing = max(0, self.missing - 1)
            return True
        if 0 < step < _MOST_MISSING:
            self.missing += step - 1
        self.sequences[datagram.sub_agent] = (datagram.sequence, datagram.uptime_ms)
        return False

    def _add(self, sample: FlowSample, now_ns: int) -> None:
        """Count a packet as received by its input and as sent by its output.

        A port that samples what it sends (its data source is the output) counts those samples only:
        the inputs of other ports sampled the same packets.
        """
        self.rates[sample.rate] += 1
        flow = flow_of(sample)
        size = min(sample.frame_bytes, MOST_BYTES) * min(sample.rate, _MOST_RATE)
        is_egress = sample.source == sample.output and sample.source != sample.input
        if is_egress and sample.output is not None:
            if sample.output in self._egress_ns or len(self._egress_ns) < MOST_PORTS:
                self._egress_ns[sample.output] = now_ns
            self._count(sample.output, TX, flow, size)
            return
        if sample.input is not None:
            self._count(sample.input, RX, flow, size)
        if sample.output is not None and sample.output not in self._egress_ns:
            self._count(sample.output, TX, flow, size)

    def _count(self, port: int, way: str, flow: FlowKey | None, size: int) -> None:
        key = (port, way, flow)
        if key not in self.counts and len(self.counts) >= _MOST_KEPT:
            key = (port, way, None)
            if key not in self.counts and len(self.counts) >= _MOST_KEPT + 2 * MOST_PORTS:
                return
        count = self.counts.setdefault(key, [0, 0])
        count[0] += 1
        count[1] += size

    def batch(self, agent: str, node: str, seconds: float) -> FlowSamples | None:
        """The largest flows since the last batch, which was `seconds` ago; None where nothing was
        sampled: then that time is part of the next batch, up to what is shown together."""
        seconds = min(self.quiet_s + seconds, KEPT_NS / 1e9)
        counts, self.counts = self.counts, {}
        rates, self.rates = self.rates, Counter()
        received, missing = self.received, self.missing
        self.received = self.missing = 0
        self.quiet_s = 0.0 if counts else seconds
        if not counts:
            return None
        factor = (received + missing) / max(received, 1)
        flows: list[SampledFlow] = []
        others: dict[tuple[int, str], _Counts] = {}
        of_port: Counter[tuple[int, str]] = Counter()
        for (port, way, flow), (samples, size) in sorted(
            counts.items(), key=lambda item: -item[1][1]
        ):
            scaled = min(round(size * factor), _MOST_SIZE)
            of_port[port, way] += flow is not None
            is_large = of_port[port, way] <= _MOST_FLOWS and len(flows) < _MOST_FLOWS_OF_AGENT
            if flow is not None and is_large:
                flows.append(SampledFlow(port, way, flow, samples, scaled))
            else:
                count = others.setdefault((port, way), [0, 0])
                count[0] += samples
                count[1] = min(count[1] + scaled, _MOST_SIZE)
        rest = tuple(
            (port, way, samples, size) for (port, way), (samples, size) in sorted(others.items())
        )
        lost = missing / max(received + missing, 1)
        (rate, _), *_ = rates.most_common(1)
        return FlowSamples(agent, seconds, rate, tuple(flows), rest, round(lost, 4), node)


def _signed(difference: int) -> int:
    """A difference of two counters of 32 bits that wrap."""
    return (difference + (1 << 31)) % (1 << 32) - (1 << 31)


class _Losses:
    """What is dropped, by its cause: logged once, and once when it has ended."""

    def __init__(self) -> None:
        self._lost: dict[str, tuple[int, float]] = {}

    def add(self, cause: str, detail: str, now_s: float) -> None:
        """Count a datagram that is dropped."""
        if cause not in self._lost:
            _LOG.warning("sFlow: %s", detail)
        self._lost[cause] = (self._lost.get(cause, (0, 0.0))[0] + 1, now_s)

    def end(self, now_s: float) -> None:
        """Log what has not been dropped for a minute."""
        for cause, (count, last_s) in list(self._lost.items()):
            if now_s - last_s >= _RECOVERED_S:
                del self._lost[cause]
                _LOG.warning(
                    "sFlow: %s for %g s; %d datagrams were dropped", cause, _RECOVERED_S, count
                )


class SflowReceiver(asyncio.DatagramProtocol):
    """Listens on `address` (`[HOST]:PORT`). `hosts` are the nodes whose agents may be matched by
    the addresses of the hosts file."""

    def __init__(
        self, address: str, hosts: Iterable[Host] = (), clock: Clock | None = None
    ) -> None:
        """Binds the socket. Raises ValueError for an address that is not one, and OSError."""
        host, port = parse_listen_address(address)
        self._socket = _bound(host, port)
        self.port = self._socket.getsockname()[1]
        self.invalid = 0
        self.dropped = 0
        self.arrived = asyncio.Event()
        self._hosts = tuple(hosts)
        self._clock = clock or RealClock()
        self._agents: dict[str, _Agent] = {}
        self._node_of: dict[str, str] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._since_s = self._second_s = self._clock.monotonic()
        self._samples_in_second = 0
        self._samples_of_agent: Counter[bytes] = Counter()
        self._losses = _Losses()

    async def run(self) -> None:
        """Receive from now on; resolves the names of the hosts file first."""
        loop = asyncio.get_running_loop()
        await self._resolve(loop)
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=self._socket)
        self._since_s = self._clock.monotonic()

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._socket.close()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take a datagram; called by the event loop."""
        now_s = self._clock.monotonic()
        if now_s - self._second_s >= 1:
            self._second_s, self._samples_in_second = now_s, 0
            self._samples_of_agent.clear()
        agent_bytes = data[4:24] if data[7:8] == b"\2" else data[4:12]
        cost = 1 + len(data) // _BYTES_OF_SAMPLE
        if (
            self._samples_in_second > _MOST_SAMPLES_A_SECOND
            or self._samples_of_agent[agent_bytes] > _MOST_SAMPLES_OF_AGENT
        ):
            self.dropped += 1
            detail = "more samples than are read: some are left out, rates are corrected"
            self._losses.add("all samples were read", detail, now_s)
            return
        try:
            datagram = decode(data)
        except DatagramError as error:
            self.invalid += 1
            self._samples_in_second += cost
            self._samples_of_agent[agent_bytes] += cost
            detail = f"a datagram is not valid ({error}); such datagrams are dropped"
            self._losses.add("no invalid datagram", detail, now_s)
            return
        samples = max(cost, 1 + len(datagram.flows) + len(datagram.counters))
        self._samples_in_second += samples
        self._samples_of_agent[agent_bytes] += samples
        agent = self._agents.get(datagram.agent)
        if agent is None:
            is_node = datagram.agent in self._node_of
            if len(self._agents) >= MOST_AGENTS and not is_node:
                self.dropped += 1
                detail = f"more than {MOST_AGENTS} agents: those of no node are left out"
                self._losses.add("no agent was left out", detail, now_s)
                return
            agent = self._agents[datagram.agent] = _Agent(is_node)
        agent.take(datagram, int(now_s * 1e9))
        self.arrived.set()

    def take(self) -> tuple[FlowSamples, ...]:
        """The flows of each agent, once in 10 s; nothing between."""
        now_s = self._clock.monotonic()
        seconds = now_s - self._since_s
        if seconds < BATCH_S:
            return ()
        self._since_s = now_s
        self._losses.end(now_s)
        found = (
            agent.batch(address, self._node_of.get(address, ""), seconds)
            for address, agent in self._agents.items()
        )
        batches = tuple(batch for batch in found if batch is not None)
        for address, agent in list(self._agents.items()):
            agent.forget(int(now_s * 1e9))
            if now_s - agent.heard_s > _FORGOTTEN_S and address not in self._node_of:
                del self._agents[address]
        return batches

    def counters(self, node: str) -> Mapping[int, tuple[PortCounters, int, int]] | None:
        """The last counters of a node's interfaces by ifIndex, with the agent's uptime in ms and
        the monotonic clock in ns of their arrival; None where its agent has sent nothing."""
        agent = self._agent_of(node)
        return None if agent is None else agent.counters

    def has_left_out(self, node: str) -> bool:
        """Whether a node's agent has sent counters of more interfaces than are kept."""
        agent = self._agent_of(node)
        return agent is not None and agent.has_left_out

    def interval_s(self, node: str) -> int:
        """The seconds from one to the next counters of an interface of a node, as they arrive; 0
        where that is not known yet."""
        agent = self._agent_of(node)
        return 0 if agent is None else agent.interval.seconds

    def _agent_of(self, node: str) -> _Agent | None:
        for address, owner in self._node_of.items():
            if owner == node and address in self._agents:
                return self._agents[address]
        return None

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Find the addresses of the hosts file's nodes, without waiting for slow name servers."""
        named = []
        for host in self._hosts:
            where = host.address or host.name
            parsed = parse_address(where)
            if parsed is not None:
                self._node_of[str(parsed)] = host.name
            elif host.via in ("sflow", "gnmi", "snmp", "eapi") or host.role == "switch":
                named.append((host.name, where))

        async def resolve(name: str, where: str) -> None:
            with contextlib.suppress(OSError, UnicodeError):
                for *_, place in await loop.getaddrinfo(where, None, type=socket.SOCK_DGRAM):
                    self._node_of.setdefault(str(place[0]).partition("%")[0], name)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RESOLVE_S):
                await asyncio.gather(*(resolve(*each) for each in named))


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens on an address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_DGRAM)
    try:
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setblocking(False)
        listener.bind((host, port))
    except Exception:
        listener.close()
        raise
    return listener


_RESOLVE_S = 3.0

_ANY = "0.0.0.0"


def parse_listen_address(text: str) -> tuple[str, int]:
    """`:6343`, `6343`, `10.0.0.1:6343` or `[::]:6343` as host and port.

    Raises ValueError with what to write.
    """
    host, separator, port = text.rpartition(":")
    if not separator and parse_address(text) is not None:
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and int(port[:6]) < 65_536
    if not is_port or (host and parse_address(host) is None):
        raise ValueError(f"{text!r} is no address to listen on: write [ADDRESS]:PORT, as in :6343")
    return host or _ANY, int(port)
