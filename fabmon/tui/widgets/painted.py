"""Lines that fill a widget from its top: the header, the footer, a rule, the strip of time."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual.strip import Strip

from fabmon.tui.containment import ContainedWidget
from fabmon.tui.line import Line


class Painted(ContainedWidget):
    """Shows the lines it is given, cut to its size."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        """Blank."""
        super().__init__(id=id, classes=classes)
        self._lines: Sequence[Line] = ()
        self._base = Style()

    def show(self, lines: Sequence[Line], base: Style) -> None:
        """Draw these lines; nothing happens when they are the same as the last."""
        if lines == self._lines and base == self._base:
            return
        self._lines, self._base = lines, base
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One of them."""
        if y < len(self._lines):
            return self._lines[y].strip(self.size.width, self._base)
        return Strip.blank(self.size.width, self._base)
