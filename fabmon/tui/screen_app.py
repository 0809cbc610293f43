"""What the app is without its keys and its scenes: the view on top, drawn, and messages."""

from __future__ import annotations

from typing import Any

from textual.actions import SkipAction
from textual.widgets import Input

from fabmon.tui.containment import ContainingApp
from fabmon.tui.line import fit
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.time.past_reader import RecordingAccess
from fabmon.tui.time.player import Player


class ScreenApp(ContainingApp):
    """An app that draws a screen state; its subclasses set the attributes."""

    screen_state: ScreenState
    recording: RecordingAccess
    player: Player

    def repaint(self) -> None:
        """Draw the topmost view; a menu or a palette may be above it."""
        self.player.load_timeline(self.size.width)
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ViewScreen):
                screen.paint()
                return

    def say(self, text: str, seconds: float = 4) -> None:
        """Answer a key in one line for some seconds."""
        self.notify(text, timeout=seconds, markup=False)

    def notify(self, message: str, **options: Any) -> None:
        """Show a message in one line."""
        super().notify(fit(message, max(1, self.size.width - 4)).rstrip(), **options)

    def on_notify(self) -> None:
        """Make room for the message that is about to be shown: there is one line."""
        self.clear_notifications()

    def skip_while_typing(self) -> None:
        """Leave the key to an input or a menu that is open."""
        if isinstance(self.focused, Input) or not isinstance(self.screen, ViewScreen):
            raise SkipAction
