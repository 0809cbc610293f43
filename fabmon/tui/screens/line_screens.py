"""The switches: the uplinks of each, side by side."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from fabmon.tui.line import FoldTarget, Line, NodeTarget, PortTarget
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text import key_help as text
from fabmon.tui.text.pages import findings, node, nodes, switches
from fabmon.tui.widgets.lines import LineView, OpenRequested, Painted


class SwitchesScreen(LineScreen):
    """A block for each switch."""

    VIEW = "switches"

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The blocks."""
        return switches.page(self.screen_state.draw_context(scene, width))


# The nodes: who is connected, who is not yet, and why not.


class NodesScreen(LineScreen):
    """What is seen while connecting, and on `n` ever after."""

    VIEW = "nodes"

    def __init__(self, screen_state: ScreenState) -> None:
        """Of a stage; every fold is folded."""
        super().__init__(screen_state)
        self._unfolded: frozenset[FoldTarget] = frozenset()

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The table."""
        return nodes.page(self.screen_state.draw_context(scene, width), self._unfolded)

    def on_open_requested(self, event: OpenRequested) -> None:
        """Unfold or fold; nodes are the app's business."""
        if isinstance(event.target, FoldTarget):
            event.stop()
            self._unfolded ^= {event.target}
            self.paint()


# All that is wrong, in full, and what happened.


class FindingsScreen(LineScreen):
    """Open findings, then events."""

    VIEW = "findings"

    def on_screen_resume(self) -> None:
        """The cursor is where it was left, in whichever view."""
        self.query_one(LineView).restore(self.selected_target())
        super().on_screen_resume()

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The two lists."""
        return findings.page(self.screen_state.draw_context(scene, width))


# One node.


class NodeScreen(LineScreen):
    """Its ports, and what it says of itself."""

    VIEW = "node"

    def __init__(self, screen_state: ScreenState, target: NodeTarget) -> None:
        """Of a node, at one of its ports."""
        super().__init__(screen_state)
        self._node = target.node
        self._start = target.row

    def crumb(self) -> str:
        """The node's name."""
        return self._node

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        try:
            found = scene.snapshot.fabric.node(self._node)
        except KeyError:
            return self.gone(f"{self._node} is not watched")
        return node.page(self.screen_state.draw_context(scene, width), found)

    def draw(self, scene: Scene) -> None:
        """Draw it; the first time, at the port that was asked for."""
        super().draw(scene)
        if self._start is not None:
            self.query_one(LineView).select(PortTarget(self._start))
            self._start = None


# Help for the screen below.


class HelpScreen(LineScreen):
    """Keys and words."""

    VIEW = "help"

    def __init__(self, screen_state: ScreenState, view: str) -> None:
        """For a view."""
        super().__init__(screen_state)
        self._view = view

    def crumb(self) -> str:
        """Help, and for what."""
        return f"help: {self._view}"

    def _paint(self) -> None:
        """Draw it, with or without a scene."""
        super()._paint()
        if self.screen_state.scene is None:
            palette, width = self.screen_state.palette, self.size.width
            title = self.title_rule(self.title_parts(palette), width)
            self.query_one("#title", Painted).show([title], palette.text)
            lines = text.help_page(self._view, width - 1, palette)
            self.query_one("#lines", LineView).show(lines, palette.text, palette.cursor)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        return text.help_page(self._view, width, self.screen_state.palette)
