"""Moves of the cursor on the timeline: to a time, a tick, an event.

What came a moment ago is kept in memory; all else is read from the recording, which others write
meanwhile.
"""

from __future__ import annotations

import bisect
from collections.abc import Awaitable, Callable

from fabmon.analysis.kept import Kept
from fabmon.analysis.scene import Scene
from fabmon.tui import clock
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.past import Past, PastError, Recorded
from fabmon.tui.stage import Stage
from fabmon.tui.text import words


class Moves:
    """Has the stage show another scene. `kept` are the last that came live.

    `past` is None where nothing is recorded; `why_not` says why. `shown` is called with every scene
    that is put on the stage, `say` with what a person should know, `now` where the way leads to
    what comes.
    """

    def __init__(
        self,
        stage: Stage,
        past: Past | None,
        why_not: Callable[[], str],
        shown: Callable[[Scene], Awaitable[None]],
        repaint: Callable[[], None],
        say: Callable[[str], None],
        now: Callable[[], None],
    ) -> None:
        self._stage = stage
        self._past = past
        self._why_not = why_not
        self._shown = shown
        self._repaint = repaint
        self._say = say
        self._now = now
        self.kept = Kept()

    @property
    def cursor_ns(self) -> int | None:
        """Time of the scene that is shown; None before the first."""
        scene = self._stage.scene
        return None if scene is None else scene.moment.time_ns

    @property
    def interval_s(self) -> float:
        """From one tick to the next, where the cursor is."""
        scene = self._stage.scene
        return 1.0 if scene is None else max(scene.moment.interval_s, 0.001)

    async def recorded(self) -> Recorded:
        """What there is by now; nothing where nothing is recorded."""
        if self._past is not None:
            try:
                self._stage.cursor.recorded = await self._past.look()
            except PastError as error:
                self._say(f"the recording cannot be read: {error}")
        return self._stage.cursor.recorded or Recorded()

    async def show(self, scene: Scene, is_settled: bool = True) -> None:
        """Put a scene on the stage; `is_settled` as in the cursor."""
        self._stage.show(scene)
        self._stage.cursor.is_settled = is_settled
        await self._shown(scene)

    async def seek(self, at_ns: int) -> None:
        """To the last tick up to a time: from memory, or read; what is found in it comes after."""
        cursor = self._stage.cursor
        cursor.at_end = False
        live = self._stage.live
        if live is not None and at_ns > live.moment.time_ns:
            self._say("that is not yet: this is now")
            self._stage.follow()
            self._repaint()
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
            self._say(f"the recording begins at {clock.stamp(recorded.start_ns)}")
        scene = await self._past.seek(at_ns)
        if scene is None:
            await self._no_further_back()
            return
        await self.show(scene, is_settled=False)

    async def settle(self, past: Past) -> None:
        """Have the scene shown know what the minutes before it tell."""
        scene = await past.settle(self.cursor_ns or 0)
        if scene is not None:
            await self.show(scene)

    async def _no_further_back(self) -> None:
        """Say why there is nothing earlier, and stay as far back as there is something."""
        why = self._why_not() or "nothing is recorded yet"
        first_ns = self.kept.from_ns
        if first_ns is None:
            self._say(why)
            return
        scene = self.kept.at(first_ns)
        if scene is not None:
            await self.show(scene)
        self._say(f"{why}: no further back than {clock.hms(first_ns)}")

    async def step(self, by: int) -> None:
        """So many ticks on, or back."""
        stage, at_ns = self._stage, self.cursor_ns
        if at_ns is None:
            return
        if stage.shown is None and by > 0:
            self._say("this is now: nothing is later")
            return
        stage.cursor.at_end = False
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
        if scene is None or scene.moment.time_ns == at_ns:
            await self._at_limit(by)
            return
        await self.show(scene, self._past.is_settled)

    async def _at_limit(self, by: int) -> None:
        if by < 0:
            self._say("this is the start of the recording")
        elif self._stage.live is not None:
            self._now()
        else:
            self._stage.cursor.at_end = True
            self._repaint()

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
            self._say("no later event" if by > 0 else "no earlier event")
            return
        told = [words.event(event) for event in events if event.time_ns == times[place]]
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        marks = (self._stage.cursor.recorded or Recorded()).marks_ns()
        # Numbered are those of which a person can say `event 3`.
        is_mark = times[place] in marks
        number = f"event {marks.index(times[place]) + 1} of {len(marks)}: " if is_mark else ""
        self._say(f"{number}{told[0]}{more}")
        await self.seek(times[place])
