"""Who is on a link: the flows by the hosts' queue pairs, or else the NICs that move with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fabmon.analysis.evidence.flows_on_link import FlowsOnLink, flows_on_link
from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.flows.flow_table import FlowTable
from fabmon.fabric.flows.queue_pairs import SOURCE
from fabmon.fabric.model import RAIL, Port
from fabmon.fabric.topology.leaves import NONE
from fabmon.fabric.wording import RATE, rate
from fabmon.tui.line import Line, PortTarget, fit, line, right, wrap
from fabmon.tui.text import labels
from fabmon.tui.text.draw_context import DrawContext

_MAY_BE = (
    "The switch does not tell which: its hash sends each over this link or one beside it. The"
    " likeliest are first: NICs that suffer, then those that move with the link. The rate is all"
    " that a NIC sends, over all its links."
)
_MOST = 12
"""Lines of flows, or of NICs."""
_OF_TRAFFIC = frozenset(
    {
        *("ecmp_collision", "polarization", "oversubscription", "incast", "slow_receiver"),
        *("pause_storm", "host_pcie_limit", "degraded_link", "error_burst", "flapping_link"),
    }
)
"""Findings that somebody's traffic makes, or suffers from."""
_OF_HASHING = frozenset({"ecmp_collision", "polarization"})
"""Those that are about which link a flow was hashed onto."""
_RECEIVING = frozenset({"incast", "slow_receiver", "pause_storm", "host_pcie_limit"})
"""Those of a NIC that are about what it is sent."""


class Bundle(NamedTuple):
    """Queue pairs between the same two ports of the same process."""

    src: int
    dst: int
    candidates: int
    owner: str
    sports: tuple[int, ...]
    pairs: int


def of_finding(ctx: DrawContext, finding: Finding) -> list[Line]:
    """Who is on the link that a finding is about; nothing where it is about something else."""
    found = _on_link_of(ctx.scene, finding)
    if found is None:
        return []
    suffer = frozenset(labels.victim_names(finding, ctx.fabric))
    return _section(ctx, *found, suffer)


def next_step(ctx: DrawContext, finding: Finding) -> list[Line]:
    """Where nobody knows which flows were hashed onto a link, the command that asks the switches,
    with the names of two hosts whose flows may be on it.
    """
    found = _on_link_of(ctx.scene, finding)
    if finding.cause not in _OF_HASHING or found is None or found[0].is_exact:
        return []
    pair = _likely_pair(ctx.scene, found[0], finding)
    if pair is None:
        return []
    text = f"`fabmon trace {pair[0]} {pair[1]}` says which link each of their flows takes."
    first, *more = wrap(text, ctx.width - 8)
    palette = ctx.palette
    return [
        line((" Next: ", palette.strong), (first, palette.text)),
        *(line((f"   {part}", palette.text)) for part in more),
    ]


def _likely_pair(scene: Scene, found: FlowsOnLink, finding: Finding) -> tuple[str, str] | None:
    """A host that may send over a link and one that it sends to, those that suffer first."""
    ports, table = scene.snapshot.fabric.ports, scene.snapshot.connections.flows
    suffer = frozenset(labels.victim_names(finding, scene.snapshot.fabric))
    ends = [
        (ports[int(table.src[flow])], ports[int(table.dst[flow])])
        for flow in found.flows.tolist()
        if table.dst[flow] != NONE
    ]
    if not ends:
        below = scene.snapshot.connections.leaves.under(ports[finding.rows[0]].node)
        rails = [port for port in ports if port.role == RAIL and port.node]
        rails.sort(key=lambda port: labels.port_name(port) not in suffer)
        here = [port for port in rails if below[port.row]]
        there = [port for port in rails if not below[port.row]]
        ends = list(zip(here[:1], there[:1], strict=False))
    src, dst = min(
        ends, key=lambda pair: labels.port_name(pair[0]) not in suffer, default=(None, None)
    )
    return (src.node, dst.node) if src is not None and dst is not None else None


def _on_link_of(scene: Scene, finding: Finding) -> tuple[FlowsOnLink, str] | None:
    """Who is on the link that a finding is about, and in which direction."""
    ports = scene.snapshot.fabric.ports
    rows = [row for row in finding.rows if 0 <= row < len(ports) and ports[row].node]
    if finding.cause not in _OF_TRAFFIC or not rows:
        return None
    first = ports[rows[0]]
    way = "rx" if first.role == RAIL and finding.cause in _RECEIVING else "tx"
    # Slowed senders are guilty together; of an ECMP group it is the first link.
    several = first.role == RAIL and way == "tx" and all(ports[row].role == RAIL for row in rows)
    found = flows_on_link(scene.snapshot, rows if several else rows[:1], way)
    return None if found is None else (found, way)


def of_port(ctx: DrawContext, port: Port) -> list[Line]:
    """Who is on a port's link, in its busier direction; of a NIC, whom it sends to."""
    snapshot = ctx.snapshot
    receives = np.nan_to_num(snapshot.rx_util[port.row]) > np.nan_to_num(snapshot.tx_util[port.row])
    way = "rx" if receives and port.role != RAIL else "tx"
    return section(ctx, [port.row], way)


def section(ctx: DrawContext, rows: Sequence[int], way: str) -> list[Line]:
    """Who is on some links, in one direction."""
    found = flows_on_link(ctx.snapshot, rows, way)
    return [] if found is None else _section(ctx, found, way, frozenset())


def _section(
    ctx: DrawContext,
    found: FlowsOnLink,
    way: str,
    suffer: frozenset[str],
) -> list[Line]:
    if found.is_told:
        return _flows(ctx, found, way, suffer)
    return _moving(ctx, found, way)


def bundles(table: FlowTable, flows: Sequence[int]) -> list[Bundle]:
    """Flows put together by their two ends and owner, in the order of the first of each."""
    found: dict[tuple[int, int, int, str], list[int]] = {}
    for flow in flows:
        dst = int(table.dst[flow])
        open_ = int(table.candidates[flow]) if dst == NONE else 1
        key = (int(table.src[flow]), dst, open_, table.owner(flow).label)
        found.setdefault(key, []).append(flow)
    return [
        Bundle(*key, tuple(sorted({int(table.sport[n]) for n in own} - {0})), len(own))
        for key, own in found.items()
    ]


def _flows(
    ctx: DrawContext,
    found: FlowsOnLink,
    way: str,
    suffer: frozenset[str],
) -> list[Line]:
    palette = ctx.palette
    table = ctx.snapshot.connections.flows
    count = len(found.flows)
    said = f"{count} queue pair{'' if count == 1 else 's'}"
    if not found.is_exact:
        said += " may be on it"
    if found.sports:
        said += f", {found.sports} UDP source port{'' if found.sports == 1 else 's'}"
    direction = "transmit" if way == "tx" else "receive"
    head = f" (from the hosts' queue pairs), {direction}: "
    first, *more = wrap(head + said, ctx.width - 7)
    lines = [line((" Flows ", palette.strong), (first, palette.text))]
    lines += [line((f"   {part}", palette.text)) for part in more]
    shown = bundles(table, found.flows.tolist())
    if not found.is_exact and shown:
        ports = ctx.fabric.ports
        shown.sort(key=lambda each: labels.port_name(ports[each.src]) not in suffer)
        lines += [line((f"   {part}", palette.dim)) for part in wrap(_MAY_BE, ctx.width - 4)]
    lines += [_bundle(ctx, each) for each in shown[:_MOST]]
    lines += _notes(ctx, found, shown)
    return lines


def _bundle(ctx: DrawContext, each: Bundle) -> Line:
    """`gpu002 mlx5_3 → gpu006 mlx5_3   392 Gb/s  job 8812  4 QPs, sport 49987 52113 …`."""
    palette, snapshot = ctx.palette, ctx.snapshot
    ports = snapshot.fabric.ports
    name = 14 if ctx.width < 100 else 18
    there = _other_end(each, ports)
    sends = rate(
        float(snapshot.column("tx_bps")[each.src]),
        float(snapshot.line_rate_bps[each.src]),
        ctx.unit,
    )
    pairs = f"{each.pairs} QP{'' if each.pairs == 1 else 's'}"
    sports = " ".join(map(str, each.sports))
    told = f"  {each.owner}  {pairs}" + (f", sport {sports}" if sports else "")
    used = 3 + name + 3 + name + RATE + 1
    return line(
        (f"   {fit(_name(ports[each.src]), name)} → {fit(there, name)}", palette.text),
        (f" {right(sends, RATE)}", palette.tx),
        (fit(told, max(0, ctx.width - used)).rstrip(), palette.dim),
        target=PortTarget(each.src),
    )


def _other_end(each: Bundle, ports: Sequence[Port]) -> str:
    if each.dst != NONE:
        return _name(ports[each.dst])
    return f"one of {each.candidates}" if each.candidates > 1 else "unknown"


def _name(port: Port) -> str:
    return labels.port_name(port)


def _notes(ctx: DrawContext, found: FlowsOnLink, shown: Sequence[Bundle]) -> list[Line]:
    """What is not shown, and what is not known."""
    notes = []
    rest = shown[_MOST:]
    if rest:
        more = sum(each.pairs for each in rest)
        nics = len({each.src for each in rest})
        notes.append(f"and {more} more, of {nics} NIC{'' if nics == 1 else 's'}")
    if found.silent:
        known, hosts = len(found.senders - found.silent), len(found.senders)
        notes.append(f"Queue pairs are known of {known} of the {hosts} hosts that can send here.")
    if found.unsure:
        notes.append(
            f"The other end of {found.unsure} is unknown: its host is not watched or does not tell,"
            " or several have these numbers."
        )
    return [
        line((f"   {part}", ctx.palette.dim))
        for note in notes
        for part in wrap(note, ctx.width - 4)
    ]


def _moving(ctx: DrawContext, found: FlowsOnLink, way: str) -> list[Line]:
    palette, snapshot = ctx.palette, ctx.snapshot
    ports = snapshot.fabric.ports
    why = _why_not(ctx.scene, found)
    if not found.moving:
        text = f" Flows: queue pairs are not known ({why})" if why else ""
        return [line((part, palette.dim)) for part in wrap(text, ctx.width - 1)]
    does = "send" if found.way == "tx" else "receive"
    lines = [
        line((" Hosts that move with this link", palette.strong), (" (inferred)", palette.dim))
    ]
    for each in found.moving:
        port = ports[each.row]
        carried = rate(
            float(snapshot.column(f"{found.way}_bps")[each.row]),
            float(snapshot.line_rate_bps[each.row]),
            ctx.unit,
        )
        text = f"   {fit(_name(port), 20)}{right(carried, RATE)}   r {each.r:.2f}"
        lines.append(line((text, palette.text), target=PortTarget(each.row)))
    ours = "sends" if way == "tx" else "receives"
    note = (
        f"Queue pairs are not known{f' ({why})' if why else ''}. r is the correlation of what they"
        f" {does} with what this port {ours}, over the last {found.ticks} ticks with"
        " communication: a hint, no proof."
    )
    return [*lines, *(line((f"   {part}", palette.dim)) for part in wrap(note, ctx.width - 4))]


def _why_not(scene: Scene, found: FlowsOnLink) -> str:
    """Why the hosts do not tell their queue pairs, in the words of most; empty without any."""
    said = Counter(
        notice.text
        for node in sorted(found.silent)
        for notice in scene.snapshot.notices.get(node, ())
        if notice.source == SOURCE and notice.event == "lost"
    )
    return said.most_common(1)[0][0] if said else ""
