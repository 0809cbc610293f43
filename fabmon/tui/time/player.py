"""Executes the time commands of the user, one at a time, and loads the timeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fabmon.fabric.time_wording import SECOND_NS
from fabmon.scenes.recording_access import RecordingAccess
from fabmon.scenes.recording_contents import PastError
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.time.navigation import Playback, TimeView

_RELOAD_S = 10.0
"""The timeline of a recording is loaded again after this time."""
_SETTLE_AFTER_S = 0.15
"""A tick is analysed this long after the last key: a key that is held down only moves."""


class Player:
    """Freeze, step, seek, play, follow the live end. A new command cancels the one before.

    `moves` does the work; `past` reads the recording, None without one.
    """

    def __init__(
        self,
        screen_state: ScreenState,
        recording: RecordingAccess,
        view: TimeView,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = screen_state
        self._view = view
        self._monotonic = monotonic
        self.past = recording.reader
        self.moves = Playback(screen_state, recording, view, self.now, monotonic)
        self._command: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._loaded_s = 0.0

    async def close(self) -> None:
        """Cancel everything, and close the recording."""
        tasks = [task for task in (self._command, self._loading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.past is not None:
            await self.past.close()

    def toggle(self) -> None:
        """Freeze, or resume: play from the cursor if it was moved, else follow the live end."""
        state = self._state
        if state.scene is None:
            self._view.say("nothing has been received yet")
        elif state.shown is None:
            self._stop()
            state.freeze()
        elif state.cursor.playing:
            self._stop()
            if not state.cursor.is_settled:
                # The minutes before the tick are analysed, too, where it is stopped at.
                self._run(self.moves.settle())
        elif state.is_frozen_now:
            self.now()
        else:
            self._run(self.moves.play())
        self._view.repaint()

    def now(self) -> None:
        """Follow the live end; in a replay, go to the end of the recording and, while that is being
        recorded, follow it."""
        if self._state.live is not None:
            self._stop()
            self._state.follow()
            self._view.repaint()
        else:
            self._run(self.moves.to_end())

    def step(self, by: int) -> None:
        """Go `by` ticks forward, or back; steps that were requested just before count too."""
        by += self.moves.steps
        self._run(self.moves.step(by))
        self.moves.steps = by

    def seek(self, at_ns: int) -> None:
        """Go to a time."""
        self._run(self.moves.seek(at_ns))

    def event(self, by: int) -> None:
        """Go to the next event (`by` = 1), or to the previous one (-1)."""
        self._run(self.moves.event(by))

    def play(self, from_ns: int | None = None, follow: bool = False) -> None:
        """Play the recording from a time or from its start; `follow`: wait for more at its end."""
        self.moves.follows = follow
        self._run(self.moves.begin(from_ns))

    def load_timeline(self, columns: int) -> None:
        """Start to read the timeline from the recording, where it is not known."""
        if self.past is not None and (self._loading is None or self._loading.done()):
            self._loading = self._started(self._load_timeline(columns))

    async def _load_timeline(self, columns: int) -> None:
        window, cursor = self._state.timeline_window(), self._state.cursor
        if self.past is None or window is None or self._state.curve() is not cursor.curve:
            return
        known, length_ns = cursor.curve, window[1] - window[0]
        if (
            known is not None
            and abs(known.from_ns - window[0]) < max(length_ns // 100, SECOND_NS)
            and known.until_ns - known.from_ns == length_ns
            and len(known.values) == columns
            and self._monotonic() - self._loaded_s < _RELOAD_S
        ):
            return
        try:
            cursor.curve = await self.past.curve(*window, columns)
            if cursor.recorded is None or self._state.live is not None:
                cursor.recorded = await self.past.look()
        except PastError:
            return  # Reported when the user goes there.
        self._loaded_s = self._monotonic()
        self._view.repaint()

    def _run(self, command: Coroutine[Any, Any, None]) -> None:
        self._stop()
        self._command = self._started(self._and_settle(command), command)

    def _stop(self) -> None:
        self.moves.steps = 0
        if self.moves.announced:
            # The line is of the time that is left now.
            self._view.unsay(self.moves.announced)
            self.moves.announced = ""
        if self._command is not None:
            self._command.cancel()
            self._command = None
        if self.past is not None:
            self.past.give_up()
        self._state.cursor.playing = False

    async def _and_settle(self, command: Coroutine[Any, Any, None]) -> None:
        await command
        self.moves.steps = 0
        if self.past is not None and not self._state.cursor.is_settled:
            await asyncio.sleep(_SETTLE_AFTER_S)
            await self.moves.settle()

    def _started(
        self, doing: Coroutine[Any, Any, None], *awaited: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """Begin to do something that awaits others: what is cancelled before it began is closed, as
        nobody awaits it."""
        task = asyncio.create_task(self._guarded(doing))
        task.add_done_callback(lambda _: [each.close() for each in (doing, *awaited)])
        return task

    async def _guarded(self, doing: Coroutine[Any, Any, None]) -> None:
        try:
            await doing
        except PastError as error:
            self._view.say(f"the recording cannot be read: {error}")
            self._view.repaint()
        except Exception as error:
            self._view.report_error(error)
