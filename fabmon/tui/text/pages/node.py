"""The page of one node: its state, then a table of its ports with what they share said once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.cells import cell_len
from rich.style import Style

from collectors.catalog.kernel_log import FATAL
from fabmon.fabric.kernel_log import message_text, pattern_of
from fabmon.fabric.model import NVLINK, ROLE_ORDER, Node, Port
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import SECOND_NS, at_least_a_second, time_of_day
from fabmon.fabric.wording import NO_BREAK_SPACE, RATE, Unit, compact, percent, plural
from fabmon.tui.line import (
    Hit,
    Line,
    PortTarget,
    Span,
    fit,
    line,
    more_rows,
    paragraph,
    peer,
    right,
    wrap,
)
from fabmon.tui.metrics import combined_traffic_text, unit_of
from fabmon.tui.text import chart
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.gpu_activity import activity, is_slowed
from fabmon.tui.text.labels import port_sign, port_state
from fabmon.tui.text.pages.port_facts import congestion, fact, shared_facts

_MINUTES = 5
_MOST_MESSAGES = 4
"""Messages of the kernel on the page."""
_MOST_PORTS = 512
"""Ports on the page, 0.5 ms each at every tick: of more, a filter chooses."""
_INDENT = 5
_SHARE = 6
_MARKS = 3
_WHOLE_LISTS = 100
"""From this width on, a list of what ports have in common stays on one line where it fits one."""
_LONGEST_NAME = 24
_TO = " → "


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the table shows of a port; `spark` is the width of each of its two curves."""

    device: bool
    peer: bool
    share: bool
    spark: int
    notes: int

    def width(self, table: _Table) -> int:
        """The cells of one port."""
        traffic = RATE + (1 + _SHARE) * self.share + (1 + self.spark) * bool(self.spark)
        names = table.label + (1 + table.device) * self.device + table.peer * self.peer
        return _MARKS + names + 2 * (2 + traffic) + 2 + self.notes


_LAYOUTS = (
    _Layout(device=True, peer=True, share=True, spark=16, notes=28),
    _Layout(device=True, peer=True, share=True, spark=8, notes=16),
    _Layout(device=False, peer=True, share=True, spark=8, notes=12),
    _Layout(device=False, peer=True, share=False, spark=8, notes=12),
    _Layout(device=False, peer=True, share=False, spark=0, notes=12),
    _Layout(device=False, peer=False, share=False, spark=0, notes=0),
)
"""From the most to the least that is shown."""


def node_page(ctx: DrawContext, node: Node) -> list[Line]:
    """State and facts of a node, then a table of its ports for each of their roles."""
    palette, matched = ctx.palette, ctx.matched
    lines = _about(ctx, node)
    ports = [
        port
        for port in node.ports
        if port.role != NVLINK and (matched is None or matched.ports[port.row])
    ]
    ports.sort(key=lambda port: ROLE_ORDER.index(port.role))
    left_out, ports = len(ports[_MOST_PORTS:]), ports[:_MOST_PORTS]
    if not ports:
        text = "No port matches the filter" if node.ports else "No data from this node yet"
        return [*lines, line((f"   {text}", palette.dim))]
    tables = [_Table(ctx, list(own)) for _, own in groupby(ports, key=lambda port: port.role)]
    heads = [table.head() for table in tables]
    room = ctx.height - len(lines) - sum(map(len, heads))
    layout = next(
        (
            each
            for each in _LAYOUTS
            if sum(table.lines_of(each) for table in tables) <= room
            and all(each.width(table) <= ctx.width for table in tables)
        ),
        None,
    )
    if layout is None:
        fits = (each for each in _LAYOUTS if all(each.width(t) <= ctx.width for t in tables))
        layout = next(fits, _LAYOUTS[-1])
    spare = room - sum(table.lines_of(layout) for table in tables)
    in_full = spare >= sum(table.own_lines for table in tables)
    for head, table in zip(heads, tables, strict=True):
        lines += [*head, *table.lines(layout, in_full)]
    return lines + more_rows(left_out, "port", palette.dim)


class _Table:
    """The ports of one role."""

    def __init__(self, ctx: DrawContext, ports: list[Port]) -> None:
        self._ctx, self._ports = ctx, ports
        self._shared, self._differs, self._own = shared_facts(ports)
        others = (peer(port, ctx.fabric) for port in ports)
        self._peers = ["" if other is None else other.display_name for other in others]
        self._signals = {port.row: congestion(ctx, port.row) for port in ports}
        self._counters = [
            (values[0][0], [value for _, _, value in values])
            for values in zip(*self._signals.values(), strict=True)
        ]
        self._absent = [name for name, values in self._counters if np.isnan(values).all()]
        self.label = max(len("port"), *(cell_len(port.label or port.name) for port in ports))
        self.device = min(max(len("device"), *(cell_len(p.name) for p in ports)), _LONGEST_NAME)
        self.peer = len(_TO) + min(max(map(cell_len, self._peers)), _LONGEST_NAME)
        if not any(self._peers):
            self.peer = 0
        self._active = [activity(ctx.snapshot, port) for port in ports]

    @property
    def own_lines(self) -> int:
        """The lines that what is a port's own needs."""
        return sum(map(bool, self._own))

    def head(self) -> list[Line]:
        """Role and number of the ports, what they have in common, and which counters are 0."""
        palette, width = self._ctx.palette, self._ctx.width
        title = plural(len(self._ports), self._ports[0].role)
        quiet = [name for name, _ in self._counters if name not in self._absent]
        kind = "being read" if self._ctx.time.is_reading else "absent"
        parts = [
            "each: " * (len(self._ports) > 1) + ", ".join(self._shared) if self._shared else "",
            f"0 unless shown: {', '.join(quiet)}" if quiet else "",
            f"{kind}: {', '.join(self._absent)}" if self._absent else "",
        ]
        if width < _WHOLE_LISTS:
            first, *rest = wrap(". ".join(filter(None, parts)), width - len(title) - 6) or [""]
            return [
                line((f" {title}  ", palette.strong), (first, palette.dim)),
                *paragraph(" ".join(rest), width, palette.dim),
            ]
        lines, used = [[(f" {title}  ", palette.strong)]], len(title) + 3
        for part in filter(None, parts):
            more = f". {part}" if len(lines[-1]) > 1 or len(lines) > 1 else part
            more = more.replace(NO_BREAK_SPACE, " ")
            if used + cell_len(more) < width:
                lines[-1].append((more, palette.dim))
                used += cell_len(more)
            else:
                wrapped = paragraph(part, width, palette.dim)
                lines += [list(each.spans) for each in wrapped]
                used = cell_len(wrapped[-1].text)
        return [Line(tuple(spans)) for spans in lines]

    def columns(self, layout: _Layout) -> int:
        """The number of ports side by side."""
        return max(1, min(self._ctx.width // layout.width(self), len(self._ports)))

    def lines_of(self, layout: _Layout) -> int:
        """The lines that a layout needs, without what is each port's own."""
        columns = self.columns(layout)
        if columns == 1:
            return (
                1
                + len(self._ports)
                + sum(
                    bool(differs) + bool(does)
                    for differs, does in zip(self._differs, self._active, strict=True)
                )
            )
        return 1 + -(-len(self._ports) // columns)

    def lines(self, layout: _Layout, in_full: bool) -> list[Line]:
        """The ports, down the columns; in one column with what differs, and `in_full` their own."""
        ctx, columns = self._ctx, self.columns(layout)
        each = ctx.width // columns
        windows = self._windows() if layout.spark else None
        made = [self._port(layout, place, each, windows) for place in range(len(self._ports))]
        lines = [line((self._names(layout, each) * columns, ctx.palette.dim))]
        if columns == 1:
            for place, spans in enumerate(made):
                lines += self._alone(place, spans, in_full)
            return lines
        deep = -(-len(made) // columns)
        for place in range(deep):
            across = range(place, len(made), deep)
            hits = tuple(
                Hit(column * each, (column + 1) * each, PortTarget(self._ports[number].row))
                for column, number in enumerate(across)
            )
            lines.append(Line(tuple(span for n in across for span in made[n]), None, hits))
        return lines

    def _names(self, layout: _Layout, width: int) -> str:
        """The names of the columns in `width` cells."""
        text = " " * _MARKS + fit("port", self.label)
        if layout.device:
            text += f" {fit('device', self.device)}"
        if layout.peer:
            text += fit(f"{_TO}to", self.peer)
        wide = (1 + _SHARE) * layout.share
        for way in ("tx", "rx"):
            curve = f" {fit(f'{_MINUTES} min', layout.spark)}" if layout.spark else ""
            text += f"  {right(way, RATE)}{' ' * wide}{curve}"
        return fit(text, width)

    def _windows(self) -> tuple[Floats, Floats]:
        snapshot = self._ctx.snapshot
        ticks = round(_MINUTES * 60 / snapshot.interval_s)
        rows = [port.row for port in self._ports]
        return snapshot.window("tx_bps", rows, ticks), snapshot.window("rx_bps", rows, ticks)

    def _alone(self, place: int, spans: list[Span], in_full: bool) -> list[Line]:
        """One port in lines of its own: the table's, what it does, where it differs, its own."""
        ctx, port, target = self._ctx, self._ports[place], PortTarget(self._ports[place].row)
        does = ctx.palette.accent if is_slowed(ctx.snapshot, port) else ctx.palette.text
        facts = [(", ".join(self._differs[place]), ctx.palette.text)]
        if in_full:
            facts.append((", ".join(self._own[place]), ctx.palette.dim))
        lines = [Line(tuple(spans), target)]
        lines += paragraph(self._active[place], ctx.width, does, target, indent=_INDENT)
        known = [(text.replace(NO_BREAK_SPACE, " "), style) for text, style in facts if text]
        texts = "; ".join(text for text, _ in known)
        if known and len(texts) + _INDENT < ctx.width:
            between: list[Span] = []
            for text, style in known:
                between += [("; " if between else " " * _INDENT, style), (text, style)]
            lines.append(Line(tuple(between), target))
        else:
            for text, style in known:
                lines += paragraph(text, ctx.width, style, target, indent=_INDENT)
        return lines

    def _port(
        self, layout: _Layout, place: int, width: int, windows: tuple[Floats, Floats] | None
    ) -> list[Span]:
        """`✖ r0 mlx5_0 → leaf1 dn1   324 Gb/s 81.0 % ▁▂▃   343 Gb/s …  ECN 12 k/s` in `width`."""
        ctx, port = self._ctx, self._ports[place]
        palette = ctx.palette
        sign, accent = port_sign(ctx, {port.row})
        is_marked = ctx.selection is not None and port.row in ctx.selection.rows
        spans: list[Span] = [
            (palette.selection_mark if is_marked else " ", palette.strong),
            (f"{sign} ", accent),
            (fit(port.label or port.name, self.label), palette.strong),
        ]
        if layout.device:
            name = port.name if port.label else ""
            spans.append((f" {fit(name, self.device)}", palette.dim))
        if layout.peer:
            other = self._peers[place]
            spans.append((fit(f"{_TO}{other}" if other else "", self.peer), palette.dim))
        spans += self._traffic(layout, place, windows)
        spans.append(("  ", palette.text))
        spans.append((self._notes(port), accent if sign == "✖" else palette.text))
        return _padded(spans, width, palette.text)

    def _traffic(
        self, layout: _Layout, place: int, windows: tuple[Floats, Floats] | None
    ) -> list[Span]:
        ctx, port = self._ctx, self._ports[place]
        together = combined_traffic_text(ctx.snapshot, port.row, ctx.choices.unit)
        if together:
            return [(f"  {together}", ctx.palette.text)]
        unit = unit_of(
            port.kind, Unit.GBIT if ctx.choices.unit is Unit.PERCENT else ctx.choices.unit
        )
        if ctx.choices.unit is Unit.PERCENT and not layout.share:
            unit = Unit.PERCENT
        top = float(ctx.snapshot.line_rate_bps[port.row])
        spans: list[Span] = []
        for number, (direction, util, style) in enumerate(
            (
                ("tx", ctx.snapshot.tx_util, ctx.palette.tx),
                ("rx", ctx.snapshot.rx_util, ctx.palette.rx),
            )
        ):
            spans.append(
                (f"  {right(ctx.traffic(port.row, direction, unit), RATE)}", ctx.palette.text)
            )
            if layout.share:
                share = right(compact(percent(float(util[port.row]))), _SHARE)
                spans.append((f" {share}", ctx.palette.dim))
            if windows is not None:
                curve = chart.spark(windows[number][place], layout.spark, top)
                spans.append((f" {curve}", style))
        return spans

    def _notes(self, port: Port) -> str:
        """The state of a port that is not up, then its counters that are not 0."""
        state = port_state(self._ctx.scene, port.row)
        parts = [] if state == "up" else [state]
        parts += [
            f"{name} {text}"
            for name, text, value in sorted(
                self._signals[port.row], key=lambda each: each[0] == "XOFF"
            )
            if value > 0 or (value != value and name not in self._absent)
        ]
        return "  ".join(parts)


def _padded(spans: list[Span], width: int, style: Style) -> list[Span]:
    """The spans in exactly `width` cells; what does not fit is cut."""
    kept: list[Span] = []
    left = width
    for text, own in spans:
        cells = cell_len(text)
        kept.append((text if cells <= left else fit(text, left), own))
        left -= min(cells, left)
    return [*kept, (" " * left, style)]


def _about(ctx: DrawContext, node: Node) -> list[Line]:
    """The node's state, its facts, limits and notices: what cannot be read on it, and why."""
    palette, snapshot = ctx.palette, ctx.snapshot
    status = snapshot.statuses.get(node.name)
    grouped = node.group not in ("", node.name)
    facts = [f"{node.role} of {node.group}" if grouped else node.role]
    facts += [fact(name, value) for name, value in node.about.items() if value and name != "probe"]
    if node.name in snapshot.probe_cpu:
        facts.append(fact("probe", f"{percent(snapshot.probe_cpu[node.name])} of a core"))
    lines = []
    if status is not None:
        length = at_least_a_second((snapshot.time_ns - status.since_ns) / SECOND_NS)
        state = f" {status.state}" + (f" for {length}" if status.since_ns else "")
        # Whole, with the command that it may have: nothing else on the screen has room for it.
        first, *more = wrap(f"{state.strip()}  {status.reason}", ctx.width - 2)
        shown = len(state) - 1
        lines.append(line((f" {first[:shown]}", palette.strong), (first[shown:], palette.text)))
        lines += [line((f"   {part}", palette.text)) for part in more]
    lines += paragraph(", ".join(facts), ctx.width, palette.dim, indent=1)
    problems = [f"limited {limit}" for limit in node.limits]
    for notice in snapshot.notices.get(node.name, ()):
        where = " ".join(part for part in (notice.source, notice.object, notice.metric) if part)
        problems.append(f"{notice.event} {where}: {notice.text or notice.reason}")
    for text in problems:
        for number, part in enumerate(wrap(text, ctx.width - 5)):
            lines.append(line((f"   {'? ' if not number else '  '}{part}", palette.dim)))
    return lines + _kernel_log(ctx, node)


def _kernel_log(ctx: DrawContext, node: Node) -> list[Line]:
    """The last messages that the node's kernel logged about its devices, latest first."""
    palette, messages = ctx.palette, ctx.snapshot.logs.get(node.name, ())
    lines = []
    for message in reversed(messages[-_MOST_MESSAGES:]):
        is_fatal = pattern_of(message).severity == FATAL
        sign, style = ("✖", palette.gone) if is_fatal else ("│", palette.dim)
        head = f"   {sign} {time_of_day(message.logged_ns or 0)} kernel: "
        text = fit(message_text(message, node), max(0, ctx.width - cell_len(head)))
        lines.append(line((head, style), (text, palette.text)))
    if len(messages) > _MOST_MESSAGES:
        more = f"     and {len(messages) - _MOST_MESSAGES} earlier kinds of messages"
        lines.append(line((more, palette.dim)))
    return lines
