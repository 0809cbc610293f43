"""The app with scenes fed to it one by one, and what is on its screen as text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from textual import events
from textual.pilot import Pilot

from fabmon.analysis.scene import Scene
from fabmon.tui.app import AskBurst, FabmonApp
from fabmon.tui.captions import Caption
from fabmon.tui.saving import Saves
from tests.tui.scenes import World

_CHARACTERS = {"slash": "/", "space": " "}
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
        """Let scenes come, and be drawn."""
        for scene in scenes:
            self.queue.put_nowait(scene)
        await self.settle()

    async def press(self, *keys: str) -> None:
        """Press keys, and let them be acted upon."""
        for key in keys:
            char = key if len(key) == 1 else _CHARACTERS.get(key)
            self.app.post_message(events.Key(key, char))
            await self.settle()

    async def settle(self) -> None:
        """Wait until everything that was asked for is drawn."""
        for _ in range(_ROUNDS):
            await self.pilot.pause(0)

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

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
    captions: Sequence[Caption] = (),
    ask_burst: AskBurst | None = None,
    saves: Saves | None = None,
) -> AsyncIterator[Running]:
    """The app, with the scene of tick `seq` drawn (none without a world)."""
    queue: asyncio.Queue[Scene | None] = asyncio.Queue()

    async def scenes() -> AsyncIterator[Scene]:
        while (scene := await queue.get()) is not None:
            yield scene

    app = FabmonApp(
        scenes(),
        title="pod7",
        color=color,
        mark=mark,
        captions=captions,
        ask_burst=ask_burst,
        saves=saves,
        clock=lambda: 0.0,
    )
    async with app.run_test(size=size) as pilot:
        run = Running(app, pilot, queue)
        await run.settle()
        if world is not None:
            await run.send(world.scene(seq))
        yield run
        if app.failure is not None:
            raise app.failure
