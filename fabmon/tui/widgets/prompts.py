"""What the user types and chooses: the filter, a question in one line, the menu of `x`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen, ScreenResultType
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from fabmon.analysis.nccl_ras.versions import parse_version, refusal
from fabmon.fabric.filter import FilterError, parse
from fabmon.fabric.jobs.job import Job
from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.containment import Contained
from fabmon.tui.key_table import KEYS
from fabmon.tui.line import Line, fit, line, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.text.key_help import menu_footer
from fabmon.tui.widgets.lines import Painted

YES = "yes"
"""The answer that leaves the version to the libraries that the job's processes have mapped."""

MOST_TRIED = 4
"""Nodes of a job that are connected to until one accepts: each may take seconds."""


class RasNotAsked(Exception):
    """RAS was not asked, or did not answer as it should; the message says why."""


def wrong_answer(text: str) -> str:
    """What is wrong with an answer; empty where it permits a query."""
    if text.strip() == YES:
        return ""
    version = parse_version(text)
    if version is None:
        return f"type {YES}, or the version of its NCCL with three numbers; esc cancels"
    why_not = refusal(version)
    return f"not asked: {why_not}" if why_not is not None else ""


_MENU_COLUMNS = 66
FRAME = 2
"""Columns and lines that the frame of a menu takes."""
REST_S = 0.2
"""Seconds without a key after which what was typed is applied."""
HINT = "word  !word  util>80  state:down  role:switch  group:leaf1"


def _show_error(parent: Widget, text: str, palette: Palette) -> bool:
    """Show an error in the `#wrong` lines of a prompt, or hide them; returns whether shown."""
    parts = wrap(text, max(20, parent.app.size.width - 3)) if text else []
    widget = parent.query_one("#wrong", Painted)
    widget.display = bool(parts)
    widget.styles.height = max(1, len(parts))
    widget.show([line((f" ! {part}", palette.accent)) for part in parts], palette.text)
    return bool(parts)


class TypedLine(Input):
    """An input that calls a function on enter, while that key is handled.

    Textual's message of it comes later: a key right after enter would still go into the input.
    """

    def __init__(
        self,
        submit: Callable[[str], None],
        placeholder: str,
        rested: Callable[[str], None] | None = None,
    ) -> None:
        """`submit` is called with what was typed, and before it `rested`, which is also called when
        nothing has been typed for 0.2 s; without it, each change is Textual's message."""
        super().__init__(placeholder=placeholder, id="typed")
        self._submit = submit
        self._rested = rested
        self._rest: Timer | None = None

    def on_input_changed(self, event: Input.Changed) -> None:
        """Wait for typing to rest: what is done with the text may take longer than a key."""
        if self._rested is not None:
            event.stop()
            self._stop_waiting()
            self._rest = self.set_timer(REST_S, self.take)

    def take(self) -> None:
        """Use what was typed since the last time now."""
        if self._rested is not None and self._stop_waiting():
            self._rested(self.value)

    def _stop_waiting(self) -> bool:
        """Whether something was typed that was not used."""
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.stop()
        return rest is not None

    async def action_submit(self) -> None:
        """Hand over what was typed."""
        self.take()
        self._submit(self.value)


class FilterBar(Contained, Vertical):
    """The filter line: applied when typing rests, kept with enter, cleared with escape.

    At its right the number of matches; above it, the error of a filter that cannot be parsed. What
    searches for words (`is_words`) can always be parsed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "clear", show=False)]

    @dataclass
    class Changed(Message):
        """The filter text changed."""

        text: str

    class Closed(Message):
        """The line was closed."""

    def __init__(self, *, id: str | None = None, is_words: bool = False) -> None:
        super().__init__(id=id)
        self._is_words = is_words
        self._focus_before: Widget | None = None

    def compose(self) -> ComposeResult:
        """Error, slash, input, number of matches."""
        yield Painted(id="wrong")
        with Horizontal():
            yield Painted(id="slash")
            yield TypedLine(self._submit, "" if self._is_words else HINT, self._apply)
            yield Painted(id="note")

    def open(self, text: str, palette: Palette) -> None:
        """Show the line with the current filter selected: typing replaces it."""
        self.add_class("-open")
        self.query_one("#slash", Painted).show([line((" /", palette.key))], palette.text)
        self.note("", palette)
        typed = self.query_one(Input)
        typed.value = text
        self._focus_before = self.screen.focused
        # At once: what is typed next goes here.
        self.screen.set_focus(typed)

    @property
    def typed(self) -> str:
        """The text in the line."""
        return self.query_one(Input).value

    def note(self, text: str, palette: Palette) -> None:
        """Show the number of matches; clear the error."""
        self.complain("", palette)
        self.query_one("#note", Painted).show([line((f" {text}", palette.accent))], palette.text)

    def complain(self, text: str, palette: Palette) -> None:
        """Show an error, in as many lines as it needs; empty: none."""
        if _show_error(self, text, palette):
            self.query_one("#note", Painted).show([line(("", palette.text))], palette.text)

    def close(self) -> None:
        """Hide the line, and restore the focus at once."""
        self.remove_class("-open")
        self.screen.set_focus(self._focus_before)
        self.post_message(self.Closed())

    def action_cancel(self) -> None:
        """Clear the filter and hide the line."""
        self.query_one(Input).value = ""
        self.post_message(self.Changed(""))
        self.close()

    def _apply(self, text: str) -> None:
        if self.has_class("-open"):
            self.post_message(self.Changed(text))

    def _submit(self, text: str) -> None:
        """Keep a filter that can be parsed; leave the line open for another."""
        if not self._is_words:
            try:
                parse(text)
            except FilterError:
                return
        self.close()


class TypingScreen(Contained, ModalScreen[ScreenResultType]):
    """A screen with one input, which gets what is typed from the key on that opens the screen."""

    def on_mount(self) -> None:
        """Focus the input at once, not with the next message."""
        self.set_focus(self.query_one(Input))

    def on_key(self, event: events.Key) -> None:
        """Take what was typed before the input was there. An input keeps what it takes itself."""
        if event.character is not None and event.is_printable:
            event.stop()
            self.query_one(Input).insert_text_at_cursor(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Take the first line of what was pasted before the input was there, as an input does."""
        event.stop()
        self.query_one(Input).insert_text_at_cursor("".join(event.text.splitlines()[:1]))


class Prompt(TypingScreen[str | None]):
    """A question in one line. Its result is the answer, None if it was cancelled.

    `wrong` returns what is wrong with an answer (empty: nothing); such an answer is not accepted.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave", show=False)]

    def __init__(
        self, label: str, hint: str, palette: Palette, wrong: Callable[[str], str] = lambda _: ""
    ) -> None:
        """A question with a label and a hint in the empty input."""
        super().__init__()
        self._label = label
        self._hint = hint
        self._palette = palette
        self._wrong = wrong

    def compose(self) -> ComposeResult:
        """Error, label, input."""
        with Vertical():
            yield Painted(id="wrong")
            with Horizontal():
                yield Painted(id="question")
                yield TypedLine(self._submit, self._hint)

    def on_mount(self) -> None:
        """Show the label."""
        question = self.query_one("#question", Painted)
        question.styles.width = len(self._label) + 2
        question.show([line((f" {self._label} ", self._palette.key))], self._palette.text)
        _show_error(self, "", self._palette)

    def _submit(self, text: str) -> None:
        """Return the answer, or show what is wrong with it."""
        wrong = self._wrong(text)
        if wrong:
            _show_error(self, wrong, self._palette)
        else:
            self.dismiss(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Clear the error."""
        event.stop()
        _show_error(self, "", self._palette)

    def action_leave(self) -> None:
        """Cancel."""
        self.dismiss(None)


class MenuKeys(Painted):
    """The keys of a menu at the bottom, over those of the view behind it, which do not work."""

    def __init__(self, palette: Palette, offered: Sequence[tuple[str, str, str]]) -> None:
        """(key as Textual names it, as it is shown, its word) of each key."""
        super().__init__(id="menu-keys")
        self._palette, self._offered = palette, offered

    def on_resize(self) -> None:
        """Draw them in the width of the terminal."""
        drawn = menu_footer(self._offered, self.size.width, self._palette)
        self.show([drawn], self._palette.text)


class SaveMenu(Contained, ModalScreen[str | None]):
    """The menu of what to save. Its result is `picture`, `table` or `cut`, None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.SAVE)]

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette
        self._choices = [key for key in KEYS if key.scope == keys.SAVE]

    def compose(self) -> ComposeResult:
        """The lines of the menu, its keys."""
        yield Painted(id="save")
        cancel = next(key for key in self._choices if key.shown == "esc")
        yield MenuKeys(self._palette, [("escape", cancel.shown, cancel.help)])

    def on_resize(self) -> None:
        """Draw the menu in the size of the terminal."""
        palette, view = self._palette, self.query_one("#save", Painted)
        width = min(_MENU_COLUMNS, self.size.width - FRAME)
        head = " Save into "
        where = str(Path.cwd())
        room = max(1, width - cell_len(head) - 1)
        # The end of a long path is the informative part.
        while cell_len(where) > room:
            where = f"…{where.lstrip('…')[1:]}"
        lines: list[Line] = [line((fit(f"{head}{where}", width), palette.strong))]
        lines += [
            line((f"  {fit(key.shown, 5)}", palette.key), (fit(key.help, width - 7), palette.text))
            for key in self._choices
        ]
        view.styles.width, view.styles.height = width + FRAME, len(lines) + FRAME
        view.show(lines, palette.text)

    def action_choose(self, what: str) -> None:
        """Return the choice; empty: cancel."""
        self.dismiss(what or None)


class RasQuestion(Prompt):
    """Asks whether to send a query; its result is `yes`, the version, or None if cancelled."""

    def __init__(self, job: Job, nodes: Sequence[str], palette: Palette) -> None:
        """About a job; the first of its nodes that accepts a connection is asked."""
        super().__init__("ask RAS?", f"{YES}, or its version as in 2.29.3", palette, wrong_answer)
        others = nodes[1:MOST_TRIED]
        else_ = f" (if it accepts no connection: {', '.join(others)})" if others else ""
        self._text = (
            f"Ask NCCL's RAS on {nodes[0]}{else_} for the status of {job.label}? One query is sent."
            " With NCCL"
            " before 2.29.2 and with 2.29.7 a query can crash the job: these versions, and unknown"
            f" ones, are refused. Type {YES} to look for the version in the libraries that its"
            " processes have mapped, or type the version; esc cancels."
        )

    def compose(self) -> ComposeResult:
        """The risk, above the line to type in."""
        yield Painted(id="risk")
        yield from super().compose()

    def on_resize(self) -> None:
        """Draw the risk in the width of the terminal."""
        parts = wrap(self._text, max(20, self.app.size.width - 3))
        risk = self.query_one("#risk", Painted)
        risk.styles.height = len(parts)
        risk.show([line((f" {part}", self._palette.accent)) for part in parts], self._palette.text)
