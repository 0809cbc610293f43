"""Rows of heatmap cells without names."""

from __future__ import annotations

from fabmon.tui.cells import CellBlock, CellRow


def plain_rows(count: int, columns: int, width: int = 1, gap: int = 0) -> tuple[CellRow, ...]:
    """Rows of cells and nothing else."""
    return (CellRow((), (CellBlock(0, width + gap, width, 0, columns),)),) * count
