"""The switches: the uplinks of each, side by side."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from fabmon.tui.line import Line
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text import switches


class Switches(LineScreen):
    """A block for each switch."""

    VIEW = "switches"

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The blocks."""
        return switches.page(self.stage, scene, width)
