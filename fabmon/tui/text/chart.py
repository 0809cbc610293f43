"""Curves drawn with characters. A gap in the values stays a gap: it is never joined or zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.snapshot import Floats
from fabmon.scenes.recording_contents import Curve

BLOCKS = " ▁▂▃▄▅▆▇█"
GAP = "·"
_DOTS = np.array([[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]])
"""Braille bits of a cell's two columns, from the bottom up."""


def resample(values: Floats, columns: int) -> Floats:
    """[columns]: the highest value of each part, so that a short peak is kept."""
    if not len(values) or columns <= 0:
        return np.full(max(columns, 0), np.nan, dtype=np.float32)
    starts = np.arange(columns) * len(values) // columns
    parts: Floats = np.fmax.reduceat(values, starts)
    return parts


def spread(curve: Curve | None, window: tuple[int, int], columns: int) -> Floats:
    """[..., columns]: the highest known value of each; NaN where nothing is known."""
    if curve is None:
        return np.full(columns, np.nan, np.float32)
    values = np.full((*curve.values.shape[:-1], columns), np.nan, np.float32)
    parts = curve.values.shape[-1]
    if not parts or curve.until_ns <= curve.from_ns:
        return values
    part_ns = (curve.until_ns - curve.from_ns) / parts
    edges = window[0] + np.arange(columns + 1) * ((window[1] - window[0]) / columns)
    first = np.floor((edges[:-1] - curve.from_ns) / part_ns + 1e-6).astype(int)
    last = np.ceil((edges[1:] - curve.from_ns) / part_ns - 1e-6).astype(int)
    for column in np.flatnonzero((last > 0) & (first < parts)).tolist():
        part = curve.values[..., max(first[column], 0) : max(last[column], first[column] + 1)]
        values[..., column] = np.fmax.reduce(part, axis=-1)
    return values


def spark(values: Floats, columns: int, top: float) -> str:
    """One row of blocks: 0 is the lowest, a gap is `·`, before the first value it is blank."""
    return bars(values, columns, 1, top)[0]


def bars(values: Floats, columns: int, rows: int, top: float) -> list[str]:
    """The curve in `rows` rows of blocks, from the highest row down."""
    eighths = levels(values, columns, rows * 8, top)
    first = int(np.argmax(eighths > 0)) if eighths.any() else columns
    lines = []
    for row in range(rows - 1, -1, -1):
        chars = [BLOCKS[level] for level in np.clip(eighths - row * 8, 0, 8).tolist()]
        lines.append("".join(chars if row else _with_gaps(chars, first)))
    return lines


def braille(values: Floats, columns: int, rows: int, top: float) -> list[str]:
    """A filled curve of two by four dots a cell, from the highest row down."""
    heights = levels(values, columns * 2, rows * 4, top)
    first = int(np.argmax(heights > 0)) // 2 if heights.any() else columns
    lines = []
    for row in range(rows - 1, -1, -1):
        dots: NDArray[np.intp] = np.clip(heights - row * 4, 0, 4)
        bits = [
            sum(int(bit) for bit in _DOTS[0][: dots[2 * x]])
            + sum(int(bit) for bit in _DOTS[1][: dots[2 * x + 1]])
            for x in range(columns)
        ]
        chars = [chr(0x2800 + bit) if bit else " " for bit in bits]
        lines.append("".join(chars if row else _with_gaps(chars, first)))
    return lines


def _with_gaps(chars: list[str], first: int) -> list[str]:
    """The lowest row of a curve whose first value is in column `first`."""
    return [GAP if char == " " and place > first else char for place, char in enumerate(chars)]


def levels(values: Floats, columns: int, rows: int, top: float) -> NDArray[np.intp]:
    """[columns]: the rows that the curve reaches: at least 1 where it is known, else 0."""
    parts = resample(values, columns)
    known = np.isfinite(parts)
    scaled = np.where(known, parts, 0) / (top if top > 0 else 1)
    reached = np.clip(np.ceil(scaled * rows), 1, rows).astype(np.intp)
    return np.where(known, reached, 0)


def thin_bar(share: float, width: int) -> str:
    """A horizontal bar with room between it and those above and below, in halves of a cell."""
    halves = int(np.clip(round(share * width * 2), 1 if share > 0 else 0, width * 2))
    return ("━" * (halves // 2) + "╸" * (halves % 2)).ljust(width)


def hbar(share: float, width: int) -> str:
    """A horizontal bar in eighths of a cell; blank for NaN."""
    if np.isnan(share):
        return " " * width
    eighths = int(np.clip(round(share * width * 8), 1 if share > 0 else 0, width * 8))
    full, part = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(width)
