"""The waterfall of a finding: a row per link, a column per part of the time, from memory or from
the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fabmon.analysis.detectors import (
    congested_path,
    degraded_link,
    error_burst,
    host_pcie_limit,
    job_stalled,
    pause_deadlock,
    pause_storm,
    slow_receiver,
    straggler,
    uneven_rails,
)
from fabmon.analysis.finding import Finding
from fabmon.fabric.measures import measure
from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import MINUS, SECOND_NS, duration, interval, time_of_day
from fabmon.recording.reading.rate_tiers import Tier
from fabmon.tui.cells import ABSENT, READING, CellBlock, CellRow, Codes, Look, scale
from fabmon.tui.line import Line, Span, fit, line, right
from fabmon.tui.metrics import HeatMetric, heat_metric
from fabmon.tui.palette import Depth
from fabmon.tui.text import labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.picture.canvas import Canvas
from fabmon.tui.text.picture.pictures import OF_GROUPS, group_members
from fabmon.tui.time.trend import Trend

KEPT_MIN = 2
"""Minutes that other columns than traffic are kept for."""
_WIDEST = 4
_MARK = 3
_VALUE = 9
_HEAD = "▼"


_PAUSES = ("pause", "stall", "cnp")
_METRICS = {
    **dict.fromkeys(OF_GROUPS, ("tx",)),
    **dict.fromkeys((each.CAUSE.name for each in (uneven_rails, straggler, job_stalled)), ("tx",)),
    **dict.fromkeys(
        (each.CAUSE.name for each in (slow_receiver, pause_storm, pause_deadlock, congested_path)),
        _PAUSES,
    ),
    host_pcie_limit.CAUSE.name: ("pcie-stall", "rx"),
    degraded_link.CAUSE.name: ("errors", "drops"),
    error_burst.CAUSE.name: ("errors", "drops"),
}
"""The metrics that a cause is about; the first one of which anything is known above 0 is shown. Of
other causes it is the utilisation."""


@dataclass(frozen=True)
class Waterfall:
    """The links of a finding over the last `minutes`, from the rates kept in memory.

    `chosen` is the metric that the user chose in this view; empty: that of the finding.
    """

    ctx: DrawContext
    finding: Finding
    minutes: int
    chosen: str = field(default="", kw_only=True)

    @cached_property
    def ports(self) -> list[Port]:
        """The links of the group in physical order, or else the finding's ports."""
        canvas = Canvas(self.ctx, self.finding)
        return group_members(canvas) if self.finding.cause in OF_GROUPS else canvas.ports

    @property
    def subject_row(self) -> int:
        """The row of the finding's first port, 0 where it is not among the links."""
        first = self.finding.rows[:1]
        return next((n for n, port in enumerate(self.ports) if (port.row,) == first), 0)

    @cached_property
    def metric(self) -> HeatMetric:
        """The chosen metric, or pause where it is not kept; without a choice, the finding's."""
        if self.chosen:
            return heat_metric(self.chosen if measure(self.chosen).is_kept else "pause")
        snapshot, rows = self.ctx.snapshot, [port.row for port in self.ports]
        own = (heat_metric(name) for name in _METRICS.get(self.finding.cause, ()))
        return next(
            (
                metric
                for metric in own
                if metric.is_traffic
                or any(
                    np.nan_to_num(snapshot.window(column, rows, self._kept_ticks)).any()
                    for column in metric.columns
                )
            ),
            heat_metric("util"),
        )

    @property
    def _kept_ticks(self) -> int:
        return max(1, round(KEPT_MIN * 60 / self.ctx.snapshot.interval_s))

    @property
    def is_too_long(self) -> bool:
        """Whether the metric is not kept in memory for `minutes`."""
        return not self.metric.is_traffic and self.minutes > KEPT_MIN

    @cached_property
    def look(self) -> Look:
        """The colours and scale of the cells."""
        return Look(
            self.ctx.palette,
            scale(self.metric, self.ctx.palette.depth, self.ctx.choices.digits, self.cell),
        )

    # Columns are `_each` ticks long and begin at fixed ticks, so that they shift only when one is
    # full.

    @cached_property
    def _ticks(self) -> int:
        return max(1, round(self.minutes * 60 / self.ctx.snapshot.interval_s))

    @cached_property
    def _each(self) -> int:
        return -(-self._ticks // self._room)

    @cached_property
    def columns(self) -> int:
        """The number of columns."""
        return -(-self._ticks // self._each)

    @property
    def each(self) -> str:
        """The length of a column as text."""
        return duration(self._each * self.ctx.snapshot.interval_s)

    @property
    def is_tick(self) -> bool:
        """Whether a column is a single tick."""
        return self._each == 1

    @property
    def ends(self) -> tuple[str, str]:
        """The labels of the two ends of the time axis."""
        return f"{MINUS}{self.minutes} min", "now" if self.ctx.time.shown is None else "here"

    @property
    def here(self) -> int | None:
        """The column of the time cursor; None where that is at the end."""
        return None

    @property
    def _missing(self) -> int:
        """Ticks of the last column that have not arrived yet."""
        return self._each - 1 - self.ctx.snapshot.seq % self._each

    def began_ns(self, column: int) -> int:
        """The time of a column's first tick."""
        ticks = (self.columns - column) * self._each - self._missing - 1
        snapshot = self.ctx.snapshot
        return snapshot.time_ns - int(ticks * snapshot.interval_s * SECOND_NS)

    def column(self, time_ns: int) -> int:
        """The column of a time, below 0 before the first column."""
        snapshot = self.ctx.snapshot
        ago = (snapshot.time_ns - time_ns) / SECOND_NS / snapshot.interval_s
        return self.columns - 1 - int(ago + self._missing) // self._each

    @cached_property
    def _before(self) -> int:
        """Cells before the first column: the mark and the longest name."""
        names = (labels.link_name(port, self.ctx.fabric) for port in self.ports)
        longest = max(map(len, names), default=0)
        return _MARK + min(longest, max(8, self.ctx.width // 4)) + 1

    @cached_property
    def _room(self) -> int:
        return max(4, self.ctx.width - self._before - _VALUE - 1)

    @cached_property
    def cell(self) -> int:
        """The width of a cell."""
        return max(1, min(_WIDEST, self._room // self.columns))

    @cached_property
    def values(self) -> Floats:
        """[ports, columns]: the highest value of each column's time; NaN where nothing is known."""
        snapshot, rows = self.ctx.snapshot, [port.row for port in self.ports]
        known = self.columns * self._each - self._missing
        seen = np.full((len(rows), self.columns * self._each), np.nan, np.float32)
        seen[:, :known] = measure(self.metric.name).window(snapshot, rows, known)
        parts: Floats = np.fmax.reduceat(seen, np.arange(self.columns) * self._each, axis=1)
        return parts

    @property
    def codes(self) -> Codes:
        """[ports, columns]: the codes of the cells."""
        codes = self.look.levels.levels_of(self.values)
        codes[np.isnan(self.values)] = READING if self.is_reading else ABSENT
        return codes

    @property
    def is_reading(self) -> bool:
        """Whether values that are not known are being read from the recording."""
        return self.ctx.time.is_reading

    @property
    def rows(self) -> tuple[CellRow, ...]:
        """The texts beside the cells: mark and name before them, the last value after."""
        palette, fabric = self.ctx.palette, self.ctx.fabric
        block = CellBlock(self._before, self.cell, self.cell, 0, self.columns)
        end = self._before + self.columns * self.cell
        made, mark = [], Canvas(self.ctx, self.finding).subject_mark
        for port, last in zip(self.ports, self.values[:, -1].tolist(), strict=True):
            is_subject = port.row == self.finding.rows[0] or port.id == self.finding.subject
            name = fit(labels.link_name(port, fabric), self._before - _MARK - 1)
            texts = (
                (1, mark if is_subject else " ", palette.accent),
                (_MARK, name, palette.strong if is_subject else palette.text),
                (end, right(self.say(last), _VALUE), palette.text),
            )
            made.append(CellRow(texts, (block,)))
        return tuple(made)

    def say(self, value: float) -> str:
        """A value with its unit."""
        return self.metric.range.text(value)

    @property
    def axis(self) -> Line:
        """The time axis: its ends, the finding's start and a heavy stroke while it was open."""
        palette, finding = self.ctx.palette, self.finding
        plain, heavy = ("-", "=") if palette.depth is Depth.NONE else ("─", "━")
        first = self.column(finding.since_ns)
        last = self.columns - 1 if finding.until_ns is None else self.column(finding.until_ns)
        strokes = [
            heavy if first <= place <= last else plain
            for place in range(self.columns)
            for _ in range(self.cell)
        ]
        if 0 <= first < self.columns:
            strokes[first * self.cell] = palette.selection_mark
        if self.here is not None:
            strokes[self.here * self.cell] = _HEAD
        start, end = self.ends
        spans: list[Span] = [(right(start, self._before - 1) + " ", palette.dim)]
        for stroke in strokes:
            spans.append((stroke, palette.dim if stroke == plain else palette.strong))
        return line(*spans, (right(end, _VALUE), palette.dim))

    def cell_text(self, cell: tuple[int, int] | None) -> Line:
        """One line on a cell, (row, column): the link, the time and the value."""
        palette = self.ctx.palette
        if cell is None or cell[0] >= len(self.ports) or cell[1] >= self.columns:
            return line((" ", palette.text))
        port, value = self.ports[cell[0]], float(self.values[cell])
        when = time_of_day(self.began_ns(cell[1]))
        most = "" if self.is_tick else " at most"
        known = f"{self.metric.name} {self.say(value)}{most}"
        if np.isnan(value):
            known = "being read from the recording …" if self.is_reading else "no data"
        return line(
            (f" {labels.both_ends(port, self.ctx.fabric)}  ", palette.strong),
            (f"{when}, {self.each}: ", palette.dim),
            (known, palette.text),
        )


@dataclass(frozen=True)
class LongWaterfall(Waterfall):
    """The links of a finding over hours and days, from the recording, in a trend's bins."""

    trend: Trend

    @cached_property
    def tier(self) -> Tier:
        """The bins of the recording that the columns show."""
        metric = self.metric
        return self.trend.of(self.ports, metric.columns, metric.is_traffic, self._room)

    @property
    def resolution(self) -> str:
        """The length of the trend and of its bins as text."""
        return self.trend.resolution(self.tier.wanted.bin_ns)

    @cached_property
    def columns(self) -> int:
        """The number of bins."""
        return self.tier.wanted.bins

    @property
    def is_reading(self) -> bool:
        """Whether bins that are not known are being read from the recording."""
        return self.trend.is_reading()

    @property
    def each(self) -> str:
        """The length of a bin as text."""
        return interval(self.tier.wanted.bin_ns // SECOND_NS)

    @property
    def is_tick(self) -> bool:
        """Whether a column is a single tick: a bin never is."""
        return False

    @property
    def here(self) -> int | None:
        """The bin of the time cursor; None where that is at the end."""
        if self.trend.ends_now:
            return None
        return min(max(self.column(self.ctx.snapshot.time_ns), 0), self.columns - 1)

    def began_ns(self, column: int) -> int:
        """The start of a bin."""
        wanted = self.tier.wanted
        return wanted.from_ns + column * wanted.bin_ns

    def column(self, time_ns: int) -> int:
        """The bin of a time, below 0 before the first bin."""
        wanted = self.tier.wanted
        return time_ns // wanted.bin_ns - wanted.first

    @cached_property
    def values(self) -> Floats:
        """[ports, bins]: the highest value of each bin; NaN where nothing is known."""
        return measure(self.metric.name).greatest(self.tier.highest)

    @property
    def ends(self) -> tuple[str, str]:
        """The labels of the two ends of the time axis."""
        return self.trend.ends
