"""Where the filter is typed. It works while it is typed; escape takes it away, enter keeps it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input

from fabmon.fabric.filter import FilterError, parse
from fabmon.tui import keys
from fabmon.tui.containment import Contained
from fabmon.tui.line import Line, fit, line, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.widgets.lines import Painted

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


# A question in one line, over whatever is shown.


class Prompt(ModalScreen[str | None]):
    """Gives what was typed, or None where it was left. `wrong` says what is wrong with an answer,
    empty for nothing: a wrong one is not taken."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave", show=False)]

    def __init__(
        self, label: str, hint: str, palette: Palette, wrong: Callable[[str], str] = lambda _: ""
    ) -> None:
        """A question; nothing is asked yet."""
        super().__init__()
        self._label = label
        self._hint = hint
        self._palette = palette
        self._wrong = wrong

    def compose(self) -> ComposeResult:
        """What is wrong, the question, the answer."""
        with Vertical():
            yield Painted(id="wrong")
            with Horizontal():
                yield Painted(id="question")
                yield Input(placeholder=self._hint, id="typed")

    def on_mount(self) -> None:
        """Ask."""
        question = self.query_one("#question", Painted)
        question.styles.width = len(self._label) + 2
        question.show([line((f" {self._label} ", self._palette.key))], self._palette.text)
        self._complain("")
        self.query_one(Input).focus()

    def _complain(self, text: str) -> None:
        parts = wrap(text, max(20, self.app.size.width - 3)) if text else []
        wrong = self.query_one("#wrong", Painted)
        wrong.display = bool(parts)
        wrong.styles.height = max(1, len(parts))
        said = [line((f" ! {part}", self._palette.hot)) for part in parts]
        wrong.show(said, self._palette.text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer, or say what is wrong with it."""
        event.stop()
        wrong = self._wrong(event.value)
        if wrong:
            self._complain(wrong)
        else:
            self.dismiss(event.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """It may be right now."""
        event.stop()
        self._complain("")

    def action_leave(self) -> None:
        """No answer."""
        self.dismiss(None)


# What to save: a line for each choice, over the screen that is meant.


_WIDTH = 66


class SaveMenu(ModalScreen[str | None]):
    """Gives back one of the choices, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.SAVE)]

    def __init__(self, palette: Palette) -> None:
        """In the colours of the screen below."""
        super().__init__()
        self._palette = palette

    def compose(self) -> ComposeResult:
        """The lines."""
        yield Painted(id="save")

    def on_mount(self) -> None:
        """Draw them."""
        self._draw()

    def on_resize(self) -> None:
        """There is more or less room."""
        self._draw()

    def action_choose(self, what: str) -> None:
        """That one, or none."""
        self.dismiss(what or None)

    def _draw(self) -> None:
        palette, view = self._palette, self.query_one("#save", Painted)
        choices = [key for key in keys.KEYS if key.where == keys.SAVE]
        width = min(_WIDTH, self.size.width)
        head = " Save into "
        where = str(Path.cwd())
        room = max(1, width - cell_len(head) - 1)
        # Of a long way, the end tells most.
        while cell_len(where) > room:
            where = f"…{where.lstrip('…')[1:]}"
        lines: list[Line] = [line((fit(f"{head}{where}", width), palette.strong))]
        lines += [
            line((f"  {fit(key.shown, 5)}", palette.key), (fit(key.help, width - 7), palette.text))
            for key in choices
        ]
        view.styles.width, view.styles.height = width, len(lines)
        view.show(lines, palette.text)
