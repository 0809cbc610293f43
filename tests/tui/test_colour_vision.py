"""The default colours can be distinguished, also with a colour vision deficiency.

Measured as CIEDE2000 colour differences; 15 is several times what is just noticeable side by side.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.style import Style

from fabmon.tui.metrics import heat_metric
from fabmon.tui.palette import Depth, Theme, palette

Lab = NDArray[np.float64]

LEAST = 15.0
LEAST_OF_MARKS = 12.0
"""Between hot and gone, whose cells differ in shape too; both must be legible as text."""
SEEN_ON_BACKGROUND = 10.0

VISION = {
    "normal": np.eye(3),
    # Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision
    # Deficiency (2009), severity 1.0, on linear RGB.
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
XYZ_OF_SRGB = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip
"""IEC 61966-2-1, white point D65."""


def lab(style: Style, vision: str, *, paper: bool = False) -> Lab:
    """CIE L*a*b* of a style's colour, or of its background, as a vision sees it."""
    colour = style.bgcolor if paper else style.color
    assert colour is not None
    srgb = np.array(colour.get_truecolor()) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(VISION[vision] @ linear, 0, 1)
    xyz = XYZ_OF_SRGB @ seen / XYZ_OF_SRGB.sum(axis=1)
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one: Lab, other: Lab) -> float:
    """CIEDE2000. Sharma, Wu, Dalal: The CIEDE2000 Color-Difference Formula (2005), eq. 2 to 22."""
    chroma = (np.hypot(one[1], one[2]) + np.hypot(other[1], other[2])) / 2
    stretch = 1.5 - 0.5 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    (c1, h1), (c2, h2) = (
        (np.hypot(stretch * a, b), np.degrees(np.arctan2(b, stretch * a)) % 360)
        for _, a, b in (one, other)
    )
    light, chroma = (one[0] + other[0]) / 2, (c1 + c2) / 2
    turn, hue = h2 - h1, (h1 + h2) / 2
    if c1 * c2 == 0:
        turn, hue = 0.0, h1 + h2
    elif abs(turn) > 180:
        hue += 180 if h1 + h2 < 360 else -180
        turn -= np.copysign(360, turn)
    t = (1 - 0.17 * _cos(hue - 30) + 0.24 * _cos(2 * hue)
         + 0.32 * _cos(3 * hue + 6) - 0.20 * _cos(4 * hue - 63))  # fmt: skip
    rotation = -np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2)))) * 2
    rotation *= np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    of_light = (other[0] - one[0]) / (
        1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2)
    )
    of_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    of_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    return float(np.sqrt(of_light**2 + of_chroma**2 + of_hue**2 + rotation * of_chroma * of_hue))


def _cos(degrees: float) -> float:
    return float(np.cos(np.radians(degrees)))


@pytest.mark.parametrize(
    ("one", "other", "known"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (50, 0, -2.5), 4.3065),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((6.7747, -0.2908, -2.4247), (5.8714, -0.0985, -2.2286), 0.6377),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_formula_gives_the_published_values(
    one: tuple[float, ...], other: tuple[float, ...], known: float
) -> None:
    """Pairs of table 1 of Sharma, Wu, Dalal."""
    assert difference(np.array(one), np.array(other)) == pytest.approx(known, abs=1e-4)


def colour_of(share: float, depth: Depth, theme: Theme) -> Style:
    """The colour of a share of line rate."""
    levels = palette(depth, theme=theme).levels
    place = np.searchsorted(heat_metric("util").edges(len(levels)), share, "right") - 1
    return levels[int(place)]


colours = pytest.mark.parametrize("depth", [Depth.TRUECOLOR, Depth.EIGHT_BIT])
themes = pytest.mark.parametrize("theme", list(Theme))
visions = pytest.mark.parametrize("vision", list(VISION))


@colours
@themes
@visions
def test_10_40_70_and_100_percent_differ_at_a_glance(
    depth: Depth, theme: Theme, vision: str
) -> None:
    seen = {share: lab(colour_of(share, depth, theme), vision) for share in (0.1, 0.4, 0.7, 1.0)}
    pairs = {pair: difference(seen[pair[0]], seen[pair[1]]) for pair in combinations(seen, 2)}
    assert min(pairs.values()) >= LEAST, pairs


@colours
@themes
@visions
def test_hot_and_gone_differ_from_every_step_and_from_each_other(
    depth: Depth, theme: Theme, vision: str
) -> None:
    tones = palette(depth, theme=theme)
    hot, gone = lab(tones.accent, vision), lab(tones.gone, vision)
    assert difference(hot, gone) >= LEAST_OF_MARKS
    for step in tones.levels:
        assert difference(lab(step, vision), hot) >= LEAST, step
        assert difference(lab(step, vision), gone) >= LEAST, step


@colours
@themes
@visions
def test_the_lowest_step_is_seen_on_the_background(depth: Depth, theme: Theme, vision: str) -> None:
    lowest = palette(depth, theme=theme).levels[0]
    seen = difference(lab(lowest, vision), lab(lowest, vision, paper=True))
    assert seen >= SEEN_ON_BACKGROUND
