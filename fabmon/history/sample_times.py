"""When samples were taken, on one timeline for all nodes.

The clock of rates is each node's monotonic clock. Its offset to the console's time comes from the
wall clock in the node's frames where that is plausible, else from the arrival of its frames. Only
what ticks contain is used, so a replay gives the same times.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fabmon.fabric.port_arrays import grown
from fabmon.fabric.wire.messages import Frame, Hello
from fabmon.history.live_rates import FrameSlots, LiveRates
from fabmon.history.rates import Float64s, Indices

_MAX_AHEAD_S, _MAX_LAG_S = 0.5, 1.5
"""A wall clock is plausible if a frame appears to be taken at most this long after the tick that it
arrives with, or this long (times the interval, if that is longer than 1 s) before it."""

_STEADY_S = 0.01
"""The offset of a wall clock to the monotonic clock may change by this from frame to frame: more is
a step, which is followed when the next frame confirms it."""

_MAX_CLOCK_STEP_S = 10.0
"""A block whose clock is further than this from that of its frame has a clock of its own, such as
an exporter's timestamps: its samples are placed at the time of the frame."""

_SLOW_INTERVALS = 1.5
_MAX_DRIFT = 1e-4
"""How fast two monotonic clocks may diverge: a running minimum rises by this much per second."""


class NodeTimelines:
    """The offset of every node's monotonic clock to the common timeline, by the node's number."""

    def __init__(self, interval_s: float) -> None:
        self._max_lag_s = _MAX_LAG_S * max(1.0, interval_s)
        self._usual_lag_s = 0.0
        self._of_wall = np.empty(0)
        self._last_seen = np.empty(0)
        self._of_arrival = np.empty(0)
        self._mono_s = np.empty(0)

    def accept(self, tick_s: float, nodes: Indices, wall_s: Float64s, mono_s: Float64s) -> None:
        """Take the clocks of the frames of a tick that ended at `tick_s`, one of each node.

        All are [frames]: the nodes' numbers, seconds since the epoch, and seconds since the start
        of the nodes' monotonic clocks.
        """
        if not len(nodes):
            return
        self._make_room(int(nodes.max()) + 1)
        restarted = nodes[mono_s < self._mono_s[nodes]]
        for each in (self._of_wall, self._last_seen, self._of_arrival):
            each[restarted] = np.nan
        rise_s = np.nan_to_num(mono_s - self._mono_s[nodes]) * _MAX_DRIFT
        arrival = np.fmin(self._of_arrival[nodes] + rise_s, tick_s - mono_s)
        offset = wall_s - mono_s
        lag_s = tick_s - wall_s
        plausible = (lag_s >= -_MAX_AHEAD_S) & (lag_s <= self._max_lag_s)
        known = self._of_wall[nodes]
        confirmed = np.abs(offset - self._last_seen[nodes]) <= _STEADY_S
        follows = np.abs(offset - known) <= _STEADY_S
        adopted = follows | (plausible & (np.isnan(known) | confirmed))
        known = np.where(adopted, offset, known)
        self._of_wall[nodes], self._of_arrival[nodes] = known, arrival
        self._last_seen[nodes], self._mono_s[nodes] = offset, mono_s
        if not np.isnan(known).all():
            self._usual_lag_s = float(np.nanmedian(tick_s - (mono_s + known)))

    def place(self, nodes: Indices, clock_s: Float64s) -> Float64s:
        """The times of reads at some monotonic clocks of nodes; NaN before a node's first frame.

        A node whose wall clock is wrong is placed where most nodes are: its frames are taken to be
        as old when they arrive as those of the others.
        """
        self._make_room(int(nodes.max(initial=-1)) + 1)
        of_wall, mono_s = self._of_wall[nodes], self._mono_s[nodes]
        by_arrival = self._of_arrival[nodes] - self._usual_lag_s
        is_own_clock = np.abs(clock_s - mono_s) > _MAX_CLOCK_STEP_S
        offset_s = np.where(np.isnan(of_wall), by_arrival, of_wall)
        return np.where(is_own_clock, mono_s, clock_s) + offset_s

    def restart(self) -> None:
        """Forget all clocks."""
        for each in (self._of_wall, self._last_seen, self._of_arrival, self._mono_s):
            each[:] = np.nan
        self._usual_lag_s = 0.0

    def _make_room(self, nodes: int) -> None:
        self._of_wall, self._last_seen, self._of_arrival, self._mono_s = (
            grown(each, nodes, np.nan)
            for each in (self._of_wall, self._last_seen, self._of_arrival, self._mono_s)
        )


class SampleTimes:
    """When the blocks of all nodes were read. The blocks are numbered: `groups`."""

    def __init__(self, interval_s: float) -> None:
        self._slow_s = _SLOW_INTERVALS * interval_s
        self._timelines = NodeTimelines(interval_s)
        self._numbers: dict[str, int] = {}
        self._groups: dict[tuple[str, str], int] = {}
        self._clocks: Indices = np.empty(0, np.intp)
        self._nodes: Indices = np.empty(0, np.intp)
        self.is_slow = np.empty(0, np.bool_)

    def add(self, node: str, hello: Hello, slots: FrameSlots) -> Indices:
        """[blocks]: the groups of a node's blocks. A source keeps its group from hello to hello."""
        number = self._numbers.setdefault(node, len(self._numbers))
        keys = [(node, block.source) for block in hello.blocks]
        groups = np.array(
            [self._groups.setdefault(key, len(self._groups)) for key in keys], np.intp
        )
        if len(self._groups) > len(self._clocks):
            room = max(len(self._groups), 2 * len(self._clocks))
            self._clocks = grown(self._clocks, room, -1)
            self._nodes, self.is_slow = grown(self._nodes, room), grown(self.is_slow, room)
        self._clocks[groups] = slots.starts
        self._nodes[groups] = number
        self.is_slow[groups] = [
            block.every * hello.interval_s > self._slow_s for block in hello.blocks
        ]
        return groups

    def accept(self, tick_s: float, frames: Mapping[str, Frame]) -> None:
        """Take the clocks of frames by node, all of nodes that were added."""
        numbers = self._numbers
        self._timelines.accept(
            tick_s,
            np.array([numbers[node] for node in frames], np.intp),
            np.array([frame.wall_ns / 1e9 for frame in frames.values()]),
            np.array([frame.mono_ns / 1e9 for frame in frames.values()]),
        )

    def intervals(self, rates: LiveRates) -> tuple[Float64s, Float64s]:
        """[groups]: the times between which the rates of what arrived since the last tick are.

        The end is NaN where nothing arrived, the begin where there was nothing before.
        """
        before_s, now_s = rates.reads_s(self._clocks)
        end_s = self._timelines.place(self._nodes, now_s)
        return end_s - (now_s - before_s), end_s

    def clocks_of_slow(self, groups: Indices) -> Indices:
        """[n]: the slot of the clock of each group (-1: none) that is read less often than every
        interval; -1 for the others."""
        is_slow = np.append(self.is_slow, False)[groups]
        slots: Indices = np.where(is_slow, np.append(self._clocks, -1)[groups], -1)
        return slots

    def restart(self) -> None:
        """Forget the clocks of all nodes; groups keep their numbers."""
        self._timelines.restart()
