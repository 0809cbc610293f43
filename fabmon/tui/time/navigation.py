"""Moves of the cursor on the timeline: to a time, a tick, an event.

What came a moment ago is kept in memory; all else is read from the recording, which others write
meanwhile.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable
from typing import Protocol

from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.analysis.scene_cache import Kept
from fabmon.fabric.time_wording import SECOND_NS, date_time, time_of_day
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import labels
from fabmon.tui.time.past_reader import PastError, PastReader, RecordingAccess, RecordingContents


class TimeView(Protocol):
    """The screen, as far as time travel needs it; implemented by the app."""

    async def show_scene(self, scene: Scene) -> None:
        """Draw another scene."""

    def repaint(self) -> None:
        """Draw again what is shown."""

    def say(self, text: str) -> None:
        """Show one line to the user for some seconds."""

    def report_error(self, error: Exception) -> None:
        """Show a fault of fabmon itself; the screen continues."""


class Navigation:
    """Moves the time cursor of the screen. `kept` are the last scenes that came live.

    `now` is called where a move leads to the live end. `steps` counts the steps that were asked for
    since a scene was shown last.
    """

    def __init__(
        self,
        screen_state: ScreenState,
        recording: RecordingAccess,
        view: TimeView,
        now: Callable[[], None],
    ) -> None:
        self._stage = screen_state
        self._recording = recording
        self._past = recording.reader
        self._view = view
        self._now = now
        self.kept = Kept()
        self.steps = 0

    @property
    def cursor_ns(self) -> int | None:
        """Time of the scene that is shown; None before the first."""
        scene = self._stage.scene
        return None if scene is None else scene.snapshot.time_ns

    @property
    def interval_s(self) -> float:
        """From one tick to the next, where the cursor is."""
        scene = self._stage.scene
        return 1.0 if scene is None else max(scene.snapshot.interval_s, 0.001)

    async def recorded(self) -> RecordingContents:
        """What there is by now; nothing where nothing is recorded."""
        if self._past is not None:
            try:
                self._stage.cursor.recorded = await self._past.look()
            except PastError as error:
                self._view.say(f"the recording cannot be read: {error}")
        return self._stage.cursor.recorded or RecordingContents()

    async def show(self, scene: Scene, is_settled: bool = True) -> None:
        """Put a scene on the stage; `is_settled` as in the cursor."""
        self._stage.show(scene)
        self._stage.cursor.is_settled = is_settled
        self.steps = 0
        await self._view.show_scene(scene)

    async def seek(self, at_ns: int) -> None:
        """To the last tick up to a time: from memory, or read; what is found in it comes after."""
        cursor = self._stage.cursor
        cursor.at_end = False
        live = self._stage.live
        if live is not None and at_ns > live.snapshot.time_ns:
            self._view.say("that is not yet: this is now")
            self._stage.follow()
            self._view.repaint()
            return
        kept = self.kept.at(at_ns)
        if kept is not None:
            await self.show(kept)
            return
        if self._past is None:
            await self._no_further_back()
            return
        recorded = await self.recorded()
        if not recorded.start_ns:
            await self._no_further_back()
            return
        if at_ns < recorded.start_ns:
            self._view.say(f"the recording begins at {date_time(recorded.start_ns)}")
        scene = await self._past.seek(at_ns)
        if scene is None:
            await self._no_further_back()
            return
        await self.show(scene, is_settled=False)

    async def settle(self, past: PastReader) -> None:
        """Have the scene shown know what the minutes before it tell."""
        scene = await past.settle(self.cursor_ns or 0)
        if scene is not None:
            await self.show(scene)

    async def _no_further_back(self) -> None:
        """Say why there is nothing earlier, and stay as far back as there is something."""
        why = self._recording.problem or "nothing is recorded yet"
        first_ns = self.kept.from_ns
        if first_ns is None:
            self._view.say(why)
            return
        scene = self.kept.at(first_ns)
        if scene is not None:
            await self.show(scene)
        self._view.say(f"{why}: no further back than {time_of_day(first_ns)}")

    async def step(self, by: int) -> None:
        """So many ticks on, or back."""
        screen_state, at_ns = self._stage, self.cursor_ns
        if at_ns is None:
            return
        if screen_state.shown is None and by > 0:
            self._view.say("this is now: nothing is later")
            return
        screen_state.cursor.at_end = False
        if self.kept.covers(at_ns):
            kept = self.kept.step(at_ns, by)
            if kept is not None:
                await self.show(kept)
            elif by > 0:
                self._now()
            else:
                interval_ns = int(self.interval_s * SECOND_NS)
                first_ns = self.kept.from_ns or at_ns
                await self.seek(min(first_ns - 1, at_ns + by * interval_ns))
            return
        if self._past is None:
            return
        scene = await self._past.step(at_ns, by)
        if scene is None or scene.snapshot.time_ns == at_ns:
            await self._at_limit(by)
            return
        await self.show(scene, self._past.is_settled)

    async def _at_limit(self, by: int) -> None:
        if by < 0:
            self._view.say("this is the start of the recording")
        elif self._stage.live is not None:
            self._now()
        else:
            self._stage.cursor.at_end = True
            self._view.repaint()

    async def event(self, by: int) -> None:
        """To the next event, or to the one before."""
        at_ns = self.cursor_ns
        if at_ns is None:
            return
        await self.recorded()
        events = [each for each in self._stage.events() if not each.text.startswith("close")]
        times = sorted({event.time_ns for event in events})
        place = (
            bisect.bisect_right(times, at_ns) if by > 0 else bisect.bisect_left(times, at_ns) - 1
        )
        if not 0 <= place < len(times):
            self._view.say("no later event" if by > 0 else "no earlier event")
            return
        told = [labels.event_text(event) for event in events if event.time_ns == times[place]]
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        marks = (self._stage.cursor.recorded or RecordingContents()).marks_ns()
        # Numbered are those of which a person can say `event 3`.
        is_mark = times[place] in marks
        number = f"event {marks.index(times[place]) + 1} of {len(marks)}: " if is_mark else ""
        self._view.say(f"{number}{told[0]}{more}")
        await self.seek(times[place])


# Plays on from the cursor, at its speed: until now, or until the end.


_LONGEST_WAIT_S = 5.0
_PAINTS_A_SECOND = 10.0
_POLL_S = 0.5
_IDLE = 0.02
"""Below this utilisation of the busiest link nobody communicates."""


class Playback:
    """Has the stage show one scene after the other. `follows`: at the end it waits for more.

    `recording`, `view` and `now` are as for Navigation.
    """

    def __init__(
        self,
        screen_state: ScreenState,
        recording: RecordingAccess,
        moves: Navigation,
        view: TimeView,
        now: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._stage = screen_state
        self._past = recording.reader
        self._moves = moves
        self._view = view
        self._now = now
        self._monotonic = monotonic
        self.follows = False

    async def begin(self, from_ns: int | None) -> None:
        """From a time of the recording, or from its start."""
        recorded = await self._moves.recorded()
        while not recorded.start_ns and self.follows:
            self._stage.reads = False
            await asyncio.sleep(_POLL_S)
            recorded = await self._moves.recorded()
        if self._past is None or not recorded.start_ns:
            self._stage.ended = True
            self._view.say("nothing is recorded in it")
            self._view.repaint()
            return
        at_ns = recorded.start_ns if from_ns is None else from_ns
        scene = await self._past.seek(at_ns)
        if scene is None:
            self._stage.ended = True
            self._view.say("none of its ticks can be read: fabmon verify tells more")
            self._view.repaint()
            return
        await self._moves.show(scene, is_settled=at_ns <= recorded.start_ns)
        await self.play()

    async def to_end(self) -> None:
        """From the end of the recording."""
        recorded = await self._moves.recorded()
        if self._past is None or not recorded.until_ns:
            return
        at_ns = self._moves.cursor_ns
        if at_ns is None or at_ns < recorded.until_ns:
            scene = await self._past.seek(recorded.until_ns)
            if scene is not None:
                await self._moves.show(scene, is_settled=False)
        await self.play()

    async def play(self) -> None:
        """On from the cursor at its speed, until now or the end."""
        cursor = self._stage.cursor
        cursor.playing, cursor.at_end = True, False
        if self._past is not None and not cursor.is_settled:
            await self._moves.settle(self._past)
        due_s = painted_s = self._monotonic()
        while True:
            at_ns = self._moves.cursor_ns or 0
            scene = await self._following(at_ns)
            if scene is None:
                if self._stage.live is not None:
                    self._now()
                    return
                cursor.at_end = True
                self._view.repaint()
                if not self.follows:
                    cursor.playing = False
                    self._view.repaint()
                    return
                await asyncio.sleep(_POLL_S)
                await self._moves.recorded()
                continue
            cursor.at_end = False
            if cursor.skips_idle and _is_idle(scene):
                self._stage.show(scene)
                if self._monotonic() - painted_s >= 1 / _PAINTS_A_SECOND:
                    painted_s = self._monotonic()
                    self._view.repaint()
                await asyncio.sleep(0)
                continue
            if cursor.speed is not None:
                recorded_s = min((scene.snapshot.time_ns - at_ns) / SECOND_NS, _LONGEST_WAIT_S)
                wait_s = recorded_s / cursor.speed
                # What is late is not made up for by more than one wait: the screen was busy.
                due_s = max(due_s + wait_s, self._monotonic() - wait_s)
                await asyncio.sleep(max(0.0, due_s - self._monotonic()))
            await self._moves.show(scene)

    async def _following(self, at_ns: int) -> Scene | None:
        """The next scene to be shown: at high speed not every tick is."""
        speed = self._stage.cursor.speed
        by = 1
        if speed is not None:
            by = max(1, round(speed / (_PAINTS_A_SECOND * self._moves.interval_s)))
        if self._moves.kept.covers(at_ns):
            return self._moves.kept.step(at_ns, by) or self._moves.kept.step(at_ns, 1)
        scene = await self._past.step(at_ns, by) if self._past is not None else None
        return None if scene is None or scene.snapshot.time_ns <= at_ns else scene


def _is_idle(scene: Scene) -> bool:
    """Whether nobody communicates and nothing happens."""
    worst = float(scene.snapshot.worst(1)[0])
    opened = any(change is not Change.UPDATE for change, _ in scene.changes)
    happened = any(event.time_ns == scene.snapshot.time_ns for event in scene.events)
    return not worst >= _IDLE and not opened and not happened
