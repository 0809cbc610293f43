"""The heatmap: any number of small cells in rows, of which only those that change are made anew.

Drawn on Textual's line API with `render_lines` overridden: it keeps its own strip of every row and
passes by the style cache and the colour filters. So it has no border and no padding, owns its
background, and its look emits final colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from fabmon.tui import keys
from fabmon.tui.cells import NOTHING, Codes, Look
from fabmon.tui.containment import ContainedWidget
from fabmon.tui.widgets.row_painter import CellRow, RowPainter

Cell = tuple[int, int]
"""Row and column."""


class HeatGrid(ContainedWidget, ScrollView, can_focus=True):
    """Shows codes (see cells.py) as cells. It knows rows and columns, and nothing of fabrics."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.CURSOR)]

    class Moved(Message):
        """The cursor is on another cell."""

        def __init__(self, cell: Cell) -> None:
            """This one."""
            super().__init__()
            self.cell = cell

    class Hovered(Message):
        """The mouse is over another cell; None when it has left them."""

        def __init__(self, cell: Cell | None) -> None:
            """This one."""
            super().__init__()
            self.cell = cell

    class Opened(Message):
        """The cell under the cursor was opened, with the mouse or the keyboard."""

        def __init__(self, cell: Cell) -> None:
            """This one."""
            super().__init__()
            self.cell = cell

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        """An empty grid."""
        super().__init__(id=id)
        self._painter = RowPainter(look)
        self._codes: Codes = np.zeros((0, 0), dtype=np.uint16)
        self._rows: Sequence[CellRow] = ()
        self._strips: list[Strip | None] = []
        self._hover: Cell | None = None
        self.cursor: Cell | None = None

    def show(self, codes: Codes, rows: Sequence[CellRow], look: Look | None = None) -> None:
        """Draw what differs from the last time. Codes are [rows, columns], of these rows."""
        anew = codes.shape != self._codes.shape
        if look is not None and look != self._painter.look:
            self._painter = RowPainter(look)
            anew = True
        old_codes, old_rows = self._codes, self._rows
        self._codes, self._rows = codes, rows
        if rows is not old_rows:
            self.virtual_size = Size(max((row.width for row in rows), default=0), len(rows))
        if anew:
            self._strips = [None] * len(codes)
            self.refresh()
            return
        changed = np.flatnonzero((codes != old_codes).any(axis=1)).tolist()
        if rows is not old_rows:
            changed += [y for y, row in enumerate(rows) if row is not old_rows[y]]
        self._redraw(changed)

    def _redraw(self, rows: Sequence[int]) -> None:
        """Make rows anew when they are next in sight; paint those that are."""
        top, width, height = self.scroll_offset.y, self.size.width, self.size.height
        lines = {y - top for y in rows if 0 <= y - top < height}
        for y in rows:
            self._strips[y] = None
        if self._pinned(top) in rows:
            lines.add(0)
        if lines:
            self.refresh(*(Region(0, y, width, count) for y, count in _spans(sorted(lines))))

    def _pinned(self, top: int) -> int:
        """The row drawn in the first line of the window: a heading stays while its rows pass."""
        if not 0 <= top < len(self._rows) or self.size.height < 3:
            return top
        heading = self._rows[top].heading
        return heading if heading >= 0 else top

    def strips(self, crop: Region) -> list[Strip]:
        """The rows in sight."""
        left, top = self.scroll_offset
        start, end = crop.column_span
        base = self._painter.look.palette.text
        strips = []
        for line in crop.line_range:
            y = self._pinned(top) if line == 0 else top + line
            if y < len(self._strips):
                strip = self._strips[y] or self._build(y)
                strips.append(strip.crop_extend(start + left, end + left, base))
            else:
                strips.append(Strip.blank(crop.width, base))
        return strips

    def _build(self, y: int) -> Strip:
        """Make the strip of a row, with the cursor if it is there."""
        row = self._rows[y]
        strip = self._painter.paint(row, self._codes[y], self.size.width)
        if self.cursor is not None and self.cursor[0] == y:
            strip = self._painter.mark(strip, row, self.cursor[1], self.has_focus)
        self._strips[y] = strip
        return strip

    # The cursor.

    def put(self, cell: Cell | None, *, scroll: bool = True) -> None:
        """Put the cursor on a cell, and the cell in sight."""
        old, self.cursor = self.cursor, cell
        self._redraw([place[0] for place in (old, cell) if place and place[0] < len(self._strips)])
        if cell is None or not scroll:
            return
        self.reveal(cell)
        if cell != old:
            self.post_message(self.Moved(cell))

    def reveal(self, cell: Cell) -> None:
        """Scroll as little as brings a cell and its heading in sight."""
        row = self._rows[cell[0]]
        block = row.block(cell[1])
        if block is not None:
            x = block.x + (cell[1] - block.first) * block.pitch
            above = 1 if row.heading >= 0 else 0
            around = Region(max(0, x - 1), cell[0] - above, block.width + 2, 1 + above)
            self.scroll_to_region(around, animate=False)

    def move(self, down: int, across: int) -> None:
        """Move the cursor over cells that have a port, past those that have none."""
        there = self._codes != NOTHING
        if not there.any():
            return
        if self.cursor is None:
            first = np.argwhere(there)[0].tolist()
            self.put((first[0], first[1]))
            return
        y, x = self.cursor
        if across:
            found = _step(np.flatnonzero(there[y]), x, across)
            if found is not None:
                self.put((y, found))
            return
        row = _step(np.flatnonzero(there.any(axis=1)), y, down)
        if row is not None:
            cells = np.flatnonzero(there[row])
            self.put((row, int(cells[np.argmin(abs(cells - x))])))

    def on_focus(self) -> None:
        """Show whose the keys are."""
        if self.cursor is None:
            self.move(0, 0)
        else:
            self.put(self.cursor, scroll=False)

    def on_blur(self) -> None:
        """Show that the keys are another's."""
        self.put(self.cursor, scroll=False)

    # The mouse.

    def cell_at(self, x: int, y: int) -> Cell | None:
        """The cell at a place in the window; None where there is none."""
        row = self._pinned(self.scroll_offset.y) if y == 0 else y + self.scroll_offset.y
        if not 0 <= row < len(self._rows):
            return None
        for block in self._rows[row].blocks:
            column = block.at(x + self.scroll_offset.x)
            if column is not None and self._codes[row, column] != NOTHING:
                return row, column
        return None

    def on_click(self, event: events.Click) -> None:
        """Select a cell; the second time, open it."""
        cell = self.cell_at(event.x, event.y)
        if cell is None:
            return
        if cell == self.cursor:
            self.post_message(self.Opened(cell))
        else:
            self.put(cell)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Say which cell the mouse is over."""
        self._hover_on(self.cell_at(event.x, event.y))

    def on_leave(self) -> None:
        """The mouse is over none."""
        self._hover_on(None)

    def _hover_on(self, cell: Cell | None) -> None:
        if cell != self._hover:
            self._hover = cell
            self.post_message(self.Hovered(cell))

    # Keys (which keys: keys.py).

    def action_cursor(self, way: str) -> None:
        """Move the cursor: `up`, `down`, `left`, `right`, `page_up`, `top` and so on."""
        self.move(*keys.steps(way, max(1, self.size.height - 2), len(self._rows)))

    def action_open(self) -> None:
        """Open the cell under the cursor."""
        if self.cursor is not None:
            self.post_message(self.Opened(self.cursor))


def _spans(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of lines that follow each other: few regions cost less than many."""
    start = 0
    for place in range(1, len(lines) + 1):
        if place == len(lines) or lines[place] != lines[place - 1] + 1:
            yield lines[start], place - start
            start = place


def _step(places: np.ndarray[tuple[int], np.dtype[np.intp]], here: int, by: int) -> int | None:
    """The place `by` places after (before, if negative) `here`, or the last; None at the end."""
    beyond = places[places > here] if by > 0 else places[places < here][::-1]
    return int(beyond[min(abs(by), len(beyond)) - 1]) if len(beyond) and by else None
