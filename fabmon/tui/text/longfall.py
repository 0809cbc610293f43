"""The links of a finding over hours and days: the waterfall of what is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fabmon.fabric.measures import measure
from fabmon.fabric.moment import Floats
from fabmon.recording.tiers import Tier
from fabmon.tui import clock
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.text.waterfall import Waterfall
from fabmon.tui.trend import Trend


@dataclass(frozen=True)
class LongWaterfall(Waterfall):
    """A finding's links in the time of a trend; columns are bins that begin at round times."""

    trend: Trend

    @cached_property
    def _tier(self) -> Tier:
        metric = self.metric
        return self.trend.of(self.ports, metric.columns, metric.traffic, self._room)

    @property
    def resolution(self) -> str:
        """How long it is, and how finely it is told."""
        return self.trend.said(self._tier.wanted.bin_ns)

    @cached_property
    def columns(self) -> int:
        """How many bins there are."""
        return self._tier.wanted.bins

    @property
    def each(self) -> str:
        """The length of a bin, in words."""
        return clock.short(self._tier.wanted.bin_ns // SECOND_NS)

    @property
    def is_tick(self) -> bool:
        """Whether a column is a single tick: no bin is."""
        return False

    @property
    def here(self) -> int | None:
        """The bin of the cursor of time; None where that is at the end."""
        if self.trend.ends_now:
            return None
        return min(max(self.column(self.scene.moment.time_ns), 0), self.columns - 1)

    def began_ns(self, column: int) -> int:
        """When a bin began."""
        wanted = self._tier.wanted
        return wanted.from_ns + column * wanted.bin_ns

    def column(self, time_ns: int) -> int:
        """The bin of a time; below 0 where it is further back."""
        wanted = self._tier.wanted
        return time_ns // wanted.bin_ns - wanted.first

    @cached_property
    def values(self) -> Floats:
        """[ports, bins]: the greatest value of each; NaN where nothing is known."""
        parts: Floats = np.fmax.reduce(self._tier.most, axis=0)
        return (parts / measure(self.metric.name).per).astype(np.float32)

    @property
    def ends(self) -> tuple[str, str]:
        """What stands at its two ends."""
        return self.trend.ends
