"""A strip that already knows what it is on the terminal.

Textual makes the escape sequences of a strip from its segments each time that the strip is new,
which for ten thousand cells of random data is half of a frame. Here they are joined from pieces
made once for each code. The segments are kept: cropping and screenshots go by them.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fabmon.tui.palette import Depth

_SYSTEMS = {Depth.TRUECOLOR: ColorSystem.TRUECOLOR, Depth.EIGHT_BIT: ColorSystem.EIGHT_BIT}
_END = "\x1b[0m"


class AnsiStrip(Strip):
    """Segments, and the same as one text with escape sequences that set all they need."""

    def __init__(self, segments: Iterable[Segment], cell_length: int, ansi: str) -> None:
        """`ansi` draws the segments; it need not reset the style at its end."""
        super().__init__(segments, cell_length)
        self._ansi = ansi

    def render(self, console: Console) -> str:
        """What to send to the terminal."""
        return self._ansi + _END

    def padded(self, cell_length: int, style: Style, depth: Depth) -> AnsiStrip:
        """The same with blanks up to a length."""
        missing = cell_length - self.cell_length
        if missing <= 0:
            return self
        blank = Segment(" " * missing, style)
        return AnsiStrip([*self, blank], cell_length, self._ansi + sequence(blank, depth))


def sequence(segment: Segment, depth: Depth) -> str:
    """A segment with the escape sequence before it, whatever the style was before that."""
    system = _SYSTEMS.get(depth, ColorSystem.STANDARD)
    ansi = "" if segment.style is None else Strip.render_ansi(segment.style, system)
    return f"\x1b[0;{ansi}m{segment.text}" if ansi else f"{_END}{segment.text}"


def paper(segment: Segment, depth: Depth) -> str:
    """Full blocks, sent as blanks on a background of their colour.

    They look the same and fill the cell in every font, in half of the bytes and all of them ASCII.
    """
    colour = segment.style.color if segment.style is not None else None
    style = Style(bgcolor=colour)
    ansi = Strip.render_ansi(style, _SYSTEMS.get(depth, ColorSystem.STANDARD))
    return f"\x1b[{ansi}m{' ' * len(segment.text)}"
