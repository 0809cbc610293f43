"""The links of a finding over time, as a heatmap."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.tui import keys
from fabmon.tui.cells import Look, scale
from fabmon.tui.line import Span
from fabmon.tui.messages import Opened
from fabmon.tui.metrics import heat
from fabmon.tui.palette import palette
from fabmon.tui.past import Past
from fabmon.tui.screens.base import StageScreen
from fabmon.tui.stage import Stage
from fabmon.tui.target import PortTarget
from fabmon.tui.text import words
from fabmon.tui.text.longfall import LongWaterfall
from fabmon.tui.text.port import SPANS
from fabmon.tui.text.rule import legend
from fabmon.tui.text.waterfall import KEPT_MIN, Waterfall
from fabmon.tui.trend import Reading, trend
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.painted import Painted
from fabmon.tui.zoom import Zoom


class WaterfallScreen(StageScreen):
    """A row a link, a column a stretch of time."""

    VIEW = "waterfall"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.WATERFALL)]

    def __init__(self, stage: Stage, shown: Finding, past: Past | None = None) -> None:
        """Of a finding, kept for it may close while it is read; `past` is what is recorded."""
        super().__init__(stage)
        self._finding = shown
        self._zoom = Zoom(stage.cursor, SPANS, 2, past is not None)
        self._reading = None if past is None else Reading(past, self._read, self.paint)
        self._drawn: Waterfall | None = None

    def crumb(self) -> str:
        """What it is."""
        return "waterfall"

    def body(self) -> ComposeResult:
        """The title, the cells, the axis of time, the cell under the cursor."""
        levels = scale(heat("util"), self.stage.depth, False)
        yield Painted(id="title")
        with Vertical(id="fall"):
            yield HeatGrid(Look(palette(self.stage.depth), levels), id="heat")
            yield Painted(id="axis")
            yield Painted(id="inspect")

    def draw(self, scene: Scene) -> None:
        """Draw it as it is now."""
        self._finding = next(
            (each for each in scene.findings if each.key == self._finding.key), self._finding
        )
        tone, width = self.stage.palette, self.size.width
        view = self.query_one("#heat", HeatGrid)
        now = self._made(scene, width - 1)
        self._drawn = now
        codes = now.codes
        view.styles.height = max(1, min(len(codes), self.query_one("#fall").size.height - 2))
        view.show(codes, now.rows, now.look)
        if len(codes):
            end = now.columns - 1 if now.here is None else now.here
            row, column = view.cursor or (now.guilty, end)
            view.put((min(row, len(codes) - 1), min(column, now.columns - 1)), scroll=False)
        title = self.title_rule(self._title(now), width)
        self.query_one("#title", Painted).show([title], tone.text)
        self.query_one("#axis", Painted).show([now.axis], tone.text)
        self._inspect()

    def _made(self, scene: Scene, width: int) -> Waterfall:
        """From memory, or where that does not reach from what is recorded."""
        minutes, is_strip = self._zoom.minutes, self._zoom.is_strip
        made = Waterfall(self.stage, scene, self._finding, minutes, width)
        if self._reading is None or not (is_strip or made.is_too_long):
            return made
        newest = (self.stage.live or scene).moment
        found = trend(self.stage, newest, self._reading, None if is_strip else minutes)
        if found is None:
            return made
        return LongWaterfall(self.stage, scene, self._finding, minutes, width, found)

    def _read(self, reading: Coroutine[Any, Any, None]) -> None:
        self.run_worker(reading, group="trend", exclusive=True, exit_on_error=False)

    def _title(self, now: Waterfall) -> list[list[Span]]:
        tone = self.stage.palette
        about = f"{words.cause(self._finding)} {self._finding.subject} ▸ waterfall"
        parts: list[list[Span]] = [
            [(about, tone.strong)],
            [(now.metric.short if self.size.width < 110 else now.metric.title, tone.text)],
            legend(now.metric, self.stage.choices.digits, tone, now.cell),
        ]
        if isinstance(now, LongWaterfall):
            doing = "" if self._reading is None else self._reading.said
            said = (
                (f"{now.trend.length}: {doing}", tone.hot) if doing else (now.resolution, tone.text)
            )
            parts.insert(1, [said])
        elif now.is_too_long:
            parts.insert(1, [(f"kept for {KEPT_MIN} min", tone.dim)])
        return parts

    def _inspect(self) -> None:
        if self._drawn is not None:
            cell = self.query_one("#heat", HeatGrid).cursor
            said = self._drawn.inspect(cell)
            self.query_one("#inspect", Painted).show([said], self.stage.palette.text)

    def on_heat_grid_moved(self, event: HeatGrid.Moved) -> None:
        """The cursor is on another cell."""
        self._inspect()

    def on_heat_grid_opened(self, event: HeatGrid.Opened) -> None:
        """Open the port of a row."""
        if self._drawn is not None and event.cell[0] < len(self._drawn.ports):
            self.post_message(Opened(PortTarget(self._drawn.ports[event.cell[0]].row)))

    def action_zoom(self, by: int) -> None:
        """Less time, or more; beyond the minutes of memory the strip's."""
        self._zoom.by(by)
        self.paint()
