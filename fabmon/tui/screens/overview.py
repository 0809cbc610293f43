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
from fabmon.tui import keys
from fabmon.tui.cells import NOTHING, Look, scale
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.layout import Grid, build
from fabmon.tui.line import Line, Span
from fabmon.tui.messages import Opened, Sought
from fabmon.tui.metrics import heat
from fabmon.tui.palette import palette
from fabmon.tui.screens.base import StageScreen
from fabmon.tui.stage import Stage
from fabmon.tui.target import NodeTarget
from fabmon.tui.text import findings, rhythm
from fabmon.tui.text.gridrows import GridRows, spread
from fabmon.tui.text.inspect import inspect
from fabmon.tui.text.rule import legend, marks
from fabmon.tui.text.span import with_span
from fabmon.tui.text.timeline import places, time_at, timeline
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lineview import LineView
from fabmon.tui.widgets.painted import Painted
from fabmon.tui.widgets.timestrip import TimeStrip

NARROW = 112
TINY = (72, 20)
TALL = 40
_RHYTHM_FROM = 14
_RHYTHM_LINES = 10
"""Lines of the right column from which on the rhythm is shown, and how many it takes at most."""


class Overview(StageScreen):
    """Heatmap, findings, timeline."""

    VIEW = "overview"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.OVERVIEW)]

    def __init__(self, stage: Stage) -> None:
        """Of a stage; nothing is drawn yet."""
        super().__init__(stage)
        self._grid: Grid | None = None
        self._rows: GridRows | None = None
        self._fabric: Fabric | None = None
        self._made_of: tuple[int, int, frozenset[str] | None] | None = None
        self._port: int | None = None
        self._hover: int | None = None
        self._rhythm_lines = 0

    def body(self) -> ComposeResult:
        """The panels."""
        levels = scale(heat("util"), self.stage.depth, False)
        with Container(id="main"):
            with Vertical(id="left"):
                yield Painted(id="grid-title")
                yield HeatGrid(Look(palette(self.stage.depth), levels), id="heat")
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
            ("║", self.stage.palette.hot)
            if self.stage.paused
            else (
                "│",
                self.stage.palette.rule,
            )
        )
        height = self.size.height
        between = self.query_one("#between", Painted)
        between.show([Line(((stroke, style),))] * height, self.stage.palette.text)

    def _draw_time(self, scene: Scene) -> None:
        time, stage, tone = self.query_one(TimeStrip), self.stage, self.stage.palette
        window = stage.strip_window()
        if not time.display or window is None:
            return
        width, height = self.size.width, time.size.height
        lines = timeline(stage, width, height, time.has_focus)
        chosen = stage.chosen(scene)
        if chosen is not None:
            span_s = (window[1] - window[0]) // SECOND_NS
            where = places(width, height, span_s)
            lines[0] = with_span(
                *(lines[0], chosen.finding, window, where, scene.moment.time_ns, tone),
                is_alone=height <= 1,
            )
        time.show(lines, tone.text)

    def _draw_grid(self, scene: Scene) -> None:
        stage, choices = self.stage, self.stage.choices
        view = self.query_one("#heat", HeatGrid)
        width, height = view.outer_size
        if width < 2:
            return
        levels = scale(stage.heat, stage.depth, choices.digits)
        grid = self._layout(scene, width - 1, height)
        cells = spread(grid, stage.cells(scene, levels))
        look = Look(stage.palette, levels)
        if self._rows is None or not self._rows.are_of(grid, stage.palette):
            self._rows = GridRows(grid, stage.palette)
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
        matched = self.stage.matched(scene)
        keep = None if matched is None else matched.nodes
        fabric, made_of = scene.moment.fabric, (width, height, keep)
        if self._grid is None or self._fabric is not fabric or self._made_of != made_of:
            self._grid = build(fabric, width, height, keep)
            self._fabric, self._made_of = fabric, made_of
        return self._grid

    def _draw_title(self, width: int) -> None:
        stage = self.stage
        tone, digits = stage.palette, stage.choices.digits
        parts: list[list[Span]] = [[("Fabric", tone.strong)], *self.filter_part()]
        parts += self.chosen_part()
        parts.append(legend(stage.heat, digits, tone))
        what = stage.heat.title
        if width < 84:
            what = stage.heat.short
        parts += [[(what, tone.text)], *marks(tone)]
        title = self.title_rule(parts, width)
        self.query_one("#grid-title", Painted).show([title], tone.text)

    def _draw_inspect(self, scene: Scene) -> None:
        widget = self.query_one("#inspect", Painted)
        row = self._hover if self._hover is not None else self._port
        widget.show([inspect(self.stage, scene, row, widget.size.width)], self.stage.palette.text)

    def _draw_findings(self, scene: Scene) -> None:
        tone = self.stage.palette
        view = self.query_one("#findings", LineView)
        width, height = view.outer_size
        if width < 4:
            return
        count = len(findings.shown(self.stage, scene))
        title: list[list[Span]] = [
            [("Findings", tone.strong), (f" {count}" if count else "", tone.hot)]
        ]
        if not self.query_one("#left").display:
            title += [*self.filter_part(), *self.chosen_part()]
        rule = self.title_rule(title, width)
        self.query_one("#findings-title", Painted).show([rule], tone.text)
        view.show(findings.panel(self.stage, scene, width - 1, height), tone.text, tone.cursor)
        self._draw_rhythm(scene, width)

    def _draw_rhythm(self, scene: Scene, width: int) -> None:
        """The steps of training below the findings, where there is room for both."""
        widget, tone = self.query_one("#rhythm", Painted), self.stage.palette
        column = self.query_one("#right").size.height
        room = min(_RHYTHM_LINES, column // 3)
        lines: list[Line] = []
        if column >= _RHYTHM_FROM:
            lines = rhythm.panel(scene.beats, width, room, tone)
        if lines:
            heading = self.title_rule(rhythm.title(scene.beats, tone), width)
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
        self.query_one("#findings", LineView).restore(self.chosen_target())
        super().on_screen_resume()

    def reveal_chosen(self) -> None:
        """Bring the guilty port of the chosen finding in sight."""
        scene = self.stage.scene
        marked = self.stage.chosen(scene) if scene is not None else None
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
        if self.stage.scene is not None:
            self._draw_inspect(self.stage.scene)

    def on_heat_grid_opened(self, event: HeatGrid.Opened) -> None:
        """Open the node of a cell, at its port."""
        scene = self.stage.scene
        if self._grid is None or scene is None:
            return
        row = int(self._grid.ports[event.cell])
        self.post_message(Opened(NodeTarget(scene.moment.fabric.ports[row].node, row)))

    def on_time_strip_redraw(self) -> None:
        """Show whether the keys are the strip's."""
        if self.stage.scene is not None:
            self._draw_time(self.stage.scene)

    def on_time_strip_picked(self, event: TimeStrip.Picked) -> None:
        """Go to what was at a column of the strip."""
        window, strip = self.stage.strip_window(), self.query_one(TimeStrip)
        if window is None:
            return
        span_s = (window[1] - window[0]) // SECOND_NS
        first, count = places(strip.size.width, strip.size.height, span_s)
        if 0 <= event.column - first < count:
            self.post_message(Sought(time_at(event.column - first, window, count)))

    def maximise(self) -> None:
        """Give the focused panel the whole screen, or give it back."""
        if self.has_class("-max-grid") or self.has_class("-max-findings"):
            self.remove_class("-max-grid", "-max-findings")
        elif self.focused is not None and self.focused.id == "findings":
            self.add_class("-max-findings")
        elif not self.has_class("-tiny"):
            self.add_class("-max-grid")
        self.call_after_refresh(self.paint)
