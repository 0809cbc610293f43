"""What every picture of a finding is drawn with, and the numbers of the seconds that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.moment import Floats
from fabmon.tui.line import Line, line, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.stage import Stage
from fabmon.tui.text.inspect import state
from fabmon.tui.units import per_second, percent

RECENT_S = 5
"""Seconds that the bars are means of, as far as there was traffic in them: what parallel links are
judged over, too."""
_BUSY = 0.5
"""Share of the busiest of those seconds from which on one counts."""
_EVENTS = (("ECN", "ecn"), ("CNP", "cnp"), ("errors", "errors"), ("drops", "drops"))
_SHARES = (("paused", "pause_rx"), ("pausing", "pause_tx"), ("stalled", "stall"))


@dataclass(frozen=True)
class Canvas:
    """A finding in a scene, and the room for its picture: `width` cells, `height` lines."""

    stage: Stage
    scene: Scene
    finding: Finding
    width: int
    height: int

    @property
    def palette(self) -> Palette:
        """The colours in use."""
        return self.stage.palette

    @property
    def fabric(self) -> Fabric:
        """The fabric of the scene."""
        return self.scene.moment.fabric

    @cached_property
    def ports(self) -> list[Port]:
        """The finding's ports that are there, the guilty first."""
        known = self.fabric.ports
        rows = [row for row in self.finding.rows if 0 <= row < len(known)]
        return [known[row] for row in rows if known[row].node]

    def is_guilty(self, port: Port) -> bool:
        """Whether the finding is about this port above all."""
        return port.row == self.finding.rows[0] or port.id == self.finding.subject

    def is_down(self, row: int) -> bool:
        """Whether a port has no carrier."""
        return bool(self.scene.moment.up[row] == 0)

    def window(self, column: str, rows: Sequence[int], seconds: float) -> Floats:
        """[rows, ticks] of a HEAT column over the last seconds, oldest first."""
        ticks = max(2, round(seconds / self.scene.moment.interval_s))
        return self.scene.moment.window(column, rows, ticks)

    def title(self, text: str) -> list[Line]:
        """What the picture is of."""
        parts = wrap(text, self.width - 2)
        return [line((f" {part}", self.palette.strong)) for part in parts]

    def said(self, text: str) -> list[Line]:
        """A remark, indented."""
        return [line((f"   {part}", self.palette.text)) for part in wrap(text, self.width - 4)]


class Loads:
    """What some ports did in the last seconds in which they, together, had traffic one way."""

    def __init__(self, canvas: Canvas, rows: Sequence[int], way: str) -> None:
        """Of ports, by row; `way` is tx or rx."""
        self._canvas, self._rows = canvas, list(rows)
        bps = canvas.window(f"{way}_bps", self._rows, RECENT_S)
        top = np.nan_to_num(bps).max(axis=0, initial=0)
        self._counts = (top >= _BUSY * top.max(initial=0)) & (top > 0)
        self.bps = dict(zip(self._rows, _mean(bps, self._counts).tolist(), strict=True))

    def share(self, row: int) -> float:
        """Of line rate; NaN where either is not known."""
        rate = float(self._canvas.scene.moment.line_rate_bps[row])
        return self.bps[row] / rate if rate > 0 else float("nan")

    @cached_property
    def notes(self) -> dict[int, str]:
        """Row -> what it suffered in that time, or its state: `ECN 12.3 k/s  paused 8.10 %`."""
        told: dict[int, list[str]] = {row: [] for row in self._rows}
        for names, say in ((_EVENTS, per_second), (_SHARES, percent)):
            for name, column in names:
                seen = self._canvas.window(column, self._rows, RECENT_S)
                for row, value in zip(self._rows, _mean(seen, self._counts).tolist(), strict=True):
                    if value > 0:
                        told[row].append(f"{name} {say(value)}")
        return {
            row: state(self._canvas.scene, row)
            if self._canvas.is_down(row)
            else "  ".join(["idle"] * (self.share(row) < _IDLE) + parts)
            for row, parts in told.items()
        }


_IDLE = 0.02


def _mean(values: Floats, counts: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """[rows]: means over the ticks that count; the last value where none does."""
    if not counts.any():
        last: Floats = values[:, -1]
        return last
    known = np.isfinite(values[:, -len(counts) :]) & counts
    sums = np.where(known, values[:, -len(counts) :], 0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        mean: Floats = sums / known.sum(axis=1)
    return mean
