"""Rates of all ports between the same instants, from counters that were read at different ones.

A counter read at t1 and t2 is taken to advance evenly in between. Its rate between two common
instants is then the mean of the rates of its samples, weighted by how much of the time each one
covers: the same as to interpolate the cumulative counter at both instants and to subtract.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import Floats
from fabmon.history.rates import Bools, Float64s, Indices
from fabmon.history.ring import SPARE_SHARE, TRAFFIC, RateRing

COINCIDENT_S = 0.02
"""Samples within this time of each other are compared as they are: nodes that read at the multiples
of the interval differ by a few milliseconds."""

_NOT_ALIGNED = ("flaps", "bus")
"""Columns that are no means over an interval, or count single events that must not be divided."""

_TRAFFIC_SLOTS, _SLOTS = 48, 16
"""Samples kept of the traffic columns of HEAT, and of the others: those of the longest windows that
detectors read of them (40 and 10 ticks), and some for samples that are early or late."""

_SPARE_SLOTS = 6

_HELD_BACK = 0.75
"""Share of the interval by which a node may be behind the median and still hold back the others."""

_LONGEST = 8
"""Intervals that a sample covers at most when those before it are missing."""

_LIVE_INTERVALS = 2.5
_ENOUGH = 0.9
"""Share of the time between two instants of which the rate must be known."""

_NEGLIGIBLE = 1e-3
"""Share of an interval that is rounding of clocks."""

_UNKNOWN = np.float32(-1e30)
"""Stands for an unknown rate in what is added up: rates are not negative, so a sum is negative if
an unknown rate has a part in it. NaN would make it unknown with a part of 0, too."""


class AlignedRates:
    """The last samples of every port, and the rates between common instants computed from them.

    Slots are intervals of the common timeline, so a sample that arrives a tick late is where it
    would have been. `raw` has the rates as they arrived, by tick.
    """

    def __init__(self, interval_s: float, raw: RateRing) -> None:
        self._interval_s = interval_s
        self._raw = raw
        # By place in HEAT, of the columns that some port has: [slots, ports or more].
        self._tables: dict[int, Floats] = {}
        self._of_port: Indices = np.empty(0, np.intp)
        # Arrays of groups are of those that have ports: `_used` are their numbers.
        self._used: Indices = np.empty(0, np.intp)
        self._is_slow: Bools = np.empty(0, np.bool_)
        # [ports]: whose rates are not aligned.
        self._as_they_are: Bools = np.empty(0, np.bool_)
        self.restart()

    def restart(self) -> None:
        """Forget all samples; the next ones are of another time."""
        self._set_unknown()
        # By tick: the latest common instant, and how far samples were apart.
        self._instant = np.full(_TRAFFIC_SLOTS, np.nan)
        self._spread_s = np.zeros(_TRAFFIC_SLOTS)
        self._seq = np.full(_TRAFFIC_SLOTS, -1, np.int64)
        self._early: tuple[Floats, Float64s, Float64s] | None = None
        self._forget_weights()

    def _set_unknown(self) -> None:
        """Set that no group has a sample."""
        # [slots, groups]: which slot it is, and the time that its sample covers, in intervals;
        # [groups]: the slot and the end of the last sample.
        self._samples = np.full((3, _TRAFFIC_SLOTS, len(self._used)), np.nan)
        self._last = np.full((2, len(self._used)), np.nan)

    def regroup(self, of_port: Indices, is_slow: Bools) -> None:
        """Set which ports are sampled together: those of one block of a node.

        `of_port` is the group of each port, -1 for none. `is_slow` is [groups]: whether samples are
        further apart than ticks; such rates are used as they are. Groups keep their numbers.
        """
        # A node has a dozen blocks; the bytes of its ports are in one or two of them.
        used: Indices = np.unique(of_port[of_port >= 0])
        is_other = not np.array_equal(used, self._used)
        if is_other or len(of_port) != len(self._of_port):
            self._early = None  # early samples of the groups and ports before this
        if is_other:
            _, new, old = np.intersect1d(used, self._used, return_indices=True)
            samples, last, self._used = self._samples, self._last, used
            self._set_unknown()
            self._samples[..., new], self._last[:, new] = samples[..., old], last[:, old]
        self._forget_weights()
        self._is_slow = is_slow[used]
        self._of_port = np.where(of_port >= 0, np.searchsorted(used, of_port), -1)
        self._as_they_are = (of_port < 0) | np.append(self._is_slow, False)[self._of_port]
        for place, table in self._tables.items():
            if len(of_port) > table.shape[1]:
                self._tables[place] = grown(table, self._room(), float(_UNKNOWN))

    def _room(self) -> int:
        """Ports that a new table has room for."""
        return len(self._of_port) + len(self._of_port) // SPARE_SHARE

    def add_early(self, heat: Floats, begin_s: Float64s, end_s: Float64s) -> None:
        """Add samples of the tick that are followed by others in the same tick; see `append`.

        The rates of those are means that begin where these do.
        """
        begin_s, end_s = begin_s[self._used], end_s[self._used]
        self._put(heat, begin_s, end_s)
        self._early = heat, begin_s, end_s

    def append(self, seq: int, heat: Floats, begin_s: Float64s, end_s: Float64s) -> None:
        """Add the samples of tick `seq`: [len(HEAT), ports] rates from `begin_s` to `end_s`.

        The times are [groups], NaN for groups without a sample.
        """
        begin_s, end_s = begin_s[self._used], end_s[self._used]
        self._put(heat, begin_s, end_s)
        self._early = None
        at = seq % _TRAFFIC_SLOTS
        self._forget_weights()
        self._seq[at] = seq
        self._instant[at] = np.nan
        self._spread_s[at] = 0.0
        newest, is_late = self._last[1, ~self._is_slow], np.isnan(end_s[~self._is_slow])
        live = newest > np.nanmax(newest, initial=-np.inf) - _LIVE_INTERVALS
        if live.any():
            newest = newest[live]
            self._instant[at] = newest[newest >= np.median(newest) - _HELD_BACK].min()
            apart = newest.max() - newest.min()
            self._spread_s[at] = max(apart, 1.0 if is_late[live].any() else 0.0) * self._interval_s

    def spread_s(self, ticks: int, end_seq: int) -> float:
        """How far apart the samples of a tick were taken, seconds: the most of some ticks."""
        key = (end_seq, ticks)
        if key not in self._spreads:
            kept = (self._seq > end_seq - ticks) & (self._seq <= end_seq)
            self._spreads[key] = float(self._spread_s[kept].max(initial=0.0))
        return self._spreads[key]

    def window(self, column: str, ticks: int, end_seq: int, rows: Indices | None = None) -> Floats:
        """[ports, ticks] of a HEAT column between common instants, an interval apart, or
        [len(rows), ticks] of some ports.

        The last one is the latest of which nearly all nodes have samples at tick `end_seq`. NaN
        where a node has none, as long as it has none. Where all samples coincide these are the
        rates as they arrived.
        """
        at = end_seq % _TRAFFIC_SLOTS
        is_kept = self._seq[at] == end_seq and not np.isnan(self._instant[at])
        table = self._tables.get(HEAT.index(column))
        if (
            column in _NOT_ALIGNED
            or table is None
            or not is_kept
            or self.spread_s(ticks, end_seq) <= COINCIDENT_S
            or ticks + _SPARE_SLOTS > len(table)
        ):
            wanted = range(len(self._of_port)) if rows is None else rows
            return self._raw.window(column, wanted, ticks, end_seq)
        nothing, weights = self._weights_of(ticks, end_seq)
        chosen = slice(len(self._of_port)) if rows is None else rows
        rates: Floats = nothing[:, chosen].copy()
        # Row by row: arrays of all ticks would be mapped anew for each part, which takes longer.
        part: Floats = np.empty(rates.shape[1], np.float32)
        for tick, slot, weight in weights:
            np.multiply(table[slot % len(table), chosen], weight[chosen], out=part)
            rates[tick] += part
        # What is negative becomes NaN, all of whose bits are set: a mask takes five times as long.
        bits = rates.view(np.int32)
        bits |= bits >> 31
        as_they_are = np.flatnonzero(self._as_they_are[chosen])
        if len(as_they_are):
            ports = as_they_are if rows is None else rows[as_they_are]
            rates[:, as_they_are] = self._raw.window(column, ports, ticks, end_seq).T
        return rates.T

    def _put(self, heat: Floats, begin_s: Float64s, end_s: Float64s) -> None:
        """Store samples in their slots."""
        heat = self._without_early(heat, begin_s, end_s)
        heat = np.where(np.isnan(heat), _UNKNOWN, heat)
        for place in np.flatnonzero((heat >= 0).any(axis=1)).tolist():
            if place not in self._tables:
                slots = _TRAFFIC_SLOTS if place < TRAFFIC else _SLOTS
                self._tables[place] = np.full((slots, self._room()), _UNKNOWN)
        begin, end = begin_s / self._interval_s, end_s / self._interval_s
        found: Indices = np.flatnonzero(~np.isnan(end) & ~(end <= self._last[1]))
        if not len(found):
            return
        begin, end = begin[found], end[found]
        last_slot, last_end = self._last[:, found]
        # Intervals follow each other, unless samples are missing: a wall clock that was set, or the
        # time of a read, moves their ends.
        begin = np.where((begin > last_end + 0.5) | np.isnan(last_end), begin, last_end)
        begin = np.where(np.isnan(begin), end, np.maximum(begin, end - _LONGEST))
        slot = _slots(end, last_end, last_slot)
        # A second sample of a slot extends the first: the rate becomes the mean over both.
        extends = slot <= last_slot
        slot = np.where(extends, last_slot, slot)
        rows = (slot % _TRAFFIC_SLOTS).astype(np.intp)
        first_begin = np.where(extends, self._samples[1, rows, found], begin)
        self._samples[:, rows, found] = slot, first_begin, end
        self._last[:, found] = slot, end
        if extends.any():
            share = (end - begin) / np.maximum(end - first_begin, _NEGLIGIBLE)
            self._extend(heat, found[extends], share[extends])
        is_ours = np.zeros(len(self._used) + 1, np.bool_)
        for each in np.unique(slot).tolist():
            is_ours[found] = slot == each
            ours = is_ours[self._of_port]
            for place, table in self._tables.items():
                row = table[int(each) % len(table), : len(ours)]
                np.copyto(row, heat[place], where=ours)

    def _without_early(self, heat: Floats, begin_s: Float64s, end_s: Float64s) -> Floats:
        """Rates since the early samples of the tick, from those since the tick before."""
        if self._early is None:
            return heat
        early, early_begin_s, early_end_s = self._early
        is_after = (end_s > early_end_s) & (begin_s < early_end_s)
        groups: Indices = np.flatnonzero(is_after)
        share = np.zeros(len(end_s) + 1, np.float32)
        early_s = (early_end_s - early_begin_s)[groups]
        share[groups] = early_s / (end_s - early_end_s)[groups]
        ports: Indices = np.flatnonzero(share[self._of_port])
        heat = heat.copy()
        since: Floats = heat[:, ports]
        since = since + (since - early[:, ports]) * share[self._of_port[ports]]
        heat[:, ports] = np.maximum(since, np.float32(0))
        return heat

    def _extend(self, heat: Floats, groups: Indices, shares: Float64s) -> None:
        """Make heat the mean over it and the last sample of some groups; it has these shares."""
        share = np.full(len(self._used) + 1, np.nan, np.float32)
        share[groups] = shares
        ports: Indices = np.flatnonzero(~np.isnan(share[self._of_port]))
        of_port = self._of_port[ports]
        slot, new = self._last[0, of_port].astype(np.intp), share[of_port]
        for place, table in self._tables.items():
            before = table[slot % len(table), ports]
            heat[place, ports] = before * (1 - new) + heat[place, ports] * new

    def _forget_weights(self) -> None:
        self._weights: dict[tuple[int, int], _Weights] = {}
        self._spreads: dict[tuple[int, int], float] = {}

    def _weights_of(self, ticks: int, end_seq: int) -> _Weights:
        """How samples add up to the rates of a window."""
        key = (end_seq, ticks)
        if key not in self._weights:
            self._weights[key] = self._weights_until(self._instant[end_seq % _TRAFFIC_SLOTS], ticks)
        return self._weights[key]

    def _weights_until(self, instant: float, ticks: int) -> _Weights:
        """The same of a window that ends at an instant."""
        until = instant - np.arange(ticks - 1, -1, -1.0)[:, None]
        of_row, begin, end = self._samples
        # A sample is in the slot of the interval in which it was taken, or in a neighbour (see
        # `_slots`): these are the slots, counted from that of an instant, that can have a part.
        longest = np.nanmax(end - begin, initial=1.0)
        known, bands = np.zeros((ticks, len(self._used))), []
        for band in range(-2, math.ceil(longest + 0.25) + 1):
            slots = np.floor(until) + band
            rows = (slots[:, 0] % _TRAFFIC_SLOTS).astype(np.intp)
            part = np.minimum(end[rows], until) - np.maximum(begin[rows], until - 1)
            part[~((of_row[rows] == slots) & (part >= _NEGLIGIBLE))] = 0
            known += part
            covered: Indices = np.flatnonzero(part.any(axis=1))
            bands.append((covered, slots[covered, 0].astype(np.intp), part[covered]))
        is_enough = known >= _ENOUGH
        scale = np.where(is_enough, 1 / np.where(is_enough, known, 1), 0)
        unknown = np.where(is_enough, np.float32(0), _UNKNOWN)
        parts: list[tuple[int, int, Floats]] = []
        for covered, slot, part in bands:
            weights = (part * scale[covered]).astype(np.float32)
            of_ports = np.take(weights, self._of_port, axis=1)
            parts += zip(covered.tolist(), slot.tolist(), of_ports, strict=True)
        return _Weights(np.take(unknown, self._of_port, axis=1), parts)


class _Weights(NamedTuple):
    """`unknown` [ticks, ports] is _UNKNOWN where there is no rate, else 0; `parts` are ticks of the
    window, the slots of samples in them, and the weights [ports] of these."""

    unknown: Floats
    parts: list[tuple[int, int, Floats]]


def _slots(end: Float64s, last_end: Float64s, last_slot: Float64s) -> Float64s:
    """The slots of samples: as many after that of the sample before as there are intervals between
    them, but one at least, so that a node which samples near the boundary of two slots has one
    sample in each; never more than a quarter of an interval outside of the slot. Times are in
    intervals."""
    slots = np.floor(end)
    near = last_slot + np.maximum(np.rint(end - last_end), 1)
    near = np.clip(near, np.ceil(end - 1.25), np.floor(end + 0.25))
    return np.where(np.isnan(last_end), slots, near)
