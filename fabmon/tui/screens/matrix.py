"""The matrix of switches of neighbouring tiers, and the links of one pair."""

from __future__ import annotations

from textual.app import ComposeResult

from fabmon.fabric.model import Fabric
from fabmon.fabric.topology.tier_matrix import TierLink, TierMatrix, tables
from fabmon.tui.line import Line, PairTarget, Span, line
from fabmon.tui.metrics import heat_metric
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.header import colour_legend, mark_legend
from fabmon.tui.text.pages import matrix
from fabmon.tui.widgets.lines import LineView, Painted


class MatrixScreen(LineScreen):
    """The traffic between every pair of switches of neighbouring tiers."""

    VIEW = "matrix"

    def __init__(self, screen_state: ScreenState) -> None:
        super().__init__(screen_state)
        self._fabric: Fabric | None = None
        self._tables: tuple[TierMatrix, ...] = ()

    def body(self) -> ComposeResult:
        """The tables, and the pair under the cursor in words."""
        yield from super().body()
        yield Painted(id="inspect")

    def draw(self, ctx: DrawContext) -> None:
        """Draw the tables and the pair under the cursor."""
        super().draw(ctx)
        self._draw_pair(ctx)

    def on_highlighted(self) -> None:
        """Draw the pair under the cursor."""
        ctx = self.context()
        if ctx is not None:
            self._draw_pair(ctx)

    def _draw_pair(self, ctx: DrawContext) -> None:
        target, text = self.query_one(LineView).selected, line(("", self.palette.text))
        if isinstance(target, PairTarget):
            text = matrix.pair_summary(ctx, target, _links(self._tables, target))
        self.put("#inspect", [text])

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The tables, recomputed when the fabric changes."""
        if self._fabric is not ctx.fabric:
            self._fabric, self._tables = ctx.fabric, tables(ctx.fabric)
        return matrix.page(ctx, self._tables)

    def title_parts(self) -> list[list[Span]]:
        """The path, the meaning of a cell, the scale and the marks."""
        return [
            *super().title_parts(),
            [("left half up, right half down, % of line rate", self.palette.text)],
            colour_legend(heat_metric("tx"), self.screen_state.choices.digits, self.palette),
            *mark_legend(self.palette),
        ]


class PairScreen(LineScreen):
    """The links between two switches."""

    VIEW = "pair"

    def __init__(self, screen_state: ScreenState, target: PairTarget) -> None:
        super().__init__(screen_state)
        self._pair = target

    def crumb(self) -> str:
        """The names of both switches."""
        return matrix.pair_title(self._pair)

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The page of the pair."""
        links = _links(tables(ctx.fabric), self._pair)
        if not links:
            return self.message(f"{matrix.pair_title(self._pair)} are not connected any more")
        return matrix.pair_page(ctx, self._pair, links)


def _links(every: tuple[TierMatrix, ...], target: PairTarget) -> tuple[TierLink, ...]:
    return tuple(link for table in every for link in table.cells.get(target, ()))
