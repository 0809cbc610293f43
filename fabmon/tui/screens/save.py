"""What to save: a line for each choice, over the screen that is meant."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from fabmon.tui import keys
from fabmon.tui.line import Line, fit, line
from fabmon.tui.palette import Palette
from fabmon.tui.widgets.painted import Painted

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
