"""What a cell of the heatmap says, as a small number; and how each of those numbers looks.

A code is 16 bits: a level (0 idle, then rising) with the flags HOT, STALE and CHOSEN, or one of the
specials. Codes are made for all ports at once; pictures are made once per code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rich.style import Style

from fabmon.fabric.snapshot import Floats, Snapshot, stale_ports
from fabmon.tui.metrics import HeatMetric
from fabmon.tui.palette import STEPS, Depth, Palette

Codes = NDArray[np.uint16]

LEVEL = 0x7F
HOT = 0x80
STALE = 0x100
ABSENT = 0x200
"""Nobody can say: not supported, not permitted, not yet known."""
DOWN = 0x201
"""The link has no carrier."""
UNRATED = 0x202
"""Traffic, but the line rate is not known, so no share of it."""
NOTHING = 0x203
"""No port in this place."""
STUCK = 0x204
"""The counter sticks at its maximum: at least so much, nobody knows how much."""

FULL = "#"
"""The digit of a cell whose value is all that there can be."""

CHOSEN = 0x400
"""One of the links of the finding that the person has chosen; a flag, also on the specials."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How values become levels: `edges` is where each level begins, `digits` what is written.

    Without `digits` a level is a colour or a density. With them `digits[level]` is its text, short
    first: in one cell and in two or more.
    """

    edges: tuple[float, ...]
    digits: tuple[tuple[str, str], ...] = ()


@lru_cache
def scale(heat: HeatMetric, depth: Depth, digits: bool) -> Scale:
    """The levels that a metric has at a colour depth; without colour there are always digits."""
    if not digits and depth is not Depth.NONE:
        steps = {Depth.TRUECOLOR: STEPS - 1, Depth.EIGHT_BIT: 12, Depth.SIXTEEN: 4}[depth]
        return Scale(tuple(heat.edges(steps).tolist()))
    if heat.linear and depth is not Depth.NONE:
        edges = [0.005] + [(percent - 0.5) / 100 for percent in range(2, 101)]
        texts = [(str(min(p // 10, 9)), f"{p:2d}") for p in range(1, 100)]
        return Scale(tuple(edges), (("", ""), *texts, (FULL, f" {FULL}")))
    if heat.linear or heat.high == 1:
        edges = [0.005 if heat.linear else 1e-9] + [tenth / 10 for tenth in range(1, 10)] + [0.995]
        texts = [(str(tenth), str(tenth)) for tenth in range(10)]
        return Scale(tuple(edges), (("", ""), *texts, (FULL, FULL)))
    decades = tuple(10.0**power for power in range(1, 7))
    return Scale((1e-9, *decades), (("", ""), *((str(p), str(p)) for p in range(7))))


def encode(
    snapshot: Snapshot, heat: HeatMetric, levels: Scale, hot: Iterable[int], line_rate_bps: Floats
) -> Codes:
    """[ports]: the code of every port of a moment. `hot` are the rows that findings are about.

    `line_rate_bps` is the last that is known: a port that fell silent keeps its last colour.
    """
    stale = stale_ports(snapshot)
    values = np.where(stale, heat.last_values(snapshot, line_rate_bps), heat.values(snapshot))
    absent = np.isnan(values)
    codes = np.searchsorted(levels.edges, np.where(absent, 0, values), "right").astype(np.uint16)
    rows = np.fromiter(hot, dtype=np.intp)
    codes[rows] |= HOT
    codes[stale] = codes[stale] & LEVEL | STALE
    codes[absent] = ABSENT
    if heat.counted_by:
        codes[absent & snapshot.is_stuck(heat.counted_by)] = STUCK
    if heat.traffic:
        flowing = np.isfinite(snapshot.column(heat.columns[0])) & absent
        codes[flowing] = UNRATED
    codes[snapshot.up == 0] = DOWN
    codes[stale & ((codes & ABSENT) > 0)] |= STALE
    return codes


@dataclass(frozen=True, slots=True)
class Look:
    """How codes are drawn."""

    palette: Palette
    levels: Scale

    def picture(self, code: int, width: int) -> tuple[str, Style]:
        """Text of `width` cells, and its style."""
        palette = self.palette
        if code & CHOSEN:
            return self._chosen(code & ~CHOSEN, width)
        kind = code & ~STALE
        if kind == NOTHING:
            return " " * width, palette.text
        if kind == ABSENT:
            return "·" * width, palette.dim
        if kind == STUCK:
            return "≥".ljust(width), palette.dim
        if kind == UNRATED:
            return "?".ljust(width), palette.dim
        if kind == DOWN:
            text = "✖" + ("?" if code & STALE and width > 1 else "")
            return text.ljust(width), palette.gone
        return self._level(code & LEVEL, width, bool(code & HOT), bool(code & STALE))

    def _chosen(self, code: int, width: int) -> tuple[str, Style]:
        """The same cell with the mark of what is chosen; at one cell, another mark is reversed."""
        palette, mark = self.palette, self.palette.selection_mark
        if code > LEVEL and width == 1:
            text, style = self.picture(code, 1)
            return text, style + Style(reverse=True)
        if code > LEVEL:
            text, style = self.picture(code, width - 1)
            return (text[:-1] + mark + text[-1] if code & HOT else text + mark), style
        if not code or not palette.depth.rgb:
            return self._fill(code, width - 1) + mark, palette.strong
        text = self._fill(code, width - 1) if self.levels.digits else " " * (width - 1)
        return text + mark, palette.inked[self._colour(code)]

    def _level(self, level: int, width: int, hot: bool, stale: bool) -> tuple[str, Style]:
        palette = self.palette
        if hot:
            return self._fill(level, width - 1) + "▲", palette.hot
        if stale:
            style = palette.faded[self._colour(level)] if level else palette.rule
            if palette.depth.rgb and not self.levels.digits:
                return "▒" * width, style
            return self._fill(level, width - 1) + "?", style
        if not level:
            return " " * width, palette.text
        table = palette.inked if self.levels.digits else palette.levels
        return self._fill(level, width), table[self._colour(level)]

    def _fill(self, level: int, width: int) -> str:
        """A level's glyph or digits in `width` cells; nothing when there is no room."""
        if not level or not width:
            return " " * width
        if self.levels.digits:
            short, long = self.levels.digits[level]
            return (short if width == 1 else long).ljust(width)
        return self.palette.glyphs[self._colour(level)] * width

    def _colour(self, level: int) -> int:
        """The palette's step of a level from 1."""
        last = len(self.palette.levels) - 1
        levels = len(self.levels.edges)
        return last if levels <= 1 else round((level - 1) / (levels - 1) * last)


@dataclass(frozen=True, slots=True)
class Block:
    """Cells side by side: the first at `x`, then every `pitch`; columns from `first`."""

    x: int
    pitch: int
    width: int
    first: int
    count: int

    def at(self, x: int) -> int | None:
        """The column whose cell is at `x`; None between cells and outside."""
        place, inside = divmod(x - self.x, self.pitch)
        return self.first + place if 0 <= place < self.count and inside < self.width else None


@dataclass(frozen=True, slots=True)
class CellRow:
    """What a row shows beside its cells: `texts` are (x, text, style), left to right.

    `heading` is the index of the row that names this one's columns: it stays in sight while its
    rows scroll by.
    """

    texts: tuple[tuple[int, str, Style], ...]
    blocks: tuple[Block, ...]
    heading: int = -1

    def block(self, column: int) -> Block | None:
        """The block that a column is in."""
        for block in self.blocks:
            if block.first <= column < block.first + block.count:
                return block
        return None

    @property
    def width(self) -> int:
        """Cells up to the end of the last block."""
        last = self.blocks[-1] if self.blocks else Block(0, 0, 0, 0, 0)
        return last.x + last.count * last.pitch
