"""The screen: takes scenes as they come, shows the last or the one it was stopped at.

It knows neither where scenes come from nor whether they are of now.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.tui import keys
from fabmon.tui.line import EventTarget, FindingTarget, NodeTarget, PairTarget, PortTarget, fit
from fabmon.tui.palette import Depth, detect
from fabmon.tui.saving import save_file, without_web_fonts
from fabmon.tui.screen_state import Caption, Captions, ScreenState
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
from fabmon.tui.terminal import TerminalDriver, console_of, theme
from fabmon.tui.text import labels
from fabmon.tui.text.pages import port_charts
from fabmon.tui.time.past_reader import NoRecording, RecordingAccess, ReplayStart
from fabmon.tui.time.time_keys import TimeKeys
from fabmon.tui.widgets.lines import Highlighted, OpenRequested
from fabmon.tui.widgets.prompts import SaveMenu

# One line for findings that have just opened; many at once are one line too.


_APART_S = 3


class Toasts:
    """Gathers what opened, and lets a line through at most every few seconds of scene time."""

    def __init__(self) -> None:
        """Nothing has opened."""
        self._waiting: list[Finding] = []
        self._last_ns: int | None = None

    def accept(self, scene: Scene, width: int) -> str | None:
        """The line to show at this scene; None for none."""
        self._waiting += [finding for change, finding in scene.changes if change is Change.OPEN]
        if not self._waiting:
            return None
        now = scene.snapshot.time_ns
        if self._last_ns is not None and now - self._last_ns < _APART_S * SECOND_NS:
            return None
        self._last_ns = now
        told, self._waiting = self._waiting, []
        first = told[0]
        subject = labels.subject_name(first, scene.snapshot.fabric)
        text = f"{labels.finding_mark(first)} {labels.cause_title(first)} {subject}"
        if len(told) > 1:
            text = f"{text} and {len(told) - 1} more findings"
        return fit(text, max(1, width)).rstrip()


_SILENT_TICKS = 3
_INTERRUPTED = 130
_SAVE = "save"
_SCENES = "scenes"

AskBurst = Callable[[str, Sequence[str], float, float], str]
"""Node, ports, seconds, Hz -> why that cannot be, for a person; else nothing."""


class FabmonApp(TimeKeys):
    """The whole screen.

    `color` is `auto`, `truecolor`, `256`, `16` or `none`. `mark` is a word that stays in the header
    whatever else there is no room for. `captions` explain what is shown, from the first scene on.
    `ask_burst` has ports sampled fast; without it there is nobody to ask.
    `recording` is what the screen can do with the recording of what it shows; without scenes the
    recording is all there is to see, and `start` says how to begin playing it. `clock` is only
    used to notice that no scene comes any more.
    """

    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.EVERYWHERE)]
    TITLE = "fabmon"

    def __init__(
        self,
        scenes: AsyncIterator[Scene] | None,
        *,
        title: str,
        color: str = "auto",
        mark: str = "",
        captions: Sequence[Caption] = (),
        ask_burst: AskBurst | None = None,
        nothing: Callable[[], str] = str,
        recording: RecordingAccess | None = None,
        start: ReplayStart | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show these scenes under this title; `nothing` says why they have no nodes."""
        depth = detect(os.environ) if color == "auto" else Depth(color)
        super().__init__(ansi_color=not depth.rgb, driver_class=TerminalDriver)
        self.console = console_of(depth)
        self.screen_state = ScreenState(
            title, depth, mark=mark, captions=Captions(captions), nothing=nothing
        )
        self._scenes = scenes
        self._ask_burst = ask_burst
        self._clock = clock
        self._heard = clock()
        self._toasts = Toasts()
        self._led = False
        self.go_through_time(recording or NoRecording(), start, self)

    def on_mount(self) -> None:
        """Set up the views, and listen."""
        self.register_theme(theme(self.screen_state.depth))
        self.theme = f"fabmon-{self.screen_state.depth}"
        views = (OverviewScreen, SwitchesScreen, NodesScreen, FindingsScreen, MatrixScreen)
        for view in views:
            self.install_screen(view(self.screen_state), view.VIEW)
        steady = FluctuationScreen(self.screen_state, self.recording.reader)
        self.install_screen(steady, FluctuationScreen.VIEW)
        self.push_screen(NodesScreen.VIEW)
        if self._scenes is not None:
            watching = self._watch(self._scenes)
            self.run_worker(watching, name=_SCENES, exclusive=True, exit_on_error=False)
        self.begin_to_play()
        self.set_interval(1.0, self._notice_silence)

    async def on_unmount(self) -> None:
        """Let the recording go."""
        await self.player.close()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """None of Textual's: our colours are chosen for the depth as they are."""
        return [NoColor()] if self.screen_state.depth is Depth.NONE else []

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Exit when no scene comes any more for an error; contain those of other workers."""
        error = event.worker.error
        if event.state is not WorkerState.ERROR or error is None:
            return
        if event.worker.name == _SCENES:
            self.fail(error)
        else:
            self.contain_handler(error, event.worker.group)

    # Scenes.

    async def _watch(self, scenes: AsyncIterator[Scene]) -> None:
        async for scene in scenes:
            try:
                await self.take(scene)
            except Exception as error:
                self.contain_handler(error, "fabmon")
        self.screen_state.ended = True
        self.repaint()

    async def take(self, scene: Scene) -> None:
        """Show the scene of now, or keep it for later while the screen shows another."""
        self._heard = self._clock()
        self.screen_state.take(scene)
        self.player.keep(scene)
        self._toast(scene)
        await self.show_scene(scene)

    async def show_scene(self, scene: Scene) -> None:
        """There is another scene to draw."""
        if self.screen_state.live is None and self.screen_state.cursor.playing:
            self._toast(scene)
        if not self._led and _has_data(scene):
            self._led = True
            if isinstance(self.screen, NodesScreen):
                await self._go_to(OverviewScreen.VIEW)
        self.repaint()

    def repaint(self) -> None:
        """Draw the topmost of our screens; a palette or a message may lie over it."""
        self.player.draw_strip(self.size.width)
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ViewScreen):
                screen.paint()
                return

    def _toast(self, scene: Scene) -> None:
        text = self._toasts.accept(scene, self.size.width - 4)
        if text:
            self.notify(text, timeout=6, markup=False, severity="warning")

    def say(self, text: str) -> None:
        """Show one line for some seconds."""
        self.notify(fit(text, max(1, self.size.width - 4)).rstrip(), timeout=4, markup=False)

    def _notice_silence(self) -> None:
        """Say in the header that nothing comes, once it has been missed."""
        scene = self.screen_state.live
        if scene is None or self.screen_state.ended:
            return
        silent = self._clock() - self._heard
        late = silent > _SILENT_TICKS * scene.snapshot.interval_s + 1
        if late or self.screen_state.silent_s:
            self.screen_state.silent_s = silent if late else 0.0
            self.repaint()

    # Going places.

    async def on_open_requested(self, event: OpenRequested) -> None:
        """Drill down to what was opened."""
        scene, target = self.screen_state.scene, event.target
        if scene is None:
            return
        if isinstance(target, NodeTarget):
            await self.push_screen(NodeScreen(self.screen_state, target))
        elif isinstance(target, PortTarget):
            port = scene.snapshot.fabric.ports[target.row]
            await self.push_screen(PortScreen(self.screen_state, port, self.recording.reader))
        elif isinstance(target, PairTarget):
            await self.push_screen(PairScreen(self.screen_state, target))
        elif isinstance(target, FindingTarget):
            found = _finding([*scene.findings, *self.screen_state.closed(scene)], target.key)
            if found is not None:
                self.screen_state.select(target.key)
                await self.push_screen(
                    FindingScreen(self.screen_state, found, self.recording.reader)
                )
        elif isinstance(target, EventTarget):
            self.player.seek(target.time_ns)

    def on_highlighted(self, event: Highlighted) -> None:
        """Mark the links of a finding while it is the one pointed at last."""
        if not isinstance(event.target, FindingTarget):
            return
        self.screen_state.select(event.target.key)
        self.repaint()
        if isinstance(self.screen, OverviewScreen):
            self.screen.reveal_selected()

    def on_burst_requested(self, event: BurstRequested) -> None:
        """Ask the node for fast samples, and say that, or why not."""
        port = event.port
        if self._ask_burst is None:
            said = "no burst: live only, these nodes are simulated or recorded"
        else:
            refused = self._ask_burst(port.node, (port.name,), port_charts.SECONDS, port_charts.HZ)
            asked = (
                f"burst of {labels.port_name(port)}: {port_charts.HZ:g} Hz "
                f"for {port_charts.SECONDS:g} s"
            )
            said = f"no burst: {refused}" if refused else asked
        self.say(said)

    # No key waits for a page to be gone: a click in its own footer would wait for itself.

    def action_view(self, name: str) -> None:
        """One of the views, from the top."""
        self._go_to(name)

    def _go_to(self, name: str) -> AwaitComplete:
        """The same, for who can wait until it is there."""
        self._led = self._led or name != NodesScreen.VIEW
        while len(self.screen_stack) > 2:
            self.pop_screen()
        return self.switch_screen(name)

    def action_next_view(self) -> None:
        """The view after the one that is shown, or that lies below its pages."""
        views = [screen.VIEW for screen in self.screen_stack if isinstance(screen, ViewScreen)]
        shown = keys.ROOT_VIEWS.index(views[0])
        self.action_view(keys.ROOT_VIEWS[(shown + 1) % len(keys.ROOT_VIEWS)])

    async def action_back(self) -> None:
        """Up one level; at the top, let go of the finding, then of the filter and the captions."""
        if len(self.screen_stack) > 2:
            self.pop_screen()
        elif self.screen_state.selected_key:
            self.screen_state.select("")
            self.repaint()
        elif self.screen_state.choices.filter:
            self.screen_state.filter("")
            self.repaint()
        else:
            self.screen_state.captions.skip()
            self.repaint()

    def action_close(self) -> None:
        """Away from a page; from a view there is nothing left but to quit."""
        if len(self.screen_stack) > 2:
            self.pop_screen()
        else:
            self.exit()

    async def action_help(self) -> None:
        """Help for the screen that is shown."""
        screen = self.screen
        if isinstance(screen, ViewScreen) and not isinstance(screen, HelpScreen):
            await self.push_screen(HelpScreen(self.screen_state, screen.VIEW))

    # Choices.

    def action_interrupt(self) -> None:
        """Leave as ctrl+c leaves any program."""
        self.exit(return_code=_INTERRUPTED)

    def action_units(self) -> None:
        """Gb/s, GB/s, %."""
        self.screen_state.next_unit()
        self.repaint()

    def action_metric(self) -> None:
        """The next metric."""
        self.screen_state.next_metric()
        self.repaint()

    def action_digits(self) -> None:
        """Digits in the cells, or colours."""
        self.screen_state.toggle_digits()
        self.repaint()

    def action_ramp(self) -> None:
        """The next colours."""
        self.screen_state.next_ramp()
        self.repaint()

    def action_filter(self) -> None:
        """Type a filter."""
        if isinstance(self.screen, ViewScreen):
            self.screen.ask_filter()

    def action_maximise(self) -> None:
        """Give the focused panel the whole screen, or give it back."""
        if isinstance(self.screen, ViewScreen):
            self.screen.maximise()

    def action_save(self) -> None:
        """Ask what to save, and save it."""
        if isinstance(self.screen, ViewScreen):
            self.push_screen(SaveMenu(self.screen_state.palette), self._save)

    def _save(self, what: str | None) -> None:
        """Once the menu is gone: it is no part of the picture."""
        if what is not None:
            self.call_after_refresh(self._begin_saving, what)

    def _begin_saving(self, what: str) -> None:
        if any(each.group == _SAVE and not each.is_finished for each in self.workers):
            self.notify(
                "not saved: what was asked for before is still being saved", timeout=6, markup=False
            )
        else:
            self.run_worker(self._kept(what), group=_SAVE, exit_on_error=False)

    async def _kept(self, what: str) -> None:
        """Save it, and say where it is, or why not."""
        view = str(getattr(self.screen, "VIEW", "screen"))
        said = await save_file(what, self.screen_state, view, self.picture, self.recording)
        self.notify(fit(said, max(1, self.size.width - 4)).rstrip(), timeout=6, markup=False)

    def picture(self) -> str:
        """What the screen shows, as SVG."""
        return without_web_fonts(self.export_screenshot(title="fabmon"))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette offers what the keys do."""
        for key in keys.KEYS:
            if key.title:
                text = f"{key.help} ({key.shown})"
                yield SystemCommand(key.title, text, partial(self.run_action, key.action))


def _has_data(scene: Scene) -> bool:
    """Whether some node sends, and something is known of a port."""
    up = any(status.state is NodeState.UP for status in scene.snapshot.statuses.values())
    return up and bool(
        np.isfinite(scene.snapshot.heat).any() or np.isfinite(scene.snapshot.up).any()
    )


def _finding(findings: Iterable[Finding], key: str) -> Finding | None:
    return next((finding for finding in findings if finding.key == key), None)
