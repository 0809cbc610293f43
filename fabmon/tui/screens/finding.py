"""The page of one finding, and the waterfall of its links."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from fabmon.analysis.causes import finding_title
from fabmon.analysis.finding import Finding
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.cells import Look, scale
from fabmon.tui.line import Line, PortTarget, Span
from fabmon.tui.metrics import heat_metric
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen, ZoomableScreen
from fabmon.tui.text import labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.header import colour_legend
from fabmon.tui.text.pages import finding
from fabmon.tui.text.pages.waterfall import KEPT_MIN, LongWaterfall, Waterfall
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import LineView, OpenRequested, Painted

_USUAL_MINUTES = 2
_WIDE = 110
"""From this width on, the waterfall has the full title of its metric."""


class FindingScreen(LineScreen):
    """The explanation of a finding: picture, advice, evidence, victims."""

    VIEW = "finding"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.FINDING)]

    def __init__(
        self, screen_state: ScreenState, shown: Finding, past: RecordedPast | None = None
    ) -> None:
        """Of a finding, which is kept when it closes. `past` reads the recording."""
        super().__init__(screen_state)
        self._past = past
        self.finding = shown
        """The latest state of the finding."""
        self._is_drawn = False

    def crumb(self) -> str:
        """Cause and subject of the finding."""
        scene, subject = self.screen_state.scene, self.finding.subject
        if scene is not None:
            subject = labels.subject_name(self.finding, scene.snapshot.fabric)
        return f"{finding_title(self.finding)} {subject.partition(' → ')[0]}"

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The page of the finding as it is now; of a closed one, as it was when it closed."""
        self.finding = _latest(self.finding, ctx)
        is_open = any(each is self.finding for each in ctx.scene.findings)
        return finding.page(ctx, self.finding, is_open)

    async def action_waterfall(self) -> None:
        """Open the waterfall."""
        await self.app.push_screen(WaterfallScreen(self.screen_state, self.finding, self._past))

    def draw(self, ctx: DrawContext) -> None:
        """Draw the page; the first time, select the port that is the cause."""
        super().draw(ctx)
        if not self._is_drawn and self.finding.rows:
            self.query_one(LineView).select(PortTarget(self.finding.rows[0]))
        self._is_drawn = True


class WaterfallScreen(ZoomableScreen):
    """The links of a finding over time as a heatmap: one row per link, one column per span."""

    VIEW = "waterfall"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.WATERFALL)]

    def __init__(
        self, screen_state: ScreenState, shown: Finding, past: RecordedPast | None = None
    ) -> None:
        """Of a finding, which is kept when it closes. `past` reads the recording."""
        super().__init__(screen_state, _USUAL_MINUTES, past)
        if shown.until_ns is not None and screen_state.scene is not None:
            self.zoom.reach((screen_state.scene.snapshot.time_ns - shown.since_ns) / SECOND_NS)
        self._finding = shown
        self._metric_before = screen_state.choices.metric
        self._chosen = ""
        self._drawn: Waterfall | None = None

    def body(self) -> ComposeResult:
        """Title, cells, time axis, and the cell under the cursor in words."""
        depth = self.screen_state.depth
        yield Painted(id="title")
        with Vertical(id="fall"):
            yield HeatGrid(Look(self.palette, scale(heat_metric("util"), depth, False)), id="heat")
            yield Painted(id="axis")
            yield Painted(id="inspect")

    def draw(self, ctx: DrawContext) -> None:
        """Draw the waterfall of the finding as it is now."""
        self._finding = _latest(self._finding, ctx)
        view = self.query_one("#heat", HeatGrid)
        self._drawn = drawn = self._waterfall(ctx.sized(ctx.width - 1))
        codes = drawn.codes
        view.styles.height = max(1, min(len(codes), self.query_one("#fall").size.height - 2))
        view.show(codes, drawn.rows, drawn.look)
        if len(codes):
            end = drawn.columns - 1 if drawn.here is None else drawn.here
            row, column = view.cursor or (drawn.subject_row, end)
            view.put((min(row, len(codes) - 1), min(column, drawn.columns - 1)), scroll=False)
        self.put("#title", [self.title_rule(self._title(drawn, ctx), ctx.width)])
        self.put("#axis", [drawn.axis])
        self.on_heat_grid_moved()

    def _waterfall(self, ctx: DrawContext) -> Waterfall:
        """From memory; from the recording where the span or the finding is longer than that."""
        minutes, is_timeline = self.zoom.minutes, self.zoom.is_timeline
        if ctx.metric.name != self._metric_before:
            self._metric_before = self._chosen = ctx.metric.name
        short = Waterfall(ctx, self._finding, minutes, chosen=self._chosen)
        if not (is_timeline or short.is_too_long):
            return short
        found = self.trend(ctx, None if is_timeline else minutes)
        if found is None:
            return short
        return LongWaterfall(ctx, self._finding, minutes, found, chosen=self._chosen)

    def _title(self, drawn: Waterfall, ctx: DrawContext) -> list[list[Span]]:
        tone, metric = self.palette, drawn.metric
        subject = labels.subject_name(self._finding, ctx.fabric).partition(" → ")[0]
        about = f"{finding_title(self._finding)} {subject} ▸ waterfall"
        parts: list[list[Span]] = [
            [(about, tone.strong)],
            [(metric.title if ctx.width >= _WIDE else metric.short, tone.text)],
            colour_legend(metric, ctx.choices.digits, tone, drawn.cell),
        ]
        if isinstance(drawn, LongWaterfall):
            part = (f"{drawn.trend.length}: {self.progress}", tone.accent)
            parts.insert(1, [part if self.progress else (drawn.resolution, tone.text)])
        elif drawn.is_too_long:
            parts.insert(1, [(f"kept for {KEPT_MIN} min", tone.dim)])
        return parts

    def on_heat_grid_moved(self) -> None:
        """Describe the cell under the cursor."""
        if self._drawn is not None:
            cell = self.query_one("#heat", HeatGrid).cursor
            self.put("#inspect", [self._drawn.cell_text(cell)])

    def on_heat_grid_opened(self, event: HeatGrid.Opened) -> None:
        """Open the port of a row."""
        if self._drawn is not None and event.cell[0] < len(self._drawn.ports):
            self.post_message(OpenRequested(PortTarget(self._drawn.ports[event.cell[0]].row)))


def _latest(known: Finding, ctx: DrawContext) -> Finding:
    """The finding as it is in the scene; where it is not open there, as it closed, if that is
    known, else as it was known."""
    ended = (each for each in ctx.closed if (each.until_ns or 0) >= known.since_ns)
    every = (*ctx.scene.findings, *ended)
    return next((each for each in every if each.key == known.key), known)
