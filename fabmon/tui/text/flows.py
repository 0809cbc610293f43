"""Flows on a link: those of the hosts' queue pairs, or else the NICs whose traffic correlates.

On InfiniBand the forwarding tables say which pairs of hosts use a link, even without queue pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fabmon.analysis.affected_jobs import link_of
from fabmon.analysis.affected_ports import affected_ports
from fabmon.analysis.causes import causes_with
from fabmon.analysis.evidence.flows_on_link import FlowsOnLink, flows_on_link
from fabmon.analysis.finding import Finding, Trait, shown_ns
from fabmon.analysis.scene import Scene
from fabmon.fabric.flows.flow_table import FlowTable, ForwardedFlows
from fabmon.fabric.flows.queue_pairs import SOURCE
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.model import RAIL, Fabric, Port
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.routing_mode import ADAPTIVE, STATIC
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wording import RATE, plural
from fabmon.tui.line import Line, PortTarget, fit, line, paragraph, right
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.sampled_flows import sampled_flows

_SELECTION = {
    STATIC: (
        "The forwarding tables are not known: sources=+ib_fabric on one node reads them. Until then"
        " each flow may use this link or a parallel one."
    ),
    ADAPTIVE: "Routing is adaptive: each flow may use this link and its parallel ones.",
}
_HASH = (
    "The switch does not report which flow uses this link: its hash sends each over this link or a"
    " parallel one."
)
_AFFECTED_FIRST = (
    " Affected NICs are listed first, then those whose traffic correlates with the link."
)
_AFFECTED_THEN_OTHERS = "Affected NICs are listed first."
_CORRELATED_FIRST = " NICs whose traffic correlates with the link are listed first."
_READ_TABLES = (
    "add `sources=+ib_fabric` to one node in the hosts file: the forwarding tables show which pairs"
    " of hosts use this link."
)
_RATES = (
    "The rate, once for each NIC, is all that it sends, to all its receivers: how much of it each"
    " flow has is not counted."
)
_MOST = 12
"""Lines of flows, or of NICs."""


class Bundle(NamedTuple):
    """Queue pairs between the same two ports of the same process.

    `src` and `dst` are port rows (`dst` NONE: one of `candidates`); `sports` are UDP source ports.
    """

    src: int
    dst: int
    candidates: int
    owner: str
    sports: tuple[int, ...]
    pairs: int


class _LinkTraffic(NamedTuple):
    """A link: rows of its ports and the direction (tx or rx) there. `is_last_hop`: it is about what
    the port at its other end receives."""

    rows: Sequence[int]
    direction: str
    is_last_hop: bool

    @property
    def way(self) -> str:
        """`transmit` or `receive`, as seen from the port that it is about."""
        return "receive" if self.is_last_hop or self.direction == "rx" else "transmit"


def of_finding(ctx: DrawContext, finding: Finding) -> list[Line]:
    """The flows on the link of a finding as they are at the scene, which is said where the finding
    is shown at an earlier moment; nothing where its cause is not about traffic."""
    place = link_of(ctx.fabric, finding)
    if place is None:
        return []
    affected = _affected_names(finding, ctx.fabric)
    is_last_hop = finding.cause in causes_with(Trait.LAST_HOP)
    lines = [
        each
        for direction in place.directions
        for each in _on_link(ctx, _LinkTraffic(place.rows, direction, is_last_hop), affected)
    ]
    at_ns, now_ns = shown_ns(finding, ctx.snapshot), ctx.snapshot.time_ns
    if not lines or at_ns is None:
        return lines
    note = f"Flows and their rates are of {time_of_day(now_ns)}, not of {time_of_day(at_ns)}:"
    return [*paragraph(note, ctx.width, ctx.palette.dim, indent=1), *lines]


def _affected_names(finding: Finding, fabric: Fabric) -> frozenset[str]:
    return frozenset(each.name for each in affected_ports(finding, fabric))


def next_step(ctx: DrawContext, finding: Finding) -> list[Line]:
    """For a hashing finding without known flows: the `fabmon trace` command that asks the switches,
    with two hosts whose flows may use the link. On InfiniBand: how to read the forwarding tables.
    Nothing where no command reaches the nodes.
    """
    place = link_of(ctx.fabric, finding)
    is_hashing = finding.cause in causes_with(Trait.OF_HASHING)
    if not is_hashing or place is None or ctx.run.nodes_options is None:
        return []
    if ctx.fabric.ports[place.rows[0]].kind == "infiniband" and ctx.fabric.forwarding is None:
        return ctx.titled("Next:", _READ_TABLES)
    found = flows_on_link(ctx.snapshot, place.rows, place.directions[0])
    if found is None or found.is_exact or not ctx.fabric.routing_of(place.rows[0]).may_hash:
        return []
    pair = _likely_pair(ctx.scene, found, finding)
    if pair is None:
        return []
    command = f"fabmon trace {pair[0]} {pair[1]} {ctx.run.nodes_options}".strip()
    return ctx.titled("Next:", f"`{command}` shows the link of each flow.")


def _likely_pair(scene: Scene, found: FlowsOnLink, finding: Finding) -> tuple[str, str] | None:
    """A host that may send over the link and a host that it sends to; affected hosts first."""
    ports, table = scene.snapshot.fabric.ports, scene.snapshot.connections.flows
    affected = _affected_names(finding, scene.snapshot.fabric)

    def is_unaffected(port: Port) -> bool:
        return port.display_name not in affected

    ends = [
        (ports[int(table.src[flow])], ports[int(table.dst[flow])])
        for flow in found.flows.tolist()
        if table.dst[flow] != NONE
    ]
    if not ends:
        below = scene.snapshot.connections.leaves.under(ports[finding.rows[0]].node)
        rails = [port for port in ports if port.role == RAIL and port.node]
        rails.sort(key=is_unaffected)
        here = [port for port in rails if below[port.row]]
        there = [port for port in rails if not below[port.row]]
        ends = list(zip(here[:1], there[:1], strict=False))
    if not ends:
        return None
    src, dst = min(ends, key=lambda pair: is_unaffected(pair[0]))
    return src.node, dst.node


def of_port(ctx: DrawContext, port: Port) -> list[Line]:
    """The flows on a port's link in its busier direction; of a NIC those that it sends."""
    snapshot = ctx.snapshot
    receives = np.nan_to_num(snapshot.rx_util[port.row]) > np.nan_to_num(snapshot.tx_util[port.row])
    direction = "rx" if receives and port.role != RAIL else "tx"
    return _on_link(ctx, _LinkTraffic([port.row], direction, False), frozenset())


def _on_link(ctx: DrawContext, link: _LinkTraffic, affected: frozenset[str]) -> list[Line]:
    """What switches sampled of the link, then the flows that may be on it."""
    sampled = sampled_flows(ctx, link.rows, link.direction, link.way)
    return [*sampled, *_possible(ctx, link, affected)]


def _possible(ctx: DrawContext, link: _LinkTraffic, affected: frozenset[str]) -> list[Line]:
    rows, direction = link.rows, link.direction
    forwarded = ctx.snapshot.connections.on_link(rows, direction)
    if forwarded is not None:
        return _forwarded(ctx, forwarded, link.way)
    found = flows_on_link(ctx.snapshot, rows, direction)
    if found is None:
        return []
    if found.has_queue_pairs:
        selection = _SELECTION.get(ctx.fabric.routing_of(rows[0]).mode, _HASH)
        return _flows(ctx, found, link.way, affected, selection)
    return _correlated(ctx, found, direction)


def _forwarded(ctx: DrawContext, found: ForwardedFlows, way: str) -> list[Line]:
    """The flows by the forwarding tables: their queue pairs, or all pairs of hosts."""
    palette, fabric, table = ctx.palette, ctx.fabric, ctx.snapshot.connections.flows
    pairs = found.pairs.hosts(fabric)
    senders = frozenset(src for src, _ in pairs)
    silent = senders - table.reporting
    share = f"{plural(len(pairs), 'pair')} of hosts {'shares' if len(pairs) == 1 else 'share'}"
    if not pairs:
        share = "no pair of hosts uses"
    text = f"{way}: {share} this link"
    if silent != senders:
        text += f", {plural(len(found.flows), 'queue pair')}"
    lines = ctx.titled("Flows", f"(from the forwarding tables), {text}")
    if len(found.flows):
        rate = np.nan_to_num(ctx.snapshot.column("tx_bps"), nan=-1.0)[table.src[found.flows]]
        flows = found.flows[np.argsort(-rate, kind="stable")]
        shown = bundles(table, flows.tolist())
        lines += _bundles(ctx, shown[:_MOST])
        as_flows = FlowsOnLink(flows, found.pairs.is_exact, found.unsure, 0, senders, silent)
        lines += _notes(ctx, as_flows, shown)
    elif silent:
        lines += _host_pairs(ctx, pairs)
        note = "Not all queue pairs are known: these are all pairs that the tables send here."
        lines += paragraph(note, ctx.width, palette.dim)
    if not found.pairs.is_exact:
        note = "NICs have several LIDs (LMC): a pair may use another of its paths."
        lines += paragraph(note, ctx.width, palette.dim)
    return lines


def _host_pairs(ctx: DrawContext, pairs: Sequence[tuple[str, str]]) -> list[Line]:
    """`gpu[001-002] → gpu[005-008]`, a line for senders with the same receivers."""
    receivers: dict[str, list[str]] = {}
    for src, dst in pairs:
        receivers.setdefault(src, []).append(dst)
    senders: dict[tuple[str, ...], list[str]] = {}
    for src, own in receivers.items():
        senders.setdefault(tuple(own), []).append(src)
    texts = [f"   {fold(group)} → {fold(own)}" for own, group in senders.items()]
    if len(texts) > _MOST:
        texts[_MOST - 1 :] = [
            f"   and of {plural(len(texts) - _MOST + 1, 'group')} of senders more"
        ]
    return [line((fit(text, ctx.width).rstrip(), ctx.palette.text)) for text in texts]


def bundles(table: FlowTable, flows: Sequence[int]) -> list[Bundle]:
    """Flows grouped by their two ends and owner, in the order of the first of each group."""
    found: dict[tuple[int, int, int, str], list[int]] = {}
    for flow in flows:
        dst = int(table.dst[flow])
        candidates = int(table.candidates[flow]) if dst == NONE else 1
        key = (int(table.src[flow]), dst, candidates, table.owner(flow).label)
        found.setdefault(key, []).append(flow)
    return [
        Bundle(*key, tuple(sorted({int(table.sport[n]) for n in own} - {0})), len(own))
        for key, own in found.items()
    ]


def _flows(
    ctx: DrawContext,
    found: FlowsOnLink,
    way: str,
    affected: frozenset[str],
    selection: str,
) -> list[Line]:
    """The flows by their queue pairs: how many, then a line per bundle. `selection` says how a link
    is selected for each, where that is not known exactly."""
    palette, ports = ctx.palette, ctx.fabric.ports
    count = plural(len(found.flows), "queue pair")
    text = f"(from the hosts' queue pairs), {way}: {count}"
    if not found.is_exact:
        text += " may use it"
    if found.sports:
        text += f", {plural(found.sports, 'UDP source port')}"
    lines = ctx.titled("Flows", text)
    shown = bundles(ctx.snapshot.connections.flows, found.flows.tolist())
    shown.sort(key=lambda each: ports[each.src].display_name not in affected)
    has_affected = bool(shown) and ports[shown[0].src].display_name in affected
    if not found.is_exact and shown:
        order = _AFFECTED_FIRST if has_affected else _CORRELATED_FIRST
        lines += paragraph(selection + order, ctx.width, palette.dim)
    elif has_affected:
        lines += paragraph(_AFFECTED_THEN_OTHERS, ctx.width, palette.dim)
    lines += _bundles(ctx, shown[:_MOST])
    return lines + _notes(ctx, found, shown)


def _bundles(ctx: DrawContext, shown: Sequence[Bundle]) -> list[Line]:
    """What the rates are, then a line per bundle with the rate of each NIC once: they may add up to
    more than the link carries."""
    lines = paragraph(_RATES, ctx.width, ctx.palette.dim) if shown else []
    senders = set[int]()
    for each in shown:
        lines.append(_bundle(ctx, each, with_rate=each.src not in senders))
        senders.add(each.src)
    return lines


def _bundle(ctx: DrawContext, each: Bundle, with_rate: bool) -> Line:
    """`gpu002 r3 → gpu006 r3   392 Gb/s  job 8812  4 QPs, sport 49987 52113 …`."""
    palette, ports = ctx.palette, ctx.fabric.ports
    name = 14 if ctx.width < 100 else 18
    there = "unknown" if each.candidates <= 1 else f"one of {each.candidates}"
    if each.dst != NONE:
        there = ports[each.dst].display_name
    sports = f", sport {' '.join(map(str, each.sports))}" if each.sports else ""
    rest = f"  {each.owner}  {plural(each.pairs, 'QP')}{sports}"
    used = 3 + name + 3 + name + RATE + 1
    return line(
        (f"   {fit(ports[each.src].display_name, name)} → {fit(there, name)}", palette.text),
        (f" {right(ctx.traffic(each.src, 'tx') if with_rate else '', RATE)}", palette.tx),
        (fit(rest, max(0, ctx.width - used)).rstrip(), palette.dim),
        target=PortTarget(each.src),
    )


def _notes(ctx: DrawContext, found: FlowsOnLink, shown: Sequence[Bundle]) -> list[Line]:
    """How much is not listed, and what is not known."""
    notes = []
    rest = shown[_MOST:]
    if rest:
        nics = plural(len({each.src for each in rest}), "NIC")
        notes.append(f"and {sum(each.pairs for each in rest)} more, of {nics}")
    if found.silent:
        known, hosts = len(found.senders - found.silent), len(found.senders)
        notes.append(f"Queue pairs are known of {known} of the {hosts} hosts that can send here.")
    if found.unsure:
        notes.append(
            f"The other end of {found.unsure} is unknown: its host is not watched or does not"
            " report queue pairs, or several queue pairs have these numbers."
        )
    return [each for note in notes for each in paragraph(note, ctx.width, ctx.palette.dim)]


def _correlated(ctx: DrawContext, found: FlowsOnLink, direction: str) -> list[Line]:
    """Without queue pairs: the NICs whose traffic correlates with the link's."""
    palette = ctx.palette
    why = _missing_reason(ctx.scene, found)
    if not found.moving:
        text = f"Flows: queue pairs are not known ({why})" if why else ""
        return paragraph(text, ctx.width, palette.dim, indent=1)
    lines = [
        line((" NICs that correlate with this link", palette.strong), (" (inferred)", palette.dim))
    ]
    for each in found.moving:
        name = fit(ctx.fabric.ports[each.row].display_name, 20)
        text = f"   {name}{right(ctx.traffic(each.row, found.way), RATE)}   r {each.r:.2f}"
        lines.append(line((text, palette.text), target=PortTarget(each.row)))
    theirs = "send" if found.way == "tx" else "receive"
    ours = "sends" if direction == "tx" else "receives"
    note = (
        f"Queue pairs are not known{f' ({why})' if why else ''}. r is the correlation of what they"
        f" {theirs} with what this port {ours}, over the last {found.ticks} ticks with"
        " communication: an indication, not a proof."
    )
    return lines + paragraph(note, ctx.width, palette.dim)


def _missing_reason(scene: Scene, found: FlowsOnLink) -> str:
    """The most frequent reason why hosts do not report queue pairs; empty where none is known."""
    reasons = Counter(
        notice.text
        for node in sorted(found.silent)
        for notice in scene.snapshot.notices.get(node, ())
        if notice.source == SOURCE and notice.event == "lost"
    )
    return reasons.most_common(1)[0][0] if reasons else ""
