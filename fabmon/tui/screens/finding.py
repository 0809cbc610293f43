"""One finding."""

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
from fabmon.tui.line import Line, PortTarget, Span
from fabmon.tui.metrics import heat
from fabmon.tui.palette import palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen, ViewScreen
from fabmon.tui.text import labels
from fabmon.tui.text.header import colour_legend
from fabmon.tui.text.pages import finding
from fabmon.tui.text.pages.port import SPANS
from fabmon.tui.text.pages.waterfall import KEPT_MIN, LongWaterfall, Waterfall
from fabmon.tui.time.cursor import Zoom
from fabmon.tui.time.past_reader import PastReader
from fabmon.tui.time.trend import TrendLoader, trend
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import LineView, OpenRequested, Painted

# The links of a finding over time, as a heatmap.


class WaterfallScreen(ViewScreen):
    """A row a link, a column a stretch of time."""

    VIEW = "waterfall"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.WATERFALL)]

    def __init__(
        self, screen_state: ScreenState, shown: Finding, past: PastReader | None = None
    ) -> None:
        """Of a finding, kept for it may close while it is read; `past` is what is recorded."""
        super().__init__(screen_state)
        self._finding = shown
        self._zoom = Zoom(screen_state.cursor, SPANS, 2, past is not None)
        self._reading = None if past is None else TrendLoader(past, self._read, self.paint)
        self._drawn: Waterfall | None = None

    def crumb(self) -> str:
        """What it is."""
        return "waterfall"

    def body(self) -> ComposeResult:
        """The title, the cells, the axis of time, the cell under the cursor."""
        levels = scale(heat("util"), self.screen_state.depth, False)
        yield Painted(id="title")
        with Vertical(id="fall"):
            yield HeatGrid(Look(palette(self.screen_state.depth), levels), id="heat")
            yield Painted(id="axis")
            yield Painted(id="inspect")

    def draw(self, scene: Scene) -> None:
        """Draw it as it is now."""
        self._finding = next(
            (each for each in scene.findings if each.key == self._finding.key), self._finding
        )
        tone, width = self.screen_state.palette, self.size.width
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
        ctx = self.screen_state.draw_context(scene, width)
        made = Waterfall(ctx, self._finding, minutes)
        if self._reading is None or not (is_strip or made.is_too_long):
            return made
        newest = (self.screen_state.live or scene).snapshot
        found = trend(self.screen_state, newest, self._reading, None if is_strip else minutes)
        if found is None:
            return made
        return LongWaterfall(ctx, self._finding, minutes, found)

    def _read(self, reading: Coroutine[Any, Any, None]) -> None:
        self.run_worker(reading, group="trend", exclusive=True, exit_on_error=False)

    def _title(self, now: Waterfall) -> list[list[Span]]:
        tone = self.screen_state.palette
        about = f"{labels.cause_title(self._finding)} {self._finding.subject} ▸ waterfall"
        parts: list[list[Span]] = [
            [(about, tone.strong)],
            [(now.metric.short if self.size.width < 110 else now.metric.title, tone.text)],
            colour_legend(now.metric, self.screen_state.choices.digits, tone, now.cell),
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
            self.query_one("#inspect", Painted).show([said], self.screen_state.palette.text)

    def on_heat_grid_moved(self, event: HeatGrid.Moved) -> None:
        """The cursor is on another cell."""
        self._inspect()

    def on_heat_grid_opened(self, event: HeatGrid.Opened) -> None:
        """Open the port of a row."""
        if self._drawn is not None and event.cell[0] < len(self._drawn.ports):
            self.post_message(OpenRequested(PortTarget(self._drawn.ports[event.cell[0]].row)))

    def action_zoom(self, by: int) -> None:
        """Less time, or more; beyond the minutes of memory the strip's."""
        self._zoom.by(by)
        self.paint()


class FindingScreen(LineScreen):
    """Why it is one, and what to do."""

    VIEW = "finding"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.FINDING)]

    def __init__(
        self, screen_state: ScreenState, shown: Finding, past: PastReader | None = None
    ) -> None:
        """Of a finding, kept for it may close while it is read; `past` is what is recorded."""
        super().__init__(screen_state)
        self._past = past
        self._finding = shown
        self._drawn = False

    @property
    def finding(self) -> Finding:
        """As it is now, or was at last."""
        return self._finding

    def crumb(self) -> str:
        """Its cause and subject."""
        scene, found = self.screen_state.scene, self._finding
        named = (
            labels.subject_name(found, scene.snapshot.fabric)
            if scene is not None
            else found.subject
        )
        return f"{labels.cause_title(found)} {named.partition(' → ')[0]}"

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page, as it is now or was at last."""
        now = next((f for f in scene.findings if f.key == self._finding.key), None)
        self._finding = now or self._finding
        return finding.page(
            self.screen_state.draw_context(scene, width, height), self._finding, now is not None
        )

    async def action_waterfall(self) -> None:
        """Its links over time."""
        await self.app.push_screen(WaterfallScreen(self.screen_state, self._finding, self._past))

    def draw(self, scene: Scene) -> None:
        """Draw it; the first time, at the guilty port."""
        super().draw(scene)
        if not self._drawn and self._finding.rows:
            self.query_one(LineView).select(PortTarget(self._finding.rows[0]))
        self._drawn = True
