"""Moves of the cursor on the timeline, and playback from it.

The last scenes of a live feed are in memory; all others are read from the recording, which may
grow meanwhile.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable
from typing import Protocol

from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.time_wording import SECOND_NS, date_time, time_of_day
from fabmon.scenes.recording_access import RecordingAccess
from fabmon.scenes.recording_contents import PastError, RecordingContents
from fabmon.scenes.scene_cache import SceneCache
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import labels

_LONGEST_WAIT_S = 5.0
"""Playback crosses a gap in the recording in at most this time."""
_PAINTS_PER_S = 10.0
_POLL_S = 0.5
_IDLE_UTIL = 0.02
"""Below this utilisation of the busiest link there is no traffic worth showing."""


class TimeView(Protocol):
    """The screen, as far as time travel needs it; implemented by the app."""

    async def show_scene(self, scene: Scene) -> None:
        """Draw another scene."""

    def repaint(self) -> None:
        """Draw again what is shown."""

    def say(self, text: str) -> None:
        """Show one line to the user for some seconds."""

    def unsay(self, text: str) -> None:
        """Remove this line where it is still shown."""

    def report_error(self, error: Exception) -> None:
        """Show a fault of fabmon itself; the screen continues."""


class Navigation:
    """Moves the cursor to a time, a tick or an event. `kept` are the last scenes of a live feed.

    `now` is called where a move leads to the live end. `steps` is the number of steps that were
    requested since a scene was last shown. `announced` is the line of the event gone to last.
    """

    def __init__(
        self,
        screen_state: ScreenState,
        recording: RecordingAccess,
        view: TimeView,
        now: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = screen_state
        self._recording = recording
        self._past = recording.reader
        self._view = view
        self._now = now
        self._monotonic = monotonic
        self.kept = SceneCache()
        self.steps = 0
        self.announced = ""

    @property
    def cursor_ns(self) -> int | None:
        """The time of the scene on the screen; None before the first."""
        scene = self._state.scene
        return None if scene is None else scene.snapshot.time_ns

    @property
    def interval_s(self) -> float:
        """The time between ticks at the cursor."""
        scene = self._state.scene
        return 1.0 if scene is None else max(scene.snapshot.interval_s, 0.001)

    async def recorded(self) -> RecordingContents:
        """What the recording holds now; empty without a recording."""
        if self._past is not None:
            try:
                self._state.cursor.recorded = await self._past.look()
            except PastError as error:
                self._view.say(f"the recording cannot be read: {error}")
        return self._state.cursor.recorded or RecordingContents()

    async def show(self, scene: Scene, is_settled: bool = True) -> None:
        """Show a scene; `is_settled` as in the cursor."""
        self._state.show(scene)
        self._state.cursor.is_settled = is_settled
        self.steps = 0
        await self._view.show_scene(scene)

    async def seek(self, at_ns: int) -> None:
        """Go to the last tick up to a time, from memory or from the recording.

        A tick from the recording is analysed later, by `settle`.
        """
        self._state.cursor.at_end = False
        live = self._state.live
        if live is not None and at_ns > live.snapshot.time_ns:
            self._view.say("that time is in the future: this is the newest tick")
            self._state.follow()
            self._view.repaint()
            return
        kept = self.kept.at(at_ns)
        if kept is not None:
            await self.show(kept)
            return
        start_ns = (await self.recorded()).start_ns
        if self._past is not None and start_ns:
            if at_ns < start_ns:
                self._view.say(f"the recording begins at {date_time(start_ns)}")
            scene = await self._past.seek(at_ns)
            if scene is not None:
                await self.show(scene, is_settled=False)
                return
        await self._no_further_back()

    async def settle(self) -> None:
        """Analyse the minutes before the scene on the screen, if due, and show the result."""
        if self._past is not None and not self._state.cursor.is_settled:
            scene = await self._past.settle(self.cursor_ns or 0)
            if scene is not None:
                await self.show(scene)

    async def _no_further_back(self) -> None:
        """Show the first scene that there is, and say why there is no earlier one."""
        reason = self._recording.problem or "nothing is recorded yet"
        first_ns = self.kept.from_ns
        scene = None if first_ns is None else self.kept.at(first_ns)
        if scene is not None:
            await self.show(scene)
        limit = "" if first_ns is None else f": no further back than {time_of_day(first_ns)}"
        self._view.say(f"{reason}{limit}")

    async def step(self, by: int) -> None:
        """Go `by` ticks forward, or back if negative."""
        at_ns = self.cursor_ns
        if at_ns is None:
            return
        if self._state.shown is None and by > 0:
            self._view.say("this is the newest tick")
            return
        self._state.cursor.at_end = False
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
        elif self._past is not None:
            scene = await self._past.step(at_ns, by)
            if scene is None or scene.snapshot.time_ns == at_ns:
                self._at_limit(by)
            else:
                await self.show(scene, self._past.is_settled)

    def _at_limit(self, by: int) -> None:
        if by < 0:
            self._view.say("this is the start of the recording")
        elif self._state.live is not None:
            self._now()
        else:
            self._state.cursor.at_end = True
            self._view.repaint()

    async def event(self, by: int) -> None:
        """Go to the next finding that opened or bookmark (`by` = 1), or to the previous one (-1).

        These are the events that a recording numbers.
        """
        scene = self._state.scene
        if scene is None:
            return
        at_ns = scene.snapshot.time_ns
        marks = (await self.recorded()).marks_ns()
        events = [each for each in self._state.events() if _is_numbered(each)]
        times = sorted({event.time_ns for event in events})
        place = (
            bisect.bisect_right(times, at_ns) if by > 0 else bisect.bisect_left(times, at_ns) - 1
        )
        if not 0 <= place < len(times):
            self._view.say("no later event" if by > 0 else "no earlier event")
            return
        fabric = scene.snapshot.fabric
        texts = [labels.event_text(each, fabric) for each in events if each.time_ns == times[place]]
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        # What this version alone found has no number that `t` accepts, as in `event 3`.
        is_mark = times[place] in marks
        number = f"event {marks.index(times[place]) + 1} of {len(marks)}: " if is_mark else ""
        self.announced = f"{number}{texts[0]}{more}"
        self._view.say(self.announced)
        await self.seek(times[place])


def _is_numbered(event: Event) -> bool:
    is_opened = event.kind == "finding" and event.text.startswith(Change.OPEN)
    return is_opened or event.kind == "bookmark"


class Playback(Navigation):
    """Plays from the cursor at its speed. With `follows` it waits for more at the end."""

    follows = False

    async def begin(self, from_ns: int | None) -> None:
        """Play from a time of the recording, or from its start."""
        recorded = await self.recorded()
        while not recorded.start_ns and self.follows:
            self._state.reads = False
            await asyncio.sleep(_POLL_S)
            recorded = await self.recorded()
        if self._past is None or not recorded.start_ns:
            self._end("the recording is empty")
            return
        at_ns = recorded.start_ns if from_ns is None else from_ns
        scene = await self._past.seek(at_ns)
        if scene is None:
            self._end("no tick of the recording can be read: run fabmon verify")
            return
        await self.show(scene, is_settled=at_ns <= recorded.start_ns)
        await self.play()

    def _end(self, reason: str) -> None:
        self._state.ended = True
        self._view.say(reason)
        self._view.repaint()

    async def to_end(self) -> None:
        """Play from the end of the recording; unless that is complete, wait there for more."""
        recorded = await self.recorded()
        until_ns, self.follows = recorded.until_ns, not recorded.is_complete
        if self._past is None or not until_ns:
            return
        if (self.cursor_ns or 0) < until_ns:
            scene = await self._past.seek(until_ns)
            if scene is not None:
                await self.show(scene, is_settled=False)
        await self.play()

    async def play(self) -> None:
        """Play from the cursor until the live end, or the end of the recording."""
        cursor = self._state.cursor
        cursor.playing, cursor.at_end = True, False
        await self.settle()
        due_s = painted_s = self._monotonic()
        while True:
            at_ns = self.cursor_ns or 0
            scene = await self._next(at_ns)
            if scene is None and self._state.live is not None:
                self._now()
                return
            if scene is None:
                cursor.at_end, cursor.playing = True, self.follows
                self._view.repaint()
                if not self.follows:
                    return
                await asyncio.sleep(_POLL_S)
                await self.recorded()
                continue
            cursor.at_end = False
            if cursor.skips_idle and _is_idle(scene):
                self._state.show(scene)
                if self._monotonic() - painted_s >= 1 / _PAINTS_PER_S:
                    painted_s = self._monotonic()
                    self._view.repaint()
                await asyncio.sleep(0)
                continue
            if cursor.speed is not None:
                recorded_s = min((scene.snapshot.time_ns - at_ns) / SECOND_NS, _LONGEST_WAIT_S)
                wait_s = recorded_s / cursor.speed
                # A delay is made up for by one wait at most: the screen was busy.
                due_s = max(due_s + wait_s, self._monotonic() - wait_s)
                await asyncio.sleep(max(0.0, due_s - self._monotonic()))
            await self.show(scene)

    async def _next(self, at_ns: int) -> Scene | None:
        """The next scene to show; at high speed ticks are left out. None at the end."""
        speed = self._state.cursor.speed
        by = 1 if speed is None else max(1, round(speed / (_PAINTS_PER_S * self.interval_s)))
        if self.kept.covers(at_ns):
            return self.kept.step(at_ns, by) or self.kept.step(at_ns, 1)
        scene = await self._past.step(at_ns, by) if self._past is not None else None
        return None if scene is None or scene.snapshot.time_ns <= at_ns else scene


def _is_idle(scene: Scene) -> bool:
    """Whether a scene has neither traffic nor events."""
    worst = float(scene.snapshot.worst(1)[0])
    is_changed = any(change is not Change.UPDATE for change, _ in scene.changes)
    has_event = any(event.time_ns == scene.snapshot.time_ns for event in scene.events)
    return not worst >= _IDLE_UTIL and not is_changed and not has_event
