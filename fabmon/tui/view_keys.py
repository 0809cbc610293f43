"""The keys that open views and pages and go back, and those that change how data is shown."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from textual.await_complete import AwaitComplete

from fabmon.analysis.scene import Scene
from fabmon.tui import keys
from fabmon.tui.choices import AUTO
from fabmon.tui.line import (
    EventTarget,
    FindingTarget,
    JobTarget,
    NodeTarget,
    PairTarget,
    PortTarget,
    SubjectTarget,
)
from fabmon.tui.metrics import heat_metric, next_metric_name
from fabmon.tui.names import Entry, NameIndex, commands, metric_entries, scene_entries
from fabmon.tui.palette import RAMPS, Theme
from fabmon.tui.screen_app import ScreenApp
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.screens.finding import FindingScreen
from fabmon.tui.screens.fluctuation import FluctuationScreen
from fabmon.tui.screens.line_screens import (
    HelpScreen,
    NodeScreen,
    NodesScreen,
    PairScreen,
    PortScreen,
)
from fabmon.tui.screens.overview import OverviewScreen
from fabmon.tui.terminal import TerminalDriver, theme_name
from fabmon.tui.widgets.choosers import JumpPrompt, MetricMenu
from fabmon.tui.widgets.lines import FoldRequested, Highlighted, OpenRequested

SAVE = "save"
"""The group of workers that save files."""


class ViewKeys(ScreenApp):
    """The part of the app that decides which view or page is open."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._has_left_nodes = False
        self._views_before: list[str] = []
        self._name_index: NameIndex | None = None
        self._quits_anyway = False
        """Whether a message since saving last began said that a file is still being saved."""

    @property
    def is_saving(self) -> bool:
        """Whether a file is being saved, which may take as long as a recording is large."""
        return any(each.group == SAVE and not each.is_finished for each in self.workers)

    async def leave_nodes(self, scene: Scene) -> None:
        """Open the overview with the first scene that has data, if the nodes are still open."""
        if not self._has_left_nodes and _has_data(scene):
            self._has_left_nodes = True
            if isinstance(self.screen, NodesScreen):
                await self._open_view(OverviewScreen.VIEW)

    def open_node(self, node: str) -> None:
        """A page of a node is opened: its feed may report more of it."""

    async def on_open_requested(self, event: OpenRequested) -> None:
        """Open the page of a target."""
        state, target, past = self.screen_state, event.target, self.recording.reader
        scene = state.scene
        if scene is None:
            return
        if isinstance(target, NodeTarget):
            self.open_node(target.node)
            await self.push_screen(NodeScreen(state, target))
        elif isinstance(target, PortTarget):
            port = scene.snapshot.fabric.ports[target.row]
            if not (isinstance(self.screen, PortScreen) and self.screen.port == port):
                self.open_node(port.node)
                await self.push_screen(PortScreen(state, port, past))
        elif isinstance(target, PairTarget):
            await self.push_screen(PairScreen(state, target))
        elif isinstance(target, FindingTarget):
            if state.group(target.key, scene) is not None:
                state.fold(target.key)
                self.repaint()
                return
            every = (*scene.findings, *state.closed(scene))
            found = next((each for each in every if each.key == target.key), None)
            if found is not None:
                if target.key != state.selected_key:
                    state.select(target.key)
                await self.push_screen(FindingScreen(state, found, past))
        elif isinstance(target, EventTarget):
            self.player.seek(target.time_ns)
        elif isinstance(target, JobTarget):
            state.choices = state.choices.with_filter(f"job:{target.number}")
            await self._open_view(OverviewScreen.VIEW)
        elif isinstance(target, SubjectTarget):
            await self._open_view(FluctuationScreen.VIEW)
            if isinstance(self.screen, FluctuationScreen):
                self.screen.go_to(target)

    def on_fold_requested(self, event: FoldRequested) -> None:
        """List the findings of a group, or no longer."""
        state, target, scene = self.screen_state, event.target, self.screen_state.scene
        if scene is None or not isinstance(target, FindingTarget):
            return
        if state.group(target.key, scene) is not None:
            state.fold(target.key, event.unfold)
            self.repaint()

    def on_highlighted(self, event: Highlighted) -> None:
        """Select the finding under the cursor of a list."""
        if isinstance(event.target, FindingTarget):
            self.screen_state.select(event.target.key)
            self.repaint()
            if isinstance(self.screen, OverviewScreen):
                self.screen.reveal_selected()

    # Actions do not wait for a page to close: a click in its footer would wait for itself.

    def action_view(self, name: str) -> None:
        """Open one of the views, from any page."""
        self._open_view(name)

    def _open_view(self, name: str) -> AwaitComplete:
        """Open a view; what is returned can be awaited."""
        self._has_left_nodes = self._has_left_nodes or name != NodesScreen.VIEW
        shown = self._root_view()
        if name in self._views_before:
            del self._views_before[self._views_before.index(name) :]
        elif shown != name:
            self._views_before.append(shown)
        if name == OverviewScreen.VIEW:
            self._views_before.clear()
        while len(self.screen_stack) > 2:
            self.pop_screen()
        view = self.get_screen(name)
        if isinstance(view, ViewScreen):
            view.paint()
        return self.switch_screen(name)

    def action_next_view(self) -> None:
        """Open the view after the current one."""
        shown = keys.ROOT_VIEWS.index(self._root_view())
        self.action_view(keys.ROOT_VIEWS[(shown + 1) % len(keys.ROOT_VIEWS)])

    def _root_view(self) -> str:
        """The view of the keys 1 to 7 that is open, below any page."""
        return next(each.VIEW for each in self.screen_stack if isinstance(each, ViewScreen))

    async def action_back(self) -> None:
        """Go back by one step: see the key's help."""
        state, screen = self.screen_state, self.screen
        if len(self.screen_stack) > 2:
            self._close_page()
        elif isinstance(screen, ViewScreen) and (screen.restore_panel() or screen.go_back()):
            return
        elif self._root_view() != OverviewScreen.VIEW and state.scene is not None:
            if state.choices.filter:
                state.choices = state.choices.with_filter("")
                self.repaint()
            else:
                self._open_view((self._views_before or [OverviewScreen.VIEW])[-1])
        else:
            self._clear_one()
            self.repaint()

    def _clear_one(self) -> None:
        """Clear the finding that the user selected, else the filter, else the tips; then the first
        finding is selected again, as at the start."""
        state = self.screen_state
        if state.selected_key and not state.follows_first:
            state.select("")
        elif state.choices.filter:
            state.choices = state.choices.with_filter("")
        elif not state.captions.skipped:
            state.captions.skip()
        else:
            state.select_first()

    def action_close(self) -> None:
        """Close the page; in a view, quit."""
        if len(self.screen_stack) > 2:
            self._close_page()
        elif self.is_saving and not self._quits_anyway:
            self._quits_anyway = True
            self.say("a file is still being saved: the same key again quits without it", 6)
        else:
            self.exit()

    def _close_page(self) -> None:
        """Show what is below the page, once it is drawn: its last picture is not seen first."""
        below = self.screen_stack[-2]
        if isinstance(below, ViewScreen):
            below.hide_until_drawn()
        self.pop_screen()

    async def action_help(self) -> None:
        """Open the help of the current view."""
        screen = self.screen
        if isinstance(screen, ViewScreen) and not isinstance(screen, HelpScreen):
            # A screen that is kept opens in half the time.
            name = f"{HelpScreen.VIEW}-{screen.VIEW}"
            if not self.is_screen_installed(name):
                self.install_screen(HelpScreen(self.screen_state, screen.VIEW), name)
            await self.push_screen(name)

    def action_jump(self) -> None:
        """Open the list of names."""
        self.skip_while_typing()
        self.push_screen(JumpPrompt(self._searchable(), self.screen_state.palette), self._jump)

    def _searchable(self) -> NameIndex:
        """The names to search: of nodes and ports, indexed once per fabric, and of all else."""
        scene = self.screen_state.scene
        snapshot = None if scene is None else scene.snapshot
        if snapshot is not None and (
            self._name_index is None or self._name_index.fabric is not snapshot.fabric
        ):
            self._name_index = NameIndex(snapshot.fabric)
        return (self._name_index or NameIndex(None)).with_others(
            [
                *commands(self.screen_state.keys, self.screen_state.refused_actions),
                *metric_entries(snapshot),
                *([] if scene is None else scene_entries(scene)),
            ]
        )

    async def _jump(self, entry: Entry | None) -> None:
        """Open what was chosen in the list of names."""
        if entry is None:
            return
        if isinstance(entry.opens, str):
            await self.run_action(entry.opens)
        else:
            self.post_message(OpenRequested(entry.opens))


def _has_data(scene: Scene) -> bool:
    """Whether a node is up and a port has a rate or a state."""
    snapshot = scene.snapshot
    return snapshot.nodes_up > 0 and bool(
        np.isfinite(snapshot.heat).any() or np.isfinite(snapshot.up).any()
    )


_FLASH_S = 0.1
"""The first picture waits so long for the terminal to report its background."""


class DisplayKeys(ScreenApp):
    """The part of the app that changes the choices of the user."""

    def apply_theme(self) -> None:
        """Give Textual's own widgets the theme of the screen."""
        self.theme = theme_name(self.screen_state.depth, self.screen_state.theme)

    async def ask_background(self) -> None:
        """Ask the terminal for its background, and wait so long that nothing flashes.

        An answer that comes later, but within a second, changes the colours.
        """
        state, driver = self.screen_state, self._driver
        if state.choices.theme or not state.depth.rgb or not isinstance(driver, TerminalDriver):
            return
        answered = asyncio.Event()

        def accept(theme: Theme) -> None:
            state.terminal_theme = theme
            self.apply_theme()
            self.repaint()
            answered.set()

        driver.ask_background(accept)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLASH_S):
                await answered.wait()

    def _choose(self, **changes: Any) -> None:
        self.screen_state.choices = replace(self.screen_state.choices, **changes)
        self.repaint()

    def action_display(self, what: str) -> None:
        """Change the `unit`, the `digits`, the `window` of all values, the `ramp` of colours, or
        whether hosts have the colours of their jobs (`job_colours`)."""
        choices, scene = self.screen_state.choices, self.screen_state.scene
        ramps = [ramp.name for ramp in RAMPS]
        changes: dict[str, object] = {
            "unit": choices.unit.next(),
            "digits": not choices.digits,
            # The window of an iteration only where one is known.
            "window": choices.window.next(scene is not None and scene.step_s > 0),
            "ramp": ramps[(ramps.index(choices.ramp) + 1) % len(ramps)],
            "job_colours": not choices.job_colours,
        }
        self._choose(**{what: changes[what]})
        if what == "window" and scene is not None:  # A narrow header has no room for it.
            self.say(f"all values: {self.screen_state.span(scene).text}")
        if what == "ramp":
            self.say(f"colours: {self.screen_state.choices.ramp}")

    def action_metric(self, by: int) -> None:
        """Show the next metric in the cells that this fabric has (`by` = 1), or the previous."""
        scene = self.screen_state.scene
        snapshot = None if scene is None else scene.snapshot
        self._choose(metric=next_metric_name(self.screen_state.choices.metric, snapshot, by))

    def action_metrics(self) -> None:
        """Open the list of metrics."""
        state = self.screen_state
        if isinstance(self.screen, ViewScreen):
            seen = None if state.scene is None else state.seen(state.scene)
            self.push_screen(
                MetricMenu(seen, state.palette, state.metric), self.action_metric_named
            )

    def action_metric_named(self, name: str | None) -> None:
        """Show this metric in the cells; None: the one before."""
        if name is not None:
            self._choose(metric=heat_metric(name).name)

    def action_match(self, by: int) -> None:
        """Go to the next match of the filter (`by` = 1), or to the previous one (-1)."""
        if not self.screen_state.choices.filter:
            self.say("no filter is set: / sets one")
        elif isinstance(self.screen, ViewScreen) and not self.screen.next_match(by):
            self.say("nothing here matches the filter")

    def action_usual_panels(self) -> None:
        """Give the panels the sizes that fit the terminal."""
        self._choose(findings_share=0)

    async def action_theme(self, name: str) -> None:
        """Use the `dark` or the `light` theme, or that of the terminal (`auto`)."""
        state = self.screen_state
        theme = None if name == AUTO else Theme(name)
        state.choices = replace(state.choices, theme=theme)
        await self.ask_background()
        self.apply_theme()
        self.repaint()

    def action_filter(self) -> None:
        """Open the filter line."""
        self.skip_while_typing()
        if isinstance(self.screen, ViewScreen):
            self.screen.ask_filter()

    def action_maximise(self) -> None:
        """Maximise or restore the focused panel."""
        if isinstance(self.screen, ViewScreen):
            self.screen.maximise()
