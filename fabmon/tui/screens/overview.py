"""The overview: every link as a cell, what is wrong beside it, the last minutes below."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Fabric
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.tui import keys
from fabmon.tui.cells import NOTHING, Look, scale
from fabmon.tui.heatmap_layout import Grid, build_grid
from fabmon.tui.line import Line, NodeTarget, Span
from fabmon.tui.metrics import heat
from fabmon.tui.palette import palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.text import iteration
from fabmon.tui.text.header import colour_legend, mark_legend
from fabmon.tui.text.heatmap_rows import HeatmapRows, spread
from fabmon.tui.text.labels import port_summary
from fabmon.tui.text.pages import findings
from fabmon.tui.text.timeline import time_at, time_columns, timeline, with_finding_span
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import LineView, OpenRequested, Painted, SeekRequested, TimeStrip

NARROW = 112
TINY = (72, 20)
TALL = 40
_RHYTHM_FROM = 14
_RHYTHM_LINES = 10
"""Lines of the right column from which on the rhythm is shown, and how many it takes at most."""


class OverviewScreen(ViewScreen):
    """Heatmap, findings, timeline."""

    VIEW = "overview"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.OVERVIEW)]

    def __init__(self, screen_state: ScreenState) -> None:
        """Of a stage; nothing is drawn yet."""
        super().__init__(screen_state)
        self._grid: Grid | None = None
        self._rows: HeatmapRows | None = None
        self._fabric: Fabric | None = None
        self._made_of: tuple[int, int, frozenset[str] | None] | None = None
        self._port: int | None = None
        self._hover: int | None = None
        self._rhythm_lines = 0

    def body(self) -> ComposeResult:
        """The panels."""
        levels = scale(heat("util"), self.screen_state.depth, False)
        with Container(id="main"):
            with Vertical(id="left"):
                yield Painted(id="grid-title")
                yield HeatGrid(Look(palette(self.screen_state.depth), levels), id="heat")
                yield Painted(id="inspect")
            yield Painted(id="between")
            with Vertical(id="right"):
                yield Painted(id="findings-title")
                yield LineView(id="findings")
                yield Painted(id="rhythm")
        yield TimeStrip(id="time")

    def on_mount(self) -> None:
        """Fit the terminal."""
        self._arrange()

    def on_resize(self) -> None:
        """Fit the terminal as it is now."""
        self._arrange()
        super().on_resize()

    def _arrange(self) -> None:
        """Which panels there are, and where; the keys go to one that is in sight."""
        width, height = self.size
        tiny = width < TINY[0] or height < TINY[1]
        self.set_class(tiny, "-tiny")
        self.set_class(tiny or width < NARROW, "-narrow")
        self.set_class(height >= TALL, "-tall")
        if tiny:
            self.remove_class("-max-grid")
        hidden = "#left" if tiny else "#right" if self.has_class("-max-grid") else ""
        focused = self.focused
        if focused is None or (hidden and focused in self.query(f"{hidden} *")):
            self.query_one("#findings" if hidden == "#left" else "#heat").focus()

    def draw(self, scene: Scene) -> None:
        """Draw all the panels that are in sight."""
        if self.query_one("#left").display:
            self._draw_grid(scene)
        if self.query_one("#right").display:
            self._draw_findings(scene)
        self._draw_time(scene)
        stroke, style = (
            ("║", self.screen_state.palette.hot)
            if self.screen_state.paused
            else (
                "│",
                self.screen_state.palette.rule,
            )
        )
        height = self.size.height
        between = self.query_one("#between", Painted)
        between.show([Line(((stroke, style),))] * height, self.screen_state.palette.text)

    def _draw_time(self, scene: Scene) -> None:
        time, screen_state, tone = (
            self.query_one(TimeStrip),
            self.screen_state,
            self.screen_state.palette,
        )
        window = screen_state.strip_window()
        if not time.display or window is None:
            return
        width, height = self.size.width, time.size.height
        lines = timeline(screen_state, width, height, time.has_focus)
        chosen = screen_state.chosen(scene)
        if chosen is not None:
            span_s = (window[1] - window[0]) // SECOND_NS
            where = time_columns(width, height, span_s)
            lines[0] = with_finding_span(
                *(lines[0], chosen.finding, window, where, scene.snapshot.time_ns, tone),
                is_alone=height <= 1,
            )
        time.show(lines, tone.text)

    def _draw_grid(self, scene: Scene) -> None:
        screen_state, choices = self.screen_state, self.screen_state.choices
        view = self.query_one("#heat", HeatGrid)
        width, height = view.outer_size
        if width < 2:
            return
        levels = scale(screen_state.heat, screen_state.depth, choices.digits)
        grid = self._layout(scene, width - 1, height)
        cells = spread(grid, screen_state.cells(scene, levels))
        look = Look(screen_state.palette, levels)
        if self._rows is None or not self._rows.are_of(grid, screen_state.palette):
            self._rows = HeatmapRows(grid, screen_state.palette)
        view.show(cells, self._rows.of(cells, scene), look)
        place = grid.place(self._port) if self._port is not None else None
        if place is None and (cells != NOTHING).any():
            first = np.argwhere(cells != NOTHING)[0]
            place = (int(first[0]), int(first[1]))
            self._port = int(grid.ports[place])
        if place != view.cursor:
            view.put(place, scroll=False)
        self._draw_title(width)
        self._draw_inspect(scene)

    def _layout(self, scene: Scene, width: int, height: int) -> Grid:
        """Where everything is; made anew only when the fabric, the room or the filter changes."""
        matched = self.screen_state.matched(scene)
        keep = None if matched is None else matched.nodes
        fabric, made_of = scene.snapshot.fabric, (width, height, keep)
        if self._grid is None or self._fabric is not fabric or self._made_of != made_of:
            self._grid = build_grid(fabric, width, height, keep)
            self._fabric, self._made_of = fabric, made_of
        return self._grid

    def _draw_title(self, width: int) -> None:
        screen_state = self.screen_state
        tone, digits = screen_state.palette, screen_state.choices.digits
        parts: list[list[Span]] = [[("Fabric", tone.strong)], *self.filter_part()]
        parts += self.selection_part()
        parts.append(colour_legend(screen_state.heat, digits, tone))
        what = screen_state.heat.title
        if width < 84:
            what = screen_state.heat.short
        parts += [[(what, tone.text)], *mark_legend(tone)]
        title = self.title_rule(parts, width)
        self.query_one("#grid-title", Painted).show([title], tone.text)

    def _draw_inspect(self, scene: Scene) -> None:
        widget = self.query_one("#inspect", Painted)
        row = self._hover if self._hover is not None else self._port
        widget.show(
            [port_summary(self.screen_state, scene, row, widget.size.width)],
            self.screen_state.palette.text,
        )

    def _draw_findings(self, scene: Scene) -> None:
        tone = self.screen_state.palette
        view = self.query_one("#findings", LineView)
        width, height = view.outer_size
        if width < 4:
            return
        count = len(findings.shown(self.screen_state, scene))
        title: list[list[Span]] = [
            [("Findings", tone.strong), (f" {count}" if count else "", tone.hot)]
        ]
        if not self.query_one("#left").display:
            title += [*self.filter_part(), *self.selection_part()]
        rule = self.title_rule(title, width)
        self.query_one("#findings-title", Painted).show([rule], tone.text)
        view.show(
            findings.panel(self.screen_state, scene, width - 1, height), tone.text, tone.cursor
        )
        self._draw_rhythm(scene, width)

    def _draw_rhythm(self, scene: Scene, width: int) -> None:
        """The steps of training below the findings, where there is room for both."""
        widget, tone = self.query_one("#rhythm", Painted), self.screen_state.palette
        column = self.query_one("#right").size.height
        room = min(_RHYTHM_LINES, column // 3)
        lines: list[Line] = []
        if column >= _RHYTHM_FROM:
            lines = iteration.panel(scene.iteration_report, width, room, tone)
        if lines:
            heading = self.title_rule(iteration.title(scene.iteration_report, tone), width)
            lines = [heading, *lines]
        widget.show(lines, tone.text)
        if len(lines) != self._rhythm_lines:
            self._rhythm_lines = len(lines)
            widget.display = bool(lines)
            widget.styles.height = max(1, len(lines))
            self.call_after_refresh(self.paint)

    # What the person does.

    def focus_next(self, selector: str | type[Widget] = "*") -> Widget | None:
        """The next panel; the findings' cursor then points."""
        return self._focused(super().focus_next(selector))

    def focus_previous(self, selector: str | type[Widget] = "*") -> Widget | None:
        """The panel before; the findings' cursor then points."""
        return self._focused(super().focus_previous(selector))

    def _focused(self, panel: Widget | None) -> Widget | None:
        if isinstance(panel, LineView):
            panel.point()
        return panel

    def on_screen_resume(self) -> None:
        """The cursor of the findings is where it was left, in whichever view."""
        self.query_one("#findings", LineView).restore(self.selected_target())
        super().on_screen_resume()

    def reveal_selected(self) -> None:
        """Bring the guilty port of the chosen finding in sight."""
        scene = self.screen_state.scene
        marked = self.screen_state.chosen(scene) if scene is not None else None
        if marked is None or self._grid is None or not self.query_one("#left").display:
            return
        for row in marked.finding.rows:
            place = self._grid.place(row)
            if place is not None:
                self.query_one("#heat", HeatGrid).reveal(place)
                return

    def on_heat_grid_moved(self, event: HeatGrid.Moved) -> None:
        """The cursor is on another port."""
        if self._grid is not None:
            self._port = int(self._grid.ports[event.cell])
            self._again()

    def on_heat_grid_hovered(self, event: HeatGrid.Hovered) -> None:
        """The mouse is over another port, or over none."""
        if self._grid is not None:
            self._hover = None if event.cell is None else int(self._grid.ports[event.cell])
            self._again()

    def _again(self) -> None:
        if self.screen_state.scene is not None:
            self._draw_inspect(self.screen_state.scene)

    def on_heat_grid_opened(self, event: HeatGrid.Opened) -> None:
        """Open the node of a cell, at its port."""
        scene = self.screen_state.scene
        if self._grid is None or scene is None:
            return
        row = int(self._grid.ports[event.cell])
        self.post_message(OpenRequested(NodeTarget(scene.snapshot.fabric.ports[row].node, row)))

    def on_time_strip_redraw(self) -> None:
        """Show whether the keys are the strip's."""
        if self.screen_state.scene is not None:
            self._draw_time(self.screen_state.scene)

    def on_time_strip_picked(self, event: TimeStrip.Picked) -> None:
        """Go to what was at a column of the strip."""
        window, strip = self.screen_state.strip_window(), self.query_one(TimeStrip)
        if window is None:
            return
        span_s = (window[1] - window[0]) // SECOND_NS
        first, count = time_columns(strip.size.width, strip.size.height, span_s)
        if 0 <= event.column - first < count:
            self.post_message(SeekRequested(time_at(event.column - first, window, count)))

    def maximise(self) -> None:
        """Give the focused panel the whole screen, or give it back."""
        if self.has_class("-max-grid") or self.has_class("-max-findings"):
            self.remove_class("-max-grid", "-max-findings")
        elif self.focused is not None and self.focused.id == "findings":
            self.add_class("-max-findings")
        elif not self.has_class("-tiny"):
            self.add_class("-max-grid")
        self.call_after_refresh(self.paint)
