from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabmon.fabric.measures import Measure
from fabmon.tui.cells import (
    ABSENT,
    DOWN,
    FLAGGED,
    LEVEL,
    NOTHING,
    STALE,
    STUCK,
    UNRATED,
    Look,
    encode,
    scale,
)
from fabmon.tui.metrics import HEAT_METRICS, HeatMetric, heat_metric
from fabmon.tui.palette import Depth, palette
from tests.tui.scenes import World, row_of
from tests.tui.worlds import troubled

UTIL = heat_metric("util")


def codes_of(world: World, seq: int = 70, metric: str = "util", digits: bool = False) -> list[int]:
    snapshot = world.scene(seq).snapshot
    levels = scale(heat_metric(metric), Depth.TRUECOLOR, digits)
    flagged = [world.guilty[0]]
    codes = encode(snapshot, heat_metric(metric), levels, flagged, snapshot.line_rate_bps)
    return [int(code) for code in codes]


def test_each_state_has_a_code_of_its_own() -> None:
    world = troubled()
    codes = codes_of(world)
    assert codes[world.guilty[0]] & FLAGGED
    assert codes[row_of(world, "gpu003/mlx5_2")] == DOWN
    assert codes[row_of(world, "gpu005/mlx5_0")] & STALE
    assert 0 < codes[row_of(world, "gpu001/mlx5_0")] <= LEVEL


def test_a_silent_port_keeps_its_last_colour() -> None:
    world = World(quiet=(("gpu005", 54),))
    row = row_of(world, "gpu005/mlx5_0")
    before, after = codes_of(world, 53)[row], codes_of(world, 60)[row]
    assert before > 0
    assert after == before | STALE


def test_a_sample_grows_stale_only_after_three_ticks() -> None:
    world = World(quiet=(("gpu005", 54),))
    row = row_of(world, "gpu005/mlx5_0")
    assert not codes_of(world, 56)[row] & STALE
    assert codes_of(world, 58)[row] & STALE


def test_absent_is_not_idle() -> None:
    world = World()
    row = row_of(world, "gpu001/mlx5_0")
    assert codes_of(world, metric="cnp")[row] == ABSENT
    assert codes_of(world, metric="ecn")[row] == 0


def test_traffic_without_a_line_rate_is_said_so() -> None:
    snapshot = World().scene(70).snapshot
    nan = np.full_like(snapshot.line_rate_bps, np.nan)
    snapshot = replace(snapshot, line_rate_bps=nan, tx_util=nan, rx_util=nan)
    codes = encode(snapshot, UTIL, scale(UTIL, Depth.NONE, False), [], nan)
    assert set(codes.tolist()) == {UNRATED}


@pytest.mark.parametrize("metric", [item.name for item in HEAT_METRICS])
@pytest.mark.parametrize("depth", list(Depth))
@pytest.mark.parametrize("digits", [False, True])
def test_levels_rise_with_the_value_and_fit_their_code(
    metric: str, depth: Depth, digits: bool
) -> None:
    levels = scale(heat_metric(metric), depth, digits)
    edges = np.array(levels.edges)
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= LEVEL
    top = np.searchsorted(edges, heat_metric(metric).high, "right")
    assert top == len(edges)
    if levels.digits:
        assert len(levels.digits) == len(edges) + 1


@pytest.mark.parametrize("depth", list(Depth))
@pytest.mark.parametrize("digits", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_every_state_differs_from_every_other_without_colour(
    depth: Depth, digits: bool, width: int
) -> None:
    levels = scale(UTIL, depth, digits)
    look = Look(palette(depth), levels)
    busy = len(levels.edges) // 2 + 1
    states = [0, busy, busy | FLAGGED, busy | STALE, ABSENT, DOWN, STUCK, UNRATED]
    pictures = [look.picture(code, width)[0] for code in states]
    assert all(len(text) == width for text in pictures)
    if width == 1:
        # In one cell `?` stands for stale as for unrated: the row's age says which.
        pictures = pictures[:-1]
    assert len(set(pictures)) == len(pictures)
    assert look.picture(NOTHING, width)[0].strip() == ""


def test_digits_are_percent_and_say_hundred() -> None:
    levels = scale(UTIL, Depth.TRUECOLOR, True)
    look = Look(palette(Depth.TRUECOLOR), levels)

    def said(share: float, width: int, flag: int = 0) -> str:
        code = int(np.searchsorted(levels.edges, share, "right"))
        return look.picture(code | flag, width)[0].strip()

    assert [said(share, 2) for share in (0.001, 0.01, 0.474, 0.98, 1.0)] == [
        "",
        "1",
        "47",
        "98",
        "#",
    ]
    assert said(0.98, 3, FLAGGED) == "98▲"
    assert said(0.98, 2, FLAGGED) == "9▲"
    assert said(0.47, 1) == "4"


def test_without_colour_digits_are_tens() -> None:
    levels = scale(UTIL, Depth.NONE, False)
    look = Look(palette(Depth.NONE), levels)
    said = [
        look.picture(int(np.searchsorted(levels.edges, share, "right")), 1)[0]
        for share in (0.0, 0.03, 0.15, 0.99, 1.0)
    ]
    assert said == [" ", "0", "1", "9", "#"]
    assert look.picture(10 | FLAGGED, 2)[0] == "9▲"
    assert look.picture(DOWN, 1)[0] == "✖"
    assert look.picture(ABSENT, 1)[0] == "·"


def test_a_metric_with_a_misspelt_catalog_name_is_refused_at_import() -> None:
    with pytest.raises(KeyError, match="phy_rx_discard"):
        Measure("discards", ("phy_rx_discard",))
    with pytest.raises(KeyError, match="ib_tx_weight"):
        HeatMetric("x", "x", "x", ("tx_bps",), True, 0, 1, ("0", "1"), counted_by="ib_tx_weight")
