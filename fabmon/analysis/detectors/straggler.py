"""A host that is quiet while the hosts of its job send: it computes longer, and they wait for it.

Who belongs to one job is read from the rhythm: hosts whose traffic rises and falls together over
the last minute. A host that keeps their rhythm, and yet is silent in seconds in which nearly all of
them exchange data, is late; what it is late for cannot be seen from here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence
from fabmon.analysis.median import medians
from fabmon.analysis.thresholds import Straggler as Thresholds
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="straggler",
    title="Straggler",
    severity=WARNING,
    picture="host_peers",
    tables=("straggler",),
)


_LEAST_TICKS = 12
_ITERATION_TICKS = 40
"""A host that is late by two seconds an iteration needs more than one of them to be seen."""
_LEAST_PEERS = 3
_MOST_SUSPECTS = 32
_NEARLY_ALL = 0.75
_FEW = 0.125
"""Of a host's job may be late as well; more, at whatever times, are another job nearly in step."""


class Stragglers:
    """Judges hosts against those of their rhythm."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition a host."""
        sent = _moved(inputs)
        if len(sent) <= _LEAST_PEERS or sent.shape[1] < _LEAST_TICKS:
            return
        busy = sent > self._t.busy_util
        others = busy.sum(axis=0) >= _LEAST_PEERS
        quiet = (others & ~busy).sum(axis=1)
        suspects = np.flatnonzero((quiet >= self._t.ticks) & (busy.sum(axis=1) >= self._t.ticks))
        if len(suspects) > _MOST_SUSPECTS:
            suspects = suspects[np.argsort(-quiet[suspects], kind="stable")[:_MOST_SUSPECTS]]
        if not len(suspects):
            return
        filled = np.nan_to_num(sent)
        alike = _alike(filled, suspects) >= self._t.alike
        alike[np.arange(len(suspects)), suspects] = False
        found: dict[int, tuple[int, tuple[int, float]]] = {}
        jobs: dict[int, Rows] = {}
        for number in np.flatnonzero(self._may_be_late(sent, suspects, alike)).tolist():
            host, mates = int(suspects[number]), np.flatnonzero(alike[number])
            if len(mates) >= _LEAST_PEERS:
                median = medians(filled[mates])
                send = (sent[mates] > self._t.busy_util).mean(axis=0) >= _NEARLY_ALL
                for ticks in (TICKS, _ITERATION_TICKS):
                    late = self._late(sent[host, -ticks:], median[-ticks:], send[-ticks:])
                    if late is not None:
                        found[host], jobs[host] = (min(ticks, sent.shape[1]), late), mates
                        break
        for host, (of_ticks, late) in found.items():
            mates = jobs[host]
            if np.isin(mates, list(found)).sum() <= max(1, _FEW * len(mates)):
                rows = inputs.structure.rails_of_hosts[host]
                yield _condition(inputs, rows, len(mates), late, of_ticks)

    def _may_be_late(self, sent: Floats, suspects: Rows, alike: Mask) -> Mask:
        """[suspects]: False for those who were in no ticks enough far below the most that any host
        moved while nearly all of their mates sent: they need no medians, which take longer.
        """
        sent = sent[:, -_ITERATION_TICKS:]
        sends = (sent > self._t.busy_util).astype(np.float32)
        mates = alike.sum(axis=1)
        nearly_all = (alike.astype(np.float32) @ sends) / np.maximum(mates, 1)[:, None]
        behind = sent[suspects] < self._t.below * np.fmax.reduce(sent, axis=0)
        waited: Rows = ((nearly_all >= _NEARLY_ALL) & behind).sum(axis=1)
        return waited >= self._t.ticks

    def _late(self, own: Floats, median: Floats, send: Mask) -> tuple[int, float] | None:
        """In how many ticks the host was silent while nearly all its mates sent, and what the
        middle one of them did.
        """
        waited = send & (own < self._t.below * median)
        ahead = (own > self._t.busy_util) & (median < self._t.below * own)
        if waited.sum() < self._t.ticks or ahead.any():
            return None
        return int(waited.sum()), float(median[waited].mean())


def _moved(inputs: DetectorInput) -> Floats:
    """[hosts, ticks]: share of line rate that the middle one of its rails moves, in the ticks in
    which anybody is known; NaN where the host is not.

    It is what a rail sends or receives, the larger: beside a late host, one in a ring has nobody to
    send to, and another nobody to receive from. One rail that is busy by itself is no job.
    """
    structure, snapshot = inputs.structure, inputs.snapshot
    hosts = structure.rails_of_hosts
    if not hosts:
        return np.empty((0, 0), np.float32)
    moved = np.zeros((len(hosts), inputs.rhythm.shape[1]), np.float32)
    heard = np.zeros(moved.shape[1], np.bool_)
    for places, rows in structure.rail_tables:
        with np.errstate(invalid="ignore", divide="ignore"):
            util = inputs.rhythm[rows] / snapshot.line_rate_bps[rows][:, :, None]
        known = np.isfinite(util)
        heard |= known.any(axis=(0, 1))
        middle = (rows.shape[1] - 1) // 2
        util = np.where(known, util, 0)
        middle_one = np.partition(util, middle, axis=1)[:, middle]
        moved[places] = np.where(known.any(axis=1), middle_one, np.nan)
    return moved[:, heard]


def _alike(sent: Floats, suspects: Rows) -> Floats:
    """[suspects, hosts]: correlation of their traffic over the last ticks."""
    centred = sent - sent.mean(axis=1, keepdims=True)
    size = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    unit = centred / np.maximum(size, 1e-6)
    alike: Floats = unit[suspects] @ unit.T
    return alike


def _condition(
    inputs: DetectorInput, rows: Rows, mates: int, late: tuple[int, float], of_ticks: int
) -> Condition:
    structure = inputs.structure
    name = structure.fabric.ports[int(rows[0])].node
    ticks, level = late
    seconds, of_s = (n * inputs.snapshot.interval_s for n in (ticks, of_ticks))
    return Condition(
        cause="straggler",
        severity=WARNING,
        subject=name,
        rows=tuple(rows.tolist()),
        text=(
            f"{name} moved nothing in {seconds:.0f} of the last {of_s:.0f} s"
            f" while the {mates} hosts of its job moved {rounded_percent(level)} of line rate:"
            " they wait for it"
        ),
        evidence=(
            Evidence("idle while the others communicate", seconds, "s"),
            Evidence("hosts of the same rhythm", mates, "hosts"),
            Evidence("they move meanwhile, of line rate", round(level * 100, 1), "%"),
        ),
        advice=(
            "Look at the host: GPU clocks and throttling, CPU contention, data loading, ECC"
            " retirements; compare its step time with its peers'."
        ),
        confidence=0.8,
        lost=round(ticks / of_ticks, 3),
        unseen="which ranks make a job: it is inferred from the rhythm of the traffic",
    )
