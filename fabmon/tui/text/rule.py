"""The lines between panels: what a panel is, and the scale of its colours."""

from __future__ import annotations

from fabmon.tui.cells import FULL
from fabmon.tui.line import Line, Span, width_of
from fabmon.tui.metrics import Heat
from fabmon.tui.palette import Depth, Palette


def rule(parts: list[list[Span]], width: int, palette: Palette, paused: bool) -> Line:
    """A line across, with the parts that fit set into it. Paused, it is double and an accent."""
    stroke, style = ("═", palette.hot) if paused else ("─", palette.rule)
    spans: list[Span] = []
    for part in parts:
        if spans and width_of(spans) + width_of(part) + 4 > width:
            continue
        spans.append((f"{stroke} " if not spans else f"{stroke * 2} ", style))
        spans.extend(part)
        spans.append((" ", style))
    spans.append((stroke * max(0, width - width_of(spans)), style))
    return Line(tuple(spans))


def legend(heat: Heat, digits: bool, palette: Palette, width: int = 2) -> list[Span]:
    """The scale of cells of `width`: its ends, and the colours or densities between them."""
    low, high = heat.ends
    if digits or palette.depth is Depth.NONE:
        return [(_digits(heat, palette.depth, width), palette.dim)]
    steps = len(palette.levels)
    shown = range(steps) if steps <= 12 else [round(n / 11 * (steps - 1)) for n in range(12)]
    ramp = [(palette.glyphs[step], palette.levels[step]) for step in shown]
    return [(f"{low} ", palette.dim), *ramp, (f" {high}", palette.dim)]


def _digits(heat: Heat, depth: Depth, width: int) -> str:
    if heat.high != 1:
        return "digits 10ⁿ/s"
    tens = depth is Depth.NONE or not heat.linear or width < 2
    return f"{'tens of %' if tens else '%'}, {FULL} full"


def marks(palette: Palette) -> list[list[Span]]:
    """What the marks in the cells mean; the first part is what nobody can do without."""
    stale = "▒" if palette.depth.rgb else "?"
    return [
        [
            ("▲", palette.hot),
            (" hot  ", palette.dim),
            ("✖", palette.gone),
            (" down", palette.dim),
        ],
        [(f"· absent  {stale} stale", palette.dim)],
    ]
