"""Every colour on the screen, defined by hand for each colour depth.

Automatic conversion to 256 or 16 colours gives ramps whose lightness falls in places. Each depth
therefore has its own ramps: their lightness rises strictly on a dark screen and falls strictly on a
light one. Colour only repeats what a glyph or a word already says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rich.color import Color
from rich.style import Style

STEPS = 32
"""Levels of a ramp in truecolor."""


class Depth(StrEnum):
    """The number of colours of the terminal."""

    TRUECOLOR = "truecolor"
    EIGHT_BIT = "256"
    SIXTEEN = "16"
    NONE = "none"

    @property
    def rgb(self) -> bool:
        """Whether colours are fixed; the terminal decides how its 16 colours look."""
        return self in (Depth.TRUECOLOR, Depth.EIGHT_BIT)


class Theme(StrEnum):
    """The background that the colours are made for."""

    DARK = "dark"
    LIGHT = "light"


@dataclass(frozen=True, slots=True)
class RampColours:
    """The colours of a ramp from low to high: `stops` are interpolated in truecolor, `eight_bit` is
    used as is. `accent` (truecolor, 256 colours) contrasts with every step.
    """

    stops: tuple[str, ...]
    eight_bit: tuple[int, ...]
    accent: tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ramp:
    """A ramp for each theme: brighter is more on dark screens, darker is more on light ones."""

    name: str
    dark: RampColours
    light: RampColours

    def colours(self, theme: Theme) -> RampColours:
        """The colours for a theme."""
        return self.dark if theme is Theme.DARK else self.light


_CIVIDIS = RampColours(
    ("#213b6e", "#4c556c", "#6c6e72", "#8e8978", "#b1a570", "#d9c55c", "#fee838"),
    (24, 25, 61, 243, 244, 102, 246, 144, 180, 186, 221, 227),
    ("#ff7ac6", 212),
)
_CIVIDIS_LIGHT = RampColours(
    ("#d9c55c", "#b1a570", "#8e8978", "#6c6e72", "#4c556c", "#213b6e", "#0b1b3d"),
    (221, 186, 180, 144, 246, 102, 244, 243, 61, 25, 24, 17),
    ("#a3186d", 125),
)
_INFERNO = RampColours(
    ("#280b53", "#65156e", "#9f2a63", "#d44842", "#f57d15", "#fac228", "#fcffa4"),
    (53, 54, 90, 126, 168, 203, 209, 214, 220, 221, 227, 231),
    ("#6fe3ff", 87),
)
_INFERNO_LIGHT = RampColours(
    ("#fac228", "#f57d15", "#d44842", "#9f2a63", "#65156e", "#280b53"),
    (220, 214, 209, 203, 168, 162, 126, 125, 90, 54, 53, 17),
    ("#00648c", 24),
)
_GREY = RampColours(
    ("#2c3136", "#565d63", "#838b92", "#b3bac0", "#f4f7f9"),
    (237, 239, 241, 243, 245, 247, 248, 250, 251, 253, 254, 255),
    ("#ff9e2c", 214),
)
_GREY_LIGHT = RampColours(
    ("#d3d7db", "#a9b0b6", "#7b838a", "#4f565c", "#16191c"),
    (253, 251, 249, 247, 245, 243, 242, 240, 239, 237, 235, 232),
    ("#a34900", 94),
)
RAMPS = (
    Ramp(
        "blue",
        RampColours(
            ("#22307f", "#4038ad", "#3f80cc", "#38bfe2", "#8fe0ef", "#f1fbee"),
            (18, 19, 20, 61, 27, 32, 33, 39, 45, 117, 153, 195),
            ("#ff9e2c", 214),
        ),
        RampColours(
            ("#c0dff1", "#9ad0ea", "#459ad8", "#3a70c8", "#4841ae", "#22115e"),
            (153, 117, 75, 39, 33, 32, 26, 25, 20, 19, 18, 17),
            ("#a34900", 94),
        ),
    ),
    Ramp("cividis", _CIVIDIS, _CIVIDIS_LIGHT),
    Ramp("inferno", _INFERNO, _INFERNO_LIGHT),
    Ramp("grey", _GREY, _GREY_LIGHT),
)
"""The first is the default: its colours at 10, 40, 70 and 100 % differ from each other, and all its
steps from the accent and from the colour of links that are gone, by a CIEDE2000 difference of 15 or
more, also with a colour vision deficiency (tests/tui/test_colour_vision.py)."""

_BACKGROUND = {
    Theme.DARK: {Depth.TRUECOLOR: "#0f1419", Depth.EIGHT_BIT: "color(233)"},
    Theme.LIGHT: {Depth.TRUECOLOR: "#fafbfc", Depth.EIGHT_BIT: "color(231)"},
}
_ROLES: dict[Theme, dict[str, tuple[str, str, str, str]]] = {
    # role: truecolor, 256, 16, no colour
    Theme.DARK: {
        "text": ("#c3ccd4", "color(251)", "default", "default"),
        "dim": ("#8b98a4", "color(247)", "dim default", "dim default"),
        "rule": ("#35414c", "color(238)", "dim default", "dim default"),
        "strong": ("bold #f1f5f8", "bold color(255)", "bold default", "bold default"),
        "gone": ("bold #ff5d72", "bold color(204)", "bold bright_magenta", "bold default"),
        "tx": ("#62a8de", "color(74)", "bright_blue", "default"),
        "rx": ("#b59bea", "color(141)", "bright_cyan", "default"),
        "key": ("bold #9acbf0", "bold color(117)", "bold bright_blue", "bold default"),
    },
    Theme.LIGHT: {
        "text": ("#24303a", "color(236)", "default", "default"),
        "dim": ("#56626d", "color(241)", "default", "dim default"),
        "rule": ("#c3ccd4", "color(251)", "dim default", "dim default"),
        "strong": ("bold #0b1016", "bold color(232)", "bold default", "bold default"),
        "gone": ("bold #800020", "bold color(88)", "bold magenta", "bold default"),
        "tx": ("#1a5f96", "color(25)", "blue", "default"),
        "rx": ("#6f4fb8", "color(55)", "magenta", "default"),
        "key": ("bold #1a5f96", "bold color(25)", "bold blue", "bold default"),
    },
}
_CURSOR_ROW = {
    Theme.DARK: {
        Depth.TRUECOLOR: Style(bgcolor="#23303c"),
        Depth.EIGHT_BIT: Style(bgcolor="color(236)"),
        Depth.SIXTEEN: Style(reverse=True),
        Depth.NONE: Style(reverse=True),
    },
    Theme.LIGHT: {
        Depth.TRUECOLOR: Style(bgcolor="#dde6ee"),
        Depth.EIGHT_BIT: Style(bgcolor="color(254)"),
        Depth.SIXTEEN: Style(reverse=True),
        Depth.NONE: Style(reverse=True),
    },
}
_IDLE = {
    # truecolor, 256, 16, no colour
    Theme.DARK: ("#4b5966 on #171f27", "color(240) on color(234)", "dim default", "dim default"),
    Theme.LIGHT: ("#9aa6b1 on #eef2f5", "color(247) on color(255)", "dim default", "dim default"),
}
_DENSITY = "░▒▓█"

_PLAIN_JOBS = ("default", "underline", "italic", "bold", "underline italic", "bold underline")
_SIXTEEN_JOBS = ("cyan", "magenta", "blue", "bright_cyan", "bright_magenta", "bright_blue")
_JOBS = {
    Theme.DARK: {
        Depth.TRUECOLOR: ("#7cc4f0", "#c7a0ff", "#8fd9b6", "#e3d26f", "#f2a7c3", "#b0bec5"),
        Depth.EIGHT_BIT: tuple(f"color({n})" for n in (117, 183, 115, 186, 218, 250)),
        Depth.SIXTEEN: _SIXTEEN_JOBS,
        Depth.NONE: _PLAIN_JOBS,
    },
    Theme.LIGHT: {
        Depth.TRUECOLOR: ("#0b5fa5", "#6a3fb5", "#14694a", "#6b5d00", "#a3386f", "#455a64"),
        Depth.EIGHT_BIT: tuple(f"color({n})" for n in (25, 61, 29, 58, 132, 240)),
        Depth.SIXTEEN: _SIXTEEN_JOBS,
        Depth.NONE: _PLAIN_JOBS,
    },
}
"""Neither the colours of findings nor those of links that are gone."""


@dataclass(frozen=True, slots=True, eq=False)
class Palette:
    """The styles of one ramp at one depth; each style has its own background.

    There is one object per ramp, depth and theme; they are compared by identity.

    `levels` rise with the value; `faded` are the same for stale samples. `inked` and `faded_ink`
    are for numbers on a background in these colours. `idle` is for the zero of a port without
    traffic, `hot` for the block of a flagged port. `glyphs` fill the cells of each level. `jobs`
    distinguish jobs, whose numbers are beside them.
    """

    depth: Depth
    ramp: str
    theme: Theme
    text: Style
    dim: Style
    rule: Style
    strong: Style
    gone: Style
    tx: Style
    rx: Style
    key: Style
    accent: Style
    hot: Style
    idle: Style
    paused: Style
    cursor: Style
    levels: tuple[Style, ...]
    faded: tuple[Style, ...]
    inked: tuple[Style, ...]
    faded_ink: tuple[Style, ...]
    glyphs: str
    jobs: tuple[Style, ...]

    @property
    def selection_mark(self) -> str:
        """The mark of the links of the selected finding, one column wide."""
        return "*" if self.depth is Depth.NONE else "◉"


@lru_cache
def palette(depth: Depth, ramp: str = RAMPS[0].name, theme: Theme = Theme.DARK) -> Palette:
    """The palette of a ramp at a depth, on a dark or a light background."""
    selected = next(item for item in RAMPS if item.name == ramp).colours(theme)
    paper = Style(bgcolor=_BACKGROUND[theme][depth]) if depth.rgb else Style()
    column = list(Depth).index(depth)
    roles = {role: paper + Style.parse(row[column]) for role, row in _ROLES[theme].items()}
    colours = _colours(selected, depth, plain=ramp != RAMPS[0].name)
    levels = tuple(paper + Style(color=colour) for colour in colours)
    faded = tuple(paper + _fade(colour, depth, theme) for colour in colours)
    accent = {
        Depth.TRUECOLOR: Style(color=selected.accent[0], bold=True),
        Depth.EIGHT_BIT: Style(color=f"color({selected.accent[1]})", bold=True),
        Depth.SIXTEEN: Style(color="bright_yellow" if theme is Theme.DARK else "red", bold=True),
        Depth.NONE: Style(bold=True),
    }[depth]
    return Palette(
        depth=depth,
        ramp=ramp,
        theme=theme,
        accent=paper + accent,
        hot=_hot(accent, depth, theme),
        idle=paper + Style.parse(_IDLE[theme][column]),
        paused=paper + accent + Style(reverse=True),
        cursor=_CURSOR_ROW[theme][depth],
        levels=levels,
        faded=faded,
        inked=_inked(colours, depth),
        faded_ink=_faded_ink(faded, depth),
        glyphs="█" * len(levels) if depth.rgb else _DENSITY,
        jobs=tuple(paper + Style.parse(each) for each in _JOBS[theme][depth]),
        **roles,
    )


def detect(environ: Mapping[str, str]) -> Depth:
    """The colour depth according to the environment: NO_COLOR, TERM, COLORTERM."""
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term == "dumb":
        return Depth.NONE
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return Depth.TRUECOLOR
    return Depth.EIGHT_BIT if "256color" in term else Depth.SIXTEEN


def deciding_variable(environ: Mapping[str, str]) -> str:
    """The environment variable that `detect` decided by."""
    if environ.get("NO_COLOR"):
        return "NO_COLOR"
    by_colorterm = detect(environ) is Depth.TRUECOLOR
    return "COLORTERM" if by_colorterm else "TERM"


def lightness(colour: Color) -> float:
    """CIE L* of a colour, 0 black to 100 white."""
    linear = []
    for part in colour.get_truecolor():
        share = part / 255
        linear.append(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    if luminance <= 216 / 24389:
        return luminance * 24389 / 27
    return float(116 * luminance ** (1 / 3) - 16)


def _colours(ramp: RampColours, depth: Depth, plain: bool) -> list[Color]:
    """The colours of the levels at a depth; with 16 colours `plain` ones are those of the text."""
    if depth is Depth.EIGHT_BIT:
        return [Color.from_ansi(number) for number in ramp.eight_bit]
    if depth is Depth.SIXTEEN:
        return [Color.parse("default" if plain else "blue")] * len(_DENSITY)
    if depth is Depth.NONE:
        return [Color.parse("default")] * len(_DENSITY)
    stops = [tuple(Color.parse(stop).get_truecolor()) for stop in ramp.stops]
    colours = []
    for step in range(STEPS - 1):
        place = step / (STEPS - 2) * (len(stops) - 1)
        index = min(int(place), len(stops) - 2)
        share = place - index
        parts = (a + (b - a) * share for a, b in zip(stops[index], stops[index + 1], strict=True))
        colours.append(Color.from_rgb(*parts))
    return colours


def _fade(colour: Color, depth: Depth, theme: Theme) -> Style:
    if depth is Depth.TRUECOLOR:
        paper = Color.parse(_BACKGROUND[theme][depth]).get_truecolor()
        parts = (a * 0.55 + b * 0.45 for a, b in zip(colour.get_truecolor(), paper, strict=True))
        return Style(color=Color.from_rgb(*parts))
    return Style(color=colour, dim=True)


_INK = {Depth.TRUECOLOR: ("#f1f5f8", "#0b0f13"), Depth.EIGHT_BIT: ("color(255)", "color(232)")}
"""Light and dark text."""


def _on(colour: Color, depth: Depth) -> Style:
    """Text that can be read on a colour."""
    return Style(color=_INK[depth][lightness(colour) > 52], bgcolor=colour)


def _inked(colours: list[Color], depth: Depth) -> tuple[Style, ...]:
    """Numbers on each colour; with 16 colours more is bolder, without any all are the same."""
    if depth.rgb:
        return tuple(_on(colour, depth) for colour in colours)
    if depth is Depth.NONE:
        return tuple(Style(color=colour) for colour in colours)
    return tuple(
        Style(color="default", bold=step > 1 or None, reverse=step > 2 or None)
        for step in range(len(colours))
    )


def _faded_ink(faded: tuple[Style, ...], depth: Depth) -> tuple[Style, ...]:
    """Numbers of stale samples: in truecolor on the faded colour, else dim."""
    if depth is Depth.TRUECOLOR:
        return tuple(_on(style.color, depth) for style in faded if style.color is not None)
    return faded


def _hot(accent: Style, depth: Depth, theme: Theme) -> Style:
    """Text on a block in the accent colour."""
    if depth.rgb and accent.color is not None:
        return _on(accent.color, depth) + Style(bold=True)
    if depth is Depth.SIXTEEN:
        ink = "black" if theme is Theme.DARK else "bright_white"
        return Style(color=ink, bgcolor=accent.color, bold=True)
    return accent + Style(reverse=True)
