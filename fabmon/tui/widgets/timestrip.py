"""The strip of time: with the keys, left and right go through it; a click goes there."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from fabmon.tui import keys
from fabmon.tui.widgets.painted import Painted


class TimeStrip(Painted, can_focus=True):
    """Lines of time. What they stand for, the screen knows."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.STRIP)]

    class Picked(Message):
        """A person wants to see what was at a column."""

        def __init__(self, column: int) -> None:
            """Counted from the left of the strip."""
            super().__init__()
            self.column = column

    class Redraw(Message):
        """It has got the keys, or lost them."""

    def on_click(self, event: events.Click) -> None:
        """Go there."""
        self.post_message(self.Picked(event.x))

    def on_focus(self) -> None:
        """Show whose the keys are."""
        self.post_message(self.Redraw())

    def on_blur(self) -> None:
        """Show that the keys are another's."""
        self.post_message(self.Redraw())
