"""Frozen, the screen shows one moment and does everything; scenes keep coming; nothing is lost."""

from __future__ import annotations

import pytest

from tests.tui.running import running
from tests.tui.worlds import COLLISION


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_it_is_unmistakable(size: tuple[int, int]) -> None:
    async with running(COLLISION, size=size) as run:
        assert "● LIVE 14:07:50Z" in run.lines[0]
        assert "═" not in run.text
        await run.press("space")
        assert "❚❚ PAUSED 14:07:50Z" in run.lines[0]
        assert "LIVE" not in run.text
        assert "═" in run.text
        await run.press("space")
        assert "● LIVE" in run.lines[0]
        assert "═" not in run.text


async def test_scenes_keep_coming_and_the_lag_grows() -> None:
    async with running(COLLISION, seq=60) as run:
        await run.press("space")
        before = run.lines[2:34]
        await run.send(*[COLLISION.scene(seq) for seq in range(61, 192)])
        assert "PAUSED 14:07:40Z (\N{MINUS SIGN}02:11)" in run.lines[0]
        assert run.lines[2:34] == before
        assert run.app.stage.live is not None
        assert run.app.stage.live.moment.seq == 191
        await run.press("space")
        assert "● LIVE 14:09:51Z" in run.lines[0]


async def test_drilling_filtering_and_units_work_on_the_frozen_moment() -> None:
    async with running(COLLISION, seq=70) as run:
        await run.press("space")
        await run.send(COLLISION.scene(73))
        await run.press("enter")
        assert "344 Gb/s 86.0 %" in run.text
        await run.press("u")
        assert "43.0 GB/s 86.0 %" in run.text
        await run.press("enter")
        assert run.view == "port"
        assert "43.0 GB/s" in run.text
        await run.press("1", "slash", *"gpu002", "enter")
        assert "gpu003" not in run.text
        assert "PAUSED 14:07:50Z" in run.lines[0]


async def test_a_finding_that_opens_meanwhile_is_not_in_the_frozen_moment() -> None:
    async with running(COLLISION, seq=20) as run:
        await run.press("space")
        await run.send(COLLISION.scene(40))
        assert "▲ 0 hot" in run.lines[0]
        await run.press("space")
        assert "▲ 1 hot" in run.lines[0]


async def test_nothing_to_freeze_is_no_freeze() -> None:
    async with running() as run:
        await run.press("space")
        assert not run.app.stage.paused
