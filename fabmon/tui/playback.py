"""Plays on from the cursor, at its speed: until now, or until the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.moves import Moves
from fabmon.tui.past import Past
from fabmon.tui.stage import Stage

_LONGEST_WAIT_S = 5.0
_PAINTS_A_SECOND = 10.0
_POLL_S = 0.5
_IDLE = 0.02
"""Below this utilisation of the busiest link nobody communicates."""


class Playback:
    """Has the stage show one scene after the other. `follows`: at the end it waits for more.

    `past`, `say` and `now` are as for Moves.
    """

    def __init__(
        self,
        stage: Stage,
        past: Past | None,
        moves: Moves,
        repaint: Callable[[], None],
        say: Callable[[str], None],
        now: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._stage = stage
        self._past = past
        self._moves = moves
        self._repaint = repaint
        self._say = say
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
                self._repaint()
                if not self.follows:
                    cursor.playing = False
                    self._repaint()
                    return
                await asyncio.sleep(_POLL_S)
                await self._moves.recorded()
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
        return None if scene is None or scene.moment.time_ns <= at_ns else scene


def _is_idle(scene: Scene) -> bool:
    """Whether nobody communicates and nothing happens."""
    worst = float(scene.moment.worst(1)[0])
    opened = any(change is not Change.UPDATE for change, _ in scene.changes)
    happened = any(event.time_ns == scene.moment.time_ns for event in scene.events)
    return not worst >= _IDLE and not opened and not happened
