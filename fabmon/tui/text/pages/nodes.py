"""Who is connected, who is not yet, and why not. Failures that are alike are one line."""

from __future__ import annotations

from collections import Counter, defaultdict

from rich.style import Style

from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.time_wording import SECOND_NS, duration
from fabmon.fabric.wording import percent
from fabmon.tui.line import FoldTarget, Line, NodeTarget, Span, fit, line, right, wrap
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text.draw_context import DrawContext

_BAD = (NodeState.LOST, NodeState.FAILED)
_FOLDED = (*_BAD, NodeState.STALE)
_SIGNS = {
    NodeState.QUEUED: "·",
    NodeState.CONNECTING: "◌",
    NodeState.STARTING: "◐",
    NodeState.UP: "●",
    NodeState.STALE: "▒",
    NodeState.LOST: "✖",
    NodeState.FAILED: "✖",
}
_ORDER = (
    NodeState.FAILED,
    NodeState.LOST,
    NodeState.STALE,
    NodeState.STARTING,
    NodeState.CONNECTING,
    NodeState.QUEUED,
    NodeState.UP,
)


_FOR = 11
"""Cells of the longest time: `59 min 59 s`."""


def page(ctx: DrawContext, unfolded: frozenset[FoldTarget]) -> list[Line]:
    """A bar of how far it has come, the states in numbers, then a line a node, the worst first."""
    palette = ctx.palette
    statuses = _chosen(ctx)
    lines = [_bar(ctx, statuses), _summary(statuses, palette)]
    lines.append(line(("", palette.text)))
    if not ctx.snapshot.statuses:
        why = wrap(ctx.no_nodes_reason, ctx.width - 2)
        return lines + [line((f" {part}", palette.hot)) for part in why]
    marked = ctx.selection
    about = frozenset[str]() if marked is None else marked.nodes
    name = min(max((len(status.node) for status in statuses), default=4), 24)
    head = f"   {'node':<{name}}  {'state':<10}  {'for':>{_FOR}}  {'probe CPU':>9}  reason"
    lines.append(line((fit(head, ctx.width), palette.dim)))
    for group in _groups(statuses):
        if len(group) == 1:
            lines.append(_node(ctx, group[0], name, group[0].node in about))
            continue
        fold = FoldTarget(group[0].state, group[0].cause)
        lines.append(_fold(ctx, group, fold in unfolded, fold))
        if fold in unfolded:
            lines.extend(_node(ctx, status, name, status.node in about) for status in group)
    return lines


def _chosen(ctx: DrawContext) -> list[NodeStatus]:
    """The nodes that the filter leaves, in the order of the fabric."""
    statuses = ctx.snapshot.statuses
    names = [node.name for node in ctx.fabric.nodes]
    names += [name for name in statuses if name not in set(names)]
    matched = ctx.matched
    return [
        statuses[name]
        for name in names
        if name in statuses and (matched is None or name in matched.nodes)
    ]


def _bar(ctx: DrawContext, statuses: list[NodeStatus]) -> Line:
    """How many nodes send, of all: a bar and its numbers."""
    up = sum(status.state is NodeState.UP for status in statuses)
    total = len(statuses)
    said = f" {up}/{total} up "
    room = max(4, min(ctx.width - len(said) - 14, 60))
    full = round(room * up / total) if total else 0
    done, rest = ("#", "-") if ctx.palette.depth is Depth.NONE else ("█", "░")
    return line(
        (" Connected ", ctx.palette.strong),
        (done * full, ctx.palette.tx),
        (rest * (room - full), ctx.palette.rule),
        (said, ctx.palette.strong if up == total else ctx.palette.text),
    )


def _summary(statuses: list[NodeStatus], palette: Palette) -> Line:
    """How many are in each state."""
    counts = Counter(status.state for status in statuses)
    spans: list[Span] = [(" ", palette.text)]
    for state in reversed(_ORDER):
        if counts[state]:
            spans.append((f"{_SIGNS[state]} {counts[state]} {state}   ", _style(state, palette)))
    return Line(tuple(spans))


def _style(state: NodeState, palette: Palette) -> Style:
    if state in _BAD:
        return palette.gone
    return {NodeState.UP: palette.text, NodeState.STALE: palette.hot}.get(state, palette.dim)


def _groups(statuses: list[NodeStatus]) -> list[list[NodeStatus]]:
    """Nodes a line each, but those that failed or are stale alike together; the worst first."""
    alike: dict[tuple[str, str], list[NodeStatus]] = defaultdict(list)
    for status in statuses:
        key = status.cause if status.state in _FOLDED and status.cause else f"\0{status.node}"
        alike[status.state, key].append(status)
    return sorted(alike.values(), key=lambda group: _ORDER.index(group[0].state))


def _fold(ctx: DrawContext, group: list[NodeStatus], unfolded: bool, fold: FoldTarget) -> Line:
    """`▸ ✖ 12 nodes failed  host key: gpu001, gpu002, gpu003 and 9 more  reason`."""
    first = group[0]
    names = ", ".join(status.node for status in group[:3])
    more = f" and {len(group) - 3} more" if len(group) > 3 else ""
    text = f"{names}{more}: {first.reason or first.cause}"
    head = f" {'▾' if unfolded else '▸'} {_SIGNS[first.state]} {len(group)} {first.state}"
    head = f"{head}, {first.cause}  "
    return line(
        (head, _style(first.state, ctx.palette)),
        (fit(text, max(0, ctx.width - len(head))), ctx.palette.text),
        target=fold,
    )


def _noticed(count: int) -> str:
    if not count:
        return ""
    return f"{count} notice{'' if count == 1 else 's'}: enter"


def _node(ctx: DrawContext, status: NodeStatus, name: int, chosen: bool) -> Line:
    since = duration((ctx.snapshot.time_ns - status.since_ns) / SECOND_NS)
    cpu = ctx.snapshot.probe_cpu.get(status.node)
    said = percent(cpu) if cpu is not None else "·"
    notices = ctx.snapshot.notices.get(status.node, ())
    reason = status.reason or _noticed(len(notices))
    state = f"{_SIGNS[status.state]} {status.state}"
    used = 3 + name + 2 + 12 + _FOR + 2 + 9 + 2
    return line(
        (f" {ctx.palette.selection_mark if chosen else ' '} ", ctx.palette.strong),
        (f"{fit(status.node, name)}  ", ctx.palette.text),
        (f"{state:<12}", _style(status.state, ctx.palette)),
        (f"{right(since, _FOR)}  {right(said, 9)}  ", ctx.palette.dim),
        (fit(reason, max(0, ctx.width - used)), ctx.palette.text),
        target=NodeTarget(status.node),
    )
