"""The nodes: who is connected, who is not yet, and why not."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from fabmon.tui.line import Line
from fabmon.tui.messages import Opened
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.stage import Stage
from fabmon.tui.target import FoldTarget
from fabmon.tui.text import nodes


class Nodes(LineScreen):
    """What is seen while connecting, and on `n` ever after."""

    VIEW = "nodes"

    def __init__(self, stage: Stage) -> None:
        """Of a stage; every fold is folded."""
        super().__init__(stage)
        self._unfolded: frozenset[FoldTarget] = frozenset()

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The table."""
        return nodes.page(self.stage, scene, width, self._unfolded)

    def on_opened(self, event: Opened) -> None:
        """Unfold or fold; nodes are the app's business."""
        if isinstance(event.target, FoldTarget):
            event.stop()
            self._unfolded ^= {event.target}
            self.paint()
