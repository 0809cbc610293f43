"""Where the filter is typed. It works while it is typed; escape takes it away, enter keeps it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from fabmon.fabric.filter import FilterError, parse
from fabmon.tui.containment import Contained
from fabmon.tui.line import line, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.widgets.painted import Painted

HINT = "word  !word  util>80  state:down  role:switch  group:leaf1"


class FilterBar(Contained, Vertical):
    """A slash, what is typed, and how much is left; above it, what is wrong with it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "clear", show=False)]

    class Changed(Message):
        """What is typed now is to be the filter."""

        def __init__(self, text: str) -> None:
            """As typed."""
            super().__init__()
            self.text = text

    class Closed(Message):
        """Typing is over."""

    def compose(self) -> ComposeResult:
        """The three parts."""
        yield Painted(id="wrong")
        with Horizontal():
            yield Painted(id="slash")
            yield Input(placeholder=HINT, id="typed")
            yield Painted(id="note")

    def open(self, text: str, palette: Palette) -> None:
        """Appear, with what the filter is, selected: what is typed takes its place."""
        self.add_class("-open")
        self.query_one("#slash", Painted).show([line((" /", palette.key))], palette.text)
        self.note("", palette)
        typed = self.query_one(Input)
        typed.value = text
        typed.focus()

    def note(self, text: str, palette: Palette) -> None:
        """Say how much is left."""
        self.complain("", palette)
        self.query_one("#note", Painted).show([line((f" {text}", palette.hot))], palette.text)

    def complain(self, text: str, palette: Palette) -> None:
        """Say what is wrong, in as many lines as it takes."""
        parts = wrap(text, max(20, self.size.width - 3)) if text else []
        wrong = self.query_one("#wrong", Painted)
        wrong.display = bool(parts)
        wrong.styles.height = len(parts)
        wrong.show([line((f" ! {part}", palette.hot)) for part in parts], palette.text)
        if parts:
            self.query_one("#note", Painted).show([line(("", palette.text))], palette.text)

    def close(self) -> None:
        """Disappear."""
        self.remove_class("-open")
        self.post_message(self.Closed())

    def action_cancel(self) -> None:
        """Clear the filter and disappear."""
        self.query_one(Input).value = ""
        self.post_message(self.Changed(""))
        self.close()

    def on_input_changed(self, event: Input.Changed) -> None:
        """It works while it is typed."""
        event.stop()
        if self.has_class("-open"):
            self.post_message(self.Changed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it, unless it means nothing: then it is still being typed."""
        event.stop()
        try:
            parse(event.value)
        except FilterError:
            return
        self.close()
