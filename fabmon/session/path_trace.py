"""One trace, from the first login to the named paths."""

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
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.tick import NodeState, Tick
from fabmon.fabric.wire.messages import Hello, Trace, TracedPath
from fabmon.feeds.live import LiveFeed
from fabmon.history.history import History
from fabmon.report.records import utc
from fabmon.report.trace import TraceRecord
from fabmon.session.errors import UsageError

DPORT = 4791
DEFAULT_SPORTS = tuple(range(0xC000, 0xC008))
MOST_SPORTS = 32

_HOSTS_S = 30.0
_ADDRESSES_S = 3.0
_PAIRS_S = 3.0
_SWITCHES_S = 5.0
_FLOW_S = 3.0
_LEAST_S, _MOST_S = 30.0, 120.0
_ROOM_S = 5.0
_USUAL_S = 5
_MOST_NOTES = 4


class TraceRequest(NamedTuple):
    """What is to be traced, as the options of the command have it."""

    src: str
    dst: str
    sports: tuple[int, ...]
    from_port: str | None
    to_port: str | None
    dscp: int
    probes: int
    max_hops: int


class TraceFailed(Exception):
    """Nothing could be traced; the message says why."""


class _Heard:
    """What the nodes have told so far: who they are, and the paths of the flows."""

    def __init__(self, hosts: Sequence[Host], history: History) -> None:
        self._history = history
        self.time_ns = 0
        self.fabric = Fabric(0, (), (), ())
        self.connections = Connections(self.fabric, {})
        self.reporting: set[str] = set()
        self.hellos: dict[str, Hello] = {}
        self.states = {host.name: (NodeState.QUEUED, "") for host in hosts}
        self.asked: frozenset[int] = frozenset()
        self.paths: dict[int, TracedPath] = {}
        self.notes: list[str] = []
        self.error = ""
        self.is_done = False

    def accept(self, tick: Tick) -> None:
        """Take a tick."""
        self.time_ns = tick.time_ns
        snapshot = self._history.accept(tick)
        self.fabric, self.connections = snapshot.fabric, snapshot.connections
        self.reporting |= self.connections.flows.reporting
        self.reporting |= {node for node, each in tick.notices if each.source == SOURCE}
        self.hellos.update(tick.hellos)
        for status in tick.statuses:
            self.states[status.node] = (status.state, status.reason)
        for _, part in tick.answers:
            if isinstance(part, Trace):
                if part.path is not None and part.path.sport in self.asked:
                    self.paths[part.path.sport] = part.path
                if part.note and len(self.notes) < _MOST_NOTES:
                    self.notes.append(part.note)
                self.error = self.error or part.error
                self.is_done = self.is_done or part.done

    def is_up(self, name: str) -> bool:
        """Whether a node's frames come in."""
        return self.states[name][0] is NodeState.UP

    def has_failed(self, name: str) -> bool:
        """Whether a node cannot be reached, or not any more."""
        return self.states[name][0] in (NodeState.FAILED, NodeState.LOST)

    def why(self, name: str) -> str:
        """A node's state, for a person."""
        state, reason = self.states[name]
        return f"{name} is {state}" + (f": {reason}" if reason else "")


async def trace_paths(
    hosts: Sequence[Host], history: History, ssh_config: str | None, wanted: TraceRequest
) -> TraceRecord:
    """Reach the hosts, have A follow its flows, and name what they cross.

    Raises NotTraced, and UsageError where the ends of the flows have to be named otherwise.

    `hosts` are A and B, then the switches, which are only waited for when the paths are there.
    """
    heard = _Heard(hosts, history)
    ends = (wanted.src, wanted.dst)
    async with aclosing(LiveFeed(hosts, ssh_config=ssh_config)) as feed:
        await _until(feed, heard, lambda: _are_known(heard, ends), _HOSTS_S)
        for name in ends:
            if not heard.is_up(name):
                raise TraceFailed(heard.why(name))
        known = None if wanted.sports else await _queue_pairs(feed, heard, wanted)
        if known is not None:
            wanted = wanted._replace(from_port=known.src, to_port=known.dst)
        src, dst = await _endpoints(feed, heard, wanted)
        theirs = known.sports if known is not None else DEFAULT_SPORTS
        sports = wanted.sports or theirs[:MOST_SPORTS]
        if len(theirs) > len(sports) and not wanted.sports:
            heard.notes.append(
                f"the first {len(sports)} of {len(theirs)} source ports: --sport names others"
            )
        heard.asked = frozenset(sports)
        seconds = min(_MOST_S, max(_LEAST_S, _FLOW_S * len(sports) * wanted.probes))
        refused = feed.trace(
            wanted.src,
            src.address,
            dst.address,
            sports,
            seconds=seconds,
            dev=src.dev,
            tos=wanted.dscp << 2,
            max_hops=wanted.max_hops,
            probes=wanted.probes,
        )
        if refused:
            raise TraceFailed(refused)
        if sys.stderr.isatty():
            patience_s = max(_USUAL_S, len(sports) * wanted.probes)
            said = f"fabmon: following {len(sports)} source ports, some {patience_s:g} s"
            print(said, file=sys.stderr)

        def is_over() -> bool:
            return heard.is_done or heard.has_failed(wanted.src)

        await _until(feed, heard, is_over, seconds + _ROOM_S)
        if heard.error:
            raise TraceFailed(f"{wanted.src}: {heard.error}")
        if not heard.paths:
            silent = f"{wanted.src} does not answer the request to trace"
            raise TraceFailed(heard.why(wanted.src) if heard.has_failed(wanted.src) else silent)
        switches = [host.name for host in hosts if host.name not in ends]
        await _until(feed, heard, lambda: _are_known(heard, switches), _SWITCHES_S)
    sports_from = "default" if known is None else "queue pairs"
    sports_from = "option" if wanted.sports else sports_from
    return _record(heard, wanted, src, dst, switches, sports_from)


def _are_known(heard: _Heard, names: Sequence[str]) -> bool:
    return all(heard.is_up(name) or heard.has_failed(name) for name in names)


async def _until(
    feed: LiveFeed, heard: _Heard, is_enough: Callable[[], bool], seconds: float
) -> None:
    """Listen until it is enough, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            while not is_enough():
                heard.accept(await anext(feed))
    except TimeoutError:
        return


async def _queue_pairs(feed: LiveFeed, heard: _Heard, wanted: TraceRequest) -> PairsOfPorts | None:
    """Those between the hosts, once both have said what they have, or that they cannot say."""
    await _until(feed, heard, lambda: {wanted.src, wanted.dst} <= heard.reporting, _PAIRS_S)
    return pairs_between(
        heard.fabric,
        heard.connections.flows,
        wanted.src,
        wanted.dst,
        wanted.from_port,
        wanted.to_port,
    )


async def _endpoints(
    feed: LiveFeed, heard: _Heard, wanted: TraceRequest
) -> tuple[Endpoint, Endpoint]:
    """The ends of the flows. A node may tell its addresses a little later than its counters."""
    found: list[tuple[Endpoint, Endpoint]] = []
    error = NoEndpoint("")

    def look() -> bool:
        nonlocal error
        try:
            found.append(_find_endpoints(heard, wanted))
        except NoEndpoint as caught:
            error = caught
        return bool(found)

    await _until(feed, heard, look, _ADDRESSES_S)
    if not found:
        raise UsageError(str(error))
    return found[0]


def _find_endpoints(heard: _Heard, wanted: TraceRequest) -> tuple[Endpoint, Endpoint]:
    return endpoints(
        Addresses(heard.fabric, heard.hellos),
        heard.fabric.node(wanted.src),
        heard.fabric.node(wanted.dst),
        wanted.from_port,
        wanted.to_port,
    )


def _record(
    heard: _Heard,
    wanted: TraceRequest,
    src: Endpoint,
    dst: Endpoint,
    switches: Sequence[str],
    sports_from: str,
) -> TraceRecord:
    addresses = Addresses(heard.fabric, heard.hellos)
    paths = [
        name_path(heard.fabric, addresses, src, dst, heard.paths[sport])
        for sport in sorted(heard.paths)
    ]
    notes = [*heard.notes]
    if not heard.is_done:
        notes.append(f"{wanted.src} went silent before all paths were known")
    away = [heard.why(name) for name in switches if not heard.is_up(name)]
    notes += [
        f"{one} has several cables to {other}: which one is taken is told by the address that "
        f"{other} answers from; on Linux that needs net.ipv4.icmp_errors_use_inbound_ifaddr=1"
        for one, other in parallel(heard.fabric, paths)
    ]
    notes += [f"{why}: its hops may be without a name" for why in away]
    return TraceRecord(
        time=utc(heard.time_ns),
        src=src,
        dst=dst,
        dport=DPORT,
        dscp=wanted.dscp,
        sports_from=sports_from,
        paths=paths,
        spreads=spreads(heard.fabric, paths),
        notes=notes,
    )
