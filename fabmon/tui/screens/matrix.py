"""Leaves by spines, and the cables of one pair."""

from __future__ import annotations

from textual.app import ComposeResult

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Fabric
from fabmon.fabric.topology.tier_matrix import TierLink, TierMatrix, tables
from fabmon.tui.line import Line, PairTarget, Span
from fabmon.tui.metrics import heat
from fabmon.tui.palette import Palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text.header import colour_legend, mark_legend
from fabmon.tui.text.pages import matrix
from fabmon.tui.widgets.lines import LineView, Painted


class MatrixScreen(LineScreen):
    """What every pair of switches of neighbouring tiers sends each other."""

    VIEW = "matrix"

    def __init__(self, screen_state: ScreenState) -> None:
        """Of a stage; nothing is known of the fabric yet."""
        super().__init__(screen_state)
        self._fabric: Fabric | None = None
        self._tables: tuple[TierMatrix, ...] = ()

    def body(self) -> ComposeResult:
        """The tables, and in words what the cell under the cursor stands for."""
        yield from super().body()
        yield Painted(id="inspect")

    def draw(self, scene: Scene) -> None:
        """Draw the tables, then the words."""
        super().draw(scene)
        self._draw_inspect(scene)

    def on_highlighted(self) -> None:
        """The cursor is on another cell."""
        if self.screen_state.scene is not None:
            self._draw_inspect(self.screen_state.scene)

    def _draw_inspect(self, scene: Scene) -> None:
        widget, target = self.query_one("#inspect", Painted), self.query_one(LineView).selected
        said = Line((("", self.screen_state.palette.text),))
        if isinstance(target, PairTarget):
            said = matrix.pair_summary(
                self.screen_state.draw_context(scene, self.size.width),
                target,
                _crossings(self._tables, target),
            )
        widget.show([said], self.screen_state.palette.text)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The tables."""
        if self._fabric is not scene.snapshot.fabric:
            self._fabric = scene.snapshot.fabric
            self._tables = tables(self._fabric)
        return matrix.page(self.screen_state.draw_context(scene, width), self._tables)

    def title_parts(self, palette: Palette) -> list[list[Span]]:
        """What a cell is: up and down, and the scale."""
        return [
            *super().title_parts(palette),
            [("left half up, right half down, % of line rate", palette.text)],
            colour_legend(heat("tx"), self.screen_state.choices.digits, palette),
            *mark_legend(palette),
        ]


class PairScreen(LineScreen):
    """The cables between two switches."""

    VIEW = "pair"

    def __init__(self, screen_state: ScreenState, target: PairTarget) -> None:
        """Of a pair."""
        super().__init__(screen_state)
        self._pair = target

    def crumb(self) -> str:
        """Both names."""
        return matrix.pair_title(self._pair)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        found = _crossings(tables(scene.snapshot.fabric), self._pair)
        if not found:
            return self.gone(f"{matrix.pair_title(self._pair)} are not joined any more")
        return matrix.pair_page(self.screen_state.draw_context(scene, width), self._pair, found)


def _crossings(every: tuple[TierMatrix, ...], target: PairTarget) -> tuple[TierLink, ...]:
    return tuple(crossing for table in every for crossing in table.cells.get(target, ()))
