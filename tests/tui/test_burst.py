"""`B` on a port: asked for, refused politely, drawn with percentiles and the true resolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fabmon.analysis.scene import Scene
from fabmon.fabric.snapshot import BurstSamples
from tests.tui import golden
from tests.tui.running import running
from tests.tui.scenes import START_NS
from tests.tui.worlds import HEALTHY

LINE = 400e9


def with_burst(refresh_s: float = 0.0, **changes: object) -> Scene:
    """gpu001/mlx5_0 sends 40 ms of every 130 at 95 %, and receives at 60 %, on a whole or a coarse
    counter."""
    scene = HEALTHY.scene(70)
    at_s = np.arange(0, 5.001, 0.02)
    clock = np.floor(at_s / refresh_s) * refresh_s if refresh_s else at_s
    tx = np.interp(clock, *_bursty())
    counts = np.stack([tx, clock * 0.6]) * LINE / 8
    samples = BurstSamples(START_NS, 50, 5, "ib", at_s, counts, True)
    made = replace(samples, **changes)  # type: ignore[arg-type]
    return replace(scene, snapshot=replace(scene.snapshot, bursts={("gpu001", "mlx5_0"): made}))


def _bursty() -> tuple[np.ndarray, np.ndarray]:
    """Times and line-rate seconds sent by then."""
    fine = np.arange(0, 5.2, 0.001)
    busy = (fine % 0.13) < 0.04
    return fine, np.concatenate([[0], np.cumsum(busy[:-1] * 0.95 * 0.001)])


async def test_a_burst_is_a_chart_on_the_port_page() -> None:
    for size in ((120, 40), (80, 24)):
        async with running(size=size) as run:
            await run.send(with_burst())
            await run.press("enter")
            await run.press(*["j"] * 30)
            if size == (120, 40):
                assert "Burst of 14:06:40Z" in run.text
                golden.check("burst-120x40", run.text)
    async with running(size=(120, 70)) as run:
        await run.send(with_burst())
        await run.press("enter")
        assert "above 90 % of line rate" in run.text
        assert "Resolution 20.0 ms" in run.text
        assert "Burst of 14:06:40Z, 50 Hz for 5 s, port_xmit_data" in run.text


async def test_a_counter_that_is_coarser_than_the_reading_is_reported() -> None:
    async with running(size=(120, 70)) as run:
        await run.send(with_burst(refresh_s=0.25))
        await run.press("enter")
        assert "The counter changes every 249 ms" in run.text
        golden.check("burst-coarse", run.text)


async def test_a_port_that_has_no_fast_counter_says_so() -> None:
    nothing = np.empty((2, 0))
    error = "no byte counter that may be read so often"
    scene = with_burst(error=error, at_s=np.empty(0), counts=nothing)
    async with running(size=(120, 40)) as run:
        await run.send(scene)
        await run.press("enter")
        assert error in run.text


async def test_b_asks_the_node_of_the_port() -> None:
    asked: list[tuple[str, tuple[str, ...], float, float]] = []

    def ask(node: str, ports: Sequence[str], seconds: float, hz: float) -> str:
        asked.append((node, tuple(ports), seconds, hz))
        return "" if len(asked) == 1 else "one of gpu001 is running"

    async with running(HEALTHY, size=(120, 40), ask_burst=ask) as run:
        await run.press("B")
        assert not asked
        await run.press("enter", "B")
        assert "B burst" in run.lines[-1]
        assert len(asked) == 1
        assert asked[0][2:] == (5.0, 50.0)
        await run.says("burst of gpu001 r0: 50 Hz for 5 s")
        await run.press("B")
        await run.says("no burst: one of gpu001 is running")


async def test_b_is_refused_where_nobody_can_be_asked() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.press("enter")
        assert "burst" not in run.lines[-1]
        await run.press("B")
        (message,) = [note.message for note in run.app._notifications]
        assert message.startswith("no burst: live only, these nodes are simulated or recorded")
