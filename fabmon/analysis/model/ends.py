"""Where flows begin or end, with what they send and could send."""

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
            is_no_faster = sent.max(axis=1) <= slower * (1 + t.same)
            is_no_faster &= ~(seen.sends[rows] > 0)
            line = np.where(is_no_faster, np.fmin(line, slower), line)
    return line
