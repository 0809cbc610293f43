from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabmon.fabric.measures import measure
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
from fabmon.tui.metrics import HEAT_METRICS, heat_metric
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


def test_a_sample_grows_stale_only_after_two_and_a_half_ticks() -> None:
    world = World(quiet=(("gpu005", 54),))
    row = row_of(world, "gpu005/mlx5_0")
    assert not codes_of(world, 55)[row] & STALE
    assert codes_of(world, 57)[row] & STALE


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
    top = np.searchsorted(edges, heat_metric(metric).range.high, "right")
    assert top == len(edges)
    assert len(levels.texts) == len(levels.drawn) == len(edges) + 1
    assert all(len(text) <= room for texts in levels.texts for room, text in enumerate(texts, 1))
    assert max(levels.shades) == len(palette(depth).levels) - 1


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


def text_of(share: float, width: int, depth: Depth, digits: bool, metric: str = "util") -> str:
    """The text of an ordinary cell with this value."""
    levels = scale(heat_metric(metric), depth, digits, width)
    level = levels.drawn[int(np.searchsorted(levels.edges, share, "right"))]
    return Look(palette(depth), levels).picture(level, width)[0]


def test_digits_are_percent_and_mark_hundred() -> None:
    shares = (0.001, 0.01, 0.474, 0.98, 1.0)
    texts = [text_of(share, 2, Depth.TRUECOLOR, digits=True) for share in shares]
    assert texts == [" 0", " 1", "47", "98", " #"]
    assert text_of(0.47, 1, Depth.TRUECOLOR, digits=True) == "4"


@pytest.mark.parametrize("depth", list(Depth))
def test_wide_cells_have_their_number_in_all_colours(depth: Depth) -> None:
    shares = (0.001, 0.01, 0.474, 0.98, 1.0)
    assert [text_of(share, 3, depth, False) for share in shares] == [
        " 0 ", " 1 ", "47 ", "98 ", "100",
    ]  # fmt: skip
    assert text_of(1.0, 4, depth, False) == "100 "
    assert text_of(0.003, 4, depth, False, "pause") == " .3 "
    assert text_of(3_400, 4, depth, False, "ecn") == " 3k "
    assert text_of(650_000, 3, depth, False, "ecn") == ".7M"


def test_narrow_cells_have_no_number_and_as_few_levels_as_colours() -> None:
    for depth, colours in ((Depth.TRUECOLOR, 31), (Depth.EIGHT_BIT, 12), (Depth.SIXTEEN, 4)):
        levels = scale(UTIL, depth, False, 2)
        assert len(set(levels.drawn)) == colours + 1
        assert text_of(0.47, 2, depth, False) in ("██", "▒▒")


@pytest.mark.parametrize(
    ("depth", "digits", "texts"),
    [
        (Depth.TRUECOLOR, False, ["▲", "98", "98▲", " 98▲"]),
        (Depth.TRUECOLOR, True, ["▲", "9▲", "98▲", " 98▲"]),
        (Depth.SIXTEEN, False, ["▲", "9▲", "98▲", " 98▲"]),
        (Depth.NONE, False, ["▲", "9▲", "98▲", " 98▲"]),
    ],
)
def test_a_hot_cell_is_a_block_with_its_number_where_there_is_room(
    depth: Depth, digits: bool, texts: list[str]
) -> None:
    levels = scale(UTIL, depth, digits)
    look = Look(palette(depth), levels)
    pictures = [look.picture(98 | FLAGGED, width) for width in (1, 2, 3, 4)]
    assert [text for text, _ in pictures] == texts
    for _, style in pictures:
        block = style.color if style.reverse else style.bgcolor
        assert block == look.palette.accent.color
    assert [look.picture(100 | FLAGGED, width)[0] for width in (3, 4)] == ["100", "100▲"]


def test_a_flagged_port_keeps_its_exact_number_between_cells_without_one() -> None:
    world = troubled()
    snapshot, row = world.scene(70).snapshot, world.guilty[0]
    narrow, wide = (scale(UTIL, Depth.TRUECOLOR, False, width) for width in (1, 3))
    codes = [
        encode(snapshot, UTIL, levels, [row], snapshot.line_rate_bps) for levels in (narrow, wide)
    ]
    assert codes[0][row] == codes[1][row]
    assert len(set(codes[0].tolist())) <= len(set(codes[1].tolist()))


def test_idle_is_a_faint_zero_and_a_place_without_a_port_is_blank() -> None:
    for depth in Depth:
        look = Look(palette(depth), scale(UTIL, depth, False))
        for width in (1, 2, 3, 4):
            text, style = look.picture(0, width)
            assert text.strip() == "0"
            assert style == look.palette.idle
            assert look.picture(NOTHING, width)[0].strip() == ""


def test_a_stale_cell_keeps_its_colour_dimmed() -> None:
    tones = palette(Depth.TRUECOLOR)
    wide, narrow = (Look(tones, scale(UTIL, tones.depth, False, width)) for width in (3, 1))
    text, style = wide.picture(54 | STALE, 3)
    assert text == "54?"
    assert style.bgcolor == tones.faded[wide.levels.shades[53]].color
    assert narrow.picture(54 | STALE, 1) == ("▒", tones.faded[wide.levels.shades[53]])


def test_a_cell_without_exact_levels_shows_no_number_however_wide_it_is() -> None:
    look = Look(palette(Depth.TRUECOLOR), scale(UTIL, Depth.TRUECOLOR, False, 1))
    assert look.picture(46, 3)[0] == "███"


def test_without_colour_digits_are_tens() -> None:
    texts = [text_of(share, 1, Depth.NONE, digits=False) for share in (0.0, 0.03, 0.15, 0.99, 1.0)]
    assert texts == ["0", "0", "1", "9", "#"]
    look = Look(palette(Depth.NONE), scale(UTIL, Depth.NONE, False))
    assert look.picture(98 | FLAGGED, 2)[0] == "9▲"
    assert look.picture(DOWN, 1)[0] == "✖"
    assert look.picture(ABSENT, 1)[0] == "·"


def test_a_metric_with_a_misspelt_catalog_name_is_refused_at_import() -> None:
    with pytest.raises(KeyError, match="phy_rx_discard"):
        replace(measure("drops"), columns=("phy_rx_discard",))
    with pytest.raises(KeyError, match="ib_tx_weight"):
        replace(measure("drops"), counted_by="ib_tx_weight")
