from __future__ import annotations

from itertools import pairwise

import pytest

from fabmon.tui.palette import RAMPS, Depth, Theme, detect, lightness, palette


@pytest.mark.parametrize("depth", [Depth.TRUECOLOR, Depth.EIGHT_BIT])
@pytest.mark.parametrize("ramp", [ramp.name for ramp in RAMPS])
def test_more_is_brighter_on_a_dark_screen_and_darker_on_a_light_one(
    ramp: str, depth: Depth
) -> None:
    for theme, more in ((Theme.DARK, 1), (Theme.LIGHT, -1)):
        colours = [style.color for style in palette(depth, ramp, theme).levels]
        light = [more * lightness(colour) for colour in colours if colour is not None]
        assert len(light) == len(colours)
        assert all(below < above for below, above in pairwise(light))


@pytest.mark.parametrize("theme", list(Theme))
@pytest.mark.parametrize("ramp", [ramp.name for ramp in RAMPS])
def test_the_least_level_is_seen_on_its_background(ramp: str, theme: Theme) -> None:
    for depth in (Depth.TRUECOLOR, Depth.EIGHT_BIT):
        style = palette(depth, ramp, theme).levels[0]
        assert style.color is not None
        assert style.bgcolor is not None
        assert abs(lightness(style.color) - lightness(style.bgcolor)) > 5


def test_every_depth_keeps_to_its_colours() -> None:
    for style in palette(Depth.EIGHT_BIT).levels:
        assert style.color is not None
        assert style.color.number is not None
    for depth in (Depth.SIXTEEN, Depth.NONE):
        tones = palette(depth)
        for style in (*tones.levels, tones.text, tones.accent, tones.gone):
            assert style.bgcolor is None
            assert style.color is None or style.color.triplet is None
    assert all(style.color and style.color.is_default for style in palette(Depth.NONE).levels)


@pytest.mark.parametrize(
    ("environ", "depth"),
    [
        ({"NO_COLOR": "1", "COLORTERM": "truecolor"}, Depth.NONE),
        ({"TERM": "dumb"}, Depth.NONE),
        ({"TERM": "xterm", "COLORTERM": "24bit"}, Depth.TRUECOLOR),
        ({"TERM": "tmux-256color"}, Depth.EIGHT_BIT),
        ({"TERM": "linux"}, Depth.SIXTEEN),
        ({"NO_COLOR": "", "TERM": "xterm-256color"}, Depth.EIGHT_BIT),
    ],
)
def test_what_the_terminal_shows_is_read_from_the_environment(
    environ: dict[str, str], depth: Depth
) -> None:
    assert detect(environ) is depth


def test_without_colour_density_still_tells_the_levels_apart() -> None:
    assert len(set(palette(Depth.SIXTEEN).glyphs)) == 4
