"""The app fed with scenes one by one, and its screen as text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from textual import events
from textual.pilot import Pilot
from textual.widget import Widget

from fabmon.analysis.scene import Scene
from fabmon.scenes.recording_access import RecordingAccess, ReplayStart
from fabmon.tui.app import FabmonApp
from fabmon.tui.choices import Preferences
from fabmon.tui.run_facts import AskBurst, AskRas, RunFacts, Tip
from tests.tui import golden
from tests.tui.scenes import World

_CHARACTERS = {"slash": "/", "space": " "}
_NAMES = {
    "[": "left_square_bracket",
    "]": "right_square_bracket",
    "{": "left_curly_bracket",
    "}": "right_curly_bracket",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    "`": "grave_accent",
    ".": "full_stop",
    ",": "comma",
    "(": "left_parenthesis",
    ")": "right_parenthesis",
    "+": "plus",
    "-": "minus",
}
_ROUNDS = 5
"""Queues to be emptied after each other: key, action, new screen, its layout, its drawing.

Pilot's own way is to wait until the process idles, which takes long and depends on the machine.
"""


@dataclass
class Running:
    """An app that runs, its pilot, and the scenes that it is waiting for."""

    app: FabmonApp
    pilot: Pilot[None]
    queue: asyncio.Queue[Scene | None]

    async def send(self, *scenes: Scene) -> None:
        """Send scenes, and wait until they are drawn."""
        for scene in scenes:
            self.queue.put_nowait(scene)
        await self.settle()

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until they have been handled."""
        for key in keys:
            char = key if len(key) == 1 else _CHARACTERS.get(key)
            self.app.post_message(events.Key(_NAMES.get(key, key), char))
            await self.settle()

    async def press_at_once(self, *keys: str) -> None:
        """Press keys that arrive together, as on a slow connection, and wait for the last one."""
        for key in keys:
            char = key if len(key) == 1 else _CHARACTERS.get(key)
            self.app.post_message(events.Key(_NAMES.get(key, key), char))
        await self.settle()

    async def click(self, x: int, y: int, on: Widget | str | None = None) -> None:
        """Press and release the mouse at a cell of the screen, or of a widget on it, as a terminal
        reports it, and wait until that has been handled.

        Pilot's own way is to wait four times until the process idles.
        """
        await self.drag((x, y), (x, y), on)

    async def drag(
        self, start: tuple[int, int], end: tuple[int, int], on: Widget | str | None = None
    ) -> None:
        """Press the mouse at one cell, and release it at another one."""
        await self.mouse(events.MouseDown, *start, on, settles=False)
        await self.mouse(events.MouseUp, *end, on)

    async def mouse(
        self,
        event: type[events.MouseEvent],
        x: int,
        y: int,
        on: Widget | str | None = None,
        settles: bool = True,
    ) -> None:
        """What a terminal reports of the mouse at a cell of the screen, or of a widget on it."""
        if on is not None:
            widget = self.app.screen.query_one(on) if isinstance(on, str) else on
            x, y = widget.region.x + x, widget.region.y + y
        self.app.post_message(event(None, x, y, 0, 0, 1, False, False, False))
        if settles:
            await self.settle()

    async def settle(self) -> None:
        """Wait until everything that was requested is drawn."""
        for _ in range(_ROUNDS):
            await self.pilot.pause(0)

    async def until(self, wanted: Callable[[], bool], timeout_s: float = 120) -> None:
        """Wait until a condition is true, however busy the machine is."""
        deadline_s = time.monotonic() + timeout_s
        while not wanted():
            assert time.monotonic() < deadline_s, f"not in {timeout_s:g} s:\n{self.text}"
            await asyncio.sleep(0.01)
            await self.settle()

    async def heads(self, text: str) -> None:
        """Wait until a text is in the header."""
        await self.until(lambda: text in self.header)

    async def looks_like(self, name: str) -> None:
        """Wait until the screen is that of the golden called `name`; show the difference if not."""
        with suppress(AssertionError):
            await self.until(lambda: golden.is_like(name, self.text))
        golden.check(name, self.text)

    async def shows(self, *texts: str) -> None:
        """Wait until all of these texts are on the screen."""
        await self.until(lambda: all(text in self.text for text in texts))

    async def goes_to(self, view: str) -> None:
        """Wait until this view is on the screen, and drawn."""
        await self.until(lambda: self.view == view and bool(self.text.strip()))

    async def says(self, text: str) -> None:
        """Wait until a message contains a text."""
        await self.until(lambda: any(text in note.message for note in self.app._notifications))

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    @property
    def header(self) -> str:
        """The first line; empty before anything is drawn."""
        return self.text.partition("\n")[0]

    @property
    def lines(self) -> list[str]:
        """What is on the screen, line by line."""
        return self.text.splitlines()

    @property
    def view(self) -> str:
        """The name of the screen that is shown."""
        return str(getattr(self.app.screen, "VIEW", ""))


@asynccontextmanager
async def running(
    world: World | None = None,
    seq: int = 70,
    size: tuple[int, int] = (120, 40),
    color: str = "truecolor",
    mark: str = "",
    captions: Sequence[Tip] = (),
    ask_burst: AskBurst | None = None,
    ask_ras: AskRas | None = None,
    recording: RecordingAccess | None = None,
    start: ReplayStart | None = None,
    live: bool = True,
    toasts: bool = False,
    preferences: Preferences | None = None,
) -> AsyncIterator[Running]:
    """The app, with the scene of tick `seq` drawn (none without a world).

    Where it is not `live`, nothing comes: there is only the `recording`. Messages are on the
    screen with `toasts` only: how long they stay depends on the machine.
    """
    queue: asyncio.Queue[Scene | None] = asyncio.Queue()

    async def scenes() -> AsyncIterator[Scene]:
        while (scene := await queue.get()) is not None:
            yield scene

    app = FabmonApp(
        scenes() if live else None,
        RunFacts(
            "pod7",
            color,
            mark,
            captions,
            ask_burst=ask_burst,
            ask_ras=ask_ras,
            recording=recording,
            start=start,
            preferences=preferences,
        ),
        clock=lambda: 0.0,
    )
    async with app.run_test(size=size, notifications=toasts) as pilot:
        run = Running(app, pilot, queue)
        await run.settle()
        if world is not None:
            await run.send(world.scene(seq))
        yield run
        if app.failure is not None:
            raise app.failure
        if app.contained:
            raise app.contained[0]
