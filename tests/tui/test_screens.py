"""Whole screens: every view at every size and in every colour mode, at two sizes as goldens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabmon.tui.metrics import HEAT_METRICS, heat_metric
from tests.tui import golden
from tests.tui.fabrics import fabric
from tests.tui.running import Running, running
from tests.tui.scenes import World, row_of
from tests.tui.worlds import COLLISION, HEALTHY, connecting, troubled

SIZES = ((60, 18), (80, 24), (120, 40), (240, 70))
GOLDEN_SIZES = ((80, 24), (120, 40))
"""The sizes at which every view has a golden; at the others it must fit."""
VIEWS: dict[str, tuple[str, ...]] = {
    "overview": (),
    "switches": ("2",),
    "nodes": ("n",),
    "findings": ("4",),
    "matrix": ("5",),
    "pair": ("5", "right", "right", "enter"),
    "node": ("colon", *"gpu001", "enter"),
    "port": ("colon", *"gpu001 r0", "enter"),
    "finding": ("4", "enter"),
    "help": ("question_mark",),
    "paused": ("space",),
    "digits": ("C",),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("view", VIEWS)
async def test_views(view: str, size: tuple[int, int]) -> None:
    async with running(troubled(), size=size) as run:
        await run.press(*VIEWS[view])
        _fits(run, size)
        if size in GOLDEN_SIZES or view == "overview":
            golden.check(f"{view}-{size[0]}x{size[1]}", run.text)


@pytest.mark.parametrize("color", ["truecolor", "256", "16", "none"])
async def test_the_overview_in_every_colour_mode(color: str) -> None:
    async with running(troubled(), size=(120, 40), color=color) as run:
        name = "120x40" if color in ("truecolor", "256") else color
        golden.check(f"overview-{name}", run.text)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_while_connecting(size: tuple[int, int]) -> None:
    async with running(connecting(), seq=5, size=size) as run:
        await run.press("n")
        _fits(run, size)
        if size == GOLDEN_SIZES[0]:
            golden.check(f"connecting-{size[0]}x{size[1]}", run.text)


async def test_a_healthy_fabric_is_calm() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        assert "▲ 0 findings" in run.text
        assert "✖ 0 down" in run.text
        assert "No finding" in run.text


METRICS = [*(item.name for item in HEAT_METRICS[1:]), "util"]
EACH_SCALE = ("util", "pause", "xoff")
"""A metric of each kind of scale, whose whole screen is a golden."""


async def test_every_metric_has_its_scale_and_title() -> None:
    async with running(COLLISION, size=(200, 24)) as run:
        for metric in METRICS:
            await run.press("m")
            assert f"m {metric} " in run.lines[0]
            assert (
                f"{heat_metric(metric).range.ends[1]} ── {heat_metric(metric).title}"
                in run.lines[1]
            )


@pytest.mark.parametrize("metric", EACH_SCALE)
async def test_a_metric_of_each_scale(metric: str) -> None:
    async with running(COLLISION, size=(120, 24)) as run:
        await run.press(*["m"] * (METRICS.index(metric) + 1))
        # The metric's scale, the rows of a leaf and its first host, and the cell as text.
        golden.check(f"metric-{metric}", "\n".join([*run.lines[1:4], run.lines[-4]]))


async def test_the_priorities_that_pause_are_reached_and_no_others() -> None:
    world = replace(HEALTHY, paused=((row_of(HEALTHY, "gpu002/mlx5_1"), 0.25),))
    async with running(world, size=(120, 24)) as run:
        await run.press(*["m"] * (METRICS.index("pause-tx") + 2))
        assert "m pause-rx-p3" in run.lines[0]
        golden.check("metric-pause-rx-p3", "\n".join([*run.lines[1:4], run.lines[-4]]))
        await run.press("m", "m")
        assert "m xoff" in run.lines[0]


async def test_a_counter_that_sticks_is_a_state_of_its_own() -> None:
    world = replace(HEALTHY, stuck=(row_of(HEALTHY, "gpu002/mlx5_1"),))
    async with running(world, size=(120, 24)) as run:
        await run.press(*["m"] * (METRICS.index("stall") + 1))
        row = next(line for line in run.lines if "gpu002" in line)
        assert "≥" in row


GPUS = World(fabric=fabric(leaves=1, hosts=4, rails=8, gpus=8))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_gpus_stand_beside_the_rails(size: tuple[int, int]) -> None:
    async with running(GPUS, size=size) as run:
        _fits(run, size)
        if size == GOLDEN_SIZES[1]:
            golden.check(f"gpus-{size[0]}x{size[1]}", run.text)


async def test_a_gpu_opens_to_its_links() -> None:
    async with running(GPUS, size=(120, 60)) as run:
        await run.press(*["right"] * 8)
        assert "gpu001 g0" in run.text
        await run.press("enter")
        golden.check("gpu-port", run.text)
        await run.press("slash", *"gpu0/nv1", "enter")


@pytest.mark.parametrize("size", [(20, 5), (73, 20), (72, 19), (111, 30), (300, 80)])
@pytest.mark.parametrize("keys", list(VIEWS.values()), ids=list(VIEWS))
async def test_no_size_breaks_a_view(keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async with running(troubled(), size=size) as run:
        await run.press(*keys)
        _fits(run, size)


@pytest.mark.parametrize("keys", list(VIEWS.values()), ids=list(VIEWS))
async def test_an_open_view_may_become_as_small_as_it_can(keys: tuple[str, ...]) -> None:
    async with running(troubled(), size=(120, 40)) as run:
        await run.press(*keys)
        for size in ((4, 60), (1, 1), (200, 3)):
            await run.pilot.resize_terminal(*size)
            await run.settle()
            _fits(run, size)


async def test_resizing_goes_through_every_arrangement_and_back() -> None:
    async with running(troubled(), size=(120, 40)) as run:
        first = run.text
        for size in ((80, 24), (60, 18), (240, 70), (30, 8), (120, 40)):
            await run.pilot.resize_terminal(*size)
            await run.settle()
            _fits(run, size)
        assert run.text == first


def _fits(run: Running, size: tuple[int, int]) -> None:
    assert len(run.lines) == size[1]
    assert {strip.cell_length for strip in run.app.screen._compositor.render_strips()} == {size[0]}
