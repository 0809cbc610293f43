"""The overview: a heatmap of every link, the findings beside it, the timeline below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from textual.binding import BindingType
from textual.widget import Widget

from fabmon.analysis.finding import holds
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.fabric.wording import plural
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.cells import Codes, Look, scale
from fabmon.tui.heatmap_layout import HeatmapGrid, Kind
from fabmon.tui.heatmap_levels import HeatmapState
from fabmon.tui.heatmap_units import Unit
from fabmon.tui.line import FindingTarget, Line, NodeTarget, PortTarget, Span, line
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.overview_panels import OverviewPanels
from fabmon.tui.text import iteration
from fabmon.tui.text.draw_context import DrawContext, TimelineContext
from fabmon.tui.text.header import all_fit, colour_legend, mark_legend, rare_mark_legend
from fabmon.tui.text.heatmap_rows import HeatmapRows, spread
from fabmon.tui.text.labels import port_summary
from fabmon.tui.text.link_rows import LinkChoice, LinkRows, has_left_memory, link_rows
from fabmon.tui.text.minimap import Minimap
from fabmon.tui.text.pages import findings
from fabmon.tui.text.timeline import time_at, time_columns, timeline
from fabmon.tui.time.trend import TrendLoader, trend
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import (
    LineView,
    OpenRequested,
    RangeRequested,
    SeekRequested,
    TimelineView,
)

_WIDEST_MAP = 12
"""Columns that the map of all units may take."""
_SHORT_TITLE = 84
"""Below this width the title of the heatmap has the short name of the metric."""
_LEAST_LINKS = 2
"""Rows of links that the timeline has at least; where there is room for fewer it has none."""
_LEAST_WIDTH = 40
"""Columns of the timeline with rows of links: their names take 12 at least. After a resize it is
drawn before it has the height of a narrow terminal."""
_TRAINING_FROM = 14
_TRAINING_LINES = 10
"""Lines of the right column from which on the training panel is shown; its most lines."""


class OverviewScreen(OverviewPanels):
    """Heatmap, findings, training, timeline."""

    VIEW = "overview"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.OVERVIEW)]

    def __init__(self, screen_state: ScreenState, past: RecordedPast | None = None) -> None:
        """`past` reads the recording, None without one."""
        super().__init__(screen_state)
        self._loader = None if past is None else TrendLoader(past, self.load, self.paint)
        self._links = LinkChoice()
        self._names = 0
        """Columns of the names in the timeline."""
        self._heatmap = HeatmapState()
        self._rows: HeatmapRows | None = None
        self._minimap: tuple[tuple[Unit, ...], Minimap] | None = None
        self._map_width = 0
        self._port: int | None = None
        self._name = ""
        self._followed_key = ""
        self._hovered_port: int | None = None
        self._training_lines = 0

    def draw(self, ctx: DrawContext) -> None:
        """Draw the visible panels."""
        self.share_space()
        if self.query_one("#left").display:
            self._draw_grid(ctx)
        if self.query_one("#right").display:
            self._draw_findings(ctx)
        self.on_timeline_view_redraw()
        tone = self.palette
        paused = self.screen_state.paused
        strokes, style = ("╦║", tone.accent) if paused else ("┬│", tone.rule)
        first, other = (line((stroke, style)) for stroke in strokes)
        self.put("#between", [first, *[other] * self.size.height])

    def on_timeline_view_redraw(self) -> None:
        """Draw the timeline, with or without the focus."""
        strip = self.query_one(TimelineView)
        size = (self.size.width, strip.size.height)
        ctx = self.screen_state.timeline_context(*size, strip.has_focus)
        if strip.display and ctx is not None:
            links = self._link_rows(ctx)
            self._names = 0 if links is None else links.before
            lines, between = timeline(ctx, links), self.query_one("#between")
            if between.display and len(lines) > 1:
                lines[0] = _joined(lines[0], between.region.x)
            strip.show(lines, ctx.palette.text)

    def _link_rows(self, timeline: TimelineContext) -> LinkRows | None:
        """The links that have a row in the timeline; None where there is no room, or none."""
        state, count = self.screen_state, timeline.height - 2
        if count < _LEAST_LINKS or timeline.width < _LEAST_WIDTH:
            return None
        ctx = state.draw_context(timeline.scene, timeline.width)
        chosen = self._links.of(ctx, count, timeline.window[0])
        if not chosen:
            return None
        newest, found = (state.live or timeline.scene).snapshot, None
        if self._loader is not None and has_left_memory(newest, timeline.window):
            found = trend(state, newest, self._loader, None)
        return link_rows(ctx, chosen, newest, timeline.window, found, self._links.left_out)

    def _draw_grid(self, ctx: DrawContext) -> None:
        view = self.query_one("#heat", HeatGrid)
        width, height = view.outer_size
        if width < 2:
            return
        height += self.lent_lines()
        grid = self._heatmap.layout(ctx, width - 1, height)
        self.lend(height - len(grid.rows) - 1)
        levels = scale(ctx.metric, ctx.palette.depth, ctx.choices.digits, self._heatmap.widest)
        codes = ctx.muted_codes(levels)
        cells = spread(grid, codes)
        if self._rows is None or not self._rows.are_of(grid, ctx.palette):
            self._rows = HeatmapRows(grid, ctx.palette)
        look = Look(ctx.palette, levels)
        view.show(cells, self._rows.of(cells, ctx), look)
        self._draw_map(codes, look, height if len(grid.rows) > height else 0)
        self._place_cursor(ctx, grid, view)
        self.put("#grid-title", [self.title_rule(self._grid_title(ctx, width, cells), width)])
        self._draw_port(ctx)

    def _place_cursor(self, ctx: DrawContext, grid: HeatmapGrid, view: HeatGrid) -> None:
        """Put the cursor on its port, which may be elsewhere now; on the first finding's port until
        the user moves."""
        key = ctx.selected_key if self.screen_state.follows_first else ""
        if key != self._followed_key:
            self._followed_key = key
            self._reveal(ctx)
        if self._name and view.cursor is not None and view.node_at(view.cursor) == self._name:
            return
        place = grid.place(self._port) if self._port is not None else None
        if place is None and (place := grid.first_place()) is not None:
            self._port = self._port_at(place)
        if place != view.cursor:
            view.put(place, scroll=False)

    def _draw_map(self, codes: Codes, look: Look, height: int) -> None:
        """Show every unit as a cell beside rows that scroll; `height` is 0 where none do."""
        units = self._heatmap.units
        if self._minimap is None or self._minimap[0] is not units:
            self._minimap = (units, Minimap(units))
        minimap = self._minimap[1]
        width = minimap.width(height) if height and len(units) > 1 else 0
        if width > _WIDEST_MAP:
            width = 0
        panel = self.put("#map", minimap.lines(codes, height, look) if width else [])
        if width != self._map_width:
            self._map_width = width
            panel.display = width > 0
            panel.styles.width = max(1, width)
            self.call_after_refresh(self.paint)

    def _grid_title(self, ctx: DrawContext, width: int, cells: Codes) -> list[list[Span]]:
        tone, metric = ctx.palette, ctx.metric
        before: list[list[Span]] = [
            [self.panel_name("Fabric", "#heat")],
            *self.filter_part(),
            *self.selection_part(),
        ]
        scale = colour_legend(metric, ctx.choices.digits, tone, self._heatmap.widest)
        rare = rare_mark_legend(tone, cells)
        names = [metric.title, metric.short, metric.name][width < _SHORT_TITLE :]
        named: list[list[Span]] = [[(ctx.heat_title(name), tone.text)] for name in names]
        # A shorter name of the metric makes room for marks that need an explanation.
        tried = [[*before, scale, name, *marks] for marks in (rare, []) for name in named]
        # What the cells show goes before their scale.
        parts = next((each for each in tried if all_fit(each, width)), [*before, named[-1], scale])
        return [*parts, *(each for each in rare if each not in parts), *mark_legend(tone)]

    def _draw_port(self, ctx: DrawContext | None) -> None:
        """Describe the port under the mouse, else the one under the cursor."""
        if ctx is None:
            return
        row = self._port if self._hovered_port is None else self._hovered_port
        if self._name and self._hovered_port is None:
            self.put("#inspect", [_node_summary(ctx, self._name)])
        else:
            width = self.query_one("#inspect").size.width
            self.put("#inspect", [port_summary(ctx.sized(width), row)])

    def _draw_findings(self, ctx: DrawContext) -> None:
        tone, view = ctx.palette, self.query_one("#findings", LineView)
        width, height = view.outer_size
        if width < 4:
            return
        ctx = ctx.sized(width - 1, height)
        shown = findings.shown(ctx)
        is_held = any(holds(each, ctx.scene.snapshot) for each in shown)
        count = f" {len(shown)}" if shown else "", tone.accent if is_held else tone.dim
        title: list[list[Span]] = [[self.panel_name("Findings", "#findings"), count]]
        if not self.query_one("#left").display:
            title += [*self.filter_part(), *self.selection_part()]
        self.put("#findings-title", [self.title_rule(title, width)])
        first = self.selected_target()
        view.show(findings.panel(ctx), tone.text, tone.cursor, first=first)
        self._draw_training(ctx.sized(width))

    def on_line_view_resized(self) -> None:
        """Draw the findings in the room that they have beside the iterations now."""
        self.paint()

    def _draw_training(self, ctx: DrawContext) -> None:
        """Draw the iterations of jobs below the findings, if there is room for both."""
        height = self.query_one("#right").size.height
        lines: list[Line] = []
        if height >= _TRAINING_FROM:
            lines = iteration.panel(ctx, min(_TRAINING_LINES, height // 3))
        if lines:
            lines = [self.title_rule(iteration.title(ctx), ctx.width), *lines]
        panel = self.put("#training", lines)
        if len(lines) != self._training_lines:
            self._training_lines = len(lines)
            self.resize(panel, len(lines))

    def focus_next(self, selector: str | type[Widget] = "*") -> Widget | None:
        """Focus the next panel; in the findings, select the one under the cursor."""
        return self._focused(super().focus_next(selector))

    def focus_previous(self, selector: str | type[Widget] = "*") -> Widget | None:
        """Focus the previous panel; in the findings, select the one under the cursor."""
        return self._focused(super().focus_previous(selector))

    def _focused(self, panel: Widget | None) -> Widget | None:
        if isinstance(panel, LineView):
            panel.point()
        return panel

    def on_screen_resume(self) -> None:
        """Put the cursor of the findings on the selected one."""
        if not self.screen_state.follows_first:
            self.query_one("#findings", LineView).restore(self.selected_target())
        super().on_screen_resume()

    def reveal_selected(self) -> None:
        """Put the cursor of the heatmap on the selected finding, in the middle of the panel."""
        ctx = self.context()
        if ctx is not None:
            self._reveal(ctx)

    def _reveal(self, ctx: DrawContext) -> None:
        if ctx.selection is None or self._heatmap.grid is None:
            return
        rows = ctx.selection.finding.rows
        row, place = next(
            ((row, place) for row in rows if (place := self._heatmap.grid.place(row)) is not None),
            (None, None),
        )
        if place is not None and self.query_one("#left").display:
            view = self.query_one("#heat", HeatGrid)
            self._port, self._name = row, ""
            view.put(place, scroll=False)
            view.centre(place)
            self._draw_port(ctx)

    def on_heat_grid_moved(self, event: HeatGrid.Moved) -> None:
        """Describe the port or the node under the cursor."""
        if self._heatmap.grid is not None:
            self._name = self.query_one("#heat", HeatGrid).node_at(event.cell)
            if not self._name:
                self._port = self._port_at(event.cell)
            if self.screen_state.follows_first:
                self.screen_state.user_moved()
                self.paint()
            self._draw_port(self.context())

    def on_heat_grid_hovered(self, event: HeatGrid.Hovered) -> None:
        """Describe the port under the mouse."""
        self._hovered_port = None if event.cell is None else self._port_at(event.cell)
        self._draw_port(self.context())

    def _port_at(self, cell: tuple[int, int]) -> int | None:
        """The port of a cell; of several, the one with the highest value."""
        ctx = self.context()
        ports = [] if self._heatmap.grid is None else self._heatmap.grid.ports_at(cell)
        if ctx is None or len(ports) < 2:
            return ports[0] if ports else None
        values = np.nan_to_num(ctx.metric.values(ctx.snapshot)[ports], nan=-1)
        return ports[int(values.argmax())]

    def on_heat_grid_opened(self, event: HeatGrid.Opened) -> None:
        """Open the port of a cell; expand or collapse the unit of an aggregate. Until the user
        moves, open the first finding."""
        scene, grid = self.screen_state.scene, self._heatmap.grid
        first = self.selected_target() if self.screen_state.follows_first else None
        if first is not None:
            self.post_message(OpenRequested(first))
            return
        if grid is None or scene is None or not grid.ports_at(event.cell):
            return
        part = grid.part(event.cell)
        if part is not None and part.kind in (Kind.UNIT, Kind.POD):
            node = scene.snapshot.fabric.ports[grid.ports_at(event.cell)[0]].node
            if self._heatmap.toggle_unit(node):
                self.paint()
                self._reveal_cursor()
        elif (row := self._port_at(event.cell)) is not None:
            self.post_message(OpenRequested(PortTarget(row)))

    def on_heat_grid_name_opened(self, event: HeatGrid.NameOpened) -> None:
        """Open the node of a name."""
        self.post_message(OpenRequested(NodeTarget(event.node)))

    def idle_actions(self) -> frozenset[str]:
        """Without a heatmap, its keys; `open` in the timeline where no finding is selected."""
        idle = set() if self.query_one("#left").display else {"level(1)", "app.focus_next"}
        if self._is_in_timeline() and self.selected_target() is None:
            idle.add("open")
        return frozenset(idle)

    def _is_in_timeline(self) -> bool:
        return self.query_one(TimelineView).has_focus

    def footer_labels(self) -> Mapping[str, str]:
        """`explain` where enter opens a finding."""
        panel, state = self.query_one("#findings", LineView), self.screen_state
        opens = panel.selected if panel.has_focus else None
        is_first = (
            (state.follows_first or self._is_in_timeline())
            and not panel.has_focus
            and self.selected_target() is not None
        )
        return {"open": "explain"} if is_first or isinstance(opens, FindingTarget) else {}

    def next_match(self, by: int) -> bool:
        """Go to the next port that the filter matches; where there is no heatmap, to the next
        line."""
        if self.query_one("#left").display:
            return self.query_one("#heat", HeatGrid).next_match(by)
        return super().next_match(by)

    def _reveal_cursor(self) -> None:
        """Scroll to the cursor after the rows changed."""
        view = self.query_one("#heat", HeatGrid)
        if view.cursor is not None:
            view.reveal(view.cursor)

    def go_back(self) -> bool:
        """Collapse the unit that was expanded last, else return to the level that fits; False
        where there is nothing to go back from, or a filter to be cleared first."""
        is_changed = self._heatmap.go_back(keeps_level=bool(self.screen_state.choices.filter))
        if is_changed:
            self.paint()
        return is_changed

    def action_level(self, by: int) -> None:
        """Show finer rows (`by` > 0: from pods to leaves, ports, NVLinks) or coarser ones."""
        if self._heatmap.change_level(by):
            self.paint()
            self._reveal_cursor()

    def on_timeline_view_opened(self) -> None:
        """Open the selected finding, if there is one."""
        selected = self.selected_target()
        if selected is not None:
            self.post_message(OpenRequested(selected))

    def on_timeline_view_picked(self, event: TimelineView.Picked) -> None:
        """Go to the time of a column of the timeline."""
        found = self._time_columns()
        if found is not None and 0 <= event.column - found[1] < found[2]:
            window, first, count = found
            self.post_message(SeekRequested(time_at(event.column - first, window, count)))

    def on_timeline_view_dragged(self, event: TimelineView.Dragged) -> None:
        """Mark the time from one column to another, of those that the timeline has."""
        found = self._time_columns()
        if found is None:
            return
        window, first, count = found
        if event.first < first + count and event.last >= first:
            ends = (min(max(each - first, -1), count - 1) for each in (event.first - 1, event.last))
            self.post_message(RangeRequested(*(time_at(each, window, count) for each in ends)))

    def _time_columns(self) -> tuple[tuple[int, int], int, int] | None:
        """The time of the timeline, its first column and how many it has; None before any tick."""
        window, strip = self.screen_state.timeline_window(), self.query_one(TimelineView)
        if window is None:
            return None
        span_s = (window[1] - window[0]) // SECOND_NS
        return window, *time_columns(strip.size.width, strip.size.height, span_s, self._names)


_JUNCTIONS = {"─": "┴", "═": "╩"}


def _joined(rule: Line, x: int) -> Line:
    """A title line whose stroke at column `x` meets the line above it."""
    spans: list[Span] = []
    at = 0
    for text, style in rule.spans:
        place = x - at
        at += len(text)
        if 0 <= place < len(text):
            text = text[:place] + _JUNCTIONS.get(text[place], text[place]) + text[place + 1 :]
        spans.append((text, style))
    return Line(tuple(spans), rule.target, rule.hits)


def _node_summary(ctx: DrawContext, name: str) -> Line:
    """One line on the node under the cursor."""
    node = ctx.fabric.node(name)
    status = ctx.snapshot.statuses.get(name)
    state = "" if status is None else f"{status.state}, "
    text = f"{node.role}, {state}{plural(len(node.ports), 'port')}: enter opens it"
    return line((f" {name}  ", ctx.palette.strong), (text, ctx.palette.dim))
