"""What `m` cycles through: the metrics that colour the cells, their scales and their words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.moment import HEAT, Floats, Moment
from fabmon.tui.units import Unit, bits, per_second, percent, rate

IDLE = 0.005
"""A share of the scale below which a cell is drawn as idle."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Heat:
    """One metric of the heatmap.

    `columns` are HEAT columns, of which a cell shows the greatest; for traffic they are divided by
    the line rate. `low` and `high` bound the scale, which is logarithmic unless `linear`.
    """

    name: str
    title: str
    short: str
    columns: tuple[str, ...]
    linear: bool
    low: float
    high: float
    ends: tuple[str, str]

    @property
    def traffic(self) -> bool:
        """Whether it is a share of line rate."""
        return self.columns[0].endswith("_bps")

    def values(self, moment: Moment) -> Floats:
        """[ports]: a share of line rate, a share of time, or events per second; NaN is absent."""
        if self.traffic:
            both = {"tx_bps": moment.tx_util, "rx_bps": moment.rx_util}
            return _greatest([both[column] for column in self.columns])
        return _greatest([moment.column(column) for column in self.columns])

    def last_values(self, moment: Moment, line_rate_bps: Floats) -> Floats:
        """[ports]: the same, of the last time that each port was heard of."""
        values = _greatest([moment.last_heat[HEAT.index(column)] for column in self.columns])
        if not self.traffic:
            return values
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = values / line_rate_bps
        return share

    def edges(self, steps: int) -> NDArray[np.float64]:
        """Where each level from 1 to `steps` begins; below the first is idle."""
        shares = np.arange(1, steps) / steps
        if self.linear:
            return np.concatenate(([IDLE * self.high], shares * self.high))
        span = np.log10(self.high / self.low)
        return np.concatenate(([_TINY], self.low * 10 ** (shares * span)))

    def say(self, moment: Moment, row: int, unit: Unit) -> str:
        """The value of a port in words, with its unit."""
        if self.traffic:
            line = float(moment.line_rate_bps[row])
            parts = [
                f"{column[:2]} {rate(float(moment.column(column)[row]), line, unit)}"
                for column in self.columns
            ]
            return "  ".join(parts)
        value = float(self.values(moment)[row])
        share = self.columns[0].startswith("pause")
        return f"{self.name} {percent(value) if share else per_second(value)}"


def _greatest(parts: list[Floats]) -> Floats:
    values: Floats = parts[0] if len(parts) == 1 else np.fmax(parts[0], parts[1])
    return values


def _events(name: str, title: str, short: str, column: str) -> Heat:
    return Heat(name, title, short, (column,), False, 1, 1e6, ("0", "1 M/s, log"))


HEATS = (
    Heat(
        "util",
        "% of line rate, max of tx and rx",
        "% of line rate",
        ("tx_bps", "rx_bps"),
        True,
        0,
        1,
        ("0", "100 %"),
    ),
    Heat("tx", "% of line rate, tx", "tx, % of line", ("tx_bps",), True, 0, 1, ("0", "100 %")),
    Heat("rx", "% of line rate, rx", "rx, % of line", ("rx_bps",), True, 0, 1, ("0", "100 %")),
    Heat(
        "pause",
        "% of time paused, max of rx and tx",
        "% of time paused",
        ("pause_rx", "pause_tx"),
        False,
        0.001,
        1,
        ("0", "100 %, log from 0.1 %"),
    ),
    _events("ecn", "ECN-marked packets received /s", "ECN /s", "ecn"),
    _events("cnp", "CNPs handled /s", "CNP /s", "cnp"),
    _events("errors", "errors /s", "errors /s", "errors"),
    _events("drops", "drops /s", "drops /s", "drops"),
)
"""In the order of the key."""


def heat(name: str) -> Heat:
    """The metric called `name`. Raises KeyError."""
    for item in HEATS:
        if item.name == name:
            return item
    raise KeyError(name)


def following(name: str) -> str:
    """The name of the metric after it."""
    names = [item.name for item in HEATS]
    return names[(names.index(name) + 1) % len(names)]


def traffic_words(moment: Moment, row: int, unit: Unit) -> str:
    """`tx 188 Gb/s 47.0 %  rx …`: a port's traffic, both ways, in the unit and as a share."""
    line = float(moment.line_rate_bps[row])
    parts = []
    for name, util in (("tx", moment.tx_util), ("rx", moment.rx_util)):
        shown = unit if unit is not Unit.PERCENT else Unit.GBIT
        value = rate(float(moment.column(f"{name}_bps")[row]), line, shown)
        parts.append(f"{name} {value:>9} {percent(float(util[row])):>6}")
    of = f"of {bits(line)}" if line > 0 else "line rate not known: speed= in the hosts file"
    return f"{'  '.join(parts)}  {of}"
