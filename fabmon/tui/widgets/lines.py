"""What widgets tell the app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from fabmon.fabric.model import Port
from fabmon.tui import keys
from fabmon.tui.containment import ContainedWidget
from fabmon.tui.line import FindingTarget, Hit, Line, Target


class OpenRequested(Message):
    """A person wants to see this."""

    def __init__(self, target: Target) -> None:
        """A node, a port, a finding or a fold."""
        super().__init__()
        self.target = target


class Highlighted(Message):
    """A person has put the cursor of a list on this."""

    def __init__(self, target: Target) -> None:
        """A node, a port, a finding or a fold."""
        super().__init__()
        self.target = target


class BurstRequested(Message):
    """A person wants to see a port faster than the scenes come."""

    def __init__(self, port: Port) -> None:
        """Of this port."""
        super().__init__()
        self.port = port


class SeekRequested(Message):
    """A person wants to see what was at a time."""

    def __init__(self, time_ns: int) -> None:
        """As near as a click can tell."""
        super().__init__()
        self.time_ns = time_ns


# Lines that fill a widget from its top: the header, the footer, a rule, the strip of time.


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


# The strip of time: with the keys, left and right go through it; a click goes there.


class TimeStrip(Painted, can_focus=True):
    """Lines of time. What they stand for, the screen knows."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.STRIP)]

    class Picked(Message):
        """A person wants to see what was at a column."""

        def __init__(self, column: int) -> None:
            """Counted from the left of the strip."""
            super().__init__()
            self.column = column

    class Redraw(Message):
        """It has got the keys, or lost them."""

    def on_click(self, event: events.Click) -> None:
        """Go there."""
        self.post_message(self.Picked(event.x))

    def on_focus(self) -> None:
        """Show whose the keys are."""
        self.post_message(self.Redraw())

    def on_blur(self) -> None:
        """Show that the keys are another's."""
        self.post_message(self.Redraw())


# A list of lines that scrolls and can be walked through. Only the lines in sight are made.


class LineView(ContainedWidget, ScrollView, can_focus=True):
    """Shows lines; those that open something, or whose parts do, can be selected.

    Until the person moves, that is the first finding, or else the first of the others; then the
    selection stays with what it is on, wherever that goes.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.CURSOR)]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        """Blank."""
        super().__init__(id=id, classes=classes)
        self._lines: Sequence[Line] = ()
        self._base = self._cursor = self._bracket = Style()
        self.selected: Target | None = None
        self._is_moved = False

    def show(
        self, lines: Sequence[Line], base: Style, cursor: Style, bracket: Style | None = None
    ) -> None:
        """Draw these lines, the selected one in `cursor`, brackets around it in `bracket`."""
        self._lines, self._base, self._cursor = lines, base, cursor
        self._bracket = bracket or base
        if self.selected is None or self._where(self.selected) is None:
            self._is_moved = False
        if not self._is_moved:
            targets = [target for _, target in self._targets()]
            findings = (each for each in targets if isinstance(each, FindingTarget))
            self.selected = next(findings, targets[0] if targets else None)
        self.virtual_size = Size(max(1, self.size.width), len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """A line in sight."""
        y += self.scroll_offset.y
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width, self._base)
        line = self._lines[y]
        strip = line.strip(width, self._base)
        if not self.has_focus or self.selected is None:
            return strip
        if line.target == self.selected:
            return _over(strip, self._cursor)
        for hit in line.hits:
            if hit.target == self.selected:
                if hit.is_colour:
                    return _held(strip, hit, self._bracket)
                return _over_part(strip, hit, self._cursor)
        return strip

    # What is selected.

    def restore(self, target: Target | None) -> None:
        """Select what the person selected elsewhere; None for nothing."""
        self.selected, self._is_moved = target, target is not None

    def point(self) -> None:
        """Say what is selected, as the person's own choice."""
        if self.selected is not None:
            self.post_message(Highlighted(self.selected))

    def _targets(self) -> list[tuple[int, Target]]:
        """Everything that can be selected, in reading order, once."""
        seen: dict[Target, int] = {}
        for y, line in enumerate(self._lines):
            if line.target is not None:
                seen.setdefault(line.target, y)
            for hit in line.hits:
                seen.setdefault(hit.target, y)
        return [(y, target) for target, y in seen.items()]

    def _where(self, target: Target) -> int | None:
        return next((y for y, item in self._targets() if item == target), None)

    def select(self, target: Target) -> None:
        """Select what is there, and bring it in sight."""
        y = self._where(target)
        if y is None:
            return
        self.selected, self._is_moved = target, True
        top, height = self.scroll_offset.y, self.size.height
        last = max((i for i, line in enumerate(self._lines) if line.target == target), default=y)
        last = min(last, y + height - 1)
        if y < top or last >= top + height:
            self.scroll_to(y=y if y < top else last - height + 1, animate=False)
        self.refresh()

    def _hit(self, target: Target) -> tuple[int, int] | None:
        """(line, start) of a part; None when the target is a whole line."""
        for y, line in enumerate(self._lines):
            for hit in line.hits:
                if hit.target == target:
                    return y, hit.start
        return None

    def move(self, down: int, across: int) -> None:
        """Select another; scroll where there is nothing to select."""
        targets = self._targets()
        if not targets or self.selected is None:
            self.scroll_relative(y=down, animate=False)
            return
        here = self._hit(self.selected)
        if here is not None and not across:
            rows = sorted({y for y, target in targets})
            row = rows[min(max(rows.index(here[0]) + down, 0), len(rows) - 1)]
            beside = self._lines[row].hits
            if not beside:
                self.select(next(target for y, target in targets if y == row))
            elif row != here[0]:
                self.select(min(beside, key=lambda hit: abs(hit.start - here[1])).target)
            else:
                self.scroll_relative(y=down, animate=False)
            return
        order = [target for _, target in targets]
        index = order.index(self.selected) + (across if here is not None else down)
        if not 0 <= index < len(order):
            self.scroll_relative(y=down, animate=False)
        self.select(order[min(max(index, 0), len(order) - 1)])

    # Keys (which keys: keys.py) and mouse.

    def action_cursor(self, way: str) -> None:
        """Move: `up`, `down`, `left`, `right`, `page_up`, `page_down`, `top`, `bottom`."""
        self.move(*keys.steps(way, max(1, self.size.height - 1), len(self._lines)))
        self.point()

    def action_open(self) -> None:
        """Open what is selected."""
        if self.selected is not None:
            self.post_message(OpenRequested(self.selected))

    def on_click(self, event: events.Click) -> None:
        """Select; the second time, open."""
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
        """Show whose the keys are."""
        self.refresh()

    def on_blur(self) -> None:
        """Show that the keys are another's."""
        self.refresh()


def _over(strip: Strip, style: Style) -> Strip:
    return Strip([Segment(s.text, (s.style or Style()) + style) for s in strip])


def _over_part(strip: Strip, hit: Hit, style: Style) -> Strip:
    end = min(hit.end, strip.cell_length)
    if hit.start >= end:
        return strip
    parts = list(strip.divide([hit.start, end, strip.cell_length]))
    parts[1] = _over(parts[1], style)
    return Strip.join(parts)


def _held(strip: Strip, hit: Hit, style: Style) -> Strip:
    """A cell in brackets, which stand in the gaps beside it."""
    ends = [hit.start - 1, hit.start, hit.end, hit.end + 1, strip.cell_length]
    if hit.end >= strip.cell_length:
        return strip
    before, _, cell, _, after = strip.divide(ends)
    left, right = Strip([Segment("[", style)]), Strip([Segment("]", style)])
    return Strip.join([before, left, cell, right, after])
