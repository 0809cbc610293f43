"""A host begins the exchanges of its job late, again and again, and the other hosts wait for it.

Hosts that move the same amount of data over the window are compared. A host that is late falls
behind the others by what they have exchanged without it, and catches up when it is there. By how
much, on average, over the rate at which they move data is how late it is: bytes, unlike the rates
of single seconds, hardly depend on when each host is sampled, and it does not matter whether its
exchange runs into the next one of the others. In a ring the others stop after a few chunks: the
job is silent until the late host begins. One that is late again and again, while few others are,
keeps its job waiting. Why it is late is not observable on the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    DetectorInput,
    count_ticks,
    rows_of,
    without_nan,
)
from fabmon.analysis.evidence.senders_place import MAX_VICTIMS
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
    rule=(
        "Hosts that move the same in 40 seconds, within 35 %, and at the same times are a job, of"
        " at least four beside the late one. Where they go on without it, it is late by how many"
        " bytes it is behind on average over their rate (Little's law), from straggler.late_s on."
        " Where they wait, it is late by the seconds, two or more, that it is silent before it"
        " begins. It is a straggler when that is so straggler.times times in these 40 seconds and"
        " for straggler.in_all_s in all, the last time in the last ten. At most an eighth of the"
        " hosts may be as late meanwhile: more are another job, or a stage of a pipeline."
    ),
    inputs="Byte counters of the hosts",
    not_observable=(
        "Why the host is late. Which hosts exchange data: it is inferred. Hosts that move less than"
        " straggler.busy_util of a second of line rate before they wait, or are never silent for a"
        " second"
    ),
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

_GBPS = np.float32(1e9)

_CAUGHT_UP = 0.25
"""Share of the most that a host is ever behind, 0 to 1, below which it has caught up."""

_NOT_BEGUN = 0.75
"""Share, 0 to 1, of what the others move in a tick at most that a late host falls behind by, one
that is sampled half a tick later does not; and of what they have moved by then that it lacks: one
that lacks less has begun, and is slow."""

_QUIET, _MIN_SILENT = 0.25, 2
"""Share of the others' rate, 0 to 1, below which a host is silent, and the ticks from which on its
silence counts."""

_TOGETHER_S = 0.1
"""Samples that are taken further apart make a silence seem a tick longer than it is."""

_BEGINS_TICKS, _MADE_UP = 2, 0.25
"""Ticks within which a job that waited begins again, and the share of what a late host lacked, 0 to
1, that it has moved more than the others by now."""

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
    """Hosts that move the same in all: their places in the arrays of hosts, what most of them move
    [ticks], what each moves and how much less it has moved than most by then [hosts, ticks], in
    ticks of line rate."""

    hosts: Rows
    usual: Floats
    moved: Floats
    behind: Floats


@dataclass(frozen=True, slots=True)
class _LateOnce:
    """The ticks [first, last) in which others wait for a host or go on without it, and by how many
    it is late."""

    first: int
    last: int
    late_ticks: float


@dataclass(frozen=True, slots=True)
class _Late:
    """How often a host was late, in seconds by the median, and the mean rate of the other hosts of
    its job meanwhile (share of line rate); `is_sure`: all of them were silent until it began."""

    times: int
    late_s: float
    level: float
    is_sure: bool


def stragglers(inputs: DetectorInput, t: StragglerThresholds) -> Iterator[Condition]:
    """One condition for each host that is late compared with the hosts of its job."""
    if not _is_any_quiet(inputs, t):
        return
    moved, lines = _moved(inputs)
    hosts, ticks = moved.shape
    if hosts <= _MIN_PEERS or ticks < _MIN_TICKS:
        return
    busy = moved > t.busy_util * lines[:, None]
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
            job = jobs[similar.tobytes()] = _job(moved, lines, np.flatnonzero(similar))
        late = _lateness(inputs, t, job, host)
        if late is None:
            continue
        peers = _peers_in_step(moved, job, host, late, inputs.snapshot.interval_s)
        if len(peers):
            yield _condition(inputs, inputs.structure.rails_of_hosts[host], late, peers)


def _is_any_quiet(inputs: DetectorInput, t: StragglerThresholds) -> bool:
    """Whether some host was quiet in recent ticks in which others moved data; a cheap test that
    spares the long window of a fabric in step."""
    used = np.fmax(inputs.util("tx"), inputs.received)
    np.fmax(used, np.float32(0), out=used)
    busy = [
        rows_of(used, rows.T).mean(axis=0) > t.busy_util for _, rows in inputs.structure.rail_tables
    ]
    some = np.sum([each.sum(axis=0) for each in busy], axis=0) >= _MIN_PEERS
    least = t.late_s / inputs.snapshot.interval_s
    return any(((count_ticks(some & ~each) >= least) & each.any(axis=1)).any() for each in busy)


def _job(moved_gbps: Floats, lines: Floats, hosts: Rows) -> _Job:
    """What these hosts, which move the same in all, have moved by each tick; of `_moved`."""
    middle = len(hosts) // 2
    # Hosts of one job move the same bytes, whatever their line rates.
    moved = moved_gbps[hosts] / np.partition(lines[hosts], middle)[middle]
    usual = np.partition(moved, middle, axis=0)[middle]
    # Hosts with less to do, as the first stage of a pipeline, are not late at every step of it.
    total, usual_total = moved.sum(axis=1), usual.sum()
    least = max(float(usual_total) * (1 - _SAME_TOTAL), 1e-9)
    scale = usual_total / np.maximum(total, np.float32(least))
    behind = np.zeros((len(hosts), len(usual)), np.float32)
    now = np.zeros(len(hosts), np.float32)
    for tick, less in enumerate((usual - moved * scale[:, None]).T):
        # Nobody moves what the others have not sent yet: who is ahead is in the step before.
        now = behind[:, tick] = np.fmax(now + less, 0)
    return _Job(hosts, usual, moved, behind)


def _lateness(inputs: DetectorInput, t: StragglerThresholds, job: _Job, host: int) -> _Late | None:
    """How late a host is; None where it is not, or as many others are."""
    if len(job.hosts) <= _MIN_PEERS or job.usual.max() < _COMMUNICATES:
        return None
    snapshot = inputs.snapshot
    is_together = snapshot.aligned.spread_s(len(job.usual), snapshot.seq) <= _TOGETHER_S
    place = int(np.flatnonzero(job.hosts == host)[0])
    found = _behind(job, place, t.late_s / snapshot.interval_s)
    seen = {tick for each in found for tick in range(each.first, each.last)}
    min_silent = _MIN_SILENT if is_together else _MIN_SILENT + 1
    silences = _silences(job, place, t.busy_util, min_silent)
    waits = _waits_of_all(job, place, t.busy_util, min_silent)
    for each in (*silences, *waits):
        if seen.isdisjoint(range(each.first, each.last)):
            found.append(each)
            seen.update(range(each.first, each.last))
    name = inputs.structure.fabric.ports[int(inputs.structure.rails_of_hosts[host][0])].node
    # Of long iterations, few are in the window: one late exchange keeps a finding open.
    waits_s = np.array([each.late_ticks * snapshot.interval_s for each in found])
    is_often = len(found) >= t.times and waits_s.sum() >= t.in_all_s
    # One that is on time again is not reported when its job stops for another reason.
    is_new = is_often and max(each.last for each in found) > len(job.usual) - TICKS
    if not found or not (is_new or inputs.is_open(CAUSE, name)):
        return None
    level = float(np.mean([job.usual[each.first : each.last].mean() for each in found]))
    return _Late(len(found), median(waits_s), level, is_sure=len(waits) >= t.times)


def _behind(job: _Job, place: int, least: float) -> list[_LateOnce]:
    """The exchanges that go on without a host, from when it falls behind until it has caught up.

    It is late by how much it is behind on average over the rate at which they move data, by
    Little's law; where that is `least` ticks or more.
    """
    own, usual, highest = job.behind[place], job.usual, float(job.usual.max())
    found = []
    for first, last in _runs(own > _CAUGHT_UP * own.max()):
        while first > 1 and own[first - 2] < own[first - 1]:
            first -= 1  # It fell behind from here on.
        far = first + np.flatnonzero(own[first:last] >= _NOT_BEGUN * highest)
        if not len(far) or own[far[0]] < _NOT_BEGUN * usual[first : far[0] + 1].sum():
            continue
        late_ticks = float(own[first:last].sum() / usual[first:last].sum())
        most = first + int(own[first:last].argmax())
        also = np.delete(job.behind[:, most], place) >= _ALSO_LATE * own[most]
        if late_ticks >= least and also.mean() <= _MAX_LATE:
            found.append(_LateOnce(first, last, late_ticks))
    return found


def _silences(job: _Job, place: int, busy: float, least: int) -> list[_LateOnce]:
    """The exchanges in which the others move little until a host begins: it is late by the `least`
    or more ticks in which it is silent right before."""
    waits = (job.usual > busy) & (job.moved < _QUIET * job.usual)
    begins = (job.usual > busy) & ~waits[place]
    found = []
    for first, last in _runs(waits[place]):
        also = np.delete(waits[:, first:last], place, axis=0).mean(axis=1) >= _ALSO_LATE
        is_before = last == len(begins) or begins[last]
        if last - first >= least and is_before and also.mean() <= _MAX_LATE:
            found.append(_LateOnce(first, last, float(last - first)))
    return found


def _waits_of_all(job: _Job, place: int, busy: float, least: int) -> list[_LateOnce]:
    """The exchanges that all other hosts begin and interrupt, in silence, until a host begins, as
    those of a ring do: it is late by the `least` or more ticks since the others began.

    It makes up for what it lacked then: a host that has no part in an exchange does not.
    """
    is_busy: Mask = job.moved > busy
    bursts = _runs(np.atleast_1d(is_busy.any(axis=0)))
    found = []
    for (first, end), (last, after) in pairwise(bursts):
        early, rest = job.moved[:, first:end].sum(axis=1), job.moved[:, last:after].sum(axis=1)
        begun = np.delete(early, place)
        lacked = median(begun) - float(early[place])
        made_up = float(rest[place]) - median(np.delete(rest, place))
        has_waited = (begun > busy) & (early[place] < _QUIET * begun)
        begins = np.atleast_1d(is_busy[:, last : last + _BEGINS_TICKS].any(axis=1))
        if (
            first > 0
            and last - first >= least
            and has_waited.mean() >= 1 - _MAX_LATE
            and begins[place]
            and begins.mean() >= _NEARLY_ALL
            and made_up >= _MADE_UP * lacked
        ):
            found.append(_LateOnce(first, last, float(last - first)))
    return found


def _peers_in_step(moved: Floats, job: _Job, host: int, late: _Late, interval_s: float) -> Rows:
    """The other hosts that move data at the same times as most; none where they are not one job
    with this host: hosts of several jobs may move as much. Those that wait for it are."""
    own, usual = moved[host], job.usual
    peers = job.hosts[job.hosts != host]
    in_step: Rows = peers[_correlation(moved[peers], usual) >= _IN_STEP]
    none = in_step[:0]
    if len(in_step) < max(_MIN_PEERS, _NEARLY_ALL * len(peers)):
        return none
    # A host that is half an iteration late is as far from its job as one of no job, not further.
    differs = 1 - max(0.0, float(_correlation(own[None], usual)[0]))
    others = np.delete(moved, host, axis=0)
    if not late.is_sure and 1 - float(_correlation(others, own).max()) < _OTHER_JOB * differs:
        return none
    lags = range(1 + min(round(_MAX_LATE_S / interval_s), len(own) // 2))
    # A lag of two and a half ticks is seen as half of each.
    between = (usual[1:] + usual[:-1]) / np.float32(2)
    follows = (
        _correlation(own[None, len(own) - len(earlier) :], earlier)[0]
        for lag in lags
        for earlier in (usual[: len(usual) - lag], between[: len(between) - lag])
    )
    return in_step if any(each >= _FOLLOWS for each in follows) else none


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


def _moved(inputs: DetectorInput) -> tuple[Floats, Floats]:
    """[hosts, ticks] Gb/s that the median rail of a host moves, sent or received, the larger, in
    the ticks in which any host has data, 0 where a host has none; and [hosts] Gb/s of its fastest
    rail, infinite where it is not known. Squares of bits/s have no place in a float32."""
    structure, snapshot = inputs.structure, inputs.snapshot
    hosts = structure.rails_of_hosts
    moved = np.zeros((len(hosts), inputs.traffic_bps.shape[1]), np.float32)
    lines = np.full(len(hosts), np.inf, np.float32)
    has_data = np.zeros(moved.shape[1], np.bool_)
    for places, rows in structure.rail_tables:
        known = np.isfinite(inputs.traffic_bps[rows])
        has_data |= known.any(axis=(0, 1))
        middle = (rows.shape[1] - 1) // 2
        bps = np.where(known, inputs.traffic_bps[rows], 0)
        moved[places] = np.partition(bps, middle, axis=1)[:, middle]
        fastest = without_nan(snapshot.line_rate_bps[rows]).max(axis=1)
        lines[places] = np.where(fastest > 0, fastest, np.float32(np.inf))
    return moved[:, has_data] / _GBPS, lines / _GBPS


def lateness(times: int, late_s: float, period_s: float) -> str:
    """`late for 2 exchanges in 40 s, by about 2.5 s each`."""
    each = " each" if times > 1 else ""
    return (
        f"late for {plural(times, 'exchange')} in {period_s:.0f} s, by about {late_s:.1f} s{each}"
    )


def _condition(inputs: DetectorInput, rows: Rows, late: _Late, peers: Rows) -> Condition:
    structure, ports = inputs.structure, inputs.structure.fabric.ports
    name = ports[int(rows[0])].node
    waiting = [structure.rails_of_hosts[each][0] for each in peers[:MAX_VICTIMS].tolist()]
    period_s = inputs.traffic_bps.shape[1] * inputs.snapshot.interval_s
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=name,
        rows=tuple(rows.tolist()),
        text=(
            f"{name} was {lateness(late.times, late.late_s, period_s)}: the {len(peers)} other"
            f" hosts of its job wait for it, and reach {rounded_percent(late.level)} of line rate"
            " on average meanwhile"
        ),
        evidence=(
            Evidence("late by", round(late.late_s, 1), "s"),
            Evidence("times late", late.times, f"in {period_s:.0f} s"),
            Evidence("other hosts of the job", len(peers), "hosts"),
            Evidence("the others' traffic, of line rate", round(late.level * 100, 1), "%"),
        ),
        advice=CAUSE.advice,
        confidence=0.9,
        lost=round(min(1.0, late.times * late.late_s / period_s), 3),
        victims=tuple(ports[int(row)].node for row in waiting),
        unseen="which hosts exchange data: it is inferred from equal traffic at the same times",
    )
