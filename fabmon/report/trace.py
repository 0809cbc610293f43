"""What `fabmon trace` found, as one object and as a table."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.evidence.null_model import flows_to_see_all
from fabmon.analysis.traced_paths import EcmpSpread, NamedHop, NamedPath
from fabmon.fabric.flows.endpoints import Endpoint

_CHANCE = 0.99

_ENDS = {
    "reached": "",
    "silent": "",
    "refused": "goes no further",
    "failed": "not sent",
    "far": "not there in so many hops: --max-hops",
    "late": "out of time",
}


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="trace"):
    """`fabmon trace --format json`: the paths of some flows from `src` to `dst`, UDP port `dport`.

    `sports_from` says where the source ports are from: `option`, `queue pairs` or `default`.
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


def trace_json(record: TraceRecord) -> bytes:
    """The record, indented, with a last newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def trace_schema() -> bytes:
    """JSON Schema of that, as committed."""
    document = msgspec.json.schema(TraceRecord)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def trace_table(record: TraceRecord) -> str:
    """For a person: the paths, flows that go the same way together, then the links they use."""
    lines = [*_head(record), *_paths(record.paths), *_summary(record), *_notes(record)]
    return "\n".join(lines) + "\n"


def _head(record: TraceRecord) -> Iterator[str]:
    src, dst = record.src, record.dst
    dscp = f", DSCP {record.dscp}" if record.dscp else ""
    yield f"{src.id} {src.address} → {dst.id} {dst.address}  UDP to port {record.dport}{dscp}"
    if record.sports_from != "option":
        count = len(record.paths)
        whose = {
            "queue pairs": f"{count} source ports of the queue pairs between them",
            "default": f"no queue pairs between them are known: {count} source ports from 49152 on",
        }
        yield whose[record.sports_from]
    yield "hop, time of its answer, node, ports in → out, address of the answer"


def _paths(paths: Sequence[NamedPath]) -> Iterator[str]:
    alike: dict[tuple[object, ...], list[NamedPath]] = {}
    for path in sorted(paths, key=lambda path: path.sport):
        alike.setdefault(_way(path), []).append(path)
    for same in alike.values():
        yield ""
        yield f"source port{'s' if len(same) > 1 else ''} {_ports(path.sport for path in same)}"
        rows = [_row(place, same) for place in range(len(same[0].hops))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [row[0].rjust(widths[0]), row[1].rjust(widths[1])]
            cells += [cell.ljust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
            yield "  " + "  ".join(cells).rstrip()
        said = ": ".join(filter(None, (_ENDS.get(same[0].end, same[0].end), same[0].text)))
        if said:
            yield f"   * {said}"


def _way(path: NamedPath) -> tuple[object, ...]:
    """What is the same of flows that are shown together."""
    hops = [(h.node, h.in_port, h.out_port) if h.node else h.addresses for h in path.hops]
    return path.end, path.text, *hops


def _row(place: int, same: Sequence[NamedPath]) -> tuple[str, ...]:
    """TTL, time, node, in, out, addresses."""
    hops = [path.hops[place] for path in same]
    first = hops[0]
    addresses = list(dict.fromkeys(text for hop in hops for text in hop.addresses))
    if not addresses:
        return str(first.ttl), "", "*", "does not answer", "", ""
    times = [hop.rtt_ms for hop in hops if hop.rtt_ms is not None]
    took = f"{min(times):.2f} ms" if times else ""
    return str(first.ttl), took, first.node or "?", _crossed(first), "", ", ".join(addresses)


def _crossed(hop: NamedHop) -> str:
    """`down1 → up3`; `?` for a port that is not known, nothing where neither is."""
    if not hop.in_port and not hop.out_port:
        return ""
    return f"{hop.in_port or '?'} → {hop.out_port}" if hop.out_port else hop.in_port


def _summary(record: TraceRecord) -> Iterator[str]:
    for spread in record.spreads:
        sports = sum(map(len, spread.links.values()))
        links = len(spread.links)
        yield ""
        yield (
            f"{spread.group}: {sports} source port{'s use' if sports > 1 else ' uses'} "
            f"{spread.used} of {links} links"
        )
        width = max(map(len, spread.links))
        for name, taken in spread.links.items():
            count = f"{len(taken):>3}  {_ports(taken)}" if taken else "  -"
            yield f"  {name:<{width}}  {count}"
        if spread.unknown:
            yield f"  not known of {_ports(spread.unknown)}"
        wanted = flows_to_see_all(links, _CHANCE)
        if spread.used < links and sports < wanted:
            yield f"  {wanted} source ports would use all {links} with a chance of {_CHANCE:.0%}"
    if not record.spreads:
        yield from _without_groups(record.paths)


def _without_groups(paths: Sequence[NamedPath]) -> Iterator[str]:
    """Where no switch tells its equal-cost links: at which hops answers differ."""
    for place in range(max((len(path.hops) for path in paths), default=0)):
        answers = {path.hops[place].addresses for path in paths if place < len(path.hops)}
        answers.discard(())
        if len(answers) > 1:
            yield ""
            yield (
                f"hop {place + 1}: {len(paths)} source ports are answered from {len(answers)} "
                "addresses; which links are equal-cost is not known here"
            )
            return


def _notes(record: TraceRecord) -> Iterator[str]:
    if record.notes:
        yield ""
    for note in record.notes:
        yield f"- {note}"


def _ports(sports: Iterator[int] | Sequence[int]) -> str:
    return " ".join(map(str, sports))
