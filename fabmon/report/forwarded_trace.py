"""`fabmon trace` on InfiniBand: paths by the switches' forwarding tables, without any packet."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.fabric.flows.endpoints import NoEndpoint, names_of
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.model import RAIL, Fabric, Port
from fabmon.fabric.routing_mode import STATIC
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wording import plural
from fabmon.report.output import aligned


class ForwardedHop(msgspec.Struct, frozen=True, kw_only=True):
    """A switch on a path, the ports by which traffic enters and leaves it, and the number of pairs
    of hosts whose traffic the tables send over the latter."""

    node: str
    in_port: str
    out_port: str
    host_pairs: int


class ForwardedPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path between two ports, `node/port`. There are several where `dst` has several LIDs, and
    one without hops where a table or a cable is not known."""

    src: str
    dst: str
    hops: tuple[ForwardedHop, ...]


class ForwardedTraceRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="forwarded_trace"
):
    """`fabmon trace --format json` between InfiniBand ports. `paths` is empty where the tables do
    not decide; `notes` say why."""

    time: datetime.datetime
    src: str
    dst: str
    paths: list[ForwardedPath]
    notes: list[str]


def infiniband_rails(fabric: Fabric, node: str, name: str | None) -> list[Port]:
    """The InfiniBand rails of a node, or the one with this name."""
    return [
        port
        for port in fabric.node(node).ports
        if port.role == RAIL
        and port.kind == "infiniband"
        and (name is None or name in names_of(port))
    ]


def forwarded_trace(
    connections: Connections, src: Sequence[Port], dst: Sequence[Port], time_ns: int
) -> ForwardedTraceRecord:
    """The paths from the rails of one host to those with the same index of another, or of the first
    rails if no two have the same. Raises NoEndpoint without forwarding tables."""
    fabric, forwarding = connections.fabric, connections.forwarding
    routing = fabric.routing_of(src[0].row)
    pairs = [(one, other) for one in src for other in dst if one.index == other.index]
    record = ForwardedTraceRecord(
        time=utc(time_ns), src=src[0].node, dst=dst[0].node, paths=[], notes=[]
    )
    if routing.mode != STATIC:
        note = f"no single path: {routing.mode} routing ({routing.reason})"
        return msgspec.structs.replace(record, notes=[note])
    if forwarding is None:
        tables = fabric.forwarding
        why = (tables.error if tables is not None else "") or "no node reports them"
        raise NoEndpoint(
            f"{src[0].id} is InfiniBand, whose paths are in the switches' forwarding tables: {why};"
            " sources=+ib_fabric on one node reads them"
        )
    paths = []
    for one, other in pairs or [(src[0], dst[0])]:
        found = forwarding.path(one.row, other.row)
        paths += [
            ForwardedPath(src=one.id, dst=other.id, hops=tuple(_hops(connections, rows)))
            for rows in found or [()]
        ]
    notes = [] if all(path.hops for path in paths) else [_unknown(fabric)]
    return msgspec.structs.replace(record, paths=paths, notes=notes)


def _hops(connections: Connections, rows: Sequence[int]) -> Iterator[ForwardedHop]:
    """`rows` are the ports that send, that of the NIC first."""
    fabric = connections.fabric
    for before, row in itertools.pairwise(rows):
        entered = fabric.ports[before].peer
        on_link = connections.on_link([row])
        yield ForwardedHop(
            node=fabric.ports[row].node,
            in_port="" if entered is None else fabric.ports[entered].name,
            out_port=fabric.ports[row].name,
            host_pairs=len(on_link.pairs.hosts(fabric)) if on_link is not None else 0,
        )


def _unknown(fabric: Fabric) -> str:
    left_out = fabric.forwarding.left_out if fabric.forwarding is not None else 0
    tables = f"; {left_out} tables had no room" if left_out else ""
    return f"a path without hops: a table or a cable on it is not known{tables}"


def forwarded_trace_table(record: ForwardedTraceRecord) -> str:
    """The table: a block for each pair of rails, a line for each switch."""
    lines = [f"{record.src} → {record.dst}  InfiniBand, by the switches' forwarding tables"]
    for path in record.paths:
        lines += ["", f"{path.src} → {path.dst}"]
        rows = [
            (str(place), hop.node, f"{hop.in_port or '?'} → {hop.out_port}", _shared(hop))
            for place, hop in enumerate(path.hops, 1)
        ]
        lines += [f"  {text}" for text in aligned(rows)] if rows else ["  unknown"]
    lines += [""] if record.notes else []
    lines += [f"- {note}" for note in record.notes]
    return "\n".join(lines) + "\n"


def _shared(hop: ForwardedHop) -> str:
    return f"{plural(hop.host_pairs, 'pair')} of hosts"
