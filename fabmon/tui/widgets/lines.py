"""Widgets that show lines of text: fixed lines, the timeline, and lists to move through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.containment import Contained
from fabmon.tui.line import FindingTarget, Hit, Line, Target


@dataclass
class OpenRequested(Message):
    """The user opened a line or a cell."""

    target: Target


@dataclass
class Highlighted(Message):
    """The user put the cursor of a list on a line."""

    target: Target


@dataclass
class FoldRequested(Message):
    """The user asked with right (`unfold`) or left for what a line contains to be listed or not."""

    target: Target
    unfold: bool


@dataclass
class SeekRequested(Message):
    """The user asked for a time on the timeline."""

    time_ns: int


@dataclass
class RangeRequested(Message):
    """The user dragged over the timeline: mark this range, in ns."""

    from_ns: int
    until_ns: int


@dataclass
class ZoomRequested(Message):
    """The user asked for more of the timeline (`by` > 0) or less."""

    by: int


class Painted(Contained, Widget):
    """Fixed lines from the top of the widget, cut to its size: header, footer, titles."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._base = Style()

    def show(self, lines: Sequence[Line], base: Style) -> None:
        """Show these lines; redraw only if they differ from the last."""
        if lines == self._lines and base == self._base:
            return
        self._lines, self._base = lines, base
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Line `y` of the widget."""
        if y < len(self._lines):
            return strip_of(self._lines[y], self.size.width, self._base)
        return Strip.blank(self.size.width, self._base)


class TimelineView(Painted, can_focus=True):
    """The timeline: left and right step through it when focused, a click goes to a time, a drag
    marks a range, the wheel zooms.

    The screen converts columns to times.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.STRIP), Binding("enter", "open")]
    FOCUS_ON_CLICK = False
    """A click goes to a time and leaves the focus where it is: here, up and down do nothing."""

    @dataclass
    class Picked(Message):
        """The user clicked a column, counted from the left."""

        column: int

    @dataclass
    class Dragged(Message):
        """The user dragged from one column to another, the earlier one first."""

        first: int
        last: int

    class Opened(Message):
        """Enter was pressed: open what is selected elsewhere, as a time has no page."""

    class Redraw(Message):
        """The focus came or went, or the size changed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pressed = 0

    def action_open(self) -> None:
        """Ask the screen for the page of what is selected."""
        self.post_message(self.Opened())

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """A click or a drag begins; it ends wherever the button is released."""
        self._pressed = event.x
        self.capture_mouse()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Ask for the time at the column, or for the range that was dragged over."""
        if self.app.mouse_captured is not self:
            return  # It was pressed elsewhere, or another screen came in between.
        self.release_mouse()
        if self._pressed == event.x:
            self.post_message(self.Picked(event.x))
        else:
            self.post_message(self.Dragged(*sorted((self._pressed, event.x))))

    def on_mouse_scroll_up(self) -> None:
        """Show less time."""
        self.post_message(ZoomRequested(-1))

    def on_mouse_scroll_down(self) -> None:
        """Show more time."""
        self.post_message(ZoomRequested(1))

    def on_focus(self) -> None:
        """Show that the keys go here, in the size that there is now."""
        self.post_message(self.Redraw())

    on_blur = on_resize = on_focus


class LineView(Contained, ScrollView, can_focus=True):
    """A scrolling list. Lines with a target, and parts of lines with one, can be selected.

    Until the user moves the cursor, `show`'s `first` is selected, else the first finding, else the
    first target. After that the cursor follows its target when the lines change. Only visible lines
    are rendered.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.CURSOR)]

    class Resized(Message):
        """It has other room than its lines were made for."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._base = self._cursor = self._bracket = Style()
        self._places: dict[Target, tuple[int, int | None]] = {}
        self.selected: Target | None = None
        self._is_moved = False
        self.always_shows_cursor = False
        """Whether the cursor is drawn without the focus too."""

    def on_resize(self) -> None:
        """Ask for lines that fit."""
        self.post_message(self.Resized())

    def show(
        self,
        lines: Sequence[Line],
        base: Style,
        cursor: Style,
        bracket: Style | None = None,
        first: Target | None = None,
    ) -> None:
        """Show these lines: the selected one in style `cursor`, brackets of a cell in `bracket`."""
        self._lines, self._base, self._cursor = lines, base, cursor
        self._bracket = bracket or base
        self._places = _places(lines)
        if not self._is_moved or self.selected not in self._places:
            self._is_moved = False
            findings = (each for each in self._places if isinstance(each, FindingTarget))
            self.selected = next(findings, next(iter(self._places), None))
            if first in self._places:
                self.selected = first
        self.virtual_size = Size(max(1, self.size.width), len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line at row `y` of the window."""
        y += self.scroll_offset.y
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, self._base)
        line = self._lines[y]
        strip = strip_of(line, width, self._base)
        if self.selected is None or not (self.has_focus or self.always_shows_cursor):
            return strip
        if line.target == self.selected:
            return _style_all(strip, self._cursor)
        for hit in line.hits:
            if hit.target == self.selected:
                if hit.is_colour:
                    return _bracketed(strip, hit, self._bracket)
                return _style_part(strip, hit, self._cursor)
        return strip

    def restore(self, target: Target | None) -> None:
        """Select what the user selected in another view; None: nothing."""
        self.selected, self._is_moved = target, target is not None

    def point(self) -> None:
        """Report the selected target as highlighted by the user; a finding then stays selected."""
        if self.selected is not None:
            self._is_moved = self._is_moved or isinstance(self.selected, FindingTarget)
            self.post_message(Highlighted(self.selected))

    def select(self, target: Target) -> None:
        """Select a target and scroll to it; no effect if it is not in the list."""
        if target not in self._places:
            return
        y = self._places[target][0]
        self.selected, self._is_moved = target, True
        top, height = self.scroll_offset.y, self.size.height
        last = max((i for i, line in enumerate(self._lines) if line.target == target), default=y)
        last = min(last, y + height - 1)
        if y < top or last >= top + height:
            self.scroll_to(y=y if y < top else last - height + 1, animate=False)
        self.refresh()

    def move(self, down: int, across: int) -> None:
        """Move the cursor by lines and parts; scroll where there is nothing to select."""
        if self.selected is None or not self._places:
            self.scroll_relative(y=down, animate=False)
            return
        line, column = self._places[self.selected]
        if column is not None and not across:
            rows = sorted({y for y, _ in self._places.values()})
            row = rows[min(max(rows.index(line) + down, 0), len(rows) - 1)]
            beside = self._lines[row].hits
            if row == line:
                self.scroll_relative(y=down, animate=False)
            elif beside:
                self.select(min(beside, key=lambda hit: abs(hit.start - column)).target)
            else:
                self.select(next(each for each, (y, _) in self._places.items() if y == row))
            return
        order = list(self._places)
        index = order.index(self.selected) + (across if column is not None else down)
        if not 0 <= index < len(order):
            self.scroll_relative(y=down, animate=False)
        self.select(order[min(max(index, 0), len(order) - 1)])

    def action_cursor(self, direction: str) -> None:
        """Move `up`, `down`, `left`, `right`, `page_up`, `page_down`, to `top` or `bottom`."""
        self.move(*keys.steps(direction, max(1, self.size.height - 1), len(self._lines)))
        is_line = self.selected is not None and self._places[self.selected][1] is None
        if direction in ("left", "right") and self.selected is not None and is_line:
            self.post_message(FoldRequested(self.selected, direction == "right"))
        self.point()

    def action_open(self) -> None:
        """Open the selected target."""
        if self.selected is not None:
            self.post_message(OpenRequested(self.selected))

    def on_click(self, event: events.Click) -> None:
        """Select; a second click opens."""
        y = event.y + self.scroll_offset.y
        if not 0 <= y < len(self._lines):
            return
        line = self._lines[y]
        parts = [hit.target for hit in line.hits if hit.start <= event.x < hit.end]
        target = parts[0] if parts else line.target
        if target is None:
            return
        if target == self.selected:
            self.post_message(OpenRequested(target))
        else:
            self.select(target)
            self.point()

    def on_focus(self) -> None:
        """Show or hide the cursor."""
        self.refresh()

    on_blur = on_focus


def _places(lines: Sequence[Line]) -> dict[Target, tuple[int, int | None]]:
    """Target -> (its line, its first column; None for a whole line), in reading order."""
    places: dict[Target, tuple[int, int | None]] = {}
    for y, line in enumerate(lines):
        if line.target is not None:
            places.setdefault(line.target, (y, None))
        for hit in line.hits:
            places.setdefault(hit.target, (y, hit.start))
    return places


def strip_of(line: Line, width: int, base: Style) -> Strip:
    """A line as Textual draws it, cut or padded to `width` cells."""
    strip = Strip([Segment(text, style) for text, style in line.spans if text])
    return strip.adjust_cell_length(width, base)


def _style_all(strip: Strip, style: Style) -> Strip:
    return Strip([Segment(s.text, (s.style or Style()) + style) for s in strip])


def _style_part(strip: Strip, hit: Hit, style: Style) -> Strip:
    end = min(hit.end, strip.cell_length)
    if hit.start >= end:
        return strip
    parts = list(strip.divide([hit.start, end, strip.cell_length]))
    parts[1] = _style_all(parts[1], style)
    return Strip.join(parts)


def _bracketed(strip: Strip, hit: Hit, style: Style) -> Strip:
    """A cell with brackets in the gaps beside it."""
    ends = [hit.start - 1, hit.start, hit.end, hit.end + 1, strip.cell_length]
    if hit.end >= strip.cell_length:
        return strip
    before, _, cell, _, after = strip.divide(ends)
    left, right = Strip([Segment("[", style)]), Strip([Segment("]", style)])
    return Strip.join([before, left, cell, right, after])
