"""Checks a hello before the fabric is built from it, and limits what one node may announce.

A hello that is refused costs only the node that sent it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from collectors.catalog import CATALOG
from fabmon.fabric import forwarding_tables
from fabmon.fabric.flows.queue_pairs import KIND, MOST_PAIRS, PortPairs
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello, ObjectInfo, WireError

LONGEST_INTERVAL_S = 86_400.0
_MOST_EVERY = 86_400
_MOST_HOPS = 4096

_MOST_PORTS = 2048
"""Ports of one node: a host with 8 HCAs and 144 NVLinks has 170, a director switch 800."""

_MOST_PORTS_REPORTED = 16_384
"""Ports of all nodes that one node may report, such as a fabric manager."""

_MOST_VALUES = 65_536
"""Values of a frame: as many as the longest line can announce."""

_MOST_SETS = 1024
"""ECMP groups of one node: the size of a switch's table. All are evaluated at every change."""

_MOST_NEIGHBOURS = 16_384
"""Neighbours of one node: as large as a segment's ARP table gets."""

_MOST_DRIVERS = 256
"""Drivers whose counters a node describes, and as many exporters."""

_MOST_UNKNOWN = 256
"""Metrics of a newer probe. They are kept by name, and each uses a column for every port."""

_MOST_SOURCES = 256
"""Sources of one node, including those that are gone: the times of each are kept."""

_OF_KIND = (
    ("ecmp", "ECMP sets", _MOST_SETS),
    ("neighbour", "neighbours", _MOST_NEIGHBOURS),
    (forwarding_tables.KIND, "reports of forwarding tables", 1),
)

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Speed = Annotated[float, Meta(ge=0, le=1e6)]
_Priorities = Annotated[list[Annotated[int, Meta(ge=0, le=63)]], Meta(max_length=64)]


class _Member(msgspec.Struct):
    dev: str | None = None


class _Peer(msgspec.Struct):
    node: str | None = None
    port: str | None = None
    port_name: str | None = None
    guid: str | None = None
    mac: str | None = None
    role: str | None = None


class _Facts(msgspec.Struct):
    """The keys of an object's `info` that are used in code; the others are only shown."""

    netdev: str | None = None
    bond: str | None = None
    mac: str | None = None
    pci: str | None = None
    rdma: str | None = None
    dev: str | None = None
    alias: str | None = None
    guid: str | None = None
    peer: _Peer | None = None
    peer_node: str | None = None
    peer_port: str | None = None
    peer_port_name: str | None = None
    peer_role: str | None = None
    node_role: str | None = None
    node_group: str | None = None
    members: Annotated[list[_Member], Meta(max_length=_MOST_HOPS)] | None = None
    destinations_count: _Count | None = None
    hash_policy: _Count | None = None
    adaptive_routing: str | None = None
    addresses: list[str] | None = None
    over: list[str] | None = None
    default_route: bool | None = None
    pfc: str | None = None
    pfc_priorities: _Priorities | None = None
    roce_ecn_np: _Priorities | None = None
    roce_ecn_rp: _Priorities | None = None
    pcie_speed_gtps: _Speed | None = None
    pcie_width: _Count | None = None
    pcie_max_speed_gtps: _Speed | None = None
    pcie_max_width: _Count | None = None
    affinity: dict[str, str] | None = None


NOT_TEXT = frozenset(
    each.name for each in msgspec.structs.fields(_Facts) if each.type != (str | None)
)
"""Facts that are no text: labels of Prometheus, which are texts, do not give them as they are."""


class HelloLimits:
    """The limits of what one node may announce, over all its sessions.

    Every port that was ever announced keeps a row and about 30 kB of history, and every metric a
    column over all ports. A node that may report other nodes has a higher limit of ports.
    """

    def __init__(self, sender: Host) -> None:
        self._most_ports = _MOST_PORTS_REPORTED if sender.reports_other_nodes else _MOST_PORTS
        self._ports: set[tuple[str, str]] = set()
        self._unknown: set[str] = set()
        self._sources: set[str] = set()

    def admit(self, hello: Hello) -> None:
        """Raise WireError, with what is wrong and where, if the hello cannot be used."""
        check_periods(hello)
        objects = [item for block in hello.blocks for item in block.objects]
        _bound("objects", len(objects), _MOST_VALUES)
        _bound("drivers", len(hello.coverage or ()), _MOST_DRIVERS)
        _bound("limits", len(hello.limits or ()), _MOST_DRIVERS)
        _bound("values", hello.width(), _MOST_VALUES)
        ports = {(item.node or "", item.port) for item in objects if item.port is not None}
        _bound("ports", len(ports), self._most_ports)
        for kind, what, most in _OF_KIND:
            about = Counter(item.node for item in objects if item.kind == kind)
            _bound(what, max(about.values(), default=0), most)
        ever = self._ports | ports
        _bound("ports, including those that are gone,", len(ever), 2 * self._most_ports)
        sources = self._sources.union(block.source for block in hello.blocks)
        _bound("sources, including those that are gone,", len(sources), _MOST_SOURCES)
        names = {name for item in objects for name in item.metrics if name not in CATALOG}
        unknown = self._unknown | names
        _bound(
            "metrics that this console does not know (is it older?)", len(unknown), _MOST_UNKNOWN
        )
        pairs = 0
        for block in hello.blocks:
            for item in block.objects:
                if item.kind == KIND:
                    pairs += _admit_queue_pairs(block.source, item)
                elif item.kind == forwarding_tables.KIND:
                    _admit_tables(block.source, item)
                else:
                    _admit_facts(block.source, item)
        _bound("queue pairs", pairs, MOST_PAIRS)
        self._ports, self._unknown, self._sources = ever, unknown, sources


def check_periods(hello: Hello) -> None:
    """Raise WireError if the interval of a hello, or a multiple of it, cannot be used."""
    if not 0 < hello.interval_s <= LONGEST_INTERVAL_S:
        raise WireError("hello: interval_s must be more than 0 and at most a day")
    for block in hello.blocks:
        if not 1 <= block.every <= _MOST_EVERY:
            raise WireError(f"hello: {block.source}: every must be 1 to {_MOST_EVERY} ticks")


def _bound(what: str, count: int, most: int) -> None:
    if count > most:
        raise WireError(f"hello: {count} {what} of one node, {most} at most")


def _admit_queue_pairs(source: str, item: ObjectInfo) -> int:
    """The number of queue pairs that an object lists."""
    try:
        return len(msgspec.convert(item.info, PortPairs).lqpn)
    except (msgspec.ValidationError, OverflowError) as error:
        raise WireError(f"hello: {source}: {item.id}: info: {error}") from None


def _admit_tables(source: str, item: ObjectInfo) -> None:
    try:
        forwarding_tables.forwarding_tables(item.info)
    except (ValueError, OverflowError) as error:
        raise WireError(f"hello: {source}: {item.id}: info: {error}") from None


def _admit_facts(source: str, item: ObjectInfo) -> None:
    try:
        msgspec.convert(item.info, _Facts)
    except (msgspec.ValidationError, OverflowError) as error:
        raise WireError(f"hello: {source}: {item.id}: info: {error}") from None
