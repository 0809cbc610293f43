"""The page of one port: its charts and its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from fabmon.fabric.model import Port
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.line import Line, Span
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen, ZoomableScreen
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.pages import port

_USUAL_MINUTES = 5


@dataclass
class BurstRequested(Message):
    """The user asked for fast samples of a port."""

    port: Port


class PortScreen(ZoomableScreen, LineScreen):
    """The charts of a port and every counter that it has."""

    VIEW = "port"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.PORT)]

    def __init__(
        self, screen_state: ScreenState, shown: Port, past: RecordedPast | None = None
    ) -> None:
        """Of a port: a row is never given to another port. `past` reads the recording."""
        super().__init__(screen_state, _USUAL_MINUTES, past)
        self.port = shown

    def crumb(self) -> str:
        """The name of the port."""
        return self.port.display_name

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The page of the port."""
        ports = ctx.fabric.ports
        if self.port.row >= len(ports) or not ports[self.port.row].node:
            return self.message(f"{self.port.display_name} does not exist any more")
        long = self.trend(ctx) if self.zoom.is_timeline else None
        return port.page(ctx, ports[self.port.row], long or self.zoom.minutes)

    def title_parts(self) -> list[list[Span]]:
        """The path, and the progress of reading the recording."""
        progress = self.progress if self.zoom.is_timeline else ""
        return [*super().title_parts(), *([[(progress, self.palette.accent)]] if progress else [])]

    def action_burst(self) -> None:
        """Request fast samples; the page shows them as they arrive."""
        self.post_message(BurstRequested(self.port))
