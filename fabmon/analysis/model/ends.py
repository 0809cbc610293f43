"""Where flows begin or end, with what they send and could send, and which links their bytes cross.

A NIC whose rate is a link's has it for itself: pairs are matched, the closest first, each NIC up to
what it sends. Links that no single NIC accounts for are shared by NICs that are on no other link
alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, without_nan
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.model.signs import Signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats


@dataclass(frozen=True, slots=True)
class Ends:
    """Where flows begin or end: NICs, or ports of a switch towards hosts that are not watched.

    `rate` [ends, ticks] is what they send (or receive), bits/s, `line` [ends] the most that they
    could, `sign` [ends] what they show of a queue.
    """

    rows: Rows
    rate: Floats
    line: Floats
    sign: Floats

    def of(self, rows: Rows, place: Rows) -> Ends:
        """Those with some rows; `place` [ports] is where each is."""
        at = place[rows]
        return Ends(rows, self.rate[at], self.line[at], self.sign[at])

    def those(self, chosen: Mask) -> Ends:
        """Some of them."""
        return Ends(self.rows[chosen], self.rate[chosen], self.line[chosen], self.sign[chosen])


def sent_and_received(inputs: DetectorInput, rows: Rows, ticks: int) -> tuple[Floats, Floats]:
    """[rows, ticks] bits/s that hosts send and receive at some ends, 0 where not known: what leaves
    a NIC enters the port of the switch towards it."""
    is_nic = inputs.structure.is_rail[rows][:, None]
    away, here = (without_nan(of(rows, ticks)) for of in (inputs.leaving, inputs.entering))
    return np.where(is_nic, away, here), np.where(is_nic, here, away)


def could_send(
    inputs: DetectorInput,
    rows: Rows,
    sent: Floats,
    received: Floats,
    seen: Signs,
    t: ModelThresholds,
) -> Floats:
    """[rows] bits/s that ends could send: their line rates, or those of slower ones that are full
    and that they may wait for, as they are no faster and show no queue."""
    line = without_nan(inputs.snapshot.line_rate_bps[rows])
    if line.max(initial=0) == line.min(initial=0, where=line > 0):
        return line
    speeds = np.unique(line[line > 0])
    full = np.fmax(sent, received).max(axis=1, initial=0) >= t.full_util * line
    for slower in speeds[:-1][::-1]:
        if full[line == slower].any():
            is_no_faster = sent.max(axis=1) <= slower * (1 + t.takes_part)
            is_no_faster &= ~(seen.sends[rows] > 0)
            line = np.where(is_no_faster, np.fmin(line, slower), line)
    return line


@dataclass(frozen=True, slots=True)
class Crossing:
    """Of each link of a set [links]: the place of the NIC that accounts for it `alone`, -1 where
    none does. `free` [NICs]: takes part, and is on no link alone; `left` [NICs] is what a NIC sends
    beside what it sends alone, bits/s. `are_all`: the NICs send all that the links carry."""

    alone: Rows
    free: Mask
    left: Floats
    are_all: bool


def take_part(rate: Floats, t: ModelThresholds) -> Mask:
    """[NICs] those whose traffic is a notable part of that of the busiest one."""
    taking: Mask = rate > t.takes_part * rate.max(initial=0)
    return taking


def crossing(
    load: Floats, rate: Floats, lines: Floats, sign: Floats, t: ModelThresholds
) -> Crossing:
    """Match links with `load` [links, ticks] with NICs with `rate` [NICs, ticks], bits/s.

    Of NICs that fit as well, those that show least of a queue (`sign` [NICs], log-odds) are alone.
    """
    mean, of_nic = load.mean(axis=1), rate.mean(axis=1)
    part = take_part(of_nic, t)
    alone = np.full(len(load), -1, np.intp)
    left = of_nic.copy()
    loaded = np.flatnonzero(mean > t.takes_part * mean.max(initial=0))
    nics = np.flatnonzero(part)
    if not len(loaded) or not len(nics):
        return Crossing(alone, part, left, False)
    # [ticks, links, NICs]: sums over the first axis are several times as fast.
    less = load[loaded].T[:, :, None] - rate[nics].T[:, None, :]
    of_link = np.fmax(mean[loaded], 1.0)[:, None] * len(less)
    apart = np.abs(less).sum(axis=0) / of_link
    # A NIC that sends much more than a link carries may send the rest elsewhere; one that sends a
    # little more spreads all over several links.
    several = mean[loaded][:, None] <= t.one_of_several * of_nic[nics][None]
    fits = (apart <= t.apart) | (several & (np.fmax(less, 0).sum(axis=0) / of_link <= t.apart))
    places = np.argwhere(fits)
    shows = np.nan_to_num(sign[nics]) / t.clip
    cost = apart + t.apart * shows[None]
    closest = places[np.argsort(cost[fits], kind="stable")]
    least = ((1 - t.apart) * mean).tolist()
    rest, unmatched = left.tolist(), len(loaded)
    for link, nic in closest.tolist():
        row, which = int(loaded[link]), int(nics[nic])
        if alone[row] < 0 and rest[which] >= least[row]:
            alone[row] = which
            rest[which] = max(rest[which] - float(mean[row]), 0.0)
            unmatched -= 1
            if not unmatched:
                break
    left[:] = rest
    free = part & (left > t.apart * of_nic) & (left > t.busy * lines)
    return Crossing(alone, free, left, bool(of_nic.sum() >= t.accounts * mean.sum()))
