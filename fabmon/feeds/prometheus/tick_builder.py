"""Rounds of queries as hellos and frames, within the limits that a node has."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fabmon.fabric.model import Host
from fabmon.fabric.names import natural
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Frame, Hello, WireError, clean
from fabmon.feeds.prometheus.discovery import SAME_READ_S
from fabmon.feeds.prometheus.queries import QueryRound
from fabmon.feeds.prometheus.series_slots import BlockKey
from fabmon.feeds.prometheus.series_table import SeriesTable


class TickBuilder:
    """Converts rounds of queries into hellos, where new, and frames of the blocks just read.

    A target has the limits of a node: `refused` are those whose hello no node may send, with the
    reason; nothing is read of them until their series change.
    """

    def __init__(self, table: SeriesTable, interval_s: float, about: Mapping[str, object]) -> None:
        self._table = table
        self._about = {**about, "interval_s": interval_s}
        self._interval_s = interval_s
        self._every: dict[str, int] = {}
        self._last_s: dict[BlockKey, float] = {}
        self._limits: dict[str, HelloLimits] = {}
        self.refused: dict[str, str] = {}
        self._seq = 0

    def set_intervals(self, interval_s: Mapping[str, float]) -> None:
        """Set the seconds between two reads by block; hellos have them in ticks."""
        every = {
            block: max(1, math.ceil(each_s / self._interval_s - 0.2))
            for block, each_s in interval_s.items()
        }
        if every != self._every:
            self._every = every
            self._table.changed.update(self._table.targets)

    def build(self, result: QueryRound) -> tuple[list[tuple[str, Hello]], list[tuple[str, Frame]]]:
        """The hellos and frames for what is new in the table since the last round."""
        read_ns = {}
        for key, read_s in result.read_s.items():
            if read_s > self._last_s.get(key, 0.0) + SAME_READ_S:
                self._last_s[key] = read_s
                read_ns[key] = round(read_s * 1e3) * 1_000_000
        self._table.settle()
        blocks = self._table.frames(read_ns)
        hellos = [
            (target, hello)
            for target in sorted(self._table.changed, key=natural)
            if (hello := self._hello(target)) is not None
        ]
        self._table.changed.clear()
        newest_ns: dict[str, int] = {}
        for (target, _), clock_ns in read_ns.items():
            newest_ns[target] = max(clock_ns, newest_ns.get(target, 0))
        frames = [
            (target, Frame(self._seq, newest_ns[target], newest_ns[target], each))
            for target, each in blocks.items()
            if target not in self.refused
        ]
        self._seq += 1
        return hellos, frames

    def _hello(self, target: str) -> Hello | None:
        """The hello of a target; None if it is refused."""
        self.refused.pop(target, None)
        refusal = self._table.refusal(target)
        if not refusal:
            limits = self._limits.setdefault(
                target, HelloLimits(Host(name=target, via="exporters"))
            )
            try:
                with self._table.budgets.charged(target):
                    hello = self._table.hello(target, self._about, self._every)
                    limits.admit(hello)
                refusal = self._table.refusal(target)
            except WireError as error:
                refusal = clean(str(error))
        if refusal:
            self.refused[target] = refusal
            return None
        return hello
