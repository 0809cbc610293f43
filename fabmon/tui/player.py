"""Moves the cursor on the timeline: back from now, to a time, on again, and to now.

What came a moment ago is kept in memory; all else is read from the recording, which others write
meanwhile. One thing is done at a time: what is asked for next puts an end to it.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fabmon.analysis.finding import Change
from fabmon.analysis.kept import Kept
from fabmon.analysis.scene import Scene
from fabmon.tui import clock
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.past import Past, PastError, Recorded
from fabmon.tui.stage import Stage
from fabmon.tui.text import words

_LONGEST_WAIT_S = 5.0
_PAINTS_A_SECOND = 10.0
_POLL_S = 0.5
_LOOK_AGAIN_S = 10.0
_IDLE = 0.02
"""Below this utilisation of the busiest link nobody communicates."""

_SETTLE_AFTER_S = 0.15
"""Who holds a key down wants to see ticks go by, not what is found in each."""


class Player:
    """Has the stage show what was, live what is.

    `shown` is called with every scene that it puts on the stage, `say` with what a person should
    know, in one line, `failed` with a fault of fabmon itself. `past` is None where nothing is
    recorded; `why_not` says why.
    """

    def __init__(
        self,
        stage: Stage,
        past: Past | None,
        why_not: Callable[[], str],
        shown: Callable[[Scene], Awaitable[None]],
        repaint: Callable[[], None],
        say: Callable[[str], None],
        failed: Callable[[Exception], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = stage
        self._past = past
        self._why_not = why_not
        self._shown = shown
        self._repaint = repaint
        self._say = say
        self._failed = failed
        self._monotonic = monotonic
        self._kept = Kept()
        self._doing: asyncio.Task[None] | None = None
        self._drawing: asyncio.Task[None] | None = None
        self._drawn_s = 0.0
        self._follows = False
        self._steps = 0

    @property
    def _cursor_ns(self) -> int | None:
        scene = self._stage.scene
        return None if scene is None else scene.moment.time_ns

    def keep(self, scene: Scene) -> None:
        """A scene has come live."""
        self._kept.add(scene)

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
        stage = self._stage
        if stage.shown is None:
            self._stop()
            stage.freeze()
        elif stage.cursor.playing:
            self._stop()
        elif stage.is_frozen_now:
            self.now()
        else:
            self._do(self._play())
        self._repaint()

    def now(self) -> None:
        """Follow what comes; without a now, to the end, and follow what is written there."""
        if self._stage.live is not None:
            self._stop()
            self._stage.follow()
            self._repaint()
        else:
            self._follows = True
            self._do(self._to_end())

    def step(self, by: int) -> None:
        """So many ticks on, or back; those of a key that was pressed just before count too."""
        by += self._steps
        self._do(self._step(by))
        self._steps = by

    def seek(self, at_ns: int) -> None:
        """To a time."""
        self._do(self._seek(at_ns))

    def event(self, by: int) -> None:
        """To the next event, or to the one before."""
        self._do(self._event(by))

    def play(self, from_ns: int | None = None, follow: bool = False) -> None:
        """Play a recording from a time, or from its start; at its end, wait for more."""
        self._follows = follow
        self._do(self._begin(from_ns))

    async def recorded(self) -> Recorded:
        """What there is by now; nothing where nothing is recorded."""
        if self._past is not None:
            try:
                self._stage.cursor.recorded = await self._past.look()
            except PastError as error:
                self._say(f"the recording cannot be read: {error}")
        return self._stage.cursor.recorded or Recorded()

    def draw_strip(self, columns: int) -> None:
        """See to it that the strip has what it shows, where the last minutes do not."""
        if self._past is not None and (self._drawing is None or self._drawing.done()):
            drawing = self._guarded(self._draw_strip(self._past, columns))
            self._drawing = asyncio.create_task(drawing)

    # One thing at a time.

    def _do(self, doing: Coroutine[Any, Any, None]) -> None:
        self._stop()
        self._doing = asyncio.create_task(self._guarded(self._and_settle(doing)))

    def _stop(self) -> None:
        self._steps = 0
        if self._doing is not None:
            self._doing.cancel()
            self._doing = None
        if self._past is not None:
            self._past.give_up()
        self._stage.cursor.playing = False

    async def _and_settle(self, doing: Coroutine[Any, Any, None]) -> None:
        await doing
        self._steps = 0
        if self._past is not None and not self._stage.cursor.is_settled:
            await asyncio.sleep(_SETTLE_AFTER_S)
            await self._settle(self._past)

    async def _guarded(self, doing: Coroutine[Any, Any, None]) -> None:
        try:
            await doing
        except PastError as error:
            self._say(f"the recording cannot be read: {error}")
            self._repaint()
        except Exception as error:
            self._failed(error)

    async def _show(self, scene: Scene, is_settled: bool = True) -> None:
        self._steps = 0
        self._stage.show(scene)
        self._stage.cursor.is_settled = is_settled
        await self._shown(scene)

    async def _seek(self, at_ns: int) -> None:
        """To the last tick up to a time: from memory, or read; what is found in it comes after."""
        cursor = self._stage.cursor
        cursor.at_end = False
        live = self._stage.live
        if live is not None and at_ns > live.moment.time_ns:
            self._say("that is not yet: this is now")
            self._stage.follow()
            self._repaint()
            return
        kept = self._kept.at(at_ns)
        if kept is not None:
            await self._show(kept)
            return
        if self._past is None:
            await self._no_further_back()
            return
        recorded = await self.recorded()
        if not recorded.start_ns:
            await self._no_further_back()
            return
        if at_ns < recorded.start_ns:
            self._say(f"the recording begins at {clock.stamp(recorded.start_ns)}")
        scene = await self._past.seek(at_ns)
        if scene is None:
            await self._no_further_back()
            return
        await self._show(scene, is_settled=False)

    async def _settle(self, past: Past) -> None:
        scene = await past.settle(self._cursor_ns or 0)
        if scene is not None:
            await self._show(scene)

    async def _no_further_back(self) -> None:
        """Say why there is nothing earlier, and stay as far back as there is something."""
        why = self._why_not() or "nothing is recorded yet"
        first_ns = self._kept.from_ns
        if first_ns is None:
            self._say(why)
            return
        scene = self._kept.at(first_ns)
        if scene is not None:
            await self._show(scene)
        self._say(f"{why}: no further back than {clock.hms(first_ns)}")

    async def _step(self, by: int) -> None:
        stage, at_ns = self._stage, self._cursor_ns
        if at_ns is None:
            return
        if stage.shown is None and by > 0:
            self._say("this is now: nothing is later")
            return
        stage.cursor.at_end = False
        if self._kept.covers(at_ns):
            kept = self._kept.step(at_ns, by)
            if kept is not None:
                await self._show(kept)
            elif by > 0:
                self.now()
            else:
                interval_ns = int(self._interval_s() * SECOND_NS)
                first_ns = self._kept.from_ns or at_ns
                await self._seek(min(first_ns - 1, at_ns + by * interval_ns))
            return
        if self._past is None:
            return
        scene = await self._past.step(at_ns, by)
        if scene is None or scene.moment.time_ns == at_ns:
            await self._at_limit(by)
            return
        await self._show(scene, self._past.is_settled)

    async def _at_limit(self, by: int) -> None:
        if by < 0:
            self._say("this is the start of the recording")
        elif self._stage.live is not None:
            self.now()
        else:
            self._stage.cursor.at_end = True
            self._repaint()

    async def _event(self, by: int) -> None:
        at_ns = self._cursor_ns
        if at_ns is None:
            return
        await self.recorded()
        events = [each for each in self._stage.events() if not each.text.startswith("close")]
        times = sorted({event.time_ns for event in events})
        place = (
            bisect.bisect_right(times, at_ns) if by > 0 else bisect.bisect_left(times, at_ns) - 1
        )
        if not 0 <= place < len(times):
            self._say("no later event" if by > 0 else "no earlier event")
            return
        told = [words.event(event) for event in events if event.time_ns == times[place]]
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        marks = (self._stage.cursor.recorded or Recorded()).marks_ns()
        # Numbered are those of which a person can say `event 3`.
        is_mark = times[place] in marks
        number = f"event {marks.index(times[place]) + 1} of {len(marks)}: " if is_mark else ""
        self._say(f"{number}{told[0]}{more}")
        await self._seek(times[place])

    # Playing.

    async def _begin(self, from_ns: int | None) -> None:
        recorded = await self.recorded()
        while not recorded.start_ns and self._follows:
            self._stage.reads = False
            await asyncio.sleep(_POLL_S)
            recorded = await self.recorded()
        if self._past is None or not recorded.start_ns:
            self._stage.ended = True
            self._say("nothing is recorded in it")
            self._repaint()
            return
        at_ns = recorded.start_ns if from_ns is None else from_ns
        scene = await self._past.seek(at_ns)
        if scene is None:
            self._stage.ended = True
            self._say("none of its ticks can be read: fabmon verify tells more")
            self._repaint()
            return
        await self._show(scene, is_settled=at_ns <= recorded.start_ns)
        await self._play()

    async def _to_end(self) -> None:
        recorded = await self.recorded()
        if self._past is None or not recorded.until_ns:
            return
        at_ns = self._cursor_ns
        if at_ns is None or at_ns < recorded.until_ns:
            scene = await self._past.seek(recorded.until_ns)
            if scene is not None:
                await self._show(scene, is_settled=False)
        await self._play()

    async def _play(self) -> None:
        """On from the cursor at its speed, until now or the end."""
        cursor = self._stage.cursor
        cursor.playing, cursor.at_end = True, False
        if self._past is not None and not cursor.is_settled:
            await self._settle(self._past)
        due_s = painted_s = self._monotonic()
        while True:
            at_ns = self._cursor_ns or 0
            scene = await self._following(at_ns)
            if scene is None:
                if self._stage.live is not None:
                    self.now()
                    return
                cursor.at_end = True
                self._repaint()
                if not self._follows:
                    cursor.playing = False
                    self._repaint()
                    return
                await asyncio.sleep(_POLL_S)
                await self.recorded()
                continue
            cursor.at_end = False
            if cursor.skips_idle and _is_idle(scene):
                self._stage.show(scene)
                if self._monotonic() - painted_s >= 1 / _PAINTS_A_SECOND:
                    painted_s = self._monotonic()
                    self._repaint()
                await asyncio.sleep(0)
                continue
            if cursor.speed is not None:
                recorded_s = min((scene.moment.time_ns - at_ns) / SECOND_NS, _LONGEST_WAIT_S)
                wait_s = recorded_s / cursor.speed
                # What is late is not made up for by more than one wait: the screen was busy.
                due_s = max(due_s + wait_s, self._monotonic() - wait_s)
                await asyncio.sleep(max(0.0, due_s - self._monotonic()))
            await self._show(scene)

    async def _following(self, at_ns: int) -> Scene | None:
        """The next scene to be shown: at high speed not every tick is."""
        speed = self._stage.cursor.speed
        by = 1
        if speed is not None:
            by = max(1, round(speed / (_PAINTS_A_SECOND * self._interval_s())))
        if self._kept.covers(at_ns):
            return self._kept.step(at_ns, by) or self._kept.step(at_ns, 1)
        scene = await self._past.step(at_ns, by) if self._past is not None else None
        return None if scene is None or scene.moment.time_ns <= at_ns else scene

    def _interval_s(self) -> float:
        scene = self._stage.scene
        return 1.0 if scene is None else max(scene.moment.interval_s, 0.001)

    async def _draw_strip(self, past: Past, columns: int) -> None:
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
            cursor.curve = await past.curve(*window, columns)
            if cursor.recorded is None or self._stage.live is not None:
                cursor.recorded = await past.look()
        except PastError:
            return  # It is said when somebody goes there.
        self._drawn_s = self._monotonic()
        self._repaint()


def _is_idle(scene: Scene) -> bool:
    """Whether nobody communicates and nothing happens."""
    worst = float(scene.moment.worst(1)[0])
    opened = any(change is not Change.UPDATE for change, _ in scene.changes)
    happened = any(event.time_ns == scene.moment.time_ns for event in scene.events)
    return not worst >= _IDLE and not opened and not happened
