"""Render a row of cell codes as a Textual strip with ready escape sequences.

Textual builds the escape sequences of each new strip from its segments: for 10 000 cells of random
data that is half of the frame time. Here they are joined from pieces that are built once per code.
The segments are kept as well: cropping and screenshots use them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fabmon.tui.cells import CellBlock, CellRow, Look
from fabmon.tui.palette import Depth

_SYSTEMS = {Depth.TRUECOLOR: ColorSystem.TRUECOLOR, Depth.EIGHT_BIT: ColorSystem.EIGHT_BIT}
_END = "\x1b[0m"


class AnsiStrip(Strip):
    """A strip that holds its segments and the text, with escape sequences, that draws them."""

    def __init__(self, segments: Iterable[Segment], cell_length: int, ansi: str) -> None:
        """`ansi` draws the segments; it need not reset the style at its end."""
        super().__init__(segments, cell_length)
        self._ansi = ansi

    def render(self, console: Console) -> str:
        """The text for the terminal."""
        return self._ansi + _END

    def padded(self, cell_length: int, style: Style, depth: Depth) -> AnsiStrip:
        """The strip extended with blanks to a length in cells."""
        missing = cell_length - self.cell_length
        if missing <= 0:
            return self
        blank = Segment(" " * missing, style)
        return AnsiStrip([*self, blank], cell_length, self._ansi + escape_sequence(blank, depth))


def escape_sequence(segment: Segment, depth: Depth) -> str:
    """A segment with the escape sequence that sets its style, independent of the style before."""
    system = _SYSTEMS.get(depth, ColorSystem.STANDARD)
    ansi = "" if segment.style is None else Strip.render_ansi(segment.style, system)
    return f"\x1b[0;{ansi}m{segment.text}" if ansi else f"{_END}{segment.text}"


def as_background(segment: Segment, depth: Depth) -> str:
    """Full blocks as blanks on a background of their colour, independent of the style before.

    They look the same, fill the cell in every font, and are half of the bytes, all ASCII.
    """
    colour = segment.style.color if segment.style is not None else None
    return escape_sequence(Segment(" " * len(segment.text), Style(bgcolor=colour)), depth)


_FULL = "█"
_LONGEST = 1 << 20
"""More cells than a row can have: the base of the keys of runs."""


class _Runs(dict[int, tuple[tuple[Segment, ...], str]]):
    """Run of equal cells -> its segments and their escape sequences, built on first use.

    The key is code * _LONGEST + length of the run: one integer, so that a row is looked up with one
    `map`. With random data this lookup is most of the frame time.
    """

    def __init__(self, look: Look, width: int, pitch: int) -> None:
        """Cells of `width`, one every `pitch` columns."""
        super().__init__()
        self._look, self._width, self._pitch = look, width, pitch

    def __missing__(self, key: int) -> tuple[tuple[Segment, ...], str]:
        code, run = divmod(key, _LONGEST)
        palette = self._look.palette
        text, style = self._look.picture(code, self._width)
        gap = self._pitch - self._width
        made: tuple[Segment, ...]
        if gap and (style.bgcolor != palette.text.bgcolor or style.reverse):
            made = (Segment(text, style), Segment(" " * gap, palette.text)) * run
        else:
            made = (Segment(text.ljust(self._pitch) * run, style),)
        if not gap and set(text) == {_FULL}:
            ansi = as_background(made[0], palette.depth)
        else:
            ansi = "".join(escape_sequence(segment, palette.depth) for segment in made)
        self[key] = made, ansi
        return made, ansi


class RowPainter:
    """Renders rows in one look."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._runs: dict[tuple[int, int], _Runs] = {}

    def paint(self, row: CellRow, codes: NDArray[np.uint16], width: int) -> Strip:
        """The strip of a row, padded to `width` cells."""
        palette = self.look.palette
        segments: list[Segment] = []
        ansi: list[str] = []

        def add(text: str, style: Style) -> None:
            segments.append(Segment(text, style))
            ansi.append(escape_sequence(segments[-1], palette.depth))

        pieces: list[tuple[int, CellBlock | tuple[str, Style]]] = [
            (x, (text, style)) for x, text, style in row.texts
        ]
        pieces += [(block.x, block) for block in row.blocks if block.count]
        pieces.sort(key=lambda piece: piece[0])
        x = 0
        for start, piece in pieces:
            if start > x:
                add(" " * (start - x), palette.text)
            if isinstance(piece, CellBlock):
                runs = self._cells(piece, codes)
                made, texts = zip(*runs, strict=True)
                segments.extend(chain.from_iterable(made))
                ansi.extend(texts)
                x = start + piece.count * piece.pitch
            else:
                add(*piece)
                x = start + cell_len(piece[0])
        strip = AnsiStrip(segments, x, "".join(ansi))
        return strip.padded(width, palette.text, palette.depth)

    def _cells(
        self, block: CellBlock, line: NDArray[np.uint16]
    ) -> list[tuple[tuple[Segment, ...], str]]:
        """(segments, escape sequences) of a block of cells, one entry per run of equal codes."""
        runs = self._runs.get((block.width, block.pitch))
        if runs is None:
            runs = self._runs[block.width, block.pitch] = _Runs(self.look, block.width, block.pitch)
        codes = line[block.first : block.first + block.count].astype(np.int64)
        last = np.empty(len(codes), dtype=np.bool_)
        last[-1] = True
        np.not_equal(codes[1:], codes[:-1], out=last[:-1])
        ends = np.flatnonzero(last)
        keys = codes[ends] * _LONGEST + ends
        keys[1:] -= ends[:-1]
        keys[0] += 1
        return list(map(runs.__getitem__, keys.tolist()))

    def mark_name(self, strip: Strip, x: int, width: int, focused: bool) -> Strip:
        """Draw the cursor on a name: reversed colours, or underlined without the focus."""
        style = Style(reverse=True) if focused else Style(underline=True)
        before, name, after = strip.divide([x, x + width, strip.cell_length])
        turned = [Segment(s.text, (s.style or self.look.palette.text) + style) for s in name]
        return Strip.join([before, Strip(turned), after])

    def mark(self, strip: Strip, row: CellRow, column: int, focused: bool) -> Strip:
        """Draw the cursor: brackets around a cell, or reversed colours where there is no gap."""
        block = row.block(column)
        if block is None:
            return strip
        palette = self.look.palette
        style = palette.strong if focused else palette.dim
        x = block.x + (column - block.first) * block.pitch
        if block.pitch == block.width or x == 0:
            before, cell, after = strip.divide([x, x + block.width, strip.cell_length])
            turned = [Segment(s.text, (s.style or style) + Style(reverse=True)) for s in cell]
            return Strip.join([before, Strip(turned), after])
        end = x + block.width + 1
        before, _, cell, _, after = strip.divide([x - 1, x, end - 1, end, strip.cell_length])
        left, right = Strip([Segment("[", style)]), Strip([Segment("]", style)])
        return Strip.join([before, left, cell, right, after])
