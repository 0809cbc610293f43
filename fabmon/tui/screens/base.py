"""What every screen has: header, footer, filter, and a scene that is drawn anew each tick."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widget import Widget

from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import FilterError
from fabmon.tui import keys
from fabmon.tui.containment import Contained, ContainingApp, view_of
from fabmon.tui.line import FindingTarget, Line, Span, line, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import labels
from fabmon.tui.text.header import header, panel_title
from fabmon.tui.text.key_help import footer
from fabmon.tui.widgets.lines import LineView, Painted
from fabmon.tui.widgets.prompts import FilterBar

_MARKING = (*keys.ROOT_VIEWS, "node", "pair")
"""The views in which the links of the chosen finding are marked."""
NO_MATCH = "no port matches; esc clears the filter"


class ViewScreen(Contained, Screen[None]):
    """Draws the stage. `VIEW` names it to keys and help."""

    VIEW: ClassVar[str] = ""
    AUTO_FOCUS = "LineView, HeatGrid"

    def __init__(self, screen_state: ScreenState) -> None:
        """Of a stage; nothing is drawn yet."""
        super().__init__()
        self.screen_state = screen_state
        self._typing_from: Widget | None = None
        self._said = 0

    def compose(self) -> ComposeResult:
        """Header, what the screen is about, filter, footer."""
        yield Painted(id="header")
        yield Painted(id="failure")
        yield from self.body()
        yield FilterBar(id="filter")
        yield Painted(id="caption")
        yield Painted(id="footer")

    def body(self) -> ComposeResult:
        """What is between header and footer."""
        raise NotImplementedError

    def draw(self, scene: Scene) -> None:
        """Draw a scene into the body."""
        raise NotImplementedError

    def crumb(self) -> str:
        """What this screen is called on the way back to the top."""
        return self.VIEW

    def paint(self) -> None:
        """Draw whatever the stage has now; where that fails, say so in place of the body."""
        if not self.is_mounted or not self.size.width:
            return
        try:
            self._paint()
        except Exception as error:
            self._paint_failure(error)
        else:
            self.remove_class("-failed")

    def _paint_failure(self, error: Exception) -> None:
        app = self.app
        if not isinstance(app, ContainingApp):
            raise error
        palette, width = self.screen_state.palette, self.size.width
        said = [
            *wrap(f"This view failed: {app.contain(error, view_of(self))}", width - 2),
            *wrap("The other views still work: 1 to 6 opens one, esc goes back", width - 2),
        ]
        self.query_one("#failure", Painted).show(
            [line((f" {part}", palette.hot)) for part in said], palette.text
        )
        self.add_class("-failed")

    def _paint(self) -> None:
        palette, width = self.screen_state.palette, self.size.width
        try:
            self.query_one("#header", Painted).show(
                [header(self.screen_state.header_context(width))], palette.text
            )
        except NoMatches:
            return
        view = footer(self.VIEW, width, palette, self.screen_state.shown is not None)
        self.query_one("#footer", Painted).show([view], palette.text)
        self._caption(width)
        scene = self.screen_state.scene
        if scene is not None:
            self.draw(scene)

    def _caption(self, width: int) -> None:
        """Say what is on the screen, where there is something to say."""
        view, palette = self.query_one("#caption", Painted), self.screen_state.palette
        scene = self.screen_state.scene
        text = self.screen_state.captions.at(scene.snapshot.time_ns) if scene is not None else ""
        said = (
            wrap(f"{text} (esc: no more of these)", width - 3)[: max(1, self.size.height // 8)]
            if text
            else []
        )
        view.show([line((f" {part}", palette.strong)) for part in said], palette.text)
        if len(said) != self._said:
            self._said = len(said)
            view.display = bool(said)
            view.styles.height = max(1, len(said))
            self.call_after_refresh(self.paint)

    def title_rule(self, parts: list[list[Span]], width: int) -> Line:
        """A rule in the style of the moment: plain, or double while paused."""
        return panel_title(parts, width, self.screen_state.palette, self.screen_state.paused)

    def filter_part(self) -> list[list[Span]]:
        """The filter, where there is one, as a part of a rule."""
        text = self.screen_state.choices.filter
        if not text:
            return []
        scene, hot = self.screen_state.scene, self.screen_state.palette.hot
        matched = self.screen_state.matched(scene) if scene is not None else None
        said: list[Span] = [(f"filter: {text}", hot)]
        # First what there is nothing without: of a rule, the parts that find no room are left out.
        return [[(NO_MATCH, hot)], said] if matched is not None and matched.is_empty else [said]

    def selection_part(self) -> list[list[Span]]:
        """What the mark of what is chosen stands for, where anything is chosen."""
        scene, tone = self.screen_state.scene, self.screen_state.palette
        marked = self.screen_state.chosen(scene) if scene is not None else None
        if marked is None or self.VIEW not in _MARKING:
            return []
        said = f" {labels.cause_title(marked.finding)}"
        return [[(tone.selection_mark, tone.strong), (said, tone.text)]]

    def selected_target(self) -> FindingTarget | None:
        """The chosen finding, as a line of a list opens it."""
        key = self.screen_state.selected_key
        return FindingTarget(key) if key else None

    def on_screen_resume(self) -> None:
        """It is on top again."""
        self.call_after_refresh(self.paint)

    def on_resize(self) -> None:
        """There is more or less room."""
        self.call_after_refresh(self.paint)

    # The filter.

    def ask_filter(self) -> None:
        """Let the person type a filter."""
        self._typing_from = self.focused
        self.query_one(FilterBar).open(self.screen_state.choices.filter, self.screen_state.palette)

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        """Use it, or say what is wrong with it."""
        event.stop()
        bar, palette = self.query_one(FilterBar), self.screen_state.palette
        bar.note("", palette)
        try:
            self.screen_state.filter(event.text)
        except FilterError as error:
            bar.complain(str(error), palette)
        else:
            scene = self.screen_state.scene
            matched = self.screen_state.matched(scene) if scene is not None else None
            if matched is not None and matched.is_empty:
                bar.complain(NO_MATCH, palette)
            elif matched is not None:
                ports, nodes = int(matched.ports.sum()), len(matched.nodes)
                said = f"{ports} port{'' if ports == 1 else 's'}"
                bar.note(f"{said} of {nodes} node{'' if nodes == 1 else 's'}", palette)
        self.paint()

    def on_filter_bar_closed(self) -> None:
        """Give the keys back to where they were."""
        if self._typing_from is not None:
            self._typing_from.focus()
        self.paint()

    def maximise(self) -> None:
        """Give the focused panel everything; most screens have only one."""


class LineScreen(ViewScreen):
    """A screen that is a list of lines under a title."""

    def body(self) -> ComposeResult:
        """The title, and the lines."""
        yield Painted(id="title")
        yield LineView(id="lines")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """What there is to read, in `width` cells."""
        raise NotImplementedError

    def title_parts(self, palette: Palette) -> list[list[Span]]:
        """The way here."""
        crumbs = [
            screen.crumb() for screen in self.app.screen_stack if isinstance(screen, ViewScreen)
        ]
        way = " ▸ ".join(crumbs)
        return [[(way, palette.strong)]]

    def draw(self, scene: Scene) -> None:
        """Draw title and lines."""
        palette, width = self.screen_state.palette, self.size.width
        parts = [*self.title_parts(palette), *self.selection_part(), *self.filter_part()]
        self.query_one("#title", Painted).show([self.title_rule(parts, width)], palette.text)
        view = self.query_one("#lines", LineView)
        lines = self.lines(scene, width - 1, view.outer_size.height)
        view.show(lines, palette.text, palette.cursor, palette.strong)

    def gone(self, what: str) -> list[Line]:
        """For when what the screen is about is not in the scene."""
        return [line((f"   {what}", self.screen_state.palette.dim))]
