"""`fabmon trace`: reaches the nodes, has host A trace its flows, and names the hops."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from fabmon.analysis.traced_paths import name_path, parallel, spreads
from fabmon.fabric.flows.addresses import Addresses
from fabmon.fabric.flows.endpoints import (
    Endpoint,
    NoEndpoint,
    PairsOfPorts,
    endpoints,
    pairs_between,
)
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.flows.queue_pairs import SOURCE
from fabmon.fabric.model import SWITCH, Fabric, Host, Port
from fabmon.fabric.names import nearest
from fabmon.fabric.tick import NodeState, Tick
from fabmon.fabric.time_wording import interval, utc
from fabmon.fabric.wire.messages import Hello, Trace, TracedPath
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.probe_input import VIAS_WITH_PROBE
from fabmon.report.trace import ForwardedTraceRecord, TraceRecord, forwarded_trace, infiniband_rails
from fabmon.session.errors import UsageError
from fabmon.session.node_queries import reads_fabric
from fabmon.session.session import Session
from fabmon.session.stderr_lines import say

DPORT = 4791
"""UDP destination port of RoCE v2."""
DEFAULT_SPORTS = tuple(range(0xC000, 0xC008))
MAX_SPORTS = 32

_HOSTS_S = 30.0
_ADDRESSES_S = 3.0
_PAIRS_S = 3.0
_SWITCHES_S = 5.0
"""How long A and B, then their addresses, their queue pairs, and the switches are waited for."""

_TABLES_S = 60.0
"""How long the forwarding tables of an InfiniBand fabric are waited for."""

_FLOW_S = 3.0
_MIN_TRACE_S, _MAX_TRACE_S = 30.0, 120.0
"""How long host A may trace: so long a flow and probe, within these limits."""

_ANSWER_S = 5.0
"""How much longer its answer is waited for."""

_USUAL_S = 5
_MAX_NOTES = 4


class TraceRequest(NamedTuple):
    """What to trace: hosts, their ports, UDP source ports, DSCP, probes per hop, most hops."""

    src: str
    dst: str
    sports: tuple[int, ...]
    from_port: str | None
    to_port: str | None
    dscp: int
    probes: int
    max_hops: int


class TraceFailed(Exception):
    """No path could be traced; the message says why."""


class _Collected:
    """What the nodes have reported so far: ports, addresses, queue pairs and traced paths."""

    def __init__(self, hosts: Sequence[Host], session: Session) -> None:
        self._history = session.history(hosts)
        self.time_ns = 0
        self.fabric = Fabric(0, (), (), ())
        self.connections = Connections(self.fabric, {})
        self.with_queue_pairs: set[str] = set()
        self.hellos: dict[str, Hello] = {}
        self.states = {host.name: (NodeState.QUEUED, "") for host in hosts}
        self.asked: frozenset[int] = frozenset()
        self.paths: dict[int, TracedPath] = {}
        self.notes: list[str] = []
        self.error = ""
        self.is_done = False

    def accept(self, tick: Tick) -> None:
        """Process a tick."""
        self.time_ns = tick.time_ns
        snapshot = self._history.accept(tick)
        self.fabric, self.connections = snapshot.fabric, snapshot.connections
        self.with_queue_pairs |= self.connections.flows.reporting
        self.with_queue_pairs |= {node for node, each in tick.notices if each.source == SOURCE}
        self.hellos.update(tick.hellos)
        for status in tick.statuses:
            self.states[status.node] = (status.state, status.reason)
        for _, part in tick.answers:
            if isinstance(part, Trace):
                if part.path is not None and part.path.sport in self.asked:
                    self.paths[part.path.sport] = part.path
                if part.note and len(self.notes) < _MAX_NOTES:
                    self.notes.append(part.note)
                self.error = self.error or part.error
                self.is_done = self.is_done or part.done

    def is_up(self, name: str) -> bool:
        """Whether frames of a node are arriving."""
        return self.states[name][0] is NodeState.UP

    def has_failed(self, name: str) -> bool:
        """Whether a node cannot be reached, or is lost."""
        return self.states[name][0] in (NodeState.FAILED, NodeState.LOST)

    def why(self, name: str) -> str:
        """The state of a node, and the reason if there is one."""
        state, reason = self.states[name]
        return f"{name} is {state}" + (f": {reason}" if reason else "")


def traced_hosts(hosts: Sequence[Host], src: str, dst: str) -> list[Host]:
    """The two hosts, then the switches among `hosts`, which name the hops, and the nodes that read
    an InfiniBand fabric. Raises UsageError."""
    by_name = {host.name: host for host in hosts}
    for name in (src, dst):
        if name not in by_name:
            close = nearest(name, by_name, 1)
            hint = f"did you mean {close[0]}?" if close else "add it"
            raise UsageError(f"--hosts and --host do not name {name}: {hint}")
    if src == dst:
        raise UsageError(f"{src} to {src} crosses no link: name two hosts")
    for name, vias, lacks in (
        (src, VIAS_WITH_PROBE, "has no fabmon probe that could trace"),
        (dst, (*VIAS_WITH_PROBE, "http"), "does not report its addresses"),
    ):
        via = by_name[name].via
        if via not in vias:
            raise UsageError(f"{name} is read through {via}, which {lacks}: use {', '.join(vias)}")
    others = [
        host
        for host in hosts
        if (host.role == SWITCH or reads_fabric(host)) and host.name not in (src, dst)
    ]
    return [by_name[src], by_name[dst], *others]


async def trace_paths(
    session: Session, hosts: Sequence[Host], request: TraceRequest
) -> TraceRecord | ForwardedTraceRecord:
    """Reach the hosts, have A trace its flows, and name the hops. On InfiniBand nothing is sent:
    the paths are in the switches' forwarding tables.

    `hosts` are those of `traced_hosts`; switches are waited for only after the paths are known.
    Raises TraceFailed, and UsageError if the ends of the flows cannot be found by their names.
    """
    collected = _Collected(hosts, session)
    ends = (request.src, request.dst)
    async with aclosing(session.live_feed(hosts)) as feed:
        await _until(feed, collected, lambda: _are_known(collected, ends), _HOSTS_S)
        for name in ends:
            if not collected.is_up(name):
                raise TraceFailed(collected.why(name))
        forwarded = await _forwarded(feed, collected, hosts, request)
        if forwarded is not None:
            return forwarded
        known = None if request.sports else await _queue_pairs(feed, collected, request)
        if known is not None:
            request = request._replace(from_port=known.src, to_port=known.dst)
        src, dst = await _endpoints(feed, collected, request)
        known_sports = known.sports if known is not None else DEFAULT_SPORTS
        sports = request.sports or known_sports[:MAX_SPORTS]
        if len(known_sports) > len(sports) and not request.sports:
            collected.notes.append(
                f"the first {len(sports)} of {len(known_sports)} source ports: --sport names others"
            )
        collected.asked = frozenset(sports)
        seconds = min(_MAX_TRACE_S, max(_MIN_TRACE_S, _FLOW_S * len(sports) * request.probes))
        refused = feed.trace(
            request.src,
            src.address,
            dst.address,
            sports,
            seconds=seconds,
            dev=src.dev,
            tos=request.dscp << 2,
            max_hops=request.max_hops,
            probes=request.probes,
        )
        if refused:
            raise TraceFailed(refused)
        if sys.stderr.isatty():
            expected_s = max(_USUAL_S, len(sports) * request.probes)
            say(f"tracing {len(sports)} source ports, about {interval(expected_s)}")
        await _until(
            feed,
            collected,
            lambda: collected.is_done or collected.has_failed(request.src),
            seconds + _ANSWER_S,
        )
        if collected.error:
            raise TraceFailed(f"{request.src}: {collected.error}")
        if not collected.paths:
            no_answer = f"{request.src} does not answer the request to trace"
            raise TraceFailed(
                collected.why(request.src) if collected.has_failed(request.src) else no_answer
            )
        switches = [h.name for h in hosts if h.role == SWITCH and h.name not in ends]
        await _until(feed, collected, lambda: _are_known(collected, switches), _SWITCHES_S)
    sports_from = "default" if known is None else "queue pairs"
    sports_from = "option" if request.sports else sports_from
    return _record(collected, request, src, dst, switches, sports_from)


def _are_known(collected: _Collected, names: Sequence[str]) -> bool:
    return all(collected.is_up(name) or collected.has_failed(name) for name in names)


async def _until(
    feed: LiveFeed, collected: _Collected, is_enough: Callable[[], bool], seconds: float
) -> None:
    """Process ticks until `is_enough` returns True, at most for some seconds."""
    try:
        async with asyncio.timeout(seconds):
            while not is_enough():
                collected.accept(await anext(feed))
    except TimeoutError:
        return


async def _forwarded(
    feed: LiveFeed, collected: _Collected, hosts: Sequence[Host], request: TraceRequest
) -> ForwardedTraceRecord | None:
    """The paths by the forwarding tables, once they are known; None unless the ports of both hosts
    are InfiniBand. Raises UsageError."""

    def ports() -> tuple[list[Port], list[Port]]:
        return (
            infiniband_rails(collected.fabric, request.src, request.from_port),
            infiniband_rails(collected.fabric, request.dst, request.to_port),
        )

    if not all(ports()):
        return None
    if any(map(reads_fabric, hosts)):
        await _until(feed, collected, lambda: collected.fabric.forwarding is not None, _TABLES_S)
    try:
        return forwarded_trace(collected.connections, *ports(), collected.time_ns)
    except NoEndpoint as error:
        raise UsageError(str(error)) from None


async def _queue_pairs(
    feed: LiveFeed, collected: _Collected, request: TraceRequest
) -> PairsOfPorts | None:
    """The queue pairs between the hosts, once both have reported theirs or why not."""
    await _until(
        feed, collected, lambda: {request.src, request.dst} <= collected.with_queue_pairs, _PAIRS_S
    )
    return pairs_between(
        collected.fabric,
        collected.connections.flows,
        request.src,
        request.dst,
        request.from_port,
        request.to_port,
    )


async def _endpoints(
    feed: LiveFeed, collected: _Collected, request: TraceRequest
) -> tuple[Endpoint, Endpoint]:
    """The ends of the flows. A node may report its addresses later than its counters."""
    found: list[tuple[Endpoint, Endpoint]] = []
    error = NoEndpoint("")

    def look() -> bool:
        nonlocal error
        try:
            found.append(_find_endpoints(collected, request))
        except NoEndpoint as caught:
            error = caught
        return bool(found)

    await _until(feed, collected, look, _ADDRESSES_S)
    if not found:
        raise UsageError(str(error))
    return found[0]


def _find_endpoints(collected: _Collected, request: TraceRequest) -> tuple[Endpoint, Endpoint]:
    return endpoints(
        Addresses(collected.fabric, collected.hellos),
        collected.fabric.node(request.src),
        collected.fabric.node(request.dst),
        request.from_port,
        request.to_port,
    )


def _record(
    collected: _Collected,
    request: TraceRequest,
    src: Endpoint,
    dst: Endpoint,
    switches: Sequence[str],
    sports_from: str,
) -> TraceRecord:
    addresses = Addresses(collected.fabric, collected.hellos)
    paths = [
        name_path(collected.fabric, addresses, src, dst, collected.paths[sport])
        for sport in sorted(collected.paths)
    ]
    notes = [*collected.notes]
    if not collected.is_done:
        notes.append(f"{request.src} stopped answering before all paths were known")
    missing = [collected.why(name) for name in switches if not collected.is_up(name)]
    notes += [
        f"{one} has several cables to {other}: the one that is used is known by the address from "
        f"which {other} answers; on Linux this needs net.ipv4.icmp_errors_use_inbound_ifaddr=1"
        for one, other in parallel(collected.fabric, paths)
    ]
    notes += [f"{why}: its hops may have no name" for why in missing]
    return TraceRecord(
        time=utc(collected.time_ns),
        src=src,
        dst=dst,
        dport=DPORT,
        dscp=request.dscp,
        sports_from=sports_from,
        paths=paths,
        spreads=spreads(collected.fabric, paths),
        notes=notes,
    )
