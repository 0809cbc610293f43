"""The keys of time travel, which work in every view."""

from __future__ import annotations

from functools import partial

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import DAY_NS, SECOND_NS, date_time, duration, time_of_day
from fabmon.recording.format.records import Note
from fabmon.recording.reading.time_parsing import TIME_FORMATS, parse_time_near
from fabmon.scenes.recording_access import RecordingAccess, ReplayStart
from fabmon.scenes.recording_contents import RecordingContents
from fabmon.tui.keys import shown_key
from fabmon.tui.line import FindingTarget
from fabmon.tui.screen_app import ScreenApp
from fabmon.tui.screens.finding import FindingScreen
from fabmon.tui.time.cursor import speed_text
from fabmon.tui.time.player import Player
from fabmon.tui.widgets.lines import LineView, RangeRequested, SeekRequested, ZoomRequested
from fabmon.tui.widgets.prompts import Prompt


class TimeKeys(ScreenApp):
    """The part of the app that moves through time; a `TimeView` of its player."""

    def set_up_time(self, recording: RecordingAccess, start: ReplayStart | None) -> None:
        """Set up the player; with `start` it begins by playing the recording."""
        self.recording = self.screen_state.recording = recording
        self.player = Player(self.screen_state, recording, self)
        self._start = start

    async def show_scene(self, scene: Scene) -> None:
        """Draw another scene."""
        raise NotImplementedError

    def report_error(self, error: Exception) -> None:
        """Show that moving through the recording failed; the screen continues."""
        self.contain_handler(error, "time travel")

    def begin_to_play(self) -> None:
        """Play the recording, if the screen was started for that."""
        if self._start is not None:
            self.screen_state.cursor.speed = self._start.speed
            self.screen_state.reads = True
            self.player.play(self._start.from_ns, self._start.follow)

    def on_seek_requested(self, event: SeekRequested) -> None:
        """Go to a time of the timeline."""
        self.player.seek(event.time_ns)

    async def on_range_requested(self, event: RangeRequested) -> None:
        """Mark a range of the timeline: the part of it in which something was seen."""
        cursor = self.screen_state.cursor
        recorded = cursor.recorded or await self.player.moves.recorded()
        newest_ns = self._newest_ns(recorded) or event.until_ns
        ends_ns = (max(event.from_ns, recorded.start_ns), min(event.until_ns, newest_ns))
        if ends_ns[0] < ends_ns[1]:
            cursor.mark_in_ns, cursor.mark_out_ns = ends_ns
            self.say(_marked(*ends_ns))
        else:
            self.say("nothing is recorded in that range")
        self.repaint()

    def on_zoom_requested(self, event: ZoomRequested) -> None:
        """Show more or less time in the timeline."""
        self.action_time_zoom(event.by)

    def action_freeze(self) -> None:
        """Freeze or resume."""
        self.player.toggle()

    def action_now(self) -> None:
        """Follow the live end, or the end of a recording."""
        self.player.now()

    def action_step(self, by: int) -> None:
        """Go `by` ticks forward, or back."""
        self.player.step(by)

    def action_event(self, by: int) -> None:
        """Go to the next event (`by` = 1), or to the previous one (-1)."""
        self.player.event(by)

    def action_speed(self, by: int) -> None:
        """Double the speed of playback (`by` = 1), or halve it (-1)."""
        cursor = self.screen_state.cursor
        cursor.faster(by)
        if self.screen_state.shown is None:
            self.say(f"playback speed {speed_text(cursor.speed)}: it applies to the past only")
        elif not cursor.playing:  # Otherwise the header shows it.
            key = shown_key("freeze", self.screen_state.keys)
            self.say(f"playback speed {speed_text(cursor.speed)}; paused: {key} plays")
        self.repaint()

    def action_skip_idle(self) -> None:
        """Let playback skip idle ticks, or not."""
        cursor = self.screen_state.cursor
        cursor.skips_idle = not cursor.skips_idle
        verb = "skips" if cursor.skips_idle else "shows"
        self.say(f"playback {verb} ticks without traffic or events")
        self.repaint()

    def action_time_zoom(self, by: int) -> None:
        """Show more time in the timeline (`by` > 0), less (< 0), or the default (0)."""
        cursor, has_now = self.screen_state.cursor, self.screen_state.live is not None
        if by:
            before_s = cursor.span_s(has_now)
            cursor.zoom_by(by, has_now)
            if by > 0 and not has_now and cursor.span_s(has_now) == before_s:
                self.say("the timeline shows all of the recording")
        else:
            cursor.zoom = None
        self.repaint()

    def action_mark(self, which: str) -> None:
        """Mark the start (`in`) or the end (`out`) of a range at the time shown, or clear it."""
        scene, cursor = self.screen_state.scene, self.screen_state.cursor
        if scene is None:
            return
        at_ns, is_start = scene.snapshot.time_ns, which == "in"
        (cursor.mark_in if is_start else cursor.mark_out)(at_ns)
        name, key = ("start", "i") if is_start else ("end", "o")
        marked = cursor.range_ns
        if (cursor.mark_in_ns if is_start else cursor.mark_out_ns) is None:
            text = f"{name} of the range cleared"
        elif marked is None:
            text = f"{name} of the range marked at {time_of_day(at_ns)}; {key} again clears it"
        else:
            text = _marked(*marked)
        self.say(text)
        self.repaint()

    async def action_seek(self) -> None:
        """Ask for a time, and go there."""
        # What is known: the reader may be busy for a second with the minutes before the last seek.
        recorded = self.screen_state.cursor.recorded or await self.player.moves.recorded()
        scene = self.screen_state.scene
        if scene is None:
            return
        parsed = partial(self._parse_time, scene.snapshot.time_ns, recorded)

        def wrong(text: str) -> str:
            found = parsed(text)
            if found is None:
                return f"not a time: {TIME_FORMATS}; there are {len(recorded.marks_ns())} events"
            return self._why_too_late(found, recorded)

        def go(text: str | None) -> None:
            found = parsed(text) if text is not None else None
            if found is not None:
                self.player.seek(found)

        self.push_screen(Prompt("go to", TIME_FORMATS, self.screen_state.palette, wrong), go)

    def _why_too_late(self, at_ns: int, recorded: RecordingContents) -> str:
        """Why the screen cannot go to a time; empty if it is not later than the newest tick."""
        newest_ns = self._newest_ns(recorded)
        if not newest_ns or at_ns // SECOND_NS <= newest_ns // SECOND_NS:
            return ""
        times = f"{date_time(at_ns)} is %s {date_time(newest_ns)}"
        if self.screen_state.live is None:
            return times % "after the end of the recording:"
        return times % "in the future: the newest tick is of"

    def _newest_ns(self, recorded: RecordingContents) -> int:
        """The time of the newest tick, of the feed or of the recording; 0 if there is none."""
        live = self.screen_state.live
        return recorded.until_ns if live is None else live.snapshot.time_ns

    def _parse_time(self, at_ns: int, recorded: RecordingContents, text: str) -> int | None:
        until_ns = self._newest_ns(recorded)
        start_ns = recorded.start_ns or at_ns - DAY_NS
        found = parse_time_near(text, at_ns, start_ns, until_ns, recorded.marks_ns())
        return found and found.end_ns

    def action_bookmark(self) -> None:
        """Ask for a text, and record a bookmark at the cursor."""
        scene = self.screen_state.scene
        if scene is None:
            return
        if self.recording.bookmark_problem:
            self.say(self.recording.bookmark_problem)
            return
        snapshot, at = scene.snapshot, time_of_day(scene.snapshot.time_ns)

        def keep(text: str | None) -> None:
            if text is not None:
                name = " ".join(text.split()) or "bookmark"
                note = Note(kind="bookmark", time_ns=snapshot.time_ns, seq=snapshot.seq, text=name)
                self.say(self.recording.bookmark(note) or f"◆ {name}, at {at}")

        hint = "text of the bookmark (optional)"
        self.push_screen(Prompt(f"◆ {at}", hint, self.screen_state.palette), keep)

    def action_began(self) -> None:
        """Go to the time at which the selected finding began."""
        found = self._selected_finding()
        if found is None:
            self.say("no finding is selected")
        else:
            self.player.seek(found.since_ns)

    def _selected_finding(self) -> Finding | None:
        """The finding of this page, of the cursor of the focused list, or the selected one."""
        screen, scene = self.screen, self.screen_state.scene
        if isinstance(screen, FindingScreen):
            return screen.finding
        if scene is None:
            return None
        target = screen.focused.selected if isinstance(screen.focused, LineView) else None
        key = target.key if isinstance(target, FindingTarget) else None
        found = next((each for each in scene.findings if each.key == key), None)
        selection = self.screen_state.selection(scene)
        return found or (None if selection is None else selection.finding)


def _marked(from_ns: int, until_ns: int) -> str:
    length = duration((until_ns - from_ns) / SECOND_NS)
    return f"marked {time_of_day(from_ns)} to {time_of_day(until_ns)}, {length}"
