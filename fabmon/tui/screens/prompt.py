"""A question in one line, over whatever is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from fabmon.tui.line import line, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.widgets.painted import Painted


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
