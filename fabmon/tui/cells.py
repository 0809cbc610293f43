"""Cells of the heatmap: the 16-bit code of each cell, and how a code is drawn.

A code is a level (0 is idle) with the flags FLAGGED, STALE and SELECTED, or a special code.
Codes are computed for all ports at once; each code is turned into text and style once.
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
FLAGGED = 0x80
STALE = 0x100
ABSENT = 0x200
"""No value: not supported, not permitted, or not yet read."""
DOWN = 0x201
"""The link has no carrier."""
UNRATED = 0x202
"""Traffic on a port of unknown line rate: no share can be computed."""
NOTHING = 0x203
"""There is no port at this place."""
STUCK = 0x204
"""The counter is saturated: the true value is at least the maximum."""

FULL = "#"
"""The digit of a cell at 100 %."""

SELECTED = 0x400
"""A link of the selected finding; a flag, also of special codes."""

MUTED = 0x800
"""A port that the filter does not match; a flag, also of special codes."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How values become levels: `edges[i]` is where level i + 1 begins.

    Without `digits` a level is a colour or a density. With them `digits[level]` is its text: in a
    cell of one column, and in a wider one.
    """

    edges: tuple[float, ...]
    digits: tuple[tuple[str, str], ...] = ()


@lru_cache
def scale(heat: HeatMetric, depth: Depth, digits: bool) -> Scale:
    """The levels of a metric at a colour depth; without colours, cells always have digits."""
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
    snapshot: Snapshot,
    heat: HeatMetric,
    levels: Scale,
    flagged: Iterable[int],
    line_rate_bps: Floats,
    broken: Iterable[int] = (),
) -> Codes:
    """[ports]: the code of every port. `flagged` are the rows of ports that findings name,
    `broken` those that are drawn as down because links of theirs are.

    `line_rate_bps` [ports] are the last known line rates: a stale port keeps its last colour.
    """
    stale = stale_ports(snapshot)
    values = np.where(stale, heat.last_values(snapshot, line_rate_bps), heat.values(snapshot))
    absent = np.isnan(values)
    codes = np.searchsorted(levels.edges, np.where(absent, 0, values), "right").astype(np.uint16)
    rows = np.fromiter(flagged, dtype=np.intp)
    codes[rows] |= FLAGGED
    codes[stale] = codes[stale] & LEVEL | STALE
    codes[absent] = ABSENT
    if heat.counted_by:
        codes[absent & snapshot.is_stuck(heat.counted_by)] = STUCK
    if heat.traffic:
        flowing = np.isfinite(snapshot.column(heat.columns[0])) & absent
        codes[flowing] = UNRATED
    codes[snapshot.up == 0] = DOWN
    codes[np.fromiter(broken, dtype=np.intp)] = DOWN
    codes[stale & ((codes & ABSENT) > 0)] |= STALE
    return codes


@dataclass(frozen=True, slots=True)
class Look:
    """How codes are drawn: colours and levels."""

    palette: Palette
    levels: Scale

    def picture(self, code: int, width: int) -> tuple[str, Style]:
        """The text of a cell, `width` columns wide, and its style."""
        palette = self.palette
        if code & MUTED:
            return self.picture(code & ~(MUTED | SELECTED), width)[0], palette.rule
        if code & SELECTED:
            return self._selected(code & ~SELECTED, width)
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
        return self._level(code & LEVEL, width, bool(code & FLAGGED), bool(code & STALE))

    def _selected(self, code: int, width: int) -> tuple[str, Style]:
        """A cell with the mark of the selection; in one column, another mark is reversed."""
        palette, mark = self.palette, self.palette.selection_mark
        if code > LEVEL and width == 1:
            text, style = self.picture(code, 1)
            return text, style + Style(reverse=True)
        if code > LEVEL:
            text, style = self.picture(code, width - 1)
            return (text[:-1] + mark + text[-1] if code & FLAGGED else text + mark), style
        if not code or not palette.depth.rgb:
            return self._fill(code, width - 1) + mark, palette.strong
        text = self._fill(code, width - 1) if self.levels.digits else " " * (width - 1)
        return text + mark, palette.inked[self._colour(code)]

    def _level(self, level: int, width: int, flagged: bool, stale: bool) -> tuple[str, Style]:
        palette = self.palette
        if flagged:
            return self._fill(level, width - 1) + "▲", palette.accent
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
        """The glyphs or digits of a level in `width` columns; blank if there is no room."""
        if not level or not width:
            return " " * width
        if self.levels.digits:
            short, long = self.levels.digits[level]
            return (short if width == 1 else long).ljust(width)
        return self.palette.glyphs[self._colour(level)] * width

    def _colour(self, level: int) -> int:
        """The index of the palette's colour for a level (1 or more)."""
        last = len(self.palette.levels) - 1
        levels = len(self.levels.edges)
        return last if levels <= 1 else round((level - 1) / (levels - 1) * last)


@dataclass(frozen=True, slots=True)
class CellBlock:
    """Adjacent cells of a row: the first at screen column `x`, then one every `pitch`.

    `width` is the width of a cell; the cells show the columns of codes from `first` on.
    """

    x: int
    pitch: int
    width: int
    first: int
    count: int

    def at(self, x: int) -> int | None:
        """The column of codes whose cell is at screen column `x`; None between cells."""
        place, inside = divmod(x - self.x, self.pitch)
        return self.first + place if 0 <= place < self.count and inside < self.width else None


@dataclass(frozen=True, slots=True)
class CellRow:
    """A row of the heatmap: `texts` are (x, text, style), left to right, beside the cells.

    `heading` is the index of the row that labels the columns of this one (-1: none): it stays
    visible while its rows scroll. `names` are (x, width, node) of the names among the texts.
    """

    texts: tuple[tuple[int, str, Style], ...]
    blocks: tuple[CellBlock, ...]
    heading: int = -1
    names: tuple[tuple[int, int, str], ...] = ()

    def block(self, column: int) -> CellBlock | None:
        """The block of a column; None if it is in none."""
        for block in self.blocks:
            if block.first <= column < block.first + block.count:
                return block
        return None

    @property
    def width(self) -> int:
        """Screen columns up to the end of the last block."""
        last = self.blocks[-1] if self.blocks else CellBlock(0, 0, 0, 0, 0)
        return last.x + last.count * last.pitch
