"""Leaves by spines, and the cables of one pair."""

from __future__ import annotations

from textual.app import ComposeResult

from fabmon.analysis.scene import Scene
from fabmon.fabric.crossings import Crossing, Table, tables
from fabmon.fabric.model import Fabric
from fabmon.tui.line import Line, Span
from fabmon.tui.metrics import heat
from fabmon.tui.palette import Palette
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.stage import Stage
from fabmon.tui.target import PairTarget
from fabmon.tui.text import matrix, pair
from fabmon.tui.text.rule import legend, marks
from fabmon.tui.widgets.lineview import LineView
from fabmon.tui.widgets.painted import Painted


class Matrix(LineScreen):
    """What every pair of switches of neighbouring tiers sends each other."""

    VIEW = "matrix"

    def __init__(self, stage: Stage) -> None:
        """Of a stage; nothing is known of the fabric yet."""
        super().__init__(stage)
        self._fabric: Fabric | None = None
        self._tables: tuple[Table, ...] = ()

    def body(self) -> ComposeResult:
        """The tables, and in words what the cell under the cursor stands for."""
        yield from super().body()
        yield Painted(id="inspect")

    def draw(self, scene: Scene) -> None:
        """Draw the tables, then the words."""
        super().draw(scene)
        self._draw_inspect(scene)

    def on_pointed(self) -> None:
        """The cursor is on another cell."""
        if self.stage.scene is not None:
            self._draw_inspect(self.stage.scene)

    def _draw_inspect(self, scene: Scene) -> None:
        widget, target = self.query_one("#inspect", Painted), self.query_one(LineView).selected
        said = Line((("", self.stage.palette.text),))
        if isinstance(target, PairTarget):
            said = pair.inspect(self.stage, scene, target, _crossings(self._tables, target))
        widget.show([said], self.stage.palette.text)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The tables."""
        if self._fabric is not scene.moment.fabric:
            self._fabric = scene.moment.fabric
            self._tables = tables(self._fabric)
        return matrix.page(self.stage, scene, self._tables, width)

    def title_parts(self, palette: Palette) -> list[list[Span]]:
        """What a cell is: up and down, and the scale."""
        return [
            *super().title_parts(palette),
            [("left half up, right half down, % of line rate", palette.text)],
            legend(heat("tx"), self.stage.choices.digits, palette),
            *marks(palette),
        ]


class PairScreen(LineScreen):
    """The cables between two switches."""

    VIEW = "pair"

    def __init__(self, stage: Stage, target: PairTarget) -> None:
        """Of a pair."""
        super().__init__(stage)
        self._pair = target

    def crumb(self) -> str:
        """Both names."""
        return pair.title(self._pair)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        found = _crossings(tables(scene.moment.fabric), self._pair)
        if not found:
            return self.gone(f"{pair.title(self._pair)} are not joined any more")
        return pair.page(self.stage, scene, self._pair, found, width)


def _crossings(every: tuple[Table, ...], target: PairTarget) -> tuple[Crossing, ...]:
    return tuple(crossing for table in every for crossing in table.cells.get(target, ()))
