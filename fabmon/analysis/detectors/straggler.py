"""A host begins the exchanges of its job late, again and again, and the other hosts wait for it.

Hosts that move the same amount of data over the window are compared. How late a host begins an
exchange is the area between what the others have moved by then and what it has, over their rate:
bytes, unlike the rates of single seconds, hardly depend on when each host is sampled. One that is
late again and again, while few others are, keeps its job waiting. Why it is late is not observable
on the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, count_ticks, rows_of
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import Share
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import plural, rounded_percent

CAUSE = Cause(
    name="straggler",
    title="Straggler",
    meaning="a host begins its exchanges late, and the hosts of its job wait for it",
    severity=WARNING,
    picture="host_peers",
    advice=(
        "Look at the host: GPU clocks and throttling, CPU contention, data loading, ECC"
        " retirements; compare its step time with its peers'."
    ),
    tables=("straggler",),
)

_MIN_TICKS = 12
"""Ticks with data below which there are too few bursts."""

_MIN_PEERS = 4
"""Hosts beside the late one that make a job: with fewer, nobody can say which of them is late."""

_MAX_SUSPECTS = 8
"""Hosts judged in a tick, the most often quiet ones: it bounds the time that a tick takes."""

_SAME_TOTAL = 0.35
"""Hosts of one job move the same over the window, within this share of each other."""

_MAX_LATE = 0.125
"""Share of a job's hosts, 0 to 1, that may be late at the same time: more are another job, or a
stage of a pipeline."""

_NEARLY_ALL = 0.75
"""Share of the hosts that move as much, 0 to 1, that must do so at the same times to be a job."""

_IN_STEP, _FOLLOWS = 0.8, 0.7
"""Pearson's correlation of the other hosts with their median, and of the late host with it at the
best lag, from which on they are one job."""

_OTHER_JOB = 0.5
"""A host that differs from some other host by this share of what it differs from most hosts of the
job by, 1 - correlation, is of another job with it."""

_MAX_LATE_S = 6.0
"""Lag in seconds up to which a host follows its job."""

_EXCHANGES = 0.25
"""Share of the other hosts' highest rate, 0 to 1, from which on they exchange data."""

_MIN_SEEN = 3
"""Ticks after which an exchange that has not ended is judged."""

_QUIET, _MIN_SILENT = 0.25, 2
"""Share of the others' rate, 0 to 1, below which a host is silent, and the ticks from which on its
silence counts."""

_TOGETHER_S = 0.1
"""Samples that are taken further apart make a silence seem a tick longer than it is."""

_BEGIN_TICKS = 5
"""Ticks of an exchange that are its beginning: a host that is slower all the time is not late."""

_BEGUN = 0.1
"""Share of what the others move in an exchange, 0 to 1, from which on a host has begun."""

_ALSO_LATE = 0.5
"""Share of a host's lateness, 0 to 1, from which on another one is late as well."""

_COMMUNICATES = 0.2
"""Share of line rate, 0 to 1, that the others reach in some second: below it there is no exchange
to be late for."""


class StragglerThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [straggler]: a share of line rate, seconds, and a number of times."""

    busy_util: Share
    late_s: float
    times: int
    in_all_s: float


@dataclass(frozen=True, slots=True)
class _Job:
    """Hosts that move the same in all: their places in the arrays of hosts, the share of line rate
    that most of them move [ticks], by how many seconds each begins each exchange late [hosts,
    exchanges], and the mean of `usual` in each exchange."""

    hosts: Rows
    usual: Floats
    late_s: Floats
    levels: Floats


@dataclass(frozen=True, slots=True)
class _Late:
    """How often a host was late, in seconds by the median, and the mean rate of the other hosts of
    its job from the beginning to the end of these exchanges (share of line rate)."""

    times: int
    late_s: float
    level: float


def stragglers(inputs: DetectorInput, t: StragglerThresholds) -> Iterator[Condition]:
    """One condition for each host that is late compared with the hosts of its job."""
    if not _is_any_quiet(inputs, t):
        return
    moved = _moved(inputs)
    hosts, ticks = moved.shape
    if hosts <= _MIN_PEERS or ticks < _MIN_TICKS:
        return
    busy = moved > t.busy_util
    some = busy.sum(axis=0) >= _MIN_PEERS
    quiet = (some & ~busy).sum(axis=1)
    least = t.late_s / inputs.snapshot.interval_s
    suspects = np.flatnonzero((quiet >= least) & busy.any(axis=1))
    total = moved.sum(axis=1)
    jobs: dict[bytes, _Job] = {}
    for host in suspects[np.argsort(-quiet[suspects], kind="stable")[:_MAX_SUSPECTS]].tolist():
        similar = np.abs(total - total[host]) <= _SAME_TOTAL * max(float(total[host]), 1e-6)
        job = jobs.get(similar.tobytes())
        if job is None:
            job = jobs[similar.tobytes()] = _job(inputs, t, moved, np.flatnonzero(similar))
        late = _lateness(inputs, t, job, host)
        if late is None:
            continue
        peers = _peers_in_step(moved, job, host, inputs.snapshot.interval_s)
        if peers:
            yield _condition(inputs, inputs.structure.rails_of_hosts[host], late, peers)


def _is_any_quiet(inputs: DetectorInput, t: StragglerThresholds) -> bool:
    """Whether some host was quiet in recent ticks in which others moved data; a cheap test that
    spares the long window of a fabric in step."""
    used = np.fmax(inputs.sent, inputs.received_filled)
    busy = [
        rows_of(used, rows.T).mean(axis=0) > t.busy_util for _, rows in inputs.structure.rail_tables
    ]
    some = np.sum([each.sum(axis=0) for each in busy], axis=0) >= _MIN_PEERS
    least = t.late_s / inputs.snapshot.interval_s
    return any(((count_ticks(some & ~each) >= least) & each.any(axis=1)).any() for each in busy)


def _job(inputs: DetectorInput, t: StragglerThresholds, moved: Floats, hosts: Rows) -> _Job:
    """What these hosts, which move the same in all, do in each exchange."""
    middle = len(hosts) // 2
    usual = np.partition(moved[hosts], middle, axis=0)[middle]
    if usual.max() < _COMMUNICATES or len(hosts) <= _MIN_PEERS:
        return _Job(hosts, usual, np.empty((len(hosts), 0), np.float32), np.empty(0, np.float32))
    snapshot = inputs.snapshot
    is_together = snapshot.aligned.spread_s(len(usual), snapshot.seq) <= _TOGETHER_S
    min_silent = _MIN_SILENT if is_together else _MIN_SILENT + 1
    # Hosts with less to do, as the first stage of a pipeline, are not late at every step of it.
    total, usual_total = moved[hosts].sum(axis=1), usual.sum()
    scale = usual_total / np.maximum(total, usual_total * (1 - _SAME_TOTAL))
    late, levels = [], []
    for first, last in _exchanges(usual, t.busy_util):
        part, during = moved[hosts, first:last], usual[first:last]
        late.append(_late_ticks(part, part * scale[:, None], during, min_silent))
        levels.append(during.mean())
    late_s = np.array(late, np.float32).reshape(-1, len(hosts)).T * np.float32(snapshot.interval_s)
    return _Job(hosts, usual, late_s, np.array(levels, np.float32))


def _lateness(inputs: DetectorInput, t: StragglerThresholds, job: _Job, host: int) -> _Late | None:
    """How late a host is; None where it is not, or as many others are."""
    if not job.late_s.size:
        return None
    own_s = job.late_s[job.hosts == host][0]
    also = (job.late_s[job.hosts != host] >= _ALSO_LATE * own_s).mean(axis=0)
    counts = (own_s >= t.late_s) & (also <= _MAX_LATE)
    waits_s = own_s[counts]
    name = inputs.structure.fabric.ports[int(inputs.structure.rails_of_hosts[host][0])].node
    # Of long iterations, few are in the window: one late exchange keeps a finding open.
    is_often = len(waits_s) >= t.times and waits_s.sum() >= t.in_all_s
    if not len(waits_s) or not (is_often or inputs.is_open(CAUSE, name)):
        return None
    level = float(job.levels[counts].mean())
    return _Late(len(waits_s), median(waits_s), level)


def _peers_in_step(moved: Floats, job: _Job, host: int, interval_s: float) -> int:
    """How many other hosts move data at the same times as most; 0 where they are not one job with
    this host: hosts of several jobs may move as much."""
    own, usual = moved[host], job.usual
    peers = job.hosts[job.hosts != host]
    in_step = int(np.count_nonzero(_correlation(moved[peers], usual) >= _IN_STEP))
    if in_step < max(_MIN_PEERS, _NEARLY_ALL * len(peers)):
        return 0
    differs = 1 - float(_correlation(own[None], usual)[0])
    others = np.delete(moved, host, axis=0)
    if 1 - float(_correlation(others, own).max()) < _OTHER_JOB * differs:
        return 0
    lags = range(1 + min(round(_MAX_LATE_S / interval_s), len(own) // 2))
    follows = (_correlation(own[None, n:], usual[: len(usual) - n])[0] for n in lags)
    return in_step if any(each >= _FOLLOWS for each in follows) else 0


def _exchanges(usual: Floats, busy: float) -> list[tuple[int, int]]:
    """[first, after the last) tick of the exchanges that begin in the window, the last one from its
    third tick on.

    The tick before an exchange has its beginning, as have those in which hosts that wait for a
    late one move little: back to the end of the exchange before it.
    """
    found, before = [], 0
    for first, last in _runs(usual >= _EXCHANGES * usual.max()):
        begin = first - 1
        while (
            begin > before and usual[begin] > busy and usual[begin - 1] * _EXCHANGES <= usual[begin]
        ):
            begin -= 1
        begins_in_window = begin > 0 or (first > 0 and usual[0] <= busy)
        if begins_in_window and (last < len(usual) or last - first >= _MIN_SEEN):
            found.append((begin, last))
        before = last
    return found


def _late_ticks(moved: Floats, shares: Floats, usual: Floats, min_silent: int) -> Floats:
    """[hosts], ticks: how late a host begins an exchange in which hosts move `moved` [hosts, ticks]
    and most of them `usual` [ticks]; `shares` are `moved`, were they all to move the same in all.

    Where the others do not slow down, it is what they are ahead by over their rate; where they
    wait, the ticks in which it is silent are, `min_silent` or more.
    """
    begins = slice(_BEGIN_TICKS)
    ahead = np.cumsum((usual - shares)[:, begins], axis=1).max(axis=1) / usual.max()
    before = np.cumsum(moved, axis=1) < _BEGUN * usual.sum()
    silent = ((moved < _QUIET * usual) & before).sum(axis=1)
    late: Floats = np.fmax(ahead, np.where(silent >= min_silent, silent, 0))
    return late


def _correlation(many: Floats, one: Floats) -> Floats:
    """[rows]: Pearson's correlation of rows [rows, ticks] with one [ticks]; 0 for steady ones."""
    ticks = max(len(one), 1)
    a = many - many.sum(axis=1, keepdims=True) / ticks
    b = one - one.sum() / ticks
    size = np.sqrt((a * a).sum(axis=1) * float((b * b).sum()))
    found: Floats = (a @ b) / np.maximum(size, 1e-9)
    return found


def _runs(flags: Mask) -> list[tuple[int, int]]:
    """[first, after the last) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _moved(inputs: DetectorInput) -> Floats:
    """[hosts, ticks]: share of line rate that the median rail of a host moves, sent or received,
    the larger, in the ticks in which any host has data; 0 where a host has none."""
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
        moved[places] = np.partition(np.where(known, util, 0), middle, axis=1)[:, middle]
    return moved[:, has_data]


def _condition(inputs: DetectorInput, rows: Rows, late: _Late, peers: int) -> Condition:
    name = inputs.structure.fabric.ports[int(rows[0])].node
    period_s = inputs.traffic_bps.shape[1] * inputs.snapshot.interval_s
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=name,
        rows=tuple(rows.tolist()),
        text=(
            f"{name} began {plural(late.times, 'exchange')} late in {period_s:.0f} s, by"
            f" {late.late_s:.1f} s: the {peers} other hosts of its job wait for it, and reach"
            f" {rounded_percent(late.level)} of line rate on average over such an exchange"
        ),
        evidence=(
            Evidence("late by", round(late.late_s, 1), "s"),
            Evidence("times late", late.times, f"in {period_s:.0f} s"),
            Evidence("other hosts of the job", peers, "hosts"),
            Evidence("the others' traffic, of line rate", round(late.level * 100, 1), "%"),
        ),
        advice=CAUSE.advice,
        confidence=0.9,
        lost=round(min(1.0, late.times * late.late_s / period_s), 3),
        unseen="which hosts exchange data: it is inferred from equal traffic at the same times",
    )
