"""Reads what the strip of time shows, where the last minutes do not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.time.navigation import Navigation, Playback, TimeView
from fabmon.tui.time.past_reader import PastError, PastReader, RecordingAccess, RecordingContents

_LOOK_AGAIN_S = 10.0


class StripLoader:
    """Gives the cursor its curve, from the recording."""

    def __init__(
        self,
        screen_state: ScreenState,
        past: PastReader,
        repaint: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._stage = screen_state
        self._past = past
        self._repaint = repaint
        self._monotonic = monotonic
        self._drawn_s = 0.0

    async def read(self, columns: int) -> None:
        """Read what the strip shows, unless it is known."""
        window, cursor = self._stage.strip_window(), self._stage.cursor
        if window is None or self._stage.curve() is not cursor.curve:
            return
        had = cursor.curve
        part_ns = max((window[1] - window[0]) // 100, SECOND_NS)
        if (
            had is not None
            and abs(had.from_ns - window[0]) < part_ns
            and had.until_ns - had.from_ns == window[1] - window[0]
            and len(had.values) == columns
            and self._monotonic() - self._drawn_s < _LOOK_AGAIN_S
        ):
            return
        try:
            cursor.curve = await self._past.curve(*window, columns)
            if cursor.recorded is None or self._stage.live is not None:
                cursor.recorded = await self._past.look()
        except PastError:
            return  # It is said when somebody goes there.
        self._drawn_s = self._monotonic()
        self._repaint()


# Does what a person asks for on the timeline: back from now, to a time, on again, and to now.
#
# One thing is done at a time: what is asked for next puts an end to it.


_SETTLE_AFTER_S = 0.15
"""Who holds a key down wants to see ticks go by, not what is found in each."""


class Player:
    """Executes the time commands of the user: freeze, step, seek, play, follow the live end."""

    def __init__(
        self,
        screen_state: ScreenState,
        recording: RecordingAccess,
        view: TimeView,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = screen_state
        self._past = past = recording.reader
        self._view = view
        self._moves = Navigation(screen_state, recording, view, self.now)
        self._playback = Playback(screen_state, recording, self._moves, view, self.now, monotonic)
        self._strip = (
            None if past is None else StripLoader(screen_state, past, view.repaint, monotonic)
        )
        self._doing: asyncio.Task[None] | None = None
        self._drawing: asyncio.Task[None] | None = None

    def keep(self, scene: Scene) -> None:
        """A scene has come live."""
        self._moves.kept.add(scene)

    async def close(self) -> None:
        """Stop, and let the recording go."""
        for task in (self._doing, self._drawing):
            if task is not None:
                task.cancel()
        await asyncio.gather(
            *(task for task in (self._doing, self._drawing) if task), return_exceptions=True
        )
        if self._past is not None:
            await self._past.close()

    # What a person asks for.

    def toggle(self) -> None:
        """Freeze, or go on: from where the cursor was put, or with what comes now."""
        screen_state = self._stage
        if screen_state.scene is None:
            self._view.say("there is nothing to see yet")
        elif screen_state.shown is None:
            self._stop()
            screen_state.freeze()
        elif screen_state.cursor.playing:
            self._stop()
        elif screen_state.is_frozen_now:
            self.now()
        else:
            self._do(self._playback.play())
        self._view.repaint()

    def now(self) -> None:
        """Follow what comes; without a now, to the end, and follow what is written there."""
        if self._stage.live is not None:
            self._stop()
            self._stage.follow()
            self._view.repaint()
        else:
            self._playback.follows = True
            self._do(self._playback.to_end())

    def step(self, by: int) -> None:
        """So many ticks on, or back; those of a key that was pressed just before count too."""
        by += self._moves.steps
        self._do(self._moves.step(by))
        self._moves.steps = by

    def seek(self, at_ns: int) -> None:
        """To a time."""
        self._do(self._moves.seek(at_ns))

    def event(self, by: int) -> None:
        """To the next event, or to the one before."""
        self._do(self._moves.event(by))

    def play(self, from_ns: int | None = None, follow: bool = False) -> None:
        """Play a recording from a time, or from its start; at its end, wait for more."""
        self._playback.follows = follow
        self._do(self._playback.begin(from_ns))

    async def recorded(self) -> RecordingContents:
        """What there is by now; nothing where nothing is recorded."""
        return await self._moves.recorded()

    def draw_strip(self, columns: int) -> None:
        """See to it that the strip has what it shows, where the last minutes do not."""
        if self._strip is not None and (self._drawing is None or self._drawing.done()):
            self._drawing = asyncio.create_task(self._guarded(self._strip.read(columns)))

    # One thing at a time.

    def _do(self, doing: Coroutine[Any, Any, None]) -> None:
        self._stop()
        self._doing = asyncio.create_task(self._guarded(self._and_settle(doing)))

    def _stop(self) -> None:
        self._moves.steps = 0
        if self._doing is not None:
            self._doing.cancel()
            self._doing = None
        if self._past is not None:
            self._past.give_up()
        self._stage.cursor.playing = False

    async def _and_settle(self, doing: Coroutine[Any, Any, None]) -> None:
        await doing
        self._moves.steps = 0
        if self._past is not None and not self._stage.cursor.is_settled:
            await asyncio.sleep(_SETTLE_AFTER_S)
            await self._moves.settle(self._past)

    async def _guarded(self, doing: Coroutine[Any, Any, None]) -> None:
        try:
            await doing
        except PastError as error:
            self._view.say(f"the recording cannot be read: {error}")
            self._view.repaint()
        except Exception as error:
            self._view.report_error(error)
