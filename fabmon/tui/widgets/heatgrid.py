"""The heatmap widget: rows of small cells, of which only changed rows are rendered again.

It overrides `render_lines` of Textual's line API and keeps one strip per row: it bypasses Textual's
style cache and colour filters. It therefore has no border and no padding, draws its own background,
and its look emits final colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.cells import MUTED, NOTHING, CellRow, Codes, Look
from fabmon.tui.containment import Contained
from fabmon.tui.widgets.row_painter import RowPainter

Cell = tuple[int, int]
"""Row and column; column -1 is the first name of the row, -2 the second, and so on."""


class HeatGrid(Contained, ScrollView, can_focus=True):
    """Codes (see cells.py) as cells, with a cursor. It knows rows and columns, not fabrics."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.CURSOR)]

    @dataclass
    class Moved(Message):
        """The user moved the cursor to another cell, or to a name."""

        cell: Cell

    @dataclass
    class Hovered(Message):
        """The mouse is over another cell; None: over none."""

        cell: Cell | None

    @dataclass
    class Opened(Message):
        """The user opened a cell, with the keyboard or the mouse."""

        cell: Cell

    @dataclass
    class NameOpened(Message):
        """The user opened the name of a node."""

        node: str

    def __init__(self, look: Look, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._painter = RowPainter(look)
        self._codes: Codes = np.zeros((0, 0), dtype=np.uint16)
        self._rows: Sequence[CellRow] = ()
        self._strips: list[Strip | None] = []
        self._hover: Cell | None = None
        self.cursor: Cell | None = None
        self._goal: int | None = None
        """The column that moves up and down keep to, where a row has no cell in it."""

    def show(self, codes: Codes, rows: Sequence[CellRow], look: Look | None = None) -> None:
        """Show `codes` [rows, columns]; render only rows that differ from the last call."""
        is_new = codes.shape != self._codes.shape
        if look is not None and look != self._painter.look:
            self._painter = RowPainter(look)
            is_new = True
        old_codes, old_rows = self._codes, self._rows
        self._codes, self._rows = codes, rows
        if rows is not old_rows:
            self.virtual_size = Size(max((row.width for row in rows), default=0), len(rows))
        if is_new:
            self._strips = [None] * len(codes)
            self.refresh()
            return
        changed = np.flatnonzero((codes != old_codes).any(axis=1)).tolist()
        if rows is not old_rows:
            changed += [y for y, row in enumerate(rows) if row is not old_rows[y]]
        self._redraw(changed)

    def _redraw(self, rows: Sequence[int]) -> None:
        """Discard the strips of rows; repaint those that are visible."""
        top, width, height = self.scroll_offset.y, self.size.width, self.size.height
        lines = {y - top for y in rows if 0 <= y - top < height}
        for y in rows:
            self._strips[y] = None
        if self._pinned(top) in rows:
            lines.add(0)
        if lines:
            self.refresh(*(Region(0, y, width, count) for y, count in _spans(sorted(lines))))

    def _pinned(self, top: int) -> int:
        """The row in the first line of the window: a heading stays while its rows scroll."""
        if not 0 <= top < len(self._rows) or self.size.height < 3:
            return top
        heading = self._rows[top].heading
        return heading if heading >= 0 else top

    def strips(self, crop: Region) -> list[Strip]:
        """The visible rows."""
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
        """Render a row, with the cursor if it is in it."""
        row = self._rows[y]
        strip = self._painter.paint(row, self._codes[y], self.size.width)
        if self.cursor is not None and self.cursor[0] == y and self.cursor[1] < 0:
            if self.node_at(self.cursor):
                x, width, _ = row.names[-1 - self.cursor[1]]
                strip = self._painter.mark_name(strip, x, width, self.has_focus)
        elif self.cursor is not None and self.cursor[0] == y:
            strip = self._painter.mark(strip, row, self.cursor[1], self.has_focus)
        self._strips[y] = strip
        return strip

    def put(self, cell: Cell | None, *, scroll: bool = True) -> None:
        """Move the cursor to a cell and scroll to it."""
        old, self.cursor, self._goal = self.cursor, cell, None
        self._redraw([place[0] for place in (old, cell) if place and place[0] < len(self._strips)])
        if cell is None or not scroll:
            return
        self.reveal(cell)
        if cell != old:
            self.post_message(self.Moved(cell))

    def reveal(self, cell: Cell) -> None:
        """Scroll as little as shows a cell and its heading."""
        row = self._rows[cell[0]]
        block = row.block(cell[1])
        if block is None:
            self.scroll_to_region(Region(0, cell[0], 1, 1), animate=False)
        else:
            x = block.x + (cell[1] - block.first) * block.pitch
            above = 1 if row.heading >= 0 else 0
            around = Region(max(0, x - 1), cell[0] - above, block.width + 2, 1 + above)
            self.scroll_to_region(around, animate=False)

    def centre(self, cell: Cell) -> None:
        """Scroll so that the row of a cell is in the middle, and the cell is visible."""
        self.scroll_to(y=cell[0] - self.size.height // 2, animate=False)
        self.call_after_refresh(self.reveal, cell)

    def node_at(self, cell: Cell) -> str:
        """The node whose name is at a place; empty for a cell."""
        row, index = cell[0], -1 - cell[1]
        names = self._rows[row].names if row < len(self._rows) else ()
        return names[index][2] if 0 <= index < len(names) else ""

    def next_match(self, by: int) -> bool:
        """Move the cursor to the next cell that the filter matches (`by` = 1), or to the previous
        one (-1), and around the end. Returns whether there is one."""
        matches = np.argwhere((self._codes != NOTHING) & ((self._codes & MUTED) == 0))
        if not len(matches):
            return False
        places = matches[:, 0] * self._codes.shape[1] + matches[:, 1]
        here = -1
        if self.cursor is not None:
            here = self.cursor[0] * self._codes.shape[1] + max(self.cursor[1], 0)
        index = int(np.searchsorted(places, here, "right" if by > 0 else "left"))
        row, column = matches[(index if by > 0 else index - 1) % len(matches)].tolist()
        self.put((row, column))
        return True

    def _stops(self, y: int) -> list[tuple[int, int]]:
        """(x, column) of the names and the cells of a row, from left to right."""
        row, columns = self._rows[y], np.flatnonzero(self._codes[y] != NOTHING).tolist()
        cells = [
            (block.x + (column - block.first) * block.pitch, column)
            for column in columns
            if (block := row.block(column)) is not None
        ]
        return sorted([*cells, *((x, -1 - i) for i, (x, _, _) in enumerate(row.names))])

    def _move_along_names(self, y: int, index: int, down: int) -> None:
        """Move from a name to the nearest one of another row that has names."""
        x = self._rows[y].names[index][0]
        row = _step(np.flatnonzero([bool(each.names) for each in self._rows]), y, down)
        if row is not None:
            names = self._rows[row].names
            nearest = min(range(len(names)), key=lambda each: abs(names[each][0] - x))
            self.put((row, -1 - nearest))

    def move(self, down: int, across: int) -> None:
        """Move the cursor over names and cells that have a port, skipping those without."""
        there = self._codes != NOTHING
        if not there.any():
            return
        if self.cursor is None:
            first = np.argwhere(there)[0].tolist()
            self.put((first[0], first[1]))
            return
        y, x = self.cursor
        if across:
            stops = [column for _, column in self._stops(y)]
            place = (stops.index(x) if x in stops else 0) + across
            if 0 <= place < len(stops):
                self.put((y, stops[place]))
            return
        if x < 0:
            if self.node_at(self.cursor):
                self._move_along_names(y, -1 - x, down)
            return
        row = _step(np.flatnonzero(there.any(axis=1)), y, down)
        if row is not None:
            cells = np.flatnonzero(there[row])
            goal = x if self._goal is None else self._goal
            self.put((row, int(cells[np.argmin(abs(cells - goal))])))
            self._goal = goal

    def on_focus(self) -> None:
        """Draw the cursor as focused; put it on the first cell if it is nowhere."""
        if self.cursor is None:
            self.move(0, 0)
        else:
            self.put(self.cursor, scroll=False)

    def on_blur(self) -> None:
        """Draw the cursor as not focused."""
        self.put(self.cursor, scroll=False)

    def cell_at(self, x: int, y: int) -> Cell | None:
        """The cell at (x, y) of the window; None if there is none."""
        row = self._pinned(self.scroll_offset.y) if y == 0 else y + self.scroll_offset.y
        if not 0 <= row < len(self._rows):
            return None
        for block in self._rows[row].blocks:
            column = block.at(x + self.scroll_offset.x)
            if column is not None and self._codes[row, column] != NOTHING:
                return row, column
        return None

    def _name_at(self, x: int, y: int) -> Cell | None:
        """The place of the name at (x, y) of the window; None if there is none."""
        row = self._pinned(self.scroll_offset.y) if y == 0 else y + self.scroll_offset.y
        x += self.scroll_offset.x
        names = self._rows[row].names if 0 <= row < len(self._rows) else ()
        index = next((i for i, (at, width, _) in enumerate(names) if at <= x < at + width), None)
        return None if index is None else (row, -1 - index)

    def on_click(self, event: events.Click) -> None:
        """Select a cell or a name; a second click opens it."""
        cell = self.cell_at(event.x, event.y) or self._name_at(event.x, event.y)
        if cell is None:
            return
        if cell == self.cursor:
            self.action_open()
        else:
            self.put(cell)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Report the cell under the mouse."""
        self._hover_on(self.cell_at(event.x, event.y))

    def on_leave(self) -> None:
        """Report that no cell is under the mouse."""
        self._hover_on(None)

    def _hover_on(self, cell: Cell | None) -> None:
        if cell != self._hover:
            self._hover = cell
            self.post_message(self.Hovered(cell))

    def action_cursor(self, direction: str) -> None:
        """Move `up`, `down`, `left`, `right`, `page_up`, `page_down`, to `top` or `bottom`."""
        self.move(*keys.steps(direction, max(1, self.size.height - 2), len(self._rows)))

    def action_open(self) -> None:
        """Open the cell or the node under the cursor."""
        if self.cursor is None:
            return
        if self.cursor[1] >= 0:
            self.post_message(self.Opened(self.cursor))
        elif node := self.node_at(self.cursor):
            self.post_message(self.NameOpened(node))


def _spans(lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of runs of consecutive lines: few regions are cheaper than many."""
    start = 0
    for place in range(1, len(lines) + 1):
        if place == len(lines) or lines[place] != lines[place - 1] + 1:
            yield lines[start], place - start
            start = place


def _step(places: np.ndarray[tuple[int], np.dtype[np.intp]], here: int, by: int) -> int | None:
    """The place `by` places after `here`, at most the last one; None at the end."""
    beyond = places[places > here] if by > 0 else places[places < here][::-1]
    return int(beyond[min(abs(by), len(beyond)) - 1]) if len(beyond) and by else None
