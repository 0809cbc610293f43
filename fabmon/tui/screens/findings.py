"""All that is wrong, in full, and what happened."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from fabmon.tui.line import Line
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text import findings
from fabmon.tui.widgets.lineview import LineView


class Findings(LineScreen):
    """Open findings, then events."""

    VIEW = "findings"

    def on_screen_resume(self) -> None:
        """The cursor is where it was left, in whichever view."""
        self.query_one(LineView).restore(self.chosen_target())
        super().on_screen_resume()

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The two lists."""
        return findings.page(self.stage, scene, width)
