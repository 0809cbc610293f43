"""Lists to choose from: names by what is typed, and metrics."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from fabmon.fabric.snapshot import Snapshot
from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.containment import Contained
from fabmon.tui.line import EntryTarget, Line, MetricTarget, fit, line, right, wrap
from fabmon.tui.metrics import HeatMetric, heat_metric, metrics_of
from fabmon.tui.names import Entry, NameIndex
from fabmon.tui.palette import Palette
from fabmon.tui.widgets.lines import Highlighted, LineView, OpenRequested, Painted
from fabmon.tui.widgets.prompts import FRAME, MenuKeys, TypedLine, TypingScreen

_WIDTH, _METRICS_WIDTH = 90, 100
"""Columns of the lists where the terminal is wide enough."""
_KIND = 8
_HINT = "node, port, job, finding, metric, view or command: gpu012  l1u5"
_KEYS = (("enter", "enter", "choose"), ("down", "↑ ↓", "move"), ("escape", "esc", "cancel"))
_BEFORE_MEANING = 43
"""Columns before the meaning in a line of the list of metrics."""
_MEANING_LINES = 2
"""Lines below a list for the whole text of the selected line."""


class JumpPrompt(TypingScreen[Entry | None]):
    """A list of names that match what is typed. Its result is the chosen one, None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.JUMP)]

    def __init__(self, names: NameIndex, palette: Palette) -> None:
        super().__init__()
        self._names, self._palette = names, palette
        self._found: list[Entry] = []
        self._columns = self._room = 0

    def compose(self) -> ComposeResult:
        """Input, list, the whole text of a line, keys."""
        with Vertical(id="chooser"):
            with Horizontal():
                yield Painted(id="question")
                yield TypedLine(self._submit, _HINT, self._show)
            yield LineView(id="lines")
            yield Painted(id="meaning")
        yield MenuKeys(self._palette, _KEYS)

    def on_mount(self) -> None:
        """Show the names that need no query."""
        self.query_one(LineView).can_focus = False
        question = self.query_one("#question", Painted)
        question.show([line((" go to ", self._palette.key))], self._palette.text)

    def on_resize(self) -> None:
        """Draw the list in the size of the terminal."""
        box = self.query_one("#chooser")
        box.styles.width = min(_WIDTH, self.size.width)
        box.styles.height = min(26, max(4 + FRAME, self.size.height - 3))
        self.query_one("#meaning", Painted).styles.height = _MEANING_LINES
        self._show(self.query_one(Input).value)

    def _submit(self, _: str) -> None:
        """Return the selected name."""
        selected = self.query_one(LineView).selected
        if isinstance(selected, EntryTarget):
            self.dismiss(self._found[selected.number])

    def on_open_requested(self, event: OpenRequested) -> None:
        """Return the clicked name."""
        event.stop()
        if isinstance(event.target, EntryTarget):
            self.dismiss(self._found[event.target.number])

    def on_highlighted(self, event: Highlighted) -> None:
        """The cursor of the list is of no interest to the app."""
        event.stop()
        self._draw_meaning()

    def action_move(self, direction: str) -> None:
        """Move the cursor of the list of what was typed."""
        self.query_one(TypedLine).take()
        self.query_one(LineView).action_cursor(direction)
        self._draw_meaning()

    def _draw_meaning(self) -> None:
        """Show the whole text on the selected name, where the list cuts it."""
        selected, tone = self.query_one(LineView).selected, self._palette
        about = self._found[selected.number].about if isinstance(selected, EntryTarget) else ""
        parts = wrap(about, self._columns - 2) if cell_len(about) > self._room else []
        shown = [line((f"  {part}", tone.text)) for part in parts[:_MEANING_LINES]]
        self.query_one("#meaning", Painted).show(shown, tone.text)

    def action_leave(self) -> None:
        """Cancel."""
        self.dismiss(None)

    def _show(self, query: str) -> None:
        tone = self._palette
        self._columns = width = min(_WIDTH, self.size.width) - FRAME - 1
        self._found = self._names.search(query)
        longest = max((len(each.name) for each in self._found), default=0)
        name = min(longest, max(10, width // 2)) + 2
        self._room = max(0, width - name - _KIND - 4)
        lines = [
            line(
                (f"  {fit(each.name, name)}", tone.strong),
                (fit(each.kind, _KIND) + "  ", tone.key),
                (fit(each.about, self._room), tone.dim),
                target=EntryTarget(number),
            )
            for number, each in enumerate(self._found)
        ]
        view = self.query_one(LineView)
        view.restore(None)
        view.show(lines or [line(("  no name matches", tone.dim))], tone.text, tone.cursor)
        view.always_shows_cursor = True
        view.scroll_to(y=0, animate=False)
        self._draw_meaning()


class MetricMenu(Contained, ModalScreen[str | None]):
    """The list of metrics. Its result is the name of the chosen one, None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.METRICS)]

    def __init__(self, seen: Snapshot | None, palette: Palette, current: HeatMetric) -> None:
        """With the cursor on the current metric; with the highest values of what is seen."""
        super().__init__()
        self._seen, self._palette, self._current = seen, palette, current
        self._cut = False

    def compose(self) -> ComposeResult:
        """Title, list, the whole text of a line, keys."""
        with Vertical(id="chooser"):
            yield Painted(id="title")
            yield LineView(id="lines")
            yield Painted(id="meaning")
        yield MenuKeys(self._palette, _KEYS)

    def on_mount(self) -> None:
        """Focus the list."""
        self.query_one(LineView).focus()

    def on_resize(self) -> None:
        """Draw the list in the size of the terminal."""
        tone, width = self._palette, min(_METRICS_WIDTH, self.size.width) - FRAME
        metrics = metrics_of(self._seen)
        box, view = self.query_one("#chooser"), self.query_one(LineView)
        box.styles.width = width + FRAME
        room = width - 1 - _BEFORE_MEANING
        self._cut = any(cell_len(each.about) > room for each in metrics)
        below = _MEANING_LINES if self._cut else 0
        most = max(4 + below + FRAME, self.size.height - 1)
        height = min(len(metrics) + 1 + below + FRAME, most)
        box.styles.height = height
        box.styles.margin = (min(2, max(0, self.size.height - 1 - height)), 0, 0, 0)
        meaning = self.query_one("#meaning", Painted)
        meaning.display, meaning.styles.height = self._cut, max(1, below)
        head = f"  {fit('Metric', 13)}{fit('Unit', 16)}{right('Highest', 10)}  Meaning"
        self.query_one("#title", Painted).show([line((fit(head, width), tone.strong))], tone.text)
        lines = [self._line(each, width - 1) for each in metrics]
        view.show(lines, tone.text, tone.cursor)
        view.select(MetricTarget(self._current.name))
        self._draw_meaning()

    def _draw_meaning(self) -> None:
        """Show the whole meaning of the metric under the cursor, where the list has no room."""
        target, tone = self.query_one(LineView).selected, self._palette
        if not self._cut or not isinstance(target, MetricTarget):
            return
        metric = heat_metric(target.name)
        width = min(_METRICS_WIDTH, self.size.width) - FRAME - 3
        parts = wrap(f"{metric.name}, {metric.unit}: {metric.about}", width)[:_MEANING_LINES]
        shown = [line((f"  {each}", tone.text)) for each in parts]
        self.query_one("#meaning", Painted).show(shown, tone.text)

    def _line(self, metric: HeatMetric, width: int) -> Line:
        tone = self._palette
        top = self._highest(metric)
        return line(
            ("● " if metric is self._current else "  ", tone.key),
            (fit(metric.name, 13), tone.strong),
            (fit(metric.unit, 16), tone.text),
            (right(top, 10), tone.dim if top == "absent" else tone.text),
            (f"  {fit(metric.about, max(0, width - _BEFORE_MEANING))}", tone.dim),
            target=MetricTarget(metric.name),
        )

    def _highest(self, metric: HeatMetric) -> str:
        """The highest value of all ports; `absent` where no port has one."""
        if self._seen is None:
            return ""
        values = metric.values(self._seen)
        known = values[np.isfinite(values)]
        if not len(known):
            return "absent"
        top = float(known.max())
        return metric.range.text(top)

    def on_open_requested(self, event: OpenRequested) -> None:
        """Return the chosen metric."""
        event.stop()
        if isinstance(event.target, MetricTarget):
            self.dismiss(event.target.name)

    def on_highlighted(self, event: Highlighted) -> None:
        """Show the meaning of the metric under the cursor, which is of no interest to the app."""
        event.stop()
        self._draw_meaning()

    def action_leave(self) -> None:
        """Cancel."""
        self.dismiss(None)
