"""The paths that `fabmon trace` found: as one object and as a table."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.traced_paths import EcmpSpread, NamedHop, NamedPath
from fabmon.fabric.flows.endpoints import Endpoint, NoEndpoint, names_of
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.model import RAIL, Fabric, Port
from fabmon.fabric.routing_mode import STATIC
from fabmon.fabric.time_wording import measured, utc
from fabmon.fabric.wording import plural, rounded_percent
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
            (
                str(place),
                hop.node,
                f"{hop.in_port or '?'} → {hop.out_port}",
                f"{plural(hop.host_pairs, 'pair')} of hosts",
            )
            for place, hop in enumerate(path.hops, 1)
        ]
        lines += [f"  {text}" for text in aligned(rows)] if rows else ["  unknown"]
    lines += [""] if record.notes else []
    lines += [f"- {note}" for note in record.notes]
    return "\n".join(lines) + "\n"


_PROBABILITY = 0.99
"""The probability for which the number of source ports that use all links is shown."""

_ENDS = {
    "reached": "",
    "silent": "",
    "refused": "not forwarded any further",
    "failed": "not sent",
    "far": "not reached within --max-hops",
    "late": "not finished in time",
}


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="trace"):
    """`fabmon trace --format json`: the paths of some flows from `src` to `dst`, UDP port `dport`.

    `sports_from` is the origin of the source ports: `option`, `queue pairs` or `default`.
    """

    time: datetime.datetime
    src: Endpoint
    dst: Endpoint
    dport: int
    dscp: int
    sports_from: str
    paths: list[NamedPath]
    spreads: list[EcmpSpread]
    notes: list[str]


def trace_table(record: TraceRecord) -> str:
    """The table: the paths, flows with the same path together, then the links that they use."""
    lines = [*_head(record), *_paths(record.paths), *_summary(record), *_notes(record)]
    return "\n".join(lines) + "\n"


def _head(record: TraceRecord) -> Iterator[str]:
    src, dst = record.src, record.dst
    dscp = f", DSCP {record.dscp}" if record.dscp else ""
    yield f"{src.id} {src.address} → {dst.id} {dst.address}  UDP to port {record.dport}{dscp}"
    if record.sports_from != "option":
        count = plural(len(record.paths), "source port")
        origins = {
            "queue pairs": f"{count} of the queue pairs between them",
            "default": f"no queue pairs between them are known: {count} from 49152 on",
        }
        yield origins[record.sports_from]
    yield "hop, response time, node, ports in → out, responding address"


def _paths(paths: Sequence[NamedPath]) -> Iterator[str]:
    groups: dict[tuple[object, ...], list[NamedPath]] = {}
    for path in sorted(paths, key=lambda path: path.sport):
        groups.setdefault(_shown(path), []).append(path)
    for same in groups.values():
        yield ""
        yield f"source port{'s' if len(same) > 1 else ''} {_ports(path.sport for path in same)}"
        rows = [_row(place, same) for place in range(len(same[0].hops))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [row[0].rjust(widths[0]), row[1].rjust(widths[1])]
            cells += [cell.ljust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
            yield "  " + "  ".join(cells).rstrip()
        end = ": ".join(filter(None, (_ENDS.get(same[0].end, same[0].end), same[0].text)))
        if end:
            yield f"   * {end}"


def _shown(path: NamedPath) -> tuple[object, ...]:
    """What is identical for flows that are shown together: end and hops."""
    hops = [(h.node, h.in_port, h.out_port) if h.node else h.addresses for h in path.hops]
    return path.end, path.text, *hops


def _row(place: int, same: Sequence[NamedPath]) -> tuple[str, ...]:
    """TTL, time, node, in, out, addresses."""
    hops = [path.hops[place] for path in same]
    first = hops[0]
    addresses = list(dict.fromkeys(text for hop in hops for text in hop.addresses))
    if not addresses:
        return str(first.ttl), "", "*", "no response", "", ""
    times = [hop.rtt_ms for hop in hops if hop.rtt_ms is not None]
    took = measured(min(times) / 1000) if times else ""
    return str(first.ttl), took, first.node or "?", _crossed(first), "", ", ".join(addresses)


def _crossed(hop: NamedHop) -> str:
    """`down1 → up3`; `?` for a port that is not known, empty where neither is."""
    if not hop.in_port and not hop.out_port:
        return ""
    return f"{hop.in_port or '?'} → {hop.out_port}" if hop.out_port else hop.in_port


def _summary(record: TraceRecord) -> Iterator[str]:
    for spread in record.spreads:
        sports = sum(map(len, spread.links.values()))
        links = len(spread.links)
        yield ""
        uses = f"{plural(sports, 'source port')} {'use' if sports > 1 else 'uses'}"
        yield f"{spread.group}: {uses} {spread.used} of {links} links"
        width = max(map(len, spread.links))
        for name, taken in spread.links.items():
            count = f"{len(taken):>3}  {_ports(taken)}" if taken else "  -"
            yield f"  {name:<{width}}  {count}"
        if spread.unknown:
            yield f"  link unknown for {_ports(spread.unknown)}"
        wanted = flows_to_see_all(links, _PROBABILITY)
        percent = rounded_percent(_PROBABILITY)
        if spread.used < links and sports < wanted:
            yield f"  {wanted} source ports would use all {links} with a probability of {percent}"
    if not record.spreads:
        yield from _without_groups(record.paths)


def _without_groups(paths: Sequence[NamedPath]) -> Iterator[str]:
    """Where no switch reports its equal-cost links: the first hop at which the answers differ."""
    for place in range(max((len(path.hops) for path in paths), default=0)):
        answers = {path.hops[place].addresses for path in paths if place < len(path.hops)}
        answers.discard(())
        if len(answers) > 1:
            yield ""
            yield (
                f"hop {place + 1}: responses to {len(paths)} source ports come from {len(answers)} "
                "addresses; the equal-cost links are not known here"
            )
            return


def _notes(record: TraceRecord) -> Iterator[str]:
    if record.notes:
        yield ""
    for note in record.notes:
        yield f"- {note}"


def _ports(sports: Iterator[int] | Sequence[int]) -> str:
    return " ".join(map(str, sports))


def flows_to_see_all(links: int, chance: float) -> int:
    """The number of flows, hashed at random, that use all of `links` links with a probability.

    The coupon collector's problem, computed as if links were missed independently (exact to within
    1): detection.md section 2, `Coverage`.
    """
    if links < 2:
        return 1
    missed = -math.expm1(math.log(chance) / links)
    return math.ceil(math.log(missed) / math.log1p(-1 / links))
