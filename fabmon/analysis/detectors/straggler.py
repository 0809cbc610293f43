"""A host is quiet while the hosts of its job send: it computes longer, and they wait for it.

Which hosts belong to one job is inferred from their traffic: it rises and falls together over the
last 40 ticks. A host whose traffic correlates with theirs, and that is silent in seconds in which
nearly all of them exchange data, is late. Why it is late is not observable on the network.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence
from fabmon.analysis.median import medians
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="straggler",
    title="Straggler",
    meaning="a host is quiet while the hosts of its job wait for it",
    severity=WARNING,
    picture="host_peers",
    advice=(
        "Look at the host: GPU clocks and throttling, CPU contention, data loading, ECC"
        " retirements; compare its step time with its peers'."
    ),
    tables=("straggler",),
)

_MIN_TICKS = 12
"""Ticks with data below which a correlation says nothing."""

_ITERATION_TICKS = 40
"""Ticks looked at when the last `TICKS` show nothing: a host that is late by two seconds in each
iteration is seen only over several iterations."""

_MIN_PEERS = 3
"""Hosts that make a job: with fewer, nobody can say which of them is late."""

_MAX_SUSPECTS = 32
"""Hosts judged in a tick, the most often quiet ones: it bounds the time that a tick takes."""

_NEARLY_ALL = 0.75
"""Share of a job's hosts, 0 to 1, that must send in a tick for the others to be late in it."""

_MAX_LATE = 0.125
"""Share of a job's hosts, 0 to 1, that may be late; more of them are another job nearly in step."""


class StragglerThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [straggler]: shares of line rate and of the others' median, and a correlation."""

    busy_util: Share
    below: Share
    ticks: Ticks
    alike: Share


def stragglers(inputs: DetectorInput, t: StragglerThresholds) -> Iterator[Condition]:
    """One condition for each host that is late compared with the hosts of its job."""
    moved = _moved(inputs)
    if len(moved) <= _MIN_PEERS or moved.shape[1] < _MIN_TICKS:
        return
    busy = moved > t.busy_util
    others = busy.sum(axis=0) >= _MIN_PEERS
    quiet = (others & ~busy).sum(axis=1)
    suspects = np.flatnonzero((quiet >= t.ticks) & (busy.sum(axis=1) >= t.ticks))
    if len(suspects) > _MAX_SUSPECTS:
        suspects = suspects[np.argsort(-quiet[suspects], kind="stable")[:_MAX_SUSPECTS]]
    if not len(suspects):
        return
    filled = np.nan_to_num(moved)
    in_job = _correlations(filled, suspects) >= t.alike
    in_job[np.arange(len(suspects)), suspects] = False
    late: dict[int, tuple[int, int, float]] = {}
    jobs: dict[int, Rows] = {}
    for number in np.flatnonzero(_may_be_late(t, moved, suspects, in_job)).tolist():
        host, peers = int(suspects[number]), np.flatnonzero(in_job[number])
        if len(peers) < _MIN_PEERS:
            continue
        usual = medians(filled[peers])
        send = (moved[peers] > t.busy_util).mean(axis=0) >= _NEARLY_ALL
        for ticks in (TICKS, _ITERATION_TICKS):
            waited = _waited(t, moved[host, -ticks:], usual[-ticks:], send[-ticks:])
            if waited is not None:
                late[host] = (min(ticks, moved.shape[1]), *waited)
                jobs[host] = peers
                break
    for host, (of_ticks, ticks, level) in late.items():
        peers = jobs[host]
        if np.isin(peers, list(late)).sum() <= max(1, _MAX_LATE * len(peers)):
            rows = inputs.structure.rails_of_hosts[host]
            yield _condition(inputs, rows, len(peers), ticks, of_ticks, level)


def _may_be_late(t: StragglerThresholds, moved: Floats, suspects: Rows, in_job: Mask) -> Mask:
    """[suspects]: False where a cheap test excludes that a host is late.

    It was in too few ticks far below the most that any host moved while nearly all of its job
    sent. The medians that decide take longer.
    """
    moved = moved[:, -_ITERATION_TICKS:]
    sends = (moved > t.busy_util).astype(np.float32)
    peers = in_job.sum(axis=1)
    nearly_all = (in_job.astype(np.float32) @ sends) / np.maximum(peers, 1)[:, None]
    behind = moved[suspects] < t.below * np.fmax.reduce(moved, axis=0)
    waited: Rows = ((nearly_all >= _NEARLY_ALL) & behind).sum(axis=1)
    return waited >= t.ticks


def _waited(
    t: StragglerThresholds, own: Floats, usual: Floats, send: Mask
) -> tuple[int, float] | None:
    """The number of ticks in which a host was silent while nearly all of its job sent, and the
    mean of the job's median then; None for too few, and for a host that was ahead."""
    waited = send & (own < t.below * usual)
    ahead = (own > t.busy_util) & (usual < t.below * own)
    if waited.sum() < t.ticks or ahead.any():
        return None
    return int(waited.sum()), float(usual[waited].mean())


def _moved(inputs: DetectorInput) -> Floats:
    """[hosts, ticks]: share of line rate that the median rail of a host moves, in the ticks in
    which any host has data; NaN where a host has none.

    It is what a rail sends or receives, the larger: beside a late host, one host of a ring has no
    receiver, and another no sender. One rail that is busy by itself is no job.
    """
    structure, snapshot = inputs.structure, inputs.snapshot
    hosts = structure.rails_of_hosts
    if not hosts:
        return np.empty((0, 0), np.float32)
    moved = np.zeros((len(hosts), inputs.traffic_bps.shape[1]), np.float32)
    has_data = np.zeros(moved.shape[1], np.bool_)
    for places, rows in structure.rail_tables:
        with np.errstate(invalid="ignore", divide="ignore"):
            util = inputs.traffic_bps[rows] / snapshot.line_rate_bps[rows][:, :, None]
        known = np.isfinite(util)
        has_data |= known.any(axis=(0, 1))
        middle = (rows.shape[1] - 1) // 2
        util = np.where(known, util, 0)
        median_rail = np.partition(util, middle, axis=1)[:, middle]
        moved[places] = np.where(known.any(axis=1), median_rail, np.nan)
    return moved[:, has_data]


def _correlations(moved: Floats, suspects: Rows) -> Floats:
    """[suspects, hosts]: Pearson's correlation of their traffic over the last ticks."""
    centred = moved - moved.mean(axis=1, keepdims=True)
    size = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    unit = centred / np.maximum(size, 1e-6)
    found: Floats = unit[suspects] @ unit.T
    return found


def _condition(
    inputs: DetectorInput, rows: Rows, peers: int, ticks: int, of_ticks: int, level: float
) -> Condition:
    name = inputs.structure.fabric.ports[int(rows[0])].node
    idle_s, of_s = (n * inputs.snapshot.interval_s for n in (ticks, of_ticks))
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=name,
        rows=tuple(rows.tolist()),
        text=(
            f"{name} moved nothing in {idle_s:.0f} of the last {of_s:.0f} s while the {peers} other"
            f" hosts of its job moved {rounded_percent(level)} of line rate: they wait for it"
        ),
        evidence=(
            Evidence("idle while the others communicate", idle_s, "s"),
            Evidence("hosts with correlated traffic", peers, "hosts"),
            Evidence("the others' traffic, of line rate", round(level * 100, 1), "%"),
        ),
        advice=CAUSE.advice,
        confidence=0.8,
        lost=round(ticks / of_ticks, 3),
        unseen="which ranks make a job: it is inferred from correlated traffic",
    )
