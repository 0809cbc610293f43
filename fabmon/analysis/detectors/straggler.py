"""A host begins the exchanges of its job late, again and again, and the other hosts wait for it.

Hosts that move the same bytes are a job. When most of them begin to move data and one does not, it
is late by the bytes that it is behind over the rate of the others since they began. Silence is the
extreme of it: in a ring the others stop after a few chunks, and move nothing until the late host
begins. Why it is late is not observable on the network.

A straggler is the last of its job in half of the exchanges; by chance each of N hosts is as often,
and late by half a tick in the mean. Page's sequential test between the two (1954) then reports a
host by chance once in exp(model.flags) exchanges at most (Lorden 1971).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import WINDOW_TICKS, DetectorInput, without_nan
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence
from fabmon.analysis.median import median
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import plural, rounded_percent

CAUSE = Cause(
    name="straggler",
    title="Straggler",
    meaning="a host begins its exchanges late, and the hosts of its job wait for it",
    severity=WARNING,
    rule=(
        "Hosts that move the same in 40 seconds, within model.quiet, are a job. While their"
        " median moves model.busy of line rate, a host that moves less than model.quiet of it is"
        " late until it has moved so much of what the median has since, or, where all are silent"
        " before it begins, catches up. It is late by the bytes that it is behind over the mean"
        " rate of the median since: for more than a tick or by model.quiet of one, while"
        " model.several others have begun for each that has not, and no other host is late in half"
        " of them. Evidence adds up from exchange to exchange of 40 seconds, never below 0: a tick"
        " by which it is late counts 1, and being one of the last m of N hosts the logarithm of N"
        " / 2m, at most half of model.flags; being on time takes 0.7 away. It is a straggler from"
        " model.flags on, while it moves less than others in the last ten seconds, and if"
        " it sends while it receives, as the first and last stage of a pipeline do not."
    ),
    inputs="Byte counters of the hosts",
    not_observable=(
        "Why the host is late. Which hosts exchange data: it is inferred. Hosts that move less than"
        " model.busy of line rate in a second, or are never silent for one"
    ),
    confidence=0.9,
    picture="host_peers",
    advice=(
        "Look at the host: GPU clocks and throttling, CPU contention, data loading, ECC"
        " retirements; compare its step time with its peers'."
    ),
    tables=("model",),
)

_MAX_SUSPECTS = 8
"""Hosts judged in a tick, the most often quiet ones: it bounds the time that a tick takes."""

_GBPS = np.float32(1e9)


@dataclass(frozen=True, slots=True)
class _Job:
    """Hosts that move the same: what their median moves [ticks], in ticks of line rate, and what it
    and each of them have moved before a tick [ticks + 1], [hosts, ticks + 1]."""

    hosts: Rows
    usual: Floats
    usual_before: Floats
    before: Floats


@dataclass(frozen=True, slots=True)
class _LateOnce:
    """The ticks [first, last) of an exchange that a host has not begun, by how many it is late, and
    which hosts of the job have begun it [hosts]."""

    first: int
    last: int
    late_ticks: float
    begun: Mask


def stragglers(inputs: DetectorInput, t: ModelThresholds) -> Iterator[Condition]:
    """One condition for each host that is late compared with the hosts of its job."""
    recent = np.fmax(inputs.window("tx_bps"), inputs.window("rx_bps"))
    # A fabric in step is spared the long window.
    if not len(_suspects(*_moved(inputs, recent), t)):
        return
    moved, lines = _moved(inputs, inputs.traffic_bps)
    total = moved.sum(axis=1)
    jobs: dict[bytes, _Job] = {}
    for host in _suspects(moved, lines, t)[:_MAX_SUSPECTS].tolist():
        similar = np.abs(total - total[host]) <= t.quiet * total[host]
        if similar.sum() <= t.several:
            continue
        job = jobs.get(similar.tobytes())
        if job is None:
            job = jobs[similar.tobytes()] = _job(moved, lines, np.flatnonzero(similar))
        evidence, late = _lateness(job, int(np.searchsorted(job.hosts, host)), t)
        begun = np.array([each.begun for each in late], np.bool_).reshape(-1, len(job.hosts))
        # Hosts that are as late each time, or nearly, are another job.
        are_others = 2 * begun.sum(axis=0) > len(late)
        rows = inputs.structure.rails_of_hosts[host]
        is_awaited = are_others.sum() >= len(job.hosts) - 1 and _exchanges(inputs, rows, t)
        if evidence >= t.flags and is_awaited:
            yield _condition(inputs, rows, job, late)


def _exchanges(inputs: DetectorInput, rows: Rows, t: ModelThresholds) -> bool:
    """Whether a host sends while it receives: the first and the last stage of a pipeline do not,
    and begin after the others by their place in it."""
    sent, received = (
        without_nan(inputs.series(each, np.array(rows), WINDOW_TICKS)).sum(axis=0)
        for each in ("tx_bps", "rx_bps")
    )
    return float(np.fmin(sent, received).sum()) >= t.half * float(np.fmax(sent, received).sum())


def _moved(inputs: DetectorInput, traffic_bps: Floats) -> tuple[Floats, Floats]:
    """[hosts, ticks] Gb/s that the median rail of a host moves of what ports do [ports, ticks], 0
    where a host has no data; and [hosts] Gb/s of its fastest rail, infinite where not known."""
    structure = inputs.structure
    moved = np.zeros((len(structure.rails_of_hosts), traffic_bps.shape[1]), np.float32)
    lines = np.zeros(len(moved), np.float32)
    for places, rows in structure.rail_tables:
        middle = (rows.shape[1] - 1) // 2
        moved[places] = np.partition(without_nan(traffic_bps[rows]), middle, axis=1)[:, middle]
        lines[places] = without_nan(inputs.snapshot.line_rate_bps[rows]).max(axis=1)
    return moved / _GBPS, np.where(lines > 0, lines / _GBPS, np.float32(np.inf))


def _suspects(moved: Floats, lines: Floats, t: ModelThresholds) -> Rows:
    """The hosts that move data, but not in some ticks in which others do; the most silent first."""
    busy = moved > t.busy * lines[:, None]
    quiet = ((busy.sum(axis=0) >= t.several) & ~busy).sum(axis=1) * busy.any(axis=1)
    order: Rows = np.argsort(-quiet, kind="stable")
    return order[: np.count_nonzero(quiet)]


def _job(moved: Floats, lines: Floats, hosts: Rows) -> _Job:
    middle = len(hosts) // 2
    # Hosts of one job move the same bytes, whatever their line rates.
    own = moved[hosts] / np.partition(lines[hosts], middle)[middle]
    usual = np.partition(own, middle, axis=0)[middle]
    before = np.zeros((len(hosts) + 1, len(usual) + 1), np.float32)
    np.cumsum(np.concatenate((own, usual[None])), axis=1, out=before[:, 1:])
    return _Job(hosts, usual, before[-1], before[:-1])


def _lateness(job: _Job, place: int, t: ModelThresholds) -> tuple[float, list[_LateOnce]]:
    """The log-odds, 0 or more, that a host is the last of its job in half of the exchanges; and
    those that it begins late, or has not begun yet while the others go on.

    All others may be silent before it begins, as in a ring: it has to move then what it lacked. A
    host that had no part in what they moved does not.
    """
    hosts, own, late = len(job.hosts), job.before[place], list[_LateOnce]()
    total, after = 0.0, 0
    goes_on = np.append(job.usual > t.busy, False)
    is_quiet = np.diff(own) < t.quiet * job.usual
    begins = goes_on[:-1] & (np.diff(job.usual, prepend=np.float32(0)) > 0)
    for first in np.flatnonzero(begins).tolist():
        is_late = bool(is_quiet[first]) and first >= after
        if is_late:
            moved = own[first + 1 :] - own[first]
            usual = job.usual_before[first + 1 :] - job.usual_before[first]
            ticks = int(np.append(moved >= t.quiet * usual, True).argmax())
            after = first + ticks
            behind = float(usual[ticks - 1] - moved[ticks - 1])
            before = max(after - 1, first + 1)  # The last tick in which it was late.
            others = job.before[:, before] - job.before[:, first]
            begun = others >= t.quiet * usual[before - first - 1]
            ends = after + int((~goes_on[after:]).argmax())
            since = job.before[:, after : ends + 1] - job.before[:, after : after + 1]
            caught_up = float((since[place] - np.median(since, axis=0)).max())
            # One tick, and a small part of one, are what samples at other instants make.
            is_late = ticks > 1 or behind >= t.quiet * float(job.usual.max())
            is_late &= bool(begun.sum() >= t.several * (~begun).sum())
            is_late &= bool(goes_on[after - 1]) or caught_up >= t.quiet * behind
        if is_late:
            late.append(_LateOnce(first, after, ticks * behind / float(usual[ticks - 1]), begun))
            odds = float(np.log(0.5 * hosts / (~begun).sum())) + late[-1].late_ticks
            total = max(0.0, total + min(odds, t.flags / 2))
        elif first and not goes_on[first - 1] and (not late or first > late[-1].last + 1):
            total = max(0.0, total + float(np.log(0.5 * hosts / (hosts - 1))))
    return total, late


def _condition(
    inputs: DetectorInput, rows: Rows, job: _Job, late: Sequence[_LateOnce]
) -> Condition:
    structure, ports = inputs.structure, inputs.structure.fabric.ports
    name = ports[int(rows[0])].node
    interval_s = inputs.snapshot.interval_s
    period_s = inputs.traffic_bps.shape[1] * interval_s
    late_s = median(np.array([each.late_ticks for each in late])) * interval_s
    level = float(np.mean([job.usual[each.first : each.last].mean() for each in late]))
    each_time = " each" if len(late) > 1 else ""
    waiting = job.hosts[np.all([each.begun for each in late], axis=0)].tolist()
    return CAUSE.condition(
        subject=name,
        rows=rows.tolist(),
        text=(
            f"{name} was late for {plural(len(late), 'exchange')} in {period_s:.0f} s, by about"
            f" {late_s:.1f} s{each_time}: the {len(waiting)} other hosts of its job wait for it,"
            f" and reach {rounded_percent(level)} of line rate on average meanwhile"
        ),
        evidence=(
            Evidence("late by", round(late_s, 1), "s"),
            Evidence("times late", len(late), f"in {period_s:.0f} s"),
            Evidence("other hosts of the job", len(waiting), "hosts"),
            Evidence.percent("the others' traffic, of line rate", level),
        ),
        lost=min(1.0, len(late) * late_s / period_s),
        victims=[ports[int(structure.rails_of_hosts[each][0])].node for each in waiting],
        unseen="which hosts exchange data: it is inferred from equal traffic at the same times",
    )
