"""The page of all nodes: connection states, similar failures in one line."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
from rich.cells import cell_len
from rich.style import Style

from fabmon.fabric.node_failures import common_reason
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.time_wording import SECOND_NS, at_least_a_second
from fabmon.fabric.wording import (
    name_list,
    percent,
    plural,
)
from fabmon.tui.line import (
    FoldTarget,
    Line,
    NodeTarget,
    Span,
    Target,
    fit,
    line,
    paragraph,
    right,
)
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text.draw_context import DrawContext

_BAD = (NodeState.LOST, NodeState.FAILED)
_FOLDED = (*_BAD, NodeState.STALE)
_SIGNS = {
    NodeState.FAILED: "✖",
    NodeState.LOST: "✖",
    NodeState.STALE: "▒",
    NodeState.STARTING: "◐",
    NodeState.CONNECTING: "◌",
    NodeState.QUEUED: "·",
    NodeState.UP: "●",
}
"""The states of nodes with their marks, worst first."""
_ORDER = tuple(_SIGNS)
_MOST_LISTED = 64
"""Nodes that are listed one by one although there is nothing to say of them."""
_FOR = 11
"""Cells of the longest duration: `59 min 59 s`."""


def nodes_page(ctx: DrawContext, unfolded: frozenset[FoldTarget]) -> list[Line]:
    """A progress bar of the connections, the states with counts, then a line per node, worst first.

    Nodes with the same failure are one line, followed by a line each where it is `unfolded`; so are
    those with nothing to say, where there are many.
    """
    palette = ctx.palette
    statuses = _matching(ctx)
    lines = [_progress(ctx, statuses), _state_counts(statuses, palette)]
    lines += _unmatched_agents(ctx)
    lines.append(line(("", palette.text)))
    if not ctx.snapshot.statuses:
        return lines + paragraph(ctx.run.nothing(), ctx.width, palette.accent, indent=1)
    name = min(max([len("node"), *(len(status.node) for status in statuses)]), 24)
    head = f"   {'node':<{name}}  {'state':<10}  {'for':>{_FOR}}  {'probe CPU':>9}  reason"
    lines.append(line((fit(head, ctx.width), palette.dim)))
    is_long = len(statuses) > _MOST_LISTED
    for group in _groups(ctx, statuses, folds_up=is_long):
        fold = FoldTarget(group[0].state, group[0].cause)
        if len(group) > 1:
            lines += _fold(ctx, group, fold in unfolded, fold)
            if fold in unfolded:
                lines += [_node(ctx, status, name) for status in group]
        else:
            lines += _whole_node(ctx, group[0], name)
    return lines


def _matching(ctx: DrawContext) -> list[NodeStatus]:
    """The nodes that match the filter, in the order of the fabric."""
    statuses, matched = ctx.snapshot.statuses, ctx.matched
    names = dict.fromkeys([*(node.name for node in ctx.fabric.nodes), *statuses])
    return [
        statuses[name]
        for name in names
        if name in statuses and (matched is None or name in matched.nodes)
    ]


def _progress(ctx: DrawContext, statuses: list[NodeStatus]) -> Line:
    """A bar of how many of the nodes send data."""
    up, total = sum(status.state is NodeState.UP for status in statuses), len(statuses)
    text = f" {up}/{total} up "
    room = max(4, min(ctx.width - len(text) - 14, 60))
    full = round(room * up / total) if total else 0
    done, rest = ("#", "-") if ctx.palette.depth is Depth.NONE else ("█", "░")
    return line(
        (" Connected ", ctx.palette.strong),
        (done * full, ctx.palette.tx),
        (rest * (room - full), ctx.palette.rule),
        (text, ctx.palette.strong if up == total else ctx.palette.text),
    )


def _unmatched_agents(ctx: DrawContext) -> list[Line]:
    """The sFlow agents that are no watched nodes: their samples are not shown."""
    agents = ctx.snapshot.sampled.unmatched if ctx.snapshot.sampled else ()
    if not agents:
        return []
    text = f"sFlow of {name_list(list(agents), 4)}: no watched node has this address (address=)"
    return paragraph(text, ctx.width, ctx.palette.accent, indent=1)


def _state_counts(statuses: list[NodeStatus], palette: Palette) -> Line:
    counts = Counter(status.state for status in statuses)
    spans: list[Span] = [(" ", palette.text)]
    for state in reversed(_ORDER):
        if counts[state]:
            spans.append((f"{_SIGNS[state]} {counts[state]} {state}   ", _style(state, palette)))
    return Line(tuple(spans))


def _style(state: NodeState, palette: Palette) -> Style:
    if state in _BAD:
        return palette.gone
    return {NodeState.UP: palette.text, NodeState.STALE: palette.accent}.get(state, palette.dim)


def _groups(
    ctx: DrawContext, statuses: list[NodeStatus], *, folds_up: bool
) -> list[list[NodeStatus]]:
    """Groups of one node, but stale, lost and failed nodes with the same cause, and if it
    `folds_up` those that are up without a notice; worst first."""
    groups: dict[tuple[str, str], list[NodeStatus]] = defaultdict(list)
    for status in statuses:
        is_plain = status.state is NodeState.UP and status.node not in ctx.snapshot.notices
        is_folded = folds_up and is_plain and not status.reason
        has_cause = status.state in _FOLDED and status.cause
        key = status.cause if has_cause or is_folded else f"\0{status.node}"
        groups[status.state, key].append(status)
    return sorted(groups.values(), key=lambda group: _ORDER.index(group[0].state))


def _fold(
    ctx: DrawContext, group: list[NodeStatus], unfolded: bool, fold: FoldTarget
) -> list[Line]:
    """`▸ ✖ 12 failed, host key  gpu001, gpu002, gpu003 and 9 more: reason`; the reason on lines of
    its own where it does not fit. Of nodes that are up it is the CPU that their probes take."""
    first = group[0]
    names = name_list([status.node for status in group], 3)
    sign = f" {'▾' if unfolded else '▸'} {_SIGNS[first.state]}"
    cause = f", {first.cause}" if first.cause else ""
    head = f"{sign} {len(group)} {first.state}{cause}  "
    reason = common_reason((status.reason or first.cause for status in group), first.cause)
    if not reason:
        known = (ctx.snapshot.probe_cpu.get(status.node, 0.0) for status in group)
        reason = f"probe CPU at most {percent(max(known))}"
    room = max(0, ctx.width - len(head))
    text = f"{names}: {reason}"
    is_cut = cell_len(text) > room
    shown = (fit(names if is_cut else text, room), ctx.palette.text)
    lines = [line((head, _style(first.state, ctx.palette)), shown, target=fold)]
    return lines + _reason_lines(ctx, reason, fold) if is_cut else lines


def _reason_lines(ctx: DrawContext, reason: str, target: Target) -> list[Line]:
    """A reason below the line that it belongs to."""
    return paragraph(reason, ctx.width, ctx.palette.text, target, indent=5)


def _whole_node(ctx: DrawContext, status: NodeStatus, name: int) -> list[Line]:
    """One node; its reason on lines of its own where it does not fit."""
    if cell_len(status.reason) <= ctx.width - _used(name):
        return [_node(ctx, status, name)]
    row = _node(ctx, msgspec.structs.replace(status, reason=""), name)
    return [row, *_reason_lines(ctx, status.reason, NodeTarget(status.node))]


def _used(name: int) -> int:
    """Columns before the reason of a node."""
    return 3 + name + 2 + 12 + _FOR + 2 + 9 + 2


def _node(ctx: DrawContext, status: NodeStatus, name: int) -> Line:
    """One node in a line; `name` is the width of its name."""
    palette, selection = ctx.palette, ctx.selection
    is_marked = selection is not None and status.node in selection.nodes
    length = at_least_a_second((ctx.snapshot.time_ns - status.since_ns) / SECOND_NS)
    cpu = percent(ctx.snapshot.probe_cpu.get(status.node))
    notices = ctx.snapshot.notices.get(status.node, ())
    shown = f"{plural(len(notices), 'notice')}: enter shows {'it' if len(notices) == 1 else 'them'}"
    reason = status.reason or (shown if notices else "")
    state = f"{_SIGNS[status.state]} {status.state}"
    return line(
        (f" {palette.selection_mark if is_marked else ' '} ", palette.strong),
        (f"{fit(status.node, name)}  ", palette.text),
        (f"{state:<12}", _style(status.state, palette)),
        (f"{right(length, _FOR)}  {right(cpu, 9)}  ", palette.dim),
        (fit(reason, max(0, ctx.width - _used(name))), palette.text),
        target=NodeTarget(status.node),
    )
