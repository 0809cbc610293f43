"""Cells of the heatmap: the 16-bit code of each cell, and how a code is drawn.

A code is a level (0 is idle) with the flags FLAGGED, FADED, STALE and SELECTED, or a special code.
Codes are computed for all ports at once; each code is turned into text and style once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rich.style import Style

from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.tui.metrics import IDLE, HeatMetric
from fabmon.tui.palette import STEPS, Depth, Palette

Codes = NDArray[np.uint16]

_LEAST = 1e-9
"""The least value of events and logarithmic shares that is not idle."""

LEVEL = 0x7F
FLAGGED = 0x80
STALE = 0x100
ABSENT = 0x200
"""No value: not supported, not permitted, or not measured yet."""
DOWN = 0x201
"""The link has no carrier."""
UNRATED = 0x202
"""Traffic on a port of unknown line rate: no share can be computed."""
NOTHING = 0x203
"""There is no port at this place."""
STUCK = 0x204
"""The counter is saturated: the true value is at least the maximum."""
READING = 0x205
"""No value yet: it is being read from the recording."""

DOUBTFUL = 0x206
"""A rate that cannot be: above the line rate, or another one than at the other end."""

FULL = "#"
"""The digit of a cell at 100 % that has no room for the number."""

SELECTED = 0x400
"""A link of the selected finding; a flag, also of special codes."""

MUTED = 0x800
"""A port that the filter does not match; a flag, also of special codes."""

FADED_MARK = "△"
FADED = 0x1000
"""A port of a finding that no longer holds; a flag of levels."""

NUMBERED = 3
"""Cells of this width or wider show their number, narrower ones a digit if the user wants it."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How values become levels: `edges[i]` is where level i + 1 begins; level 0 is idle.

    `shades[i]` is the index of the palette's colour for level i + 1. `texts[level]` is the number
    of a level in one column, in two, and in three or more. `drawn[level]` is the level that is
    drawn for an ordinary port: the same one where numbers are shown, else the lowest of the same
    colour, so that few cells change. `digits`: also cells narrower than NUMBERED have a number.
    """

    edges: tuple[float, ...]
    shades: tuple[int, ...]
    texts: tuple[tuple[str, str, str], ...]
    drawn: tuple[int, ...]
    exact: bool
    digits: bool

    def levels_of(self, values: Floats) -> Codes:
        """The levels that are drawn for values; those that are NaN are idle."""
        exact = np.searchsorted(self.edges, np.where(np.isnan(values), 0, values), "right")
        return np.array(self.drawn, dtype=np.uint16)[exact]


@lru_cache
def scale(heat: HeatMetric, depth: Depth, digits: bool, width: int = 1) -> Scale:
    """The levels of a metric at a colour depth, for cells of at most `width` columns.

    Without colours, cells always have digits.
    """
    digits = digits or depth is Depth.NONE
    values, edges, texts = _numbers(heat)
    steps = {Depth.TRUECOLOR: STEPS - 1, Depth.EIGHT_BIT: 12}.get(depth, 4)
    below = np.searchsorted(heat.edges(steps), values, "right") - 1
    shades = np.clip(below, 0, steps - 1).tolist()
    exact = digits or width >= NUMBERED
    drawn = range(len(edges) + 1) if exact else (0, *(1 + shades.index(each) for each in shades))
    texts = [("0", "0", "0"), *texts]
    return Scale(tuple(edges), tuple(shades), tuple(texts), tuple(drawn), exact, digits)


def _numbers(heat: HeatMetric) -> tuple[list[float], list[float], list[tuple[str, str, str]]]:
    """(values, lower bounds, texts) of the numbers that cells can have, lowest first.

    Full percents; shares on a logarithmic scale have one digit below 1 %, events per second one
    significant digit. In narrow cells events are powers of ten.
    """
    if heat.range.is_share:
        values = [percent / 100 for percent in range(1, 101)]
        edges = [IDLE, *((percent - 0.5) / 100 for percent in range(2, 101))]
        texts = [(str(p // 10), str(p), str(p)) for p in range(1, 100)] + [(FULL, FULL, "100")]
        if heat.range.is_linear:
            return values, edges, texts
        tenths = [tenth / 1000 for tenth in range(1, 10)]
        few = [("0", f".{tenth}", f".{tenth}") for tenth in range(1, 10)]
        return (
            [_LEAST, *tenths, *values],
            [_LEAST, *(each - 0.0005 for each in tenths), 0.0095, *edges[1:]],
            [("0", "<", "<.1"), *few, *texts],
        )
    units = [(digit, power) for power in range(6) for digit in range(1, 10)] + [(1, 6)]
    values = [digit * 10.0**power for digit, power in units]
    edges = [_LEAST, *(value - 0.5 * 10 ** int(np.log10(value * 0.99)) for value in values[1:])]
    texts = [(str(power), str(power), _rounded(digit, power)) for digit, power in units]
    return values, edges, texts


def _rounded(digit: int, power: int) -> str:
    """A number of one significant digit in at most three columns: `20`, `3k`, `.7M`."""
    if power < 3:
        return str(digit * 10**power)
    if power < 5:
        return f"{digit * 10 ** (power - 3)}k"
    return f".{digit}M" if power == 5 else f"{digit}M"


def encode(
    snapshot: Snapshot,
    heat: HeatMetric,
    levels: Scale,
    flagged: Iterable[int],
    line_rate_bps: Floats,
    broken: Iterable[int] = (),
    doubtful: Iterable[int] = (),
    faded: Iterable[int] = (),
) -> Codes:
    """[ports]: the code of every port. `flagged` are the rows of ports that findings name, `faded`
    those of findings that no longer hold, `broken` those that are drawn as down because links of
    theirs are, `doubtful` those whose traffic is not what they count.

    `line_rate_bps` [ports] are the last known line rates: a stale port keeps its last colour.
    """
    stale = snapshot.stale
    values = np.where(stale, heat.last_values(snapshot, line_rate_bps), heat.values(snapshot))
    absent = np.isnan(values)
    codes = levels.levels_of(values)
    rows = np.fromiter(flagged, dtype=np.intp)
    exact = np.searchsorted(levels.edges, values[rows], "right").astype(np.uint16)
    codes[rows] = exact | FLAGGED
    codes[np.fromiter(faded, dtype=np.intp)] |= FADED
    codes[stale] = codes[stale] & LEVEL | STALE
    codes[absent] = ABSENT
    if heat.counted_by:
        codes[absent & snapshot.is_stuck(heat.counted_by)] = STUCK
    if heat.is_traffic:
        flowing = np.isfinite(snapshot.column(heat.columns[0])) & absent
        codes[flowing] = UNRATED
        codes[flowing & np.isfinite(line_rate_bps)] = DOUBTFUL
        codes[np.fromiter(doubtful, dtype=np.intp)] = DOUBTFUL
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
        """The text of a cell, `width` columns wide, and its style.

        In cells with a number the last column is for marks: flagged, stale or selected.
        """
        palette = self.palette
        if code & MUTED:
            return self.picture(code & ~(MUTED | SELECTED), width)[0], palette.rule
        if code & SELECTED:
            return self._selected(code & ~(SELECTED | FADED), width)
        if code & FADED:
            return self._faded(code & ~FADED, width)
        stale = bool(code & STALE)
        kind = code & ~STALE
        if kind == NOTHING:
            return " " * width, palette.text
        if kind == DOWN:
            return _placed("✖", "?" if stale else " ", width), palette.gone
        if kind in _MARKS:
            return _placed(_MARKS[kind], " ", width), palette.dim
        return self._level(code & LEVEL, width, bool(code & FLAGGED), stale)

    def _level(self, level: int, width: int, flagged: bool, stale: bool) -> tuple[str, Style]:
        palette = self.palette
        numbered = self._is_numbered(width)
        if flagged:
            return self._hot(level, width), palette.hot
        if stale and not numbered and palette.depth.rgb:
            return "▒" * width, palette.faded[self._shade(level)] if level else palette.rule
        if stale:
            style = palette.faded_ink[self._shade(level)] if level else palette.rule
            return self._number(level, width, "?"), style
        if not level:
            return _placed("0", " ", width) if numbered else "0".rjust(width), palette.idle
        shade = self._shade(level)
        if numbered:
            return self._number(level, width, " "), palette.inked[shade]
        return palette.glyphs[shade] * width, palette.levels[shade]

    def _hot(self, level: int, width: int) -> str:
        """A flagged cell: its number where there is room for two digits, and its mark."""
        if width == 1:
            return "▲"
        if width == 2 and self.palette.depth.rgb and not self.levels.digits:
            number = self.levels.texts[level][1].rjust(2)
            return "▲▲" if FULL in number else number
        return self._number(level, width, "▲")

    def _faded(self, code: int, width: int) -> tuple[str, Style]:
        """An ordinary cell, with the mark of a finding that no longer holds."""
        text, style = self.picture(code, width)
        is_level = self._is_numbered(width) and code <= LEVEL
        return self._number(code, width, FADED_MARK) if is_level else text[:-1] + FADED_MARK, style

    def _selected(self, code: int, width: int) -> tuple[str, Style]:
        """A cell with the mark of the selection; in one column, another mark is reversed."""
        palette, mark = self.palette, self.palette.selection_mark
        is_level = code <= LEVEL
        if width == 1 and not is_level:
            text, style = self.picture(code, 1)
            return text, style + Style(reverse=True)
        text, style = self.picture(code, width)
        if width == 1:
            text = mark
        elif width < NUMBERED and code & FLAGGED and not code & ABSENT:
            text = "▲" + mark
        elif self._is_numbered(width) and code & ~(STALE | FLAGGED) <= LEVEL:
            text = self._number(code & LEVEL, width, mark)
        else:
            text = text.replace("█", " ")[:-1] + mark
        if is_level:
            style = (
                palette.inked[self._shade(code)] if code and palette.depth.rgb else palette.strong
            )
        return text, style

    def _is_numbered(self, width: int) -> bool:
        """Whether cells of this width show their number."""
        return self.levels.digits or (self.levels.exact and width >= NUMBERED)

    def _number(self, level: int, width: int, mark: str) -> str:
        """The number of a level, with a mark behind it where there is room for both."""
        narrow, double, wide = self.levels.texts[level]
        if width >= NUMBERED:
            if len(wide) < width:
                return wide.rjust(width - 1) + mark
            return wide if mark != self.palette.selection_mark else narrow.rjust(width - 1) + mark
        if mark == " ":
            return narrow if width == 1 else double.rjust(2)
        return mark if width == 1 else narrow + mark

    def _shade(self, level: int) -> int:
        """The index of the palette's colour for a level (1 or more)."""
        return self.levels.shades[level - 1]


_MARKS = {ABSENT: "·", STUCK: "≥", UNRATED: "?", DOUBTFUL: "?", READING: "…"}


def _placed(text: str, mark: str, width: int) -> str:
    """One character where the last digit of a number is, and a mark behind it if there is room."""
    if width >= NUMBERED:
        return text.rjust(width - 1) + mark
    return text.rjust(2) if text == "0" and width == 2 else (text + mark)[:width]


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
