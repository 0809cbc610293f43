"""The paths that `fabmon trace` found: as one object and as a table."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.traced_paths import EcmpSpread, NamedHop, NamedPath
from fabmon.fabric.flows.endpoints import Endpoint
from fabmon.fabric.time_wording import measured
from fabmon.fabric.wording import plural, rounded_percent

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
