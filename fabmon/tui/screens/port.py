"""One port."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.message import Message

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Port
from fabmon.tui import keys
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text import labels
from fabmon.tui.text.pages import port
from fabmon.tui.time.cursor import Zoom
from fabmon.tui.time.past_reader import PastReader
from fabmon.tui.time.trend import TrendLoader, trend


@dataclass
class BurstRequested(Message):
    """The user asked for fast samples of a port."""

    port: Port


class PortScreen(LineScreen):
    """Its charts and every counter it has."""

    VIEW = "port"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.PORT)]

    def __init__(
        self, screen_state: ScreenState, shown: Port, past: PastReader | None = None
    ) -> None:
        """Of a port; a row is one port's for good. `past` is what is recorded."""
        super().__init__(screen_state)
        self._port = shown
        self._zoom = Zoom(screen_state.cursor, port.SPANS, 5, past is not None)
        self._reading = None if past is None else TrendLoader(past, self._read, self.paint)

    def crumb(self) -> str:
        """The port, with its node."""
        return labels.port_name(self._port)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page."""
        ports = scene.snapshot.fabric.ports
        if self._port.row >= len(ports) or not ports[self._port.row].node:
            return self.gone(f"{labels.port_name(self._port)} is not there")
        found = ports[self._port.row]
        shown = self._zoom.minutes
        long = None
        if self._reading is not None and self._zoom.is_strip:
            newest = (self.screen_state.live or scene).snapshot
            long = trend(self.screen_state, newest, self._reading, None)
        return port.page(self.screen_state.draw_context(scene, width, height), found, long or shown)

    def title_parts(self, palette: Palette) -> list[list[Span]]:
        """The way here; that something is being read."""
        parts = super().title_parts(palette)
        if self._reading is not None and self._zoom.is_strip and self._reading.said:
            parts.append([(self._reading.said, palette.hot)])
        return parts

    def _read(self, reading: Coroutine[Any, Any, None]) -> None:
        self.run_worker(reading, group="trend", exclusive=True, exit_on_error=False)

    def action_burst(self) -> None:
        """Have the port sampled fast for a while; it is drawn here as it comes in."""
        self.post_message(BurstRequested(self._port))

    def action_zoom(self, by: int) -> None:
        """Less time in the charts, or more; beyond the minutes of memory the strip's."""
        self._zoom.by(by)
        self.paint()
