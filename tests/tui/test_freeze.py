"""Frozen, the screen shows one moment and does everything; scenes keep coming; nothing is lost."""

from __future__ import annotations

import pytest

from tests.tui.running import running
from tests.tui.worlds import COLLISION


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_it_is_unmistakable(size: tuple[int, int]) -> None:
    async with running(COLLISION, size=size) as run:
        await run.heads("● LIVE 14:07:50Z")
        assert "═" not in run.text
        await run.press("space")
        await run.heads("❚❚ PAUSED 14:07:50Z")
        assert "LIVE" not in run.text
        await run.shows("═")
        await run.press("space")
        await run.heads("● LIVE")
        assert "═" not in run.text


async def test_scenes_keep_coming_and_the_lag_grows() -> None:
    async with running(COLLISION, seq=60) as run:
        await run.press("space")
        before = run.lines[2:26]
        await run.send(*[COLLISION.scene(seq) for seq in range(61, 192)])
        await run.heads("PAUSED 14:07:40Z (\N{MINUS SIGN}02:11)")
        assert run.lines[2:26] == before
        assert run.app.screen_state.live is not None
        assert run.app.screen_state.live.snapshot.seq == 191
        await run.press("space")
        await run.heads("● LIVE 14:09:51Z")


async def test_drilling_filtering_and_units_work_on_the_frozen_moment() -> None:
    async with running(COLLISION, seq=70) as run:
        await run.press("space")
        await run.send(COLLISION.scene(73))
        await run.press("colon", *"gpu001", "enter")
        await run.shows("344 Gb/s 86.0 %")
        await run.press("u")
        await run.shows("43.0 GB/s 86.0 %")
        await run.press("enter")
        assert run.view == "port"
        await run.shows("43.0 GB/s")
        await run.press("1", "slash", *"gpu002", "enter")
        assert "filter: gpu002" in run.text
        await run.heads("PAUSED 14:07:50Z")


async def test_a_finding_that_opens_meanwhile_is_not_in_the_frozen_moment() -> None:
    async with running(COLLISION, seq=20) as run:
        await run.press("space")
        await run.send(COLLISION.scene(40))
        await run.heads("▲ 0 findings")
        await run.press("space")
        await run.heads("▲ 1 finding")


async def test_nothing_to_freeze_is_no_freeze() -> None:
    async with running() as run:
        await run.press("space")
        assert not run.app.screen_state.paused
