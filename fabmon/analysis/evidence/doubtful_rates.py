"""Rates that cannot be: above the line rate, or steadily a multiple of what the other end of the
cable counts. One of the two ends has another unit then: words of 4 bytes, bits, words of 8 bytes.

Two ends are compared only where both count the whole wire at the same line rate: not RDMA alone or
without RDMA, not a bond with a member, not a port with one of its breakouts. Loss changes one
direction, a moment of the poll one part of the time, and another workload the factor: none of
these is the same factor in both directions and all the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import MOST_OF_LINE_RATE, Floats, Rows, Snapshot
from fabmon.fabric.wording import bit_rate, number

_TICKS = 60
"""Ticks that are compared: four samples of what is read every 15 s."""

_EVERY_TICKS = 5
"""Rates that cannot be are looked for every so many ticks: they stay."""

_LEAST_TICKS = 12
"""Ticks with rates of both ends from which on a factor is steady ..."""
_PARTS = 3
"""... if it is the same in so many parts of them."""

_FACTORS = {0.25: "a quarter of", 0.125: "an eighth of", 4.0: "4 times", 8.0: "8 times"}
_SAME = 0.08
"""Share by which the ratio of two means may differ from a factor: headers that one end does not
count are 1 to 5 % of the bytes of large packets."""
_SAME_IN_PART = 0.25
"""The same in a part, of which two ends that are read every 15 s see other moments."""

_BUSY = 0.01
"""Share of line rate that the busier direction must have: management traffic stays under it."""
_SOME = 1e-5
"""Share of line rate that the other must have: acknowledgements are 0.1 % of what they answer.
Where it has less, a receiver that drops most packets looks like a factor."""

_APART = 1.0
"""Ends whose traffic in all differs by less than this power of 2 are not looked at further."""

_SAME_LINE = 0.1
"""Share by which line rates of two ends may differ: some are with coding, 3 to 6 %."""

_EXCESS_TICKS = 10
_EXCESS_LEAST = 3
"""A rate is above the line rate in the median of these ticks, of which so many are known: single
late reads are not."""


class DoubtfulRate(NamedTuple):
    """Rates of ports that cannot be: the row of the port, and of the other end where it is that
    which shows it; a sentence with the numbers, and what to do."""

    row: int
    peer: int | None
    check: str
    text: str
    advice: str

    @property
    def rows(self) -> tuple[int, ...]:
        """The ports whose rates may be wrong."""
        return (self.row,) if self.peer is None else (self.row, self.peer)


class DoubtfulRates:
    """The rates that cannot be, one snapshot after the other; looked for every _EVERY_TICKS."""

    def __init__(self) -> None:
        self._found: tuple[DoubtfulRate, ...] = ()
        self._seq = -_EVERY_TICKS

    def of(self, snapshot: Snapshot) -> tuple[DoubtfulRate, ...]:
        """Those of a snapshot, or of one less than _EVERY_TICKS before it."""
        if not 0 <= snapshot.seq - self._seq < _EVERY_TICKS:
            self._seq, self._found = snapshot.seq, doubtful_rates(snapshot)
        return self.last(snapshot)

    def last(self, snapshot: Snapshot) -> tuple[DoubtfulRate, ...]:
        """The last ones, of ports that a snapshot has."""
        ports = len(snapshot.up)
        return tuple(each for each in self._found if max(each.rows) < ports)


def doubts_by_row(snapshot: Snapshot, doubtful: Iterable[DoubtfulRate]) -> dict[int, str]:
    """Why the rates of a port cannot be, by row: the port that shows it, and how."""
    ports = snapshot.fabric.ports
    return {
        row: f"{ports[each.row].display_name} {each.text}" for each in doubtful for row in each.rows
    }


def doubtful_rates(snapshot: Snapshot) -> tuple[DoubtfulRate, ...]:
    """All rates of a snapshot that cannot be, by the last minute."""
    return (*_above_line_rate(snapshot), *_ends_that_differ(snapshot, _LEAST_TICKS))


def needs_more_ticks(snapshot: Snapshot) -> bool:
    """Whether two ends differ by a factor, in too few ticks so far to be certain."""
    few = {each.row for each in _ends_that_differ(snapshot, _PARTS)}
    return few != {each.row for each in _ends_that_differ(snapshot, _LEAST_TICKS)}


def _above_line_rate(snapshot: Snapshot) -> Iterable[DoubtfulRate]:
    line = snapshot.line_rate_bps
    with np.errstate(invalid="ignore"):
        now = (
            np.fmax(snapshot.column("tx_bps"), snapshot.column("rx_bps")) > MOST_OF_LINE_RATE * line
        )
    rows, found = np.flatnonzero(now), set[int]()
    for column in ("tx_bps", "rx_bps") if len(rows) else ():
        window = snapshot.window(column, rows, _EXCESS_TICKS)
        enough = np.isfinite(window).sum(axis=1) >= _EXCESS_LEAST
        usual = np.zeros(len(rows), np.float32)
        usual[enough] = np.nanmedian(window[enough], axis=1)
        for place in np.flatnonzero(usual > MOST_OF_LINE_RATE * line[rows]).tolist():
            row = int(rows[place])
            if row not in found:
                found.add(row)
                yield _excess(row, column, float(usual[place]), float(line[row]))


def _excess(row: int, column: str, bps: float, line_bps: float) -> DoubtfulRate:
    return DoubtfulRate(
        row,
        None,
        "above_line_rate",
        f"{column.removesuffix('_bps')} {bit_rate(bps)} is {number(bps / line_bps, 2)} times the"
        f" line rate, {bit_rate(line_bps)}",
        "Its bytes have another unit than their name says, or its line rate is another one: compare"
        " with the other end of the cable; speed= in the hosts file sets the line rate.",
    )


def _ends_that_differ(snapshot: Snapshot, least_ticks: int) -> Iterable[DoubtfulRate]:
    ports = snapshot.fabric.ports
    pairs = [(p.row, p.peer) for p in ports if p.peer is not None and p.row < p.peer]
    if not pairs:
        return
    one, other = np.array(pairs, np.intp).T
    with np.errstate(divide="ignore", invalid="ignore"):
        lines = snapshot.line_rate_bps[one] / snapshot.line_rate_bps[other]
        is_same_line = np.abs(lines - 1) <= _SAME_LINE
    one, other = one[is_same_line], other[is_same_line]
    factors = _factors(snapshot, one, other, least_ticks)
    for place in np.flatnonzero(factors).tolist():
        row, peer = int(one[place]), int(other[place])
        if _are_comparable(snapshot, ports[row], ports[peer]):
            yield _differing(snapshot, row, peer, float(factors[place]))


def _are_comparable(snapshot: Snapshot, port: Port, peer: Port) -> bool:
    """Whether both ends of a cable count the same."""
    is_cable = port.kind == peer.kind and peer.peer == port.row
    return is_cable and _counts_all(snapshot, port) and _counts_all(snapshot, peer)


def _counts_all(snapshot: Snapshot, port: Port) -> bool:
    """Whether the bytes of a port are all those on the wire, not RDMA's or the stack's alone."""

    def has(metric: str) -> bool:
        return not np.isnan(snapshot.column(metric)[port.row])

    if port.kind != "ethernet" or has("phy_tx_bytes") or has("phy_rx_bytes"):
        return True
    return not (port.info.get("rdma") or has("ib_tx_bytes") or has("rdma_tx_bytes"))


def _factors(snapshot: Snapshot, one: Rows, other: Rows, least_ticks: int) -> Floats:
    """[pairs]: the factor between what one end and the other count; 0 where there is none."""
    windows = [
        (snapshot.window(own, one, _TICKS), snapshot.window(far, other, _TICKS))
        for own, far in (("tx_bps", "rx_bps"), ("rx_bps", "tx_bps"))
    ]
    factors = np.zeros(len(one), np.float32)
    # Of all traffic first: nearly all ends agree.
    counted, theirs = (
        sum(np.nansum(pair[end], axis=1) for pair in windows) for end in range(len(windows))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(np.log2(np.asarray(counted / theirs)))
    odd = np.flatnonzero(apart >= _APART)
    (sent, sent_bps), (received, received_bps) = (
        _factor(own[odd], far[odd], least_ticks) for own, far in windows
    )
    line = snapshot.line_rate_bps[one[odd]]
    has_traffic = np.fmax(sent_bps, received_bps) >= _BUSY * line
    has_traffic &= np.fmin(sent_bps, received_bps) >= _SOME * line
    factors[odd] = np.where((sent == received) & has_traffic, sent, 0)
    return factors


def _factor(counted: Floats, theirs: Floats, least_ticks: int) -> tuple[Floats, Floats]:
    """[pairs] of two windows [pairs, ticks] of one direction: the factor between them, 0 for
    another ratio and where too little is known; and the larger of the mean rates."""
    both = np.isfinite(counted) & np.isfinite(theirs)
    ticks = both.sum(axis=1)
    part = (both.cumsum(axis=1) - 1) * _PARTS // np.maximum(ticks, 1)[:, None]
    sums = np.array(
        [
            [np.where(both & (part == each), end, 0).sum(axis=1) for each in range(_PARTS)]
            for end in (counted, theirs)
        ]
    )
    total = sums.sum(axis=1)
    factor = np.zeros(len(ticks), np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, of_part = total[0] / total[1], sums[0] / sums[1]
        for each in _FACTORS:
            holds = np.abs(ratio / each - 1) <= _SAME
            holds &= (np.abs(of_part / each - 1) <= _SAME_IN_PART).all(axis=0)
            factor[holds & (ticks >= least_ticks)] = each
    return factor, total.max(axis=0) / np.maximum(ticks, 1)


def _differing(snapshot: Snapshot, row: int, peer: int, factor: float) -> DoubtfulRate:
    """The two ends of a cable that count different bytes, the one that counts fewer first."""
    if factor > 1:
        row, peer, factor = peer, row, 1 / factor
    ports = snapshot.fabric.ports
    return DoubtfulRate(
        row,
        peer,
        "ends_differ",
        f"counts {_FACTORS[factor]} the bytes that {ports[peer].display_name} counts at the other"
        " end of the cable",
        "One of the two has another unit under the name of bytes (words of 4 bytes, bits), or the"
        " cable is another one: compare with perfquery -x or ethtool -S at one end.",
    )
