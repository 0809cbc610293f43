"""One port."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Port
from fabmon.tui import keys
from fabmon.tui.line import Line
from fabmon.tui.messages import BurstWanted
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.stage import Stage
from fabmon.tui.text import port, words


class PortScreen(LineScreen):
    """Its charts and every counter it has."""

    VIEW = "port"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.CHART)]

    def __init__(self, stage: Stage, shown: Port) -> None:
        """Of a port; a row is one port's for good."""
        super().__init__(stage)
        self._port = shown
        self._zoom = port.SPANS.index(5)

    def crumb(self) -> str:
        """The port, with its node."""
        return words.port(self._port)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        ports = scene.moment.fabric.ports
        if self._port.row >= len(ports) or not ports[self._port.row].node:
            return self.gone(f"{words.port(self._port)} is not there")
        found = ports[self._port.row]
        return port.page(self.stage, scene, found, port.SPANS[self._zoom], width, height)

    def action_burst(self) -> None:
        """Have the port sampled fast for a while; it is drawn here as it comes in."""
        self.post_message(BurstWanted(self._port))

    def action_zoom(self, by: int) -> None:
        """Fewer or more minutes in the charts."""
        self._zoom = min(max(self._zoom + by, 0), len(port.SPANS) - 1)
        self.paint()
