"""What is on a terminal: characters and their colours, taken from the app's own strips."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from fabmon.tui.app import FabmonApp
from fabmon.tui.palette import Theme

_NORMAL = [
    (0x16, 0x1B, 0x21), (0xD0, 0x4A, 0x56), (0x53, 0xA0, 0x5B), (0xC2, 0x95, 0x33),
    (0x3F, 0x80, 0xCC), (0xA0, 0x62, 0xC4), (0x3A, 0x9C, 0xA8), (0xC3, 0xCC, 0xD4),
]  # fmt: skip
_BRIGHT = [
    (0x5B, 0x68, 0x74), (0xFF, 0x5D, 0x72), (0x74, 0xC4, 0x7C), (0xF2, 0xC5, 0x55),
    (0x62, 0xA8, 0xDE), (0xC8, 0x8B, 0xEA), (0x62, 0xC6, 0xD2), (0xF1, 0xF5, 0xF8),
]  # fmt: skip
TERMINALS = {
    Theme.DARK: TerminalTheme((0x0F, 0x14, 0x19), (0xC3, 0xCC, 0xD4), _NORMAL, _BRIGHT),
    Theme.LIGHT: TerminalTheme((0xFA, 0xFB, 0xFC), (0x24, 0x30, 0x3A), _NORMAL, _BRIGHT),
}
"""How the terminal of a picture looks: default colours and its 16 colours."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a character looks: colours as #rrggbb."""

    ink: str
    paper: str
    bold: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture: rows of runs of text that look the same, `width` columns each.

    `ansi` is each row as a terminal receives it.
    """

    width: int
    theme: Theme
    rows: tuple[tuple[tuple[str, Look], ...], ...]
    ansi: tuple[str, ...]

    @property
    def paper(self) -> str:
        """The background of the terminal."""
        return TERMINALS[self.theme].background_color.hex


def frame_of(app: FabmonApp, theme: Theme) -> Frame:
    """What an app shows now."""
    rows, ansi = [], []
    system = app.console._color_system
    for strip in app.screen._compositor.render_strips():
        segments = list(Segment.simplify(strip))
        rows.append(tuple((segment.text, _look(segment.style, theme)) for segment in segments))
        ansi.append(
            "".join(
                segment.style.render(segment.text, color_system=system)
                if segment.style
                else segment.text
                for segment in segments
            )
        )
    width = sum(cell_len(text) for text, _ in rows[0])
    return Frame(width, theme, tuple(rows), tuple(ansi))


def _look(style: Style | None, theme: Theme) -> Look:
    terminal, style = TERMINALS[theme], style or Style()
    ink = _hex(style.color, terminal, foreground=True)
    paper = _hex(style.bgcolor, terminal, foreground=False)
    if style.reverse:
        ink, paper = paper, ink
    if style.dim:
        ink = _mixed(ink, paper)
    return Look(ink, paper, bool(style.bold))


def _hex(color: Color | None, terminal: TerminalTheme, *, foreground: bool) -> str:
    known = (color or Color.default()).get_truecolor(terminal, foreground=foreground)
    return known.hex


def _mixed(ink: str, paper: str) -> str:
    """A dim colour: 60 % of the ink."""
    parts = zip(bytes.fromhex(ink[1:]), bytes.fromhex(paper[1:]), strict=True)
    return "#" + "".join(f"{round(0.6 * a + 0.4 * b):02x}" for a, b in parts)
