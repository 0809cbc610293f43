"""The last minutes of every port, in float32 ring buffers: one line a tick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.snapshot import Floats

_FIRST_ROWS = 64
SPARE_SHARE = 16
"""One port in so many that exist is free for a new one."""

TRAFFIC = 2
"""The first columns of HEAT, traffic in both directions, are kept for the whole length."""

_BRIEF_TICKS = 120
"""The other columns are kept for two minutes, which is the most that a detector looks at: the whole
length would take 400 MB for a thousand hosts."""

_Slots = NDArray[np.intp]


class RateRing:
    """`ticks` values of the traffic of every port, and of the busiest link of the fabric.

    The other HEAT columns, and all columns of `brief` ports, are kept for two minutes. Ticks are
    addressed by their sequence number; one that was never appended, or is no longer kept, reads as
    NaN.
    """

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks
        self._traffic = _Table(TRAFFIC, ticks)
        self._brief_traffic = _Table(TRAFFIC, min(ticks, _BRIEF_TICKS))
        self._is_brief: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._slots: _Slots = np.empty(0, np.intp)
        self._rest = _Table(len(HEAT) - TRAFFIC, min(ticks, _BRIEF_TICKS))
        self._worst = np.full(ticks, np.nan, np.float32)
        self._last = -1
        self._first = 0

    def restart(self) -> None:
        """Forget all; the next tick is the first one."""
        self._last = -1
        self._first = -1

    def add_ports(self, brief: NDArray[np.bool_]) -> None:
        """Add ports that are new: `brief` [ports] says which are kept for two minutes only."""
        new = brief[len(self._is_brief) :]
        counts = {kind: int((self._is_brief == kind).sum()) for kind in (False, True)}
        slots = np.empty(len(new), np.intp)
        for kind, first in counts.items():
            slots[new == kind] = first + np.arange(int((new == kind).sum()))
        self._is_brief = np.concatenate((self._is_brief, new))
        self._slots = np.concatenate((self._slots, slots))

    def append(self, seq: int, heat: Floats, worst: float) -> None:
        """Add tick `seq`: [len(HEAT), ports] values, and the utilisation of the busiest link.

        Skipped sequence numbers become gaps.
        """
        if self._first < 0:
            self._first, self._last = seq, seq - 1
        for missing in range(max(self._last + 1, seq - self.ticks + 1), seq):
            self._traffic.clear(missing)
            self._brief_traffic.clear(missing)
            self._rest.clear(missing)
            self._worst[missing % self.ticks] = np.nan
        self.add_ports(np.zeros(heat.shape[1], np.bool_))
        # A port's slot is its position among the ports of its kind; the masks keep that order.
        self._traffic.put(seq, heat[:TRAFFIC, ~self._is_brief])
        self._brief_traffic.put(seq, heat[:TRAFFIC, self._is_brief])
        self._rest.put(seq, heat[TRAFFIC:])
        self._worst[seq % self.ticks] = worst
        self._last = seq

    def window(self, column: str, rows: Sequence[int] | _Slots, ticks: int, end_seq: int) -> Floats:
        """[len(rows), ticks] up to and including `end_seq`; NaN where nothing is kept."""
        place, seqs = HEAT.index(column), self._seqs(ticks, end_seq)
        if place >= TRAFFIC:
            return self._rest.window(place - TRAFFIC, rows, seqs, *self._kept)
        if not self._is_brief.any():
            return self._traffic.window(place, rows, seqs, *self._kept)
        wanted = np.asarray(rows, np.intp)
        is_brief = self._is_brief[wanted]
        slots = self._slots[wanted]
        parts = [
            table.window(place, _as_range(slots[ours]), seqs, *self._kept).T
            for table, ours in ((self._traffic, ~is_brief), (self._brief_traffic, is_brief))
        ]
        if not is_brief.any():
            return parts[0].T
        # Ports of a tick are adjacent, as in the tables: to put both parts in their places is the
        # slowest way by far, and this one the fastest.
        order = np.empty(len(wanted), np.intp)
        order[np.argsort(is_brief, kind="stable")] = np.arange(len(wanted))
        picked: Floats = np.take(np.concatenate(parts, axis=1), order, axis=1)
        return picked.T

    def worst(self, ticks: int, end_seq: int) -> Floats:
        """[ticks] up to and including `end_seq`; NaN where nothing is kept."""
        seqs = self._seqs(ticks, end_seq)
        picked: Floats = self._worst[seqs % self.ticks]
        picked[~_are_kept(seqs, self.ticks, *self._kept)] = np.nan
        return picked

    @property
    def _kept(self) -> tuple[int, int]:
        """The first and the last tick that may be kept."""
        return max(self._first, 0), self._last

    @staticmethod
    def _seqs(ticks: int, end_seq: int) -> _Slots:
        return np.arange(end_seq - ticks + 1, end_seq + 1)


class _Table:
    """Some columns of some ports over a number of ticks, [columns, ticks, ports].

    Ports are adjacent in memory: detectors read a few ticks of all ports.
    """

    def __init__(self, columns: int, ticks: int) -> None:
        self._ticks = ticks
        # Uninitialised values are never read, and take no memory until they are written. A column
        # that no port has is not written: of a thousand InfiniBand hosts that is half of the table.
        self._values = np.empty((columns, ticks, _FIRST_ROWS), np.float32)
        self._is_used = np.zeros(columns, np.bool_)
        self._rows = 0
        self._is_written = np.zeros(ticks, np.bool_)

    def clear(self, seq: int) -> None:
        self._is_written[seq % self._ticks] = True
        self._values[self._is_used, seq % self._ticks, : self._rows] = np.nan

    def put(self, seq: int, values: Floats) -> None:
        rows = values.shape[1]
        if rows > self._rows:
            self._add_rows(rows)
        for column in np.flatnonzero(~self._is_used & ~np.isnan(values).all(axis=1)).tolist():
            self._is_used[column] = True
            self._values[column, self._is_written, : self._rows] = np.nan
        self._is_written[seq % self._ticks] = True
        for column in np.flatnonzero(self._is_used).tolist():
            self._values[column, seq % self._ticks, :rows] = values[column]
            self._values[column, seq % self._ticks, rows : self._rows] = np.nan

    def window(
        self, column: int, rows: Sequence[int] | _Slots, seqs: _Slots, first: int, last: int
    ) -> Floats:
        """[rows, ticks]; that of a `range` of rows with step 1 may be a view, read-only: nothing is
        copied for the windows of all ports that detectors read at every tick."""
        if not self._is_used[column]:
            return np.full((len(seqs), len(rows)), np.nan, np.float32).T
        values, begin = self._values[column], max(first, last - self._ticks + 1, int(seqs[0]))
        end = min(last, int(seqs[-1])) + 1
        if isinstance(rows, range) and rows.step == 1:
            rows = range(rows.start, min(rows.stop, self._rows))
            slot = begin % self._ticks
            if end - begin == len(seqs) and slot + len(seqs) <= self._ticks:
                view: Floats = values[slot : slot + len(seqs), rows.start : rows.stop].T
                view.flags.writeable = False
                return view
        else:
            # -1 is the last port, as elsewhere.
            rows = np.asarray(rows, np.intp) % self._rows
        picked: Floats = np.full((len(seqs), len(rows)), np.nan, np.float32)
        while begin < end:
            # What is kept is in one piece, or in two: at the end of the table, and at its start.
            slot = begin % self._ticks
            ticks = min(end - begin, self._ticks - slot)
            piece, out = values[slot : slot + ticks], picked[begin - int(seqs[0]) :][:ticks]
            if isinstance(rows, range):
                out[:] = piece[:, rows.start : rows.stop]
            else:
                # "wrap", since the default copies once more.
                np.take(piece, rows, axis=1, out=out, mode="wrap")
            begin += ticks
        return picked.T

    def _add_rows(self, rows: int) -> None:
        """Make room for ports that are new; they have no values in the ticks before."""
        columns, ticks, have = self._values.shape
        written = np.flatnonzero(self._is_written).tolist()
        values = self._values
        if rows > have:
            # For some more ports: to copy 15 minutes of 12,288 of them takes a second. The room
            # that no port has yet is not written to, so that it takes no memory.
            values = np.empty((columns, ticks, rows + rows // SPARE_SHARE), np.float32)
        for column in np.flatnonzero(self._is_used).tolist():
            for slot in written:
                if rows > have:
                    values[column, slot, : self._rows] = self._values[column, slot, : self._rows]
                values[column, slot, self._rows : rows] = np.nan
        self._values, self._rows = values, rows


def _as_range(slots: _Slots) -> range | _Slots:
    """Slots that follow each other as a range, which is copied in one piece."""
    if len(slots) and (np.diff(slots) == 1).all():
        return range(int(slots[0]), int(slots[-1]) + 1)
    return slots


def _are_kept(seqs: _Slots, ticks: int, first: int, last: int) -> NDArray[np.bool_]:
    kept: NDArray[np.bool_] = (seqs > last - ticks) & (seqs <= last) & (seqs >= first)
    return kept
