"""One node."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from fabmon.tui.line import Line
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.stage import Stage
from fabmon.tui.target import NodeTarget, PortTarget
from fabmon.tui.text import node
from fabmon.tui.widgets.lineview import LineView


class NodeScreen(LineScreen):
    """Its ports, and what it says of itself."""

    VIEW = "node"

    def __init__(self, stage: Stage, target: NodeTarget) -> None:
        """Of a node, at one of its ports."""
        super().__init__(stage)
        self._node = target.node
        self._start = target.row

    def crumb(self) -> str:
        """The node's name."""
        return self._node

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        try:
            found = scene.moment.fabric.node(self._node)
        except KeyError:
            return self.gone(f"{self._node} is not watched")
        return node.page(self.stage, scene, found, width)

    def draw(self, scene: Scene) -> None:
        """Draw it; the first time, at the port that was asked for."""
        super().draw(scene)
        if self._start is not None:
            self.query_one(LineView).select(PortTarget(self._start))
            self._start = None
