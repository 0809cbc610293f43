"""The map beside a heatmap that scrolls: every unit as one cell, in physical order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabmon.tui.cells import Codes, Look
from fabmon.tui.heatmap_units import Unit
from fabmon.tui.line import Line, Span
from fabmon.tui.text.heatmap_rows import combined

_TITLE = "map"


class Minimap:
    """The cells of units: each is the busiest port of its nodes, with the marks of all."""

    def __init__(self, units: Sequence[Unit]) -> None:
        """For these units; those without ports have no cell."""
        ports = [[port.row for node in unit.nodes for port in node.ports] for unit in units]
        ports = [rows for rows in ports if rows]
        self._members = np.array([row for rows in ports for row in rows], np.intp)
        sizes = [len(rows) for rows in ports]
        self._starts = np.array([sum(sizes[:n]) for n in range(len(sizes))], np.intp)

    def width(self, height: int) -> int:
        """Columns for all units in `height` lines, one of them the title, and a gap before."""
        per_line = -(-len(self._starts) // max(1, height - 1))
        return max(len(_TITLE), per_line) + 1

    def lines(self, codes: Codes, height: int, look: Look) -> list[Line]:
        """The title and the units in reading order; `codes` are [ports]."""
        palette = look.palette
        drawn = [Line(((f" {_TITLE}", palette.dim),))]
        cells = combined(codes[self._members], self._starts).tolist()
        per_line = self.width(height) - 1
        for at in range(0, len(cells), per_line):
            spans: list[Span] = [(" ", palette.text)]
            spans += [look.picture(code, 1) for code in cells[at : at + per_line]]
            drawn.append(Line(tuple(spans)))
        return drawn
