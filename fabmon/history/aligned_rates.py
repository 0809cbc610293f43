"""Rates of all ports between the same instants, from counters that were read at different ones.

A counter read at t1 and t2 is taken to advance evenly in between. Its rate between two common
instants is then the mean of the rates of its samples, weighted by how much of the time each one
covers: the same as to interpolate the cumulative counter at both instants and to subtract.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.snapshot import HEAT, Floats
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

_BANDS = (-2, -1, 0, 1, 2)
"""A sample is in the slot of the interval in which it was taken, or a neighbour (see `_slots`), and
covers the slot before as well: the slots, counted from that of an instant, with samples of it."""

_HELD_BACK = 0.75
"""Share of the interval by which a node may be behind the median and still hold back the others."""

_MAX_PIECES = 8
"""Slots that a sample is divided among when those before it are missing."""

_LIVE_INTERVALS = 2.5
_ENOUGH = 0.9
"""Share of the time between two instants of which the rate must be known."""

_NEGLIGIBLE = 1e-3
"""Share of an interval that is rounding of clocks."""


class AlignedRates:
    """The last samples of every port, and the rates between common instants computed from them.

    Slots are intervals of the common timeline, so a sample that arrives a tick late is where it
    would have been. `raw` has the rates as they arrived, by tick.
    """

    def __init__(self, interval_s: float, raw: RateRing) -> None:
        self._interval_s = interval_s
        self._raw = raw
        # By column of HEAT: [slots, ports or more].
        self._tables: list[Floats] = [
            np.zeros((_TRAFFIC_SLOTS if place < TRAFFIC else _SLOTS, 0), np.float32)
            for place in range(len(HEAT))
        ]
        # A column that no port has is not written, so that it takes no memory.
        self._is_used: Bools = np.zeros(len(HEAT), np.bool_)
        self._of_port: Indices = np.empty(0, np.intp)
        # Arrays of groups are of those that have ports: `_used` are their numbers.
        self._used: Indices = np.empty(0, np.intp)
        self._is_slow: Bools = np.empty(0, np.bool_)
        self._shares: dict[tuple[int, int], _Shares] = {}
        self._weights: dict[tuple[int, int], _Weights] = {}
        self._spreads: dict[tuple[int, int], float] = {}
        self.restart()

    def restart(self) -> None:
        """Forget all samples; the next ones are of another time."""
        self._set_unknown()
        self._newest_slot = -1
        # By tick: the latest common instant, and how far samples were apart.
        self._instant = np.full(_TRAFFIC_SLOTS, np.nan)
        self._spread_s = np.zeros(_TRAFFIC_SLOTS)
        self._seq = np.full(_TRAFFIC_SLOTS, -1, np.int64)
        self._early: tuple[Floats, Float64s, Float64s] | None = None
        self._forget_weights()

    def _set_unknown(self) -> None:
        """Set that no group has a sample."""
        groups = len(self._used)
        # [slots, groups]: which slot it is, and the time that its sample covers, in intervals.
        self._slot = np.full((_TRAFFIC_SLOTS, groups), -1, np.int64)
        self._begin = np.zeros((_TRAFFIC_SLOTS, groups))
        self._end = np.zeros((_TRAFFIC_SLOTS, groups))
        # [groups]: the last sample.
        self._last_slot = np.full(groups, -1, np.int64)
        self._last_end = np.full(groups, np.nan)

    def regroup(self, of_port: Indices, is_slow: Bools) -> None:
        """Set which ports are sampled together: those of one block of a node.

        `of_port` is the group of each port, -1 for none. `is_slow` is [groups]: whether samples are
        further apart than ticks; such rates are used as they are. Groups keep their numbers.
        """
        # A node has a dozen blocks; the bytes of its ports are in one or two of them.
        used: Indices = np.unique(of_port[of_port >= 0])
        if self._early is not None and (
            len(of_port) != len(self._of_port) or not np.array_equal(used, self._used)
        ):
            self._early = None  # early samples of the groups and ports before this
        if not np.array_equal(used, self._used):
            self._keep_samples(used)
        self._used = used
        self._forget_weights()
        self._is_slow = is_slow[used]
        self._of_port = np.where(of_port >= 0, np.searchsorted(used, of_port), -1)
        room = self._tables[0].shape[1]
        if len(of_port) > room:
            more = len(of_port) + len(of_port) // SPARE_SHARE
            for place, before in enumerate(self._tables):
                self._tables[place] = np.zeros((len(before), more), np.float32)
                if self._is_used[place]:
                    self._tables[place][:, :room] = before

    def _keep_samples(self, used: Indices) -> None:
        """Change the groups, and keep the samples of those that stay."""
        _, new, old = np.intersect1d(used, self._used, return_indices=True)
        before = self._slot, self._begin, self._end, self._last_slot, self._last_end
        self._used = used
        self._set_unknown()
        for now, then in zip(
            (self._slot, self._begin, self._end, self._last_slot, self._last_end),
            before,
            strict=True,
        ):
            now[..., new] = then[..., old]

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
        newest, is_late = self._last_end[~self._is_slow], np.isnan(end_s[~self._is_slow])
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
        place = HEAT.index(column)
        table = self._tables[place]
        if (
            column in _NOT_ALIGNED
            or not self._is_used[place]
            or not is_kept
            or self.spread_s(ticks, end_seq) <= COINCIDENT_S
            or ticks + _SPARE_SLOTS > len(table)
        ):
            wanted = range(len(self._of_port)) if rows is None else rows
            return self._raw.window(column, wanted, ticks, end_seq)
        weights = self._weights_of(end_seq, ticks, rows)
        ports = len(self._of_port) if rows is None else len(rows)
        rates: Floats = np.zeros((ticks, ports), np.float32)
        # Row by row: arrays of all ticks would be mapped anew for each band, which takes longer.
        part: Floats = np.empty(ports, np.float32)
        for slots, weight in weights.bands:
            for row, slot in enumerate(slots.tolist()):
                if slot < 0:
                    continue
                place_of = slot % len(table)
                of_slot = table[place_of, :ports] if rows is None else table[place_of, rows]
                np.multiply(of_slot, weight[row], out=part)
                rates[row] += part
        rates.ravel()[weights.unknown] = np.nan
        if len(weights.as_they_are):
            as_they_are = weights.as_they_are if rows is None else rows[weights.as_they_are]
            raw = self._raw.window(column, as_they_are, ticks, end_seq)
            rates[:, weights.as_they_are] = raw.T
        return rates.T

    def _used_tables(self) -> list[tuple[int, Floats]]:
        """The places in HEAT of the columns that some port has, and their tables."""
        return [(place, self._tables[place]) for place in np.flatnonzero(self._is_used).tolist()]

    def _put(self, heat: Floats, begin_s: Float64s, end_s: Float64s) -> None:
        """Store samples in their slots."""
        for place in np.flatnonzero(~self._is_used & ~np.isnan(heat).all(axis=1)).tolist():
            self._is_used[place] = True
            self._tables[place][:] = np.nan
        heat = self._without_early(heat, begin_s, end_s)
        begin, end = begin_s / self._interval_s, end_s / self._interval_s
        known = ~np.isnan(end) & ~(end <= self._last_end)
        found: Indices = np.flatnonzero(known)
        if not len(found):
            return
        begin, end = begin[found], end[found]
        last_end, last_slot = self._last_end[found], self._last_slot[found]
        # Intervals follow each other, unless samples are missing: a wall clock that was set, or the
        # time of a read, moves their ends.
        follows = ~(begin > last_end + 0.5)
        begin = np.where(follows & ~np.isnan(last_end), last_end, begin)
        begin = np.where(np.isnan(begin), end, np.maximum(begin, end - _MAX_PIECES))
        slot = _slots(end, last_end, last_slot)
        pieces = np.maximum(np.rint(end - begin), 1).astype(np.int64)
        pieces = np.where(np.isnan(last_end), pieces, np.clip(slot - last_slot, 1, pieces + 1))
        same = slot <= last_slot
        if same.any():
            self._merge(heat, found[same], begin[same], end[same])
        self._open_slots(int(slot.max()))
        for back in range(int(pieces.max())):
            chosen = ~same & (pieces > back)
            share = (end - begin)[chosen] / pieces[chosen]
            self._store(
                heat,
                found[chosen],
                slot[chosen] - back,
                end[chosen] - (back + 1) * share,
                end[chosen] - back * share,
            )
        self._last_end[found] = end
        self._last_slot[found] = np.where(same, last_slot, slot)

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

    def _open_slots(self, newest: int) -> None:
        """Clear the slots up to the newest: what was there is of an earlier time."""
        first = max(self._newest_slot + 1, newest - _TRAFFIC_SLOTS + 1)
        tables = self._used_tables()
        for slot in range(first, newest + 1):
            for _, table in tables:
                table[slot % len(table)] = 0
        self._newest_slot = max(self._newest_slot, newest)

    def _store(
        self,
        heat: Floats,
        groups: Indices,
        slots: NDArray[np.int64],
        begin: Float64s,
        end: Float64s,
    ) -> None:
        """Set the samples of some groups, each in its slot."""
        rows = slots % _TRAFFIC_SLOTS
        self._slot[rows, groups] = slots
        self._begin[rows, groups] = begin
        self._end[rows, groups] = end
        of_port = self._of_port
        is_ours = np.zeros(len(self._is_slow) + 1, np.bool_)
        for slot in np.unique(slots).tolist():
            is_ours[groups] = slots == slot
            ours = is_ours[of_port]
            for place, table in self._used_tables():
                np.copyto(table[slot % len(table), : len(of_port)], heat[place], where=ours)

    def _merge(self, heat: Floats, groups: Indices, begin: Float64s, end: Float64s) -> None:
        """Extend the last sample of some groups: the rate becomes the mean over both."""
        rows = self._last_slot[groups] % _TRAFFIC_SLOTS
        had = self._end[rows, groups] - self._begin[rows, groups]
        new = np.zeros(len(self._is_slow) + 1, np.float32)
        new[groups] = (end - begin) / (had + (end - begin))
        self._end[rows, groups] = end
        share = new[self._of_port]
        ports: Indices = np.flatnonzero(share)
        slot = self._last_slot[self._of_port[ports]]
        for place, table in self._used_tables():
            at = slot % len(table)
            before = table[at, ports]
            table[at, ports] = before + (heat[place, ports] - before) * share[ports]

    def _forget_weights(self) -> None:
        self._shares, self._weights, self._spreads = {}, {}, {}

    def _weights_of(self, end_seq: int, ticks: int, rows: Indices | None) -> _Weights:
        """How the samples of each port, or of some, add up to the rates of a window."""
        key = (end_seq, ticks)
        if key not in self._shares:
            instant = float(self._instant[end_seq % _TRAFFIC_SLOTS])
            self._shares[key] = self._shares_until(instant, ticks)
        if rows is not None:
            return self._weigh(self._shares[key], self._of_port[rows])
        if key not in self._weights:
            self._weights[key] = self._weigh(self._shares[key], self._of_port)
        return self._weights[key]

    def _shares_until(self, instant: float, ticks: int) -> _Shares:
        """How the samples of each group add up to the rates of a window that ends at an instant."""
        until = instant - np.arange(ticks - 1, -1, -1.0)[:, None]
        base = np.floor(until[:, 0]).astype(np.int64)
        shares, known = [], np.zeros((ticks, len(self._last_slot)))
        for band in _BANDS:
            slots = base + band
            rows = slots % _TRAFFIC_SLOTS
            covered = np.minimum(self._end[rows], until) - np.maximum(self._begin[rows], until - 1)
            covered[(self._slot[rows] != slots[:, None]) | (covered < _NEGLIGIBLE)] = 0
            known += covered
            if covered.any():
                # What is not covered may be a slot to come: what stands there is of another time.
                shares.append((np.where(covered.any(axis=1), slots, -1), covered))
        is_enough = known >= _ENOUGH
        scale = np.where(is_enough, 1 / np.where(is_enough, known, 1), 0)
        bands = [(slots, (covered * scale).astype(np.float32)) for slots, covered in shares]
        return _Shares(bands, ~is_enough)

    def _weigh(self, shares: _Shares, of_port: Indices) -> _Weights:
        """The shares of the groups of some ports."""
        as_they_are = of_port < 0
        if self._is_slow.any():
            as_they_are = as_they_are | self._is_slow[of_port]
        bands = [(slots, np.take(share, of_port, axis=1)) for slots, share in shares.bands]
        unknown = np.flatnonzero(np.take(shares.unknown, of_port, axis=1))
        return _Weights(bands, unknown, np.flatnonzero(as_they_are))


class _Shares(NamedTuple):
    """`bands` are slots [ticks], -1 for none, and the weights [ticks, groups] of the samples in
    them; `unknown` [ticks, groups] is True where there is no rate."""

    bands: list[tuple[NDArray[np.int64], Floats]]
    unknown: Bools


class _Weights(NamedTuple):
    """`bands` are slots [ticks], -1 for none, and the weights [ticks, ports] of the rates in them.
    `unknown` are the flat indices of what has no rate, `as_they_are` the ports whose rates are not
    aligned."""

    bands: list[tuple[NDArray[np.int64], Floats]]
    unknown: Indices
    as_they_are: Indices


def _slots(end: Float64s, last_end: Float64s, last_slot: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slots of samples: as many after that of the sample before as there are intervals between
    them, so that a node which samples near the boundary of two slots has one sample in each; but
    never more than a quarter of an interval outside of the slot. Times are in intervals."""
    slots = np.floor(end)
    near = last_slot + np.rint(end - last_end)
    near = np.clip(near, np.ceil(end - 1.25), np.floor(end + 0.25))
    return np.where(np.isnan(last_end), slots, near).astype(np.int64)
