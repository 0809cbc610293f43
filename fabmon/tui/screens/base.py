"""Base classes of the views: header, filter, tips and footer around a body drawn once per tick."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker

from fabmon.analysis.causes import finding_title
from fabmon.fabric.filter import FilterError
from fabmon.fabric.wording import plural
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.tui import keys
from fabmon.tui.containment import Contained, ContainingApp, view_of
from fabmon.tui.drawings import DrawingEnded
from fabmon.tui.line import FindingTarget, Line, Span, being_read, line, width_of, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.header import header, panel_title
from fabmon.tui.text.key_help import footer, menu_footer
from fabmon.tui.text.pages.port_charts import SPANS
from fabmon.tui.time.cursor import Zoom
from fabmon.tui.time.trend import Trend, TrendLoader, trend
from fabmon.tui.widgets.lines import LineView, Painted
from fabmon.tui.widgets.prompts import FilterBar

_MARKING_VIEWS = (*keys.ROOT_VIEWS, "node", "pair")
"""The views that mark the links of the selected finding."""
_DRAW_AGAIN_S = 1.0
"""When a drawing that a key ended is tried again, unless a tick comes before."""
_FILTER_KEYS = (("enter", "enter", "keep"), ("escape", "esc", "clear"))
_NO_MATCH = "no port matches; esc clears the filter"
_NO_MATCH_YET = "no port matches yet: the past is being read"


class ViewScreen(Contained, Screen[None]):
    """A view of the screen state. `VIEW` is its name for keys and help."""

    VIEW: ClassVar[str] = ""
    SEARCHES_WORDS: ClassVar[bool] = False
    """Whether `/` searches the words of this view, and does not filter the fabric."""
    AUTO_FOCUS = "LineView, HeatGrid"

    def __init__(self, screen_state: ScreenState) -> None:
        super().__init__()
        self.screen_state = screen_state
        self._caption_lines = 0
        self._until_drawn = ExitStack()

    def on_mount(self) -> None:
        """Nothing flashes."""
        self.hide_until_drawn()

    def hide_until_drawn(self) -> None:
        """Keep what is on the terminal until this view is on top and drawn."""
        self._until_drawn.enter_context(self.app.batch_update())

    def on_unmount(self) -> None:
        """Let the terminal be drawn, should the view not have been."""
        self._until_drawn.close()

    def compose(self) -> ComposeResult:
        """Header, error, body, filter, tip, footer."""
        yield Painted(id="header")
        yield Painted(id="failure")
        yield from self.body()
        yield FilterBar(id="filter", is_words=self.SEARCHES_WORDS)
        yield Painted(id="caption")
        yield Painted(id="footer")

    def body(self) -> ComposeResult:
        """The widgets between header and footer."""
        raise NotImplementedError

    def draw(self, ctx: DrawContext) -> None:
        """Draw the body; `ctx` has the size of the terminal."""
        raise NotImplementedError

    def draw_waiting(self) -> None:
        """Draw the body before the first scene."""

    def crumb(self) -> str:
        """The name of this view in the path of views in the title."""
        return self.VIEW

    @property
    def palette(self) -> Palette:
        """The current colours."""
        return self.screen_state.palette

    def context(self) -> DrawContext | None:
        """What the body is drawn from; None before the first scene."""
        scene = self.screen_state.scene
        return None if scene is None else self.screen_state.draw_context(scene, *self.size)

    def put(self, selector: str, lines: Sequence[Line]) -> Painted:
        """Show lines in one of the `Painted` widgets; returns it."""
        widget = self.query_one(selector, Painted)
        widget.show(lines, self.palette.text)
        return widget

    def paint(self) -> None:
        """Draw the current state; an error is shown in place of the body."""
        if not self.is_mounted or not self.size.width or not self.query("#header"):
            return
        try:
            self._paint()
            self._keep_focus()
        except DrawingEnded:
            # What is on the screen stays: a key that was waiting is handled first.
            self.set_timer(_DRAW_AGAIN_S, self._draw_again)
        except Exception as error:
            self._paint_failure(error)
        else:
            self.remove_class("-failed")

    def _paint(self) -> None:
        state, width = self.screen_state, self.size.width
        self.put("#header", [header(state.header_context(width))])
        is_past, refused = state.shown is not None, state.refused_actions | self.idle_actions()
        words = {"freeze": state.freeze_word, **self.footer_labels()}
        table = [
            replace(key, label=words[key.action], past_label=key.past_label and words[key.action])
            if key.action in words
            else key
            for key in state.keys
        ]
        if self.has_class("-typing"):
            shown = menu_footer(_FILTER_KEYS, width, self.palette)
        else:
            # A message is in the place of the first keys, with a cell on each side.
            said = cell_len(state.message) + 2 if state.message else 0
            room = width - said
            keys_shown = footer(self.VIEW, room, self.palette, is_past, refused, table)
            beside = keys_shown.spans if width_of(keys_shown.spans) <= room else ()
            shown = Line(((" " * said, self.palette.text), *beside))
        self.put("#footer", [shown])
        self._paint_caption(width)
        typed = self.query_one(FilterBar).typed
        if self.has_class("-typing") and not self.SEARCHES_WORDS and typed == state.choices.filter:
            self._count_matches()
        ctx = self.context()
        if ctx is None:
            self.draw_waiting()
        else:
            self.draw(ctx)

    def _paint_failure(self, error: Exception) -> None:
        app = self.app
        if not isinstance(app, ContainingApp):
            raise error
        texts = (
            f"This view failed: {app.contain(error, view_of(self))}",
            "The other views still work: 1 to 7 opens one, esc goes back",
        )
        parts = [part for text in texts for part in wrap(text, self.size.width - 2)]
        self.put("#failure", [line((f" {part}", self.palette.accent)) for part in parts])
        self.add_class("-failed")

    def _paint_caption(self, width: int) -> None:
        """Show the tip of this time, if there is one."""
        scene = self.screen_state.scene
        text = "" if scene is None else self.screen_state.captions.at(scene.snapshot.time_ns)
        parts = wrap(f"{text} (esc hides tips)", width - 3) if text else []
        parts = parts[: max(1, self.size.height // 8)]
        caption = self.put("#caption", [line((f" {each}", self.palette.strong)) for each in parts])
        if len(parts) != self._caption_lines:
            self._caption_lines = len(parts)
            self.resize(caption, len(parts))

    def resize(self, widget: Painted, lines: int) -> None:
        """Give a widget this many lines (0 hides it), and draw the view again."""
        widget.display = lines > 0
        widget.styles.height = max(1, lines)
        self.call_after_refresh(self.paint)

    def title_rule(self, parts: list[list[Span]], width: int) -> Line:
        """A title line: a single rule, or a double one while the screen is paused."""
        return panel_title(parts, width, self.palette, self.screen_state.paused)

    def filter_part(self) -> list[list[Span]]:
        """The filter as a part of a title; empty without a filter."""
        state, accent = self.screen_state, self.palette.accent
        if not state.choices.filter:
            return []
        matched = state.matched(state.scene) if state.scene is not None else None
        part: list[Span] = [(f"filter: {state.choices.filter}", accent)]
        # The last parts of a title are left out first where it is too long.
        is_empty = matched is not None and matched.is_empty
        return [[(self._no_match(), accent)], part] if is_empty else [part]

    def _no_match(self) -> str:
        """That no port matches the filter, or none of what is read of the past so far."""
        return _NO_MATCH_YET if self.screen_state.time_context().is_reading else _NO_MATCH

    def selection_part(self) -> list[list[Span]]:
        """The mark of the selected finding and its cause; empty where nothing is marked."""
        state, tone = self.screen_state, self.palette
        selection = state.selection(state.scene) if state.scene is not None else None
        if selection is None or state.follows_first or self.VIEW not in _MARKING_VIEWS:
            return []
        cause = f" {finding_title(selection.finding)}"
        return [[(tone.selection_mark, tone.strong), (cause, tone.text)]]

    def selected_target(self) -> FindingTarget | None:
        """The selected finding as the target of a line."""
        key = self.screen_state.selected_key
        return FindingTarget(key) if key else None

    def panel_name(self, name: str, selector: str) -> Span:
        """The name of a panel for its title, marked where the keys go to this panel."""
        if self.query_one(selector).has_focus:
            return f"▸ {name}", self.palette.key
        return name, self.palette.strong

    def on_descendant_focus(self) -> None:
        """Mark the panel that the keys go to."""
        self.paint()

    def next_match(self, by: int) -> bool:
        """Go to the next line that the filter matches (`by` = 1), or to the previous one (-1).
        Returns whether there is one."""
        view = next(iter(self.query(LineView)), None)
        if view is None or view.selected is None:
            return False
        view.move(by, 0)
        view.point()
        return True

    def idle_actions(self) -> frozenset[str]:
        """The actions that do nothing here now: the footer does not offer them."""
        return frozenset()

    def footer_labels(self) -> Mapping[str, str]:
        """The words of actions in the footer that have a closer meaning here now."""
        return {}

    def restore_panel(self) -> bool:
        """Restore a maximised panel; returns whether there was one."""
        return False

    def _keep_focus(self) -> None:
        """Focus the first panel where nothing has the focus: what had it is hidden or gone."""
        if self.focused is None and self.is_current:
            panels = self.query(self.AUTO_FOCUS).results(Widget)
            first = next((each for each in panels if each.focusable and _is_shown(each)), None)
            if first is not None:
                first.focus(scroll_visible=False)

    def on_screen_resume(self) -> None:
        """Draw the view when it is laid out, or on top again."""
        self.call_after_refresh(self._draw_at_once)

    def _draw_again(self) -> None:
        if self.is_current:
            self.paint()

    def _draw_at_once(self) -> None:
        self.paint()
        self._until_drawn.close()
        self.refresh()

    def on_resize(self) -> None:
        """Draw the view in its new size."""
        self.call_after_refresh(self.paint)

    @property
    def filter_text(self) -> str:
        """What was typed after `/` before."""
        return self.screen_state.choices.filter

    def ask_filter(self) -> None:
        """Open the filter line."""
        self.add_class("-typing")
        self.query_one(FilterBar).open(self.filter_text, self.palette)

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        """Apply the filter and show the number of matches, or show its error."""
        event.stop()
        bar, state = self.query_one(FilterBar), self.screen_state
        bar.note("", self.palette)
        try:
            state.choices = state.choices.with_filter(event.text)
        except FilterError as error:
            applied = state.choices.filter
            still = f"the filter is still {applied}" if applied else "no filter is applied"
            bar.complain(f"{error}; {still}", self.palette)
        self.paint()

    def _count_matches(self) -> None:
        """Show the number of matches in the filter line: it changes while the past is read."""
        bar, state = self.query_one(FilterBar), self.screen_state
        matched = state.matched(state.scene) if state.scene is not None else None
        if matched is not None and matched.is_empty:
            bar.complain(self._no_match(), self.palette)
        elif matched is not None:
            ports, nodes = int(matched.ports.sum()), len(matched.nodes)
            bar.note(f"{plural(ports, 'port')} of {plural(nodes, 'node')}", self.palette)

    def on_filter_bar_closed(self) -> None:
        """Give the view its lines back."""
        self.remove_class("-typing")
        self.paint()

    def load(self, reading: Callable[[], Coroutine[None, None, None]]) -> Worker[None]:
        """Read a trend from the recording, in place of the one before."""
        # A coroutine of a worker that is cancelled before it began would never be awaited.
        return self.run_worker(reading, group="trend", exclusive=True, exit_on_error=False)

    def go_back(self) -> bool:
        """Undo the last step inside this view; False where there is none."""
        return False

    def maximise(self) -> None:
        """Maximise or restore the focused panel; views with one panel do nothing."""


def _is_shown(widget: Widget) -> bool:
    return all(each.display for each in widget.ancestors_with_self if isinstance(each, Widget))


class LineScreen(ViewScreen):
    """A view that is a list of lines under a title."""

    def body(self) -> ComposeResult:
        """Title and lines."""
        yield Painted(id="title")
        yield LineView(id="lines")

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The lines of the page, in `ctx.width` columns."""
        raise NotImplementedError

    def waiting_lines(self, width: int) -> list[Line]:
        """The lines before the first scene."""
        state = self.screen_state
        usual = "reading the recording" if state.reads else "nothing has been received yet"
        return self.message(state.run.nothing() or usual)

    def title_parts(self) -> list[list[Span]]:
        """The parts of the title: the path of views to this one."""
        screens = (each for each in self.app.screen_stack if isinstance(each, ViewScreen))
        return [[(" ▸ ".join(each.crumb() for each in screens), self.palette.strong)]]

    def draw(self, ctx: DrawContext) -> None:
        """Draw title and lines."""
        height = self.query_one("#lines", LineView).outer_size.height
        app = self.app
        with app.drawings.drawing() if isinstance(app, ContainingApp) else nullcontext():
            lines = self.lines(ctx.sized(ctx.width - 1, height))
        self._draw_lines(being_read(lines) if ctx.time.is_reading else lines)

    def draw_waiting(self) -> None:
        """Draw the page before the first scene."""
        self._draw_lines(self.waiting_lines(self.size.width - 1))

    def _draw_lines(self, lines: list[Line]) -> None:
        # That a filter is on is said where there is no room for all.
        path, *rest = self.title_parts()
        parts = [path, *self.selection_part(), *self.filter_part(), *rest]
        self.put("#title", [self.title_rule(parts, self.size.width)])
        tone = self.palette
        self.query_one("#lines", LineView).show(lines, tone.text, tone.cursor, tone.strong)

    def message(self, text: str) -> list[Line]:
        """A page that is one sentence."""
        return [line((f"   {text}", self.palette.dim))]


class ZoomableScreen(ViewScreen):
    """A view over a variable span of time: minutes from memory, more from a recording."""

    def __init__(
        self, screen_state: ScreenState, usual_minutes: int, past: RecordedPast | None
    ) -> None:
        """Show `usual_minutes` at first. `past` reads the recording, None without one."""
        super().__init__(screen_state)
        self.zoom = Zoom(screen_state.cursor, SPANS, usual_minutes, past is not None)
        self.loader = None if past is None else TrendLoader(past, self.load, self.paint)

    def trend(self, ctx: DrawContext, minutes: int | None = None) -> Trend | None:
        """The range of the timeline, or `minutes` up to the cursor; None without a recording."""
        if self.loader is None:
            return None
        newest = (self.screen_state.live or ctx.scene).snapshot
        return trend(self.screen_state, newest, self.loader, minutes)

    @property
    def progress(self) -> str:
        """Progress or failure of reading the recording; empty when nothing is being read."""
        return "" if self.loader is None else self.loader.progress

    def action_zoom(self, by: int) -> None:
        """Show more time (`by` > 0) or less."""
        self.zoom.by(by)
        self.paint()
