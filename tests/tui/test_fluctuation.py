"""The screen of fluctuation: drawn when it has been looked at, never in the way."""

from __future__ import annotations

import asyncio

import pytest

from tests.tui import golden
from tests.tui.running import Running, running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, HEALTHY


async def _looked(run: Running, text: str = "watched") -> None:
    """Wait until what was found is drawn."""
    async with asyncio.timeout(60):
        while text not in run.text:
            await asyncio.sleep(0.01)
            await run.settle()


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)], ids=str)
async def test_the_last_minutes(size: tuple[int, int]) -> None:
    async with running(COLLISION, size=size) as run:
        await run.press("6")
        await _looked(run)
        assert all(len(line) <= size[0] for line in run.lines)
        golden.check(f"fluctuation-{size[0]}x{size[1]}", run.text)


async def test_a_filter_chooses_what_is_looked_at() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.press("6")
        await _looked(run)
        assert "gpu001 " in run.text
        await run.press("slash", *"gpu002", "enter")
        async with asyncio.timeout(60):
            while "gpu001 " in run.text:
                await asyncio.sleep(0.01)
                await run.settle()
        assert "gpu002 " in run.text


async def test_a_link_is_opened_from_its_line() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.press("6")
        await _looked(run)
        await run.press("enter")
        assert run.view == "port"


async def test_a_fabric_of_which_nothing_is_known_yet() -> None:
    world = World(connecting=tuple(node.name for node in HEALTHY.fabric.nodes))
    async with running(world, seq=1, size=(80, 24)) as run:
        await run.press("6")
        await _looked(run, "nothing communicated")
