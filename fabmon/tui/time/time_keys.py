"""What the keys of time do, wherever one is."""

from __future__ import annotations

from functools import partial

from fabmon.analysis.finding import Finding
from fabmon.fabric.time_wording import SECOND_NS, duration, time_of_day
from fabmon.recording.format.records import Note
from fabmon.recording.reading.time_parsing import TIME_FORMATS, parse_time_near
from fabmon.tui.containment import ContainingApp
from fabmon.tui.line import FindingTarget
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.finding import FindingScreen
from fabmon.tui.time.cursor import speed_text
from fabmon.tui.time.navigation import TimeView
from fabmon.tui.time.past_reader import RecordingAccess, RecordingContents, ReplayStart
from fabmon.tui.time.player import Player
from fabmon.tui.widgets.lines import LineView, SeekRequested
from fabmon.tui.widgets.prompts import Prompt


class TimeKeys(ContainingApp):
    """The part of the app that goes through time; `stage` is the app's."""

    screen_state: ScreenState

    def go_through_time(
        self, recording: RecordingAccess, start: ReplayStart | None, view: TimeView
    ) -> None:
        """Set up the player; with `start` it begins by playing the recording."""
        self.recording = recording
        self.player = Player(self.screen_state, recording, view)
        self.screen_state.recording = recording
        self._start = start
        if start is not None:
            self.screen_state.cursor.speed = start.speed
        self._view = view

    def report_error(self, error: Exception) -> None:
        """Say that moving through the recording failed; the screen goes on."""
        self.contain_handler(error, "time travel")

    def begin_to_play(self) -> None:
        """Play the recording, if the screen was started for that."""
        if self._start is not None:
            self.screen_state.reads = True
            self.player.play(self._start.from_ns, self._start.follow)

    def on_seek_requested(self, event: SeekRequested) -> None:
        """Go there."""
        self.player.seek(event.time_ns)

    def action_freeze(self) -> None:
        """Stop here, or go on."""
        self.player.toggle()

    def action_now(self) -> None:
        """Back to what comes."""
        self.player.now()

    def action_step(self, by: int) -> None:
        """So many ticks on, or back."""
        self.player.step(by)

    def action_event(self, by: int) -> None:
        """The next event, or the one before."""
        self.player.event(by)

    def action_speed(self, by: int) -> None:
        """Twice as fast, or half."""
        cursor = self.screen_state.cursor
        cursor.faster(by)
        if self.screen_state.shown is None:
            self._view.say(f"speed {speed_text(cursor.speed)}, for what was: now is not faster")
        self._view.repaint()

    def action_skip_idle(self) -> None:
        """Leave out what nothing happens in, or do not."""
        cursor = self.screen_state.cursor
        cursor.skips_idle = not cursor.skips_idle
        on = "skipping" if cursor.skips_idle else "not skipping"
        self._view.say(f"{on} ticks in which nobody communicates and nothing happens")
        self._view.repaint()

    def action_time_zoom(self, by: int) -> None:
        """More minutes in the strip, or fewer; 0 for the usual ones."""
        cursor = self.screen_state.cursor
        if by:
            cursor.zoom_by(by, self.screen_state.live is not None)
        else:
            cursor.zoom = None
        self._view.repaint()

    def action_mark(self, which: str) -> None:
        """What is to be cut out begins here, or ends."""
        scene, cursor = self.screen_state.scene, self.screen_state.cursor
        if scene is None:
            return
        set_ = cursor.mark_in if which == "in" else cursor.mark_out
        set_(scene.snapshot.time_ns)
        marked = cursor.range_ns
        if (cursor.mark_in_ns if which == "in" else cursor.mark_out_ns) is None:
            said = f"the mark of {'the start' if which == 'in' else 'the end'} is gone"
        elif marked is None:
            key = "i" if which == "in" else "o"
            said = f"marked {which} at {time_of_day(scene.snapshot.time_ns)}; {key} again lets go"
        else:
            length = duration((marked[1] - marked[0]) / SECOND_NS)
            said = f"marked {time_of_day(marked[0])} to {time_of_day(marked[1])}, {length}"
        self._view.say(said)
        self._view.repaint()

    async def action_seek(self) -> None:
        """Ask for a time, and go there."""
        recorded = await self.player.recorded()
        scene = self.screen_state.scene
        if scene is None:
            return
        at_ns = scene.snapshot.time_ns
        when = partial(self._when, at_ns, recorded)

        def wrong(text: str) -> str:
            count = f"there are {len(recorded.marks_ns())} events"
            return "" if when(text) is not None else f"not a time: {TIME_FORMATS}; {count}"

        def go(text: str | None) -> None:
            found = when(text) if text is not None else None
            if found is not None:
                self.player.seek(found)

        self.push_screen(Prompt("go to", TIME_FORMATS, self.screen_state.palette, wrong), go)

    def _when(self, at_ns: int, recorded: RecordingContents, text: str) -> int | None:
        live = self.screen_state.live
        until_ns = recorded.until_ns if live is None else live.snapshot.time_ns
        start_ns = recorded.start_ns or at_ns - 86_400 * SECOND_NS
        found = parse_time_near(text, at_ns, start_ns, until_ns, recorded.marks_ns())
        if found is not None and found % SECOND_NS == 0:
            # A person who says 14:03:22 means the tick that the header calls so.
            found += SECOND_NS - 1
        return found

    def action_bookmark(self) -> None:
        """Ask what to call this tick, and keep it."""
        scene = self.screen_state.scene
        if scene is None:
            return
        snapshot = scene.snapshot

        def keep(text: str | None) -> None:
            if text is None:
                return
            said = " ".join(text.split()) or "bookmark"
            note = Note(kind="bookmark", time_ns=snapshot.time_ns, seq=snapshot.seq, text=said)
            refused = self.recording.bookmark(note)
            self._view.say(refused or f"◆ {said}, at {time_of_day(snapshot.time_ns)}")

        label = f"◆ {time_of_day(snapshot.time_ns)}"
        self.push_screen(
            Prompt(label, "a bookmark: its text, or none", self.screen_state.palette), keep
        )

    def action_began(self) -> None:
        """To where the selected finding began."""
        found = self._selected_finding()
        if found is None:
            self._view.say("no finding is selected")
        else:
            self.player.seek(found.since_ns)

    def _selected_finding(self) -> Finding | None:
        screen, scene = self.screen, self.screen_state.scene
        if isinstance(screen, FindingScreen):
            return screen.finding
        focused = screen.focused
        if scene is None:
            return None
        chosen = self.screen_state.selection(scene)
        if not isinstance(focused, LineView):
            return None if chosen is None else chosen.finding
        target = focused.selected
        key = target.key if isinstance(target, FindingTarget) else None
        found = next((each for each in scene.findings if each.key == key), None)
        return found or (None if chosen is None else chosen.finding)
