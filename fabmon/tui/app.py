"""The app: starts the screen, receives scenes, saves files. Its base classes have the other keys.

It knows neither the feed that scenes come from, nor whether they are live.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import ClassVar

from textual.binding import BindingType
from textual.filter import LineFilter, NoColor
from textual.worker import Worker, WorkerState

from fabmon.analysis.causes import finding_title
from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import SECOND_NS, interval
from fabmon.scenes.recording_access import RecordingAccess
from fabmon.tui import keys
from fabmon.tui.bindings import bindings, keymap
from fabmon.tui.choices import Preferences
from fabmon.tui.palette import Depth, detect
from fabmon.tui.run_facts import AskRas, RunFacts, Tips
from fabmon.tui.saving import CUT, save_file, without_web_fonts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.screens.fluctuation import FluctuationScreen
from fabmon.tui.screens.line_screens import (
    BurstRequested,
    FindingsScreen,
    JobsScreen,
    MatrixScreen,
    NodesScreen,
    RasRequested,
    RetryRequested,
    SwitchesScreen,
)
from fabmon.tui.screens.overview import OverviewScreen
from fabmon.tui.terminal import TerminalDriver, console_of, widget_themes
from fabmon.tui.terminal_background import theme_without_answer
from fabmon.tui.text import labels
from fabmon.tui.text.pages import port_charts
from fabmon.tui.time.time_keys import TimeKeys
from fabmon.tui.view_keys import SAVE, DisplayKeys, ViewKeys
from fabmon.tui.widgets.prompts import YES, Prompt, RasNotAsked, RasQuestion, SaveMenu

_TOAST_EVERY_S = 3
"""Between messages of new findings, in the time of the scenes."""
_CHECK_S = 0.5
_AGE_STEP_S = 5.0
"""The age of the data, where the header has it, is drawn again after so many seconds."""

_USUAL_DELAY_S = 0.8
"""A tick that is older than this when it is drawn, beyond its interval, is reported as delayed."""
_DRAW_LATE_S = 1.0
_SILENT_TICKS = 3
"""So many missed ticks are reported."""
_INTERRUPTED = 130
_LONG_S = 60
"""For how long the name of a part of a recording is shown: it is to be given to somebody."""
_SCENES = "scenes"
_RAS = "ras"


class Toasts:
    """Messages of findings that opened: one line for all of the last seconds."""

    def __init__(self) -> None:
        self._opened: list[Finding] = []
        self._last_ns: int | None = None

    def accept(self, scene: Scene, is_asking: bool = False) -> str:
        """The message to show with this scene; empty for none. While a question has the last line
        (`is_asking`) messages wait: above it they would cover values."""
        self._opened += [finding for change, finding in scene.changes if change is Change.OPEN]
        now_ns = scene.snapshot.time_ns
        passed_ns = None if self._last_ns is None else now_ns - self._last_ns
        # A clock that was set back delays nothing.
        is_early = passed_ns is not None and 0 <= passed_ns < _TOAST_EVERY_S * SECOND_NS
        if not self._opened or is_early or is_asking:
            return ""
        self._last_ns = now_ns
        (first, *others), self._opened = self._opened, []
        subject = labels.subject_name(first, scene.snapshot.fabric)
        text = f"{labels.finding_mark(first)} {finding_title(first)} {subject}"
        return f"{text} and {len(others)} more findings" if others else text


class FabmonApp(TimeKeys, ViewKeys, DisplayKeys):
    """The screen of one run.

    `scenes` are the live scenes, None for a replay. `clock` returns seconds; it is only used to
    notice that ticks are missing.
    """

    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.EVERYWHERE)]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "fabmon"

    def __init__(
        self,
        scenes: AsyncIterator[Scene] | None,
        facts: RunFacts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        depth = detect(os.environ) if facts.color == "auto" else Depth(facts.color)
        preferences = facts.preferences or Preferences()
        super().__init__(ansi_color=not depth.rgb, driver_class=TerminalDriver)
        self.console = console_of(depth)
        self.screen_state = ScreenState(
            facts,
            depth,
            captions=Tips(facts.captions),
            choices=preferences.choices,
            keys=preferences.keys,
            terminal_theme=theme_without_answer(os.environ),
        )
        self._scenes = scenes
        self._facts = facts
        self._clock = clock
        self._received_s = self._aged_s = clock()
        self._drawn_s = -math.inf
        self._toasts = Toasts()
        self._notice = preferences.notice
        self.key_priority = facts.key_priority or self.key_priority
        self.set_up_time(facts.recording or RecordingAccess(), facts.start)

    async def on_mount(self) -> None:
        """Set up the views, and start to receive scenes or to play."""
        state = self.screen_state
        for theme in widget_themes(state.depth):
            self.register_theme(theme)
        self.apply_theme()
        self.set_keymap(keymap(state.keys))
        await self.ask_background()
        for view in (SwitchesScreen, NodesScreen, FindingsScreen, MatrixScreen, JobsScreen):
            self.install_screen(view(state), view.VIEW)
        for timed in (OverviewScreen, FluctuationScreen):
            self.install_screen(timed(state, self.recording.reader), timed.VIEW)
        self.push_screen(NodesScreen.VIEW)
        if self._scenes is not None:
            receiving = self._receive(self._scenes)
            self.run_worker(receiving, name=_SCENES, exclusive=True, exit_on_error=False)
        self.begin_to_play()
        if self._notice:
            self.say(self._notice, 8)
        self.set_interval(_CHECK_S, self._check_silence)

    async def on_unmount(self) -> None:
        """Close the recording."""
        await self.player.close()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """No filter of Textual's that changes colours: ours fit the depth."""
        return [NoColor()] if self.screen_state.depth is Depth.NONE else []

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
        self.screen_state.delay_s = self._delay_s(scene)
        self._note_data_age()
        self.player.moves.kept.add(scene)
        self._toast(scene)
        # A console that cannot keep up draws less than it analyses and records.
        if self._is_time_to_draw():
            await self.show_scene(scene)

    def _is_time_to_draw(self) -> bool:
        """Whether to draw now: late scenes are drawn once a second at most."""
        now_s = self._clock()
        if self.screen_state.delay_s and now_s - self._drawn_s < _DRAW_LATE_S:
            return False
        self._drawn_s = now_s
        return True

    def _delay_s(self, scene: Scene) -> float:
        """The age of a scene where it is older than one that is on time, else 0.

        Until the next one a scene that came on time is at most an interval old.
        """
        if self._facts.age_s is None:
            return 0.0
        age_s = self._facts.age_s(scene.snapshot.time_ns)
        return age_s if age_s > scene.snapshot.interval_s + _USUAL_DELAY_S else 0.0

    async def show_scene(self, scene: Scene) -> None:
        """Draw another scene; the first one with data opens the overview."""
        if self.screen_state.live is None and self.screen_state.cursor.playing:
            self._toast(scene)
        await self.leave_nodes(scene)
        self.repaint()

    def _toast(self, scene: Scene) -> None:
        text = self._toasts.accept(scene, isinstance(self.screen, Prompt))
        if text:
            self.notify(text, timeout=6, markup=False, severity="warning")

    def _check_silence(self) -> None:
        """Report in the header that ticks are missing, or that the last one is old."""
        scene, state = self.screen_state.live, self.screen_state
        if scene is None or state.ended:
            return
        silent_s = self._clock() - self._received_s
        is_silent = silent_s > _SILENT_TICKS * scene.snapshot.interval_s + 1
        delay_s = self._delay_s(scene)
        if is_silent or state.silent_s or delay_s or state.delay_s:
            state.silent_s = silent_s if is_silent else 0.0
            state.delay_s = delay_s
            if self._is_time_to_draw():
                self.repaint()
        elif self._facts.data_age_s is not None and self._clock() - self._aged_s >= _AGE_STEP_S:
            self._note_data_age()
            self.repaint()

    def _note_data_age(self) -> None:
        """Take the age of the data for the header."""
        self._aged_s = self._clock()
        if self._facts.data_age_s is not None:
            self.screen_state.data_age_s = self._facts.data_age_s()

    def open_node(self, node: str) -> None:
        """Let the feed know of an opened node."""
        if self._facts.on_open is not None:
            self._facts.on_open(node)

    def on_burst_requested(self, event: BurstRequested) -> None:
        """Request fast samples from the node, and say so, or why not."""
        port, seconds, hz = event.port, port_charts.SECONDS, port_charts.HZ
        refused = "live only, these nodes are simulated or recorded"
        if self._facts.ask_burst is not None:
            refused = self._facts.ask_burst(port.node, (port.name,), seconds, hz)
        accepted = f"burst of {port.display_name}: {hz:g} Hz for {interval(seconds)}"
        self.say(f"no burst: {refused}" if refused else accepted)

    def on_retry_requested(self, _: RetryRequested) -> None:
        """Connect to lost nodes, and say to how many."""
        if self._facts.ask_retry is None:
            self.say("not connected: these nodes are simulated or recorded")
        else:
            self.say(self._facts.ask_retry())

    def on_ras_requested(self, event: RasRequested) -> None:
        """Ask the user whether NCCL's RAS is to be asked; nothing is sent before."""
        if self._facts.ask_ras is None:
            self.say("no RAS: these nodes are simulated, recorded or redacted; see fabmon ras")
        elif self.screen_state.shown is not None:
            self.say("no RAS: the screen shows the past")
        elif any(each.group == _RAS and not each.is_finished for each in self.workers):
            self.say("no RAS: the query before is not answered yet")
        elif not event.nodes:
            self.say("no RAS: no node of this job is watched")
        else:
            question = RasQuestion(event.job, event.nodes, self.screen_state.palette)
            self.push_screen(question, lambda answer: self._ask(self._facts.ask_ras, event, answer))

    def _ask(self, ask: AskRas | None, event: RasRequested, answer: str | None) -> None:
        if ask is not None and answer is not None:
            version = "" if answer.strip() == YES else answer.strip()
            asking = self._ask_for_status(ask, event, version)
            self.run_worker(asking, group=_RAS, exit_on_error=False)

    async def _ask_for_status(self, ask: AskRas, event: RasRequested, version: str) -> None:
        self.say(f"asking RAS of {event.job.label}", 6)
        try:
            texts = await asyncio.to_thread(ask, event.nodes, version)
        except RasNotAsked as error:
            texts = str(error).splitlines()
        screen = self.get_screen(JobsScreen.VIEW, JobsScreen)
        screen.show_ras([f"{event.job.label}: NCCL's RAS. esc goes back to the jobs", "", *texts])

    def action_interrupt(self) -> None:
        """Quit with the exit status of ctrl+c."""
        self.exit(return_code=_INTERRUPTED)

    def action_save(self) -> None:
        """Open the menu of what to save."""
        if isinstance(self.screen, ViewScreen):
            self.push_screen(SaveMenu(self.screen_state.palette), self._save)

    def _save(self, what: str | None) -> None:
        """Save once the menu is closed: it is not part of the picture."""
        if what is not None:
            self.call_after_refresh(self._begin_saving, what)

    def _begin_saving(self, what: str) -> None:
        if what == CUT and self.is_saving:
            self.say("not saved: the file before is still being saved", 6)
        else:
            self._quits_anyway = False
            self.run_worker(self._save_file(what), group=SAVE, exit_on_error=False)

    async def _save_file(self, what: str) -> None:
        await self._drawn()
        view = str(getattr(self.screen, "VIEW", "screen"))
        if what == CUT:
            self.say("saving a part of the recording …", _LONG_S)
        said = await save_file(what, self.screen_state, view, self.picture, self.recording)
        self.say(said, _LONG_S if what == CUT else 6)

    async def _drawn(self) -> None:
        """Wait until the screen is laid out, sized and drawn: it may have just been opened."""
        for _ in range(3):
            done = asyncio.Event()
            self.screen.call_after_refresh(done.set)
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 1)

    def picture(self) -> str:
        """The screen as SVG."""
        return without_web_fonts(self.export_screenshot(title="fabmon"))
