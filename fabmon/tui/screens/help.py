"""Help for the screen below."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from fabmon.tui.line import Line
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.stage import Stage
from fabmon.tui.text import help as text
from fabmon.tui.widgets.lineview import LineView
from fabmon.tui.widgets.painted import Painted


class HelpScreen(LineScreen):
    """Keys and words."""

    VIEW = "help"

    def __init__(self, stage: Stage, view: str) -> None:
        """For a view."""
        super().__init__(stage)
        self._view = view

    def crumb(self) -> str:
        """Help, and for what."""
        return f"help: {self._view}"

    def _paint(self) -> None:
        """Draw it, with or without a scene."""
        super()._paint()
        if self.stage.scene is None:
            palette, width = self.stage.palette, self.size.width
            title = self.title_rule(self.title_parts(palette), width)
            self.query_one("#title", Painted).show([title], palette.text)
            lines = text.page(self._view, width - 1, palette)
            self.query_one("#lines", LineView).show(lines, palette.text, palette.cursor)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        return text.page(self._view, width, self.stage.palette)
