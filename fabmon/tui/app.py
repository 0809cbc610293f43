"""The app: receives scenes, draws the view on top, and executes the keys.

It knows neither the feed that scenes come from, nor whether they are live.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from textual.actions import SkipAction
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.filter import LineFilter, NoColor
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import SECOND_NS, interval
from fabmon.tui import keys
from fabmon.tui.bindings import bindings, keymap
from fabmon.tui.line import (
    EventTarget,
    FindingTarget,
    NodeTarget,
    PairTarget,
    PortTarget,
    SubjectTarget,
    fit,
)
from fabmon.tui.names import Entry, NameIndex, commands, metric_entries, scene_entries
from fabmon.tui.palette import Depth, Theme, detect
from fabmon.tui.preferences import Preferences
from fabmon.tui.saving import save_file, without_web_fonts
from fabmon.tui.screen_state import ScreenState, Tip, Tips
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.screens.finding import FindingScreen
from fabmon.tui.screens.fluctuation import FluctuationScreen
from fabmon.tui.screens.line_screens import (
    FindingsScreen,
    HelpScreen,
    NodeScreen,
    NodesScreen,
    SwitchesScreen,
)
from fabmon.tui.screens.matrix import MatrixScreen, PairScreen
from fabmon.tui.screens.overview import OverviewScreen
from fabmon.tui.screens.port import BurstRequested, PortScreen
from fabmon.tui.terminal import TerminalDriver, console_of, theme_name, widget_themes
from fabmon.tui.terminal_background import theme_without_answer
from fabmon.tui.text import labels
from fabmon.tui.text.pages import port_charts
from fabmon.tui.time.past_reader import RecordingAccess, ReplayStart
from fabmon.tui.time.time_keys import TimeKeys
from fabmon.tui.widgets.choosers import JumpPrompt, MetricMenu
from fabmon.tui.widgets.lines import FoldRequested, Highlighted, OpenRequested
from fabmon.tui.widgets.prompts import SaveMenu

_TOAST_EVERY_S = 3
"""Between messages of new findings, in the time of the scenes."""
_SILENT_TICKS = 3
"""So many missed ticks are reported."""
_INTERRUPTED = 130
_FLASH_S = 0.1
"""The first picture waits so long for the terminal to report its background."""
_AUTO = "auto"
_SAVE = "save"
_SCENES = "scenes"

AskBurst = Callable[[str, Sequence[str], float, float], str]
"""Requests fast samples: node, ports, seconds, Hz. Returns why that is refused, or nothing."""


class Toasts:
    """Messages of findings that opened: one line for all of the last seconds."""

    def __init__(self) -> None:
        """No finding has opened."""
        self._opened: list[Finding] = []
        self._last_ns: int | None = None

    def accept(self, scene: Scene) -> str:
        """The message to show with this scene; empty for none."""
        self._opened += [finding for change, finding in scene.changes if change is Change.OPEN]
        now_ns = scene.snapshot.time_ns
        is_early = self._last_ns is not None and now_ns - self._last_ns < _TOAST_EVERY_S * SECOND_NS
        if not self._opened or is_early:
            return ""
        self._last_ns = now_ns
        (first, *others), self._opened = self._opened, []
        subject = labels.subject_name(first, scene.snapshot.fabric)
        text = f"{labels.finding_mark(first)} {labels.cause_title(first)} {subject}"
        return f"{text} and {len(others)} more findings" if others else text


class FabmonApp(TimeKeys):
    """The screen of one run.

    `scenes` are the live scenes, None for a replay. `color` is `auto`, `truecolor`, `256`, `16` or
    `none`. `mark` is a word that always stays in the header. `captions` are tips. `ask_burst`
    requests fast samples, None where that is impossible. `nothing` returns why there are no nodes.
    `recording` is the access to the recording of what is shown; `start` says how to begin to play
    it. `clock` returns seconds; it is only used to notice that ticks are missing. `preferences` are
    the choices of the user to begin with.
    """

    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.EVERYWHERE)]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "fabmon"

    def __init__(
        self,
        scenes: AsyncIterator[Scene] | None,
        *,
        title: str,
        color: str = "auto",
        mark: str = "",
        captions: Sequence[Tip] = (),
        ask_burst: AskBurst | None = None,
        nothing: Callable[[], str] = str,
        recording: RecordingAccess | None = None,
        start: ReplayStart | None = None,
        clock: Callable[[], float] = time.monotonic,
        preferences: Preferences | None = None,
    ) -> None:
        """Nothing is shown before `run_async`."""
        depth = detect(os.environ) if color == "auto" else Depth(color)
        preferences = preferences or Preferences()
        super().__init__(ansi_color=not depth.rgb, driver_class=TerminalDriver)
        self.console = console_of(depth)
        self.screen_state = ScreenState(
            title,
            depth,
            mark=mark,
            captions=Tips(captions),
            nothing=nothing,
            choices=preferences.choices,
            keys=preferences.keys,
            terminal_theme=theme_without_answer(os.environ),
        )
        self._scenes = scenes
        self._ask_burst = ask_burst
        self._clock = clock
        self._received_s = clock()
        self._toasts = Toasts()
        self._notice = preferences.notice
        self._has_left_nodes = False
        self._views_before: list[str] = []
        self._name_index: NameIndex | None = None
        self.set_up_time(recording or RecordingAccess(), start)

    async def on_mount(self) -> None:
        """Set up the views, and start to receive scenes or to play."""
        state = self.screen_state
        for theme in widget_themes(state.depth):
            self.register_theme(theme)
        self._apply_theme()
        self.set_keymap(keymap(state.keys))
        await self._ask_background()
        for view in (OverviewScreen, SwitchesScreen, NodesScreen, FindingsScreen, MatrixScreen):
            self.install_screen(view(state), view.VIEW)
        fluctuation = FluctuationScreen(state, self.recording.reader)
        self.install_screen(fluctuation, FluctuationScreen.VIEW)
        self.push_screen(NodesScreen.VIEW)
        if self._scenes is not None:
            receiving = self._receive(self._scenes)
            self.run_worker(receiving, name=_SCENES, exclusive=True, exit_on_error=False)
        self.begin_to_play()
        if self._notice:
            self.say(self._notice, 8)
        self.set_interval(1.0, self._check_silence)

    async def on_unmount(self) -> None:
        """Close the recording."""
        await self.player.close()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """No filter of Textual's that changes colours: ours fit the depth."""
        return [NoColor()] if self.screen_state.depth is Depth.NONE else []

    def _apply_theme(self) -> None:
        """Give Textual's own widgets the theme of the screen."""
        self.theme = theme_name(self.screen_state.depth, self.screen_state.theme)

    async def _ask_background(self) -> None:
        """Ask the terminal for its background, and wait so long that nothing flashes.

        An answer that comes later, but within a second, changes the colours.
        """
        state, driver = self.screen_state, self._driver
        if state.choices.theme or not state.depth.rgb or not isinstance(driver, TerminalDriver):
            return
        answered = asyncio.Event()

        def accept(theme: Theme) -> None:
            state.terminal_theme = theme
            self._apply_theme()
            self.repaint()
            answered.set()

        driver.ask_background(accept)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLASH_S):
                await answered.wait()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """End the app when the scenes fail; contain errors of other workers."""
        error = event.worker.error
        if event.state is not WorkerState.ERROR or error is None:
            return
        if event.worker.name == _SCENES:
            self.fail(error)
        else:
            self.contain_handler(error, event.worker.group)

    async def _receive(self, scenes: AsyncIterator[Scene]) -> None:
        async for scene in scenes:
            try:
                await self.take(scene)
            except Exception as error:
                self.contain_handler(error, "fabmon")
        self.screen_state.ended = True
        self.repaint()

    async def take(self, scene: Scene) -> None:
        """Receive a live scene; it is shown unless the screen shows the past."""
        self._received_s = self._clock()
        self.screen_state.take(scene)
        self.player.moves.kept.add(scene)
        self._toast(scene)
        await self.show_scene(scene)

    async def show_scene(self, scene: Scene) -> None:
        """Draw another scene; the first one with data opens the overview."""
        if self.screen_state.live is None and self.screen_state.cursor.playing:
            self._toast(scene)
        if not self._has_left_nodes and _has_data(scene):
            self._has_left_nodes = True
            if isinstance(self.screen, NodesScreen):
                await self._open_view(OverviewScreen.VIEW)
        self.repaint()

    def repaint(self) -> None:
        """Draw the topmost view; a menu or a palette may be above it."""
        self.player.load_timeline(self.size.width)
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ViewScreen):
                screen.paint()
                return

    def say(self, text: str, seconds: float = 4) -> None:
        """Answer a key in one line for some seconds."""
        self.notify(text, timeout=seconds, markup=False)

    def notify(self, message: str, **options: Any) -> None:
        """Show a message in one line."""
        super().notify(fit(message, max(1, self.size.width - 4)).rstrip(), **options)

    def on_notify(self) -> None:
        """Make room for the message that is about to be shown: there is one line."""
        self.clear_notifications()

    def _toast(self, scene: Scene) -> None:
        text = self._toasts.accept(scene)
        if text:
            self.notify(text, timeout=6, markup=False, severity="warning")

    def _check_silence(self) -> None:
        """Report in the header that ticks are missing."""
        scene, state = self.screen_state.live, self.screen_state
        if scene is None or state.ended:
            return
        silent_s = self._clock() - self._received_s
        is_late = silent_s > _SILENT_TICKS * scene.snapshot.interval_s + 1
        if is_late or state.silent_s:
            state.silent_s = silent_s if is_late else 0.0
            self.repaint()

    async def on_open_requested(self, event: OpenRequested) -> None:
        """Open the page of a target."""
        state, target, past = self.screen_state, event.target, self.recording.reader
        scene = state.scene
        if scene is None:
            return
        if isinstance(target, NodeTarget):
            await self.push_screen(NodeScreen(state, target))
        elif isinstance(target, PortTarget):
            port = scene.snapshot.fabric.ports[target.row]
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

    def on_burst_requested(self, event: BurstRequested) -> None:
        """Request fast samples from the node, and say so, or why not."""
        port, seconds, hz = event.port, port_charts.SECONDS, port_charts.HZ
        refused = "live only, these nodes are simulated or recorded"
        if self._ask_burst is not None:
            refused = self._ask_burst(port.node, (port.name,), seconds, hz)
        accepted = f"burst of {port.display_name}: {hz:g} Hz for {interval(seconds)}"
        self.say(f"no burst: {refused}" if refused else accepted)

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
        return self.switch_screen(name)

    def action_next_view(self) -> None:
        """Open the view after the current one."""
        shown = keys.ROOT_VIEWS.index(self._root_view())
        self.action_view(keys.ROOT_VIEWS[(shown + 1) % len(keys.ROOT_VIEWS)])

    def _root_view(self) -> str:
        """The view of the keys 1 to 6 that is open, below any page."""
        return next(each.VIEW for each in self.screen_stack if isinstance(each, ViewScreen))

    async def action_back(self) -> None:
        """Go back by one step: see the key's help."""
        state, screen = self.screen_state, self.screen
        if len(self.screen_stack) > 2:
            self.pop_screen()
        elif isinstance(screen, ViewScreen) and (screen.restore_panel() or screen.go_back()):
            return
        elif self._root_view() != OverviewScreen.VIEW and state.scene is not None:
            if state.choices.filter:
                state.filter("")
                self.repaint()
            else:
                self._open_view((self._views_before or [OverviewScreen.VIEW])[-1])
        else:
            self._clear_one()
            self.repaint()

    def _clear_one(self) -> None:
        """Clear the finding that the user selected, else the filter, the tips, the selection."""
        state = self.screen_state
        if state.selected_key and not state.follows_first:
            state.select("")
        elif state.choices.filter:
            state.filter("")
        elif not state.captions.skipped:
            state.captions.skip()
        else:
            state.select("")

    def action_close(self) -> None:
        """Close the page; in a view, quit."""
        if len(self.screen_stack) > 2:
            self.pop_screen()
        else:
            self.exit()

    async def action_help(self) -> None:
        """Open the help of the current view."""
        screen = self.screen
        if isinstance(screen, ViewScreen) and not isinstance(screen, HelpScreen):
            await self.push_screen(HelpScreen(self.screen_state, screen.VIEW))

    def action_interrupt(self) -> None:
        """Quit with the exit status of ctrl+c."""
        self.exit(return_code=_INTERRUPTED)

    def action_display(self, what: str) -> None:
        """Change the `unit`, the `digits` or the `ramp` of colours."""
        state = self.screen_state
        changes = {
            "unit": state.next_unit,
            "digits": state.toggle_digits,
            "ramp": state.next_ramp,
        }
        changes[what]()
        self.repaint()

    def action_metric(self, by: int) -> None:
        """Show the next metric in the cells (`by` = 1), or the previous one (-1)."""
        self.screen_state.next_metric(by)
        self.repaint()

    def action_metrics(self) -> None:
        """Open the list of metrics."""
        state = self.screen_state
        if isinstance(self.screen, ViewScreen):
            self.push_screen(
                MetricMenu(state.scene, state.palette, state.metric), self._show_metric
            )

    def _show_metric(self, name: str | None) -> None:
        if name is not None:
            self.screen_state.choose_metric(name)
            self.repaint()

    def action_jump(self) -> None:
        """Open the list of names."""
        self._skip_while_typing()
        self.push_screen(JumpPrompt(self._searchable(), self.screen_state.palette), self._jump)

    def _skip_while_typing(self) -> None:
        """Leave the key to an input or a menu that is open."""
        if isinstance(self.focused, Input) or not isinstance(self.screen, ViewScreen):
            raise SkipAction

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

    def action_metric_named(self, name: str) -> None:
        """Show this metric in the cells."""
        self._show_metric(name)

    def action_match(self, by: int) -> None:
        """Go to the next match of the filter (`by` = 1), or to the previous one (-1)."""
        if not self.screen_state.choices.filter:
            self.say("no filter is set: / sets one")
        elif isinstance(self.screen, ViewScreen) and not self.screen.next_match(by):
            self.say("nothing here matches the filter")

    def action_usual_panels(self) -> None:
        """Give the panels the sizes that fit the terminal."""
        self.screen_state.share_with_findings(0)
        self.repaint()

    async def action_theme(self, name: str) -> None:
        """Use the `dark` or the `light` theme, or that of the terminal (`auto`)."""
        state = self.screen_state
        state.choose_theme(None if name == _AUTO else Theme(name))
        await self._ask_background()
        self._apply_theme()
        self.repaint()

    def action_filter(self) -> None:
        """Open the filter line."""
        self._skip_while_typing()
        if isinstance(self.screen, ViewScreen):
            self.screen.ask_filter()

    def action_maximise(self) -> None:
        """Maximise or restore the focused panel."""
        if isinstance(self.screen, ViewScreen):
            self.screen.maximise()

    def action_save(self) -> None:
        """Open the menu of what to save."""
        if isinstance(self.screen, ViewScreen):
            self.push_screen(SaveMenu(self.screen_state.palette), self._save)

    def _save(self, what: str | None) -> None:
        """Save once the menu is closed: it is not part of the picture."""
        if what is not None:
            self.call_after_refresh(self._begin_saving, what)

    def _begin_saving(self, what: str) -> None:
        if any(each.group == _SAVE and not each.is_finished for each in self.workers):
            self.say("not saved: the file before is still being saved", 6)
        else:
            self.run_worker(self._save_file(what), group=_SAVE, exit_on_error=False)

    async def _save_file(self, what: str) -> None:
        view = str(getattr(self.screen, "VIEW", "screen"))
        self.say(await save_file(what, self.screen_state, view, self.picture, self.recording), 6)

    def picture(self) -> str:
        """The screen as SVG."""
        return without_web_fonts(self.export_screenshot(title="fabmon"))


def _has_data(scene: Scene) -> bool:
    """Whether a node is up and a port has a rate or a state."""
    snapshot = scene.snapshot
    is_up = any(status.state is NodeState.UP for status in snapshot.statuses.values())
    return is_up and bool(np.isfinite(snapshot.heat).any() or np.isfinite(snapshot.up).any())
