"""Dark and light: every text is legible on every background that it is drawn on."""

from __future__ import annotations

from itertools import product

import pytest
from rich.color import Color
from rich.style import Style

from fabmon.tui.palette import RAMPS, Depth, Palette, Theme, lightness, palette
from fabmon.tui.terminal import widget_themes

TEXTS = ("text", "dim", "strong", "gone", "tx", "rx", "key", "accent", "paused")
LEGIBLE = 4.5
"""The least contrast of text by WCAG 2.1, level AA (success criterion 1.4.3)."""
_XTERM = {Theme.DARK: "#000000", Theme.LIGHT: "#ffffff"}


def contrast(a: Color, b: Color) -> float:
    """The contrast ratio of WCAG 2.1: 1 to 21."""
    dark, light = sorted(_luminance(each) for each in (a, b))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Color) -> float:
    """Relative luminance, 0 to 1, from CIE L*."""
    level = lightness(colour)
    return float(((level + 16) / 116) ** 3) if level > 8 else level * 27 / 24389


def test_contrast_is_that_of_the_standard() -> None:
    black, white, grey = (Color.parse(each) for each in ("#000000", "#ffffff", "#767676"))
    assert contrast(black, white) == pytest.approx(21)
    # The lightest grey that passes on white, as the standard's tools give it.
    assert contrast(grey, white) == pytest.approx(4.54, abs=0.01)


def _on(style: Style, paper: str) -> float:
    """The contrast of a style; what it leaves to the terminal is that of xterm."""
    assert not style.dim
    front, back = style.color, style.bgcolor or Color.parse(paper)
    assert front is not None
    return contrast(front, back)


@pytest.mark.parametrize("theme", Theme)
@pytest.mark.parametrize("depth", [Depth.TRUECOLOR, Depth.EIGHT_BIT])
@pytest.mark.parametrize("ramp", [ramp.name for ramp in RAMPS])
def test_text_is_legible_and_so_it_is_under_the_cursor(
    ramp: str, depth: Depth, theme: Theme
) -> None:
    tones = palette(depth, ramp, theme)
    for role, cursor in product(TEXTS, (Style(), tones.cursor)):
        style: Style = getattr(tones, role) + cursor
        assert _on(style, _XTERM[theme]) >= LEGIBLE, (role, style)


@pytest.mark.parametrize("role", ["gone", "tx", "rx", "key", "accent"])
def test_with_sixteen_colours_text_is_legible_on_white(role: str) -> None:
    style: Style = getattr(palette(Depth.SIXTEEN, theme=Theme.LIGHT), role)
    front = style.color
    assert front is not None
    # Bright colours are made for black; of the others xterm's are the least legible ones in use.
    assert front.number in (None, 1, 4, 5)


@pytest.mark.parametrize("depth", [Depth.TRUECOLOR, Depth.EIGHT_BIT])
def test_texts_of_menus_messages_and_inputs_are_legible(depth: Depth) -> None:
    for theme in widget_themes(depth):
        for front, back in product(
            (theme.foreground, theme.accent), (theme.background, theme.surface, theme.panel)
        ):
            assert front is not None
            assert back is not None
            ratio = contrast(Color.parse(front), Color.parse(back))
            assert ratio >= LEGIBLE, (theme.name, front, back)


def _papers(tones: Palette) -> set[Color | None]:
    return {getattr(tones, role).bgcolor for role in TEXTS if role != "paused"}


@pytest.mark.parametrize("depth", [Depth.TRUECOLOR, Depth.EIGHT_BIT])
def test_light_is_light_and_dark_is_dark(depth: Depth) -> None:
    for theme, wanted in ((Theme.DARK, range(0, 15)), (Theme.LIGHT, range(95, 101))):
        (paper,) = _papers(palette(depth, theme=theme))
        assert paper is not None
        assert int(lightness(paper)) in wanted
        ours = next(each for each in widget_themes(depth) if each.dark is (theme is Theme.DARK))
        assert paper.get_truecolor().hex == ours.background
