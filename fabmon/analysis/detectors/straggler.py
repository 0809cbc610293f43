"""A host begins the exchanges of its job late, again and again, and the other hosts wait for it.

Hosts that move the same bytes are a job. When most of them begin to move data and one does not, it
is late by the bytes that it is behind over the rate of the others since they began. Silence is the
extreme of it: in a ring the others stop after a few chunks, and move nothing until the late host
begins. Why it is late is not observable on the network.

A straggler is the last of its job in half of the exchanges; by chance each of N hosts is as often,
and late by half a tick in the mean. Page's sequential test between the two (1954) then reports a
host by chance once in exp(straggler.flags) exchanges at most (Lorden 1971).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, without_nan
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
        "Hosts that move the same in 40 seconds, within straggler.same, are a job. While their"
        " median moves straggler.busy_util of line rate, a host that moves less than"
        " straggler.quiet of it is late until it has moved so much of what the median has since;"
        " where all are silent before it begins, only if it catches up then. It is late by the"
        " bytes that it is behind over the mean rate of the median since: by a tick at least, for"
        " more than one or by straggler.quiet of one at the highest rate, while straggler.peers"
        " others have begun for each that has not, and no other host is late in half of them."
        " Evidence"
        " adds up from exchange to exchange of 40 seconds, never below 0: each tick by which the"
        " host is late counts 1, and being one of the last m of N hosts the logarithm of N / 2m,"
        " together at most half of straggler.flags; being on time takes 0.7 away. It is a"
        " straggler from straggler.flags on, if it was late in the last ten seconds, and stays one"
        " while evidence is left."
    ),
    inputs="Byte counters of the hosts",
    not_observable=(
        "Why the host is late. Which hosts exchange data: it is inferred. Hosts that move less than"
        " straggler.busy_util of line rate in a second, or are never silent for one"
    ),
    picture="host_peers",
    advice=(
        "Look at the host: GPU clocks and throttling, CPU contention, data loading, ECC"
        " retirements; compare its step time with its peers'."
    ),
    tables=("straggler",),
)

_MAX_SUSPECTS = 8
"""Hosts judged in a tick, the most often quiet ones: it bounds the time that a tick takes."""

_GBPS = np.float32(1e9)


class StragglerThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [straggler]: shares of line rate and of bytes, hosts, log-odds."""

    busy_util: Share
    same: Share
    quiet: Share
    peers: int
    flags: float


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


class Stragglers:
    """Compares every host with the hosts of its job.

    One that was reported in the tick before still is while some evidence is left: of long
    iterations few are in the window.
    """

    def __init__(self, thresholds: StragglerThresholds) -> None:
        self._t = thresholds
        self._known: frozenset[str] = frozenset()
        """The hosts that were reported in the tick before."""

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each host that is late compared with the hosts of its job."""
        recent = np.fmax(inputs.window("tx_bps"), inputs.window("rx_bps"))
        found = []
        # A fabric in step is spared the long window.
        if self._known or len(_suspects(*_moved(inputs, recent), self._t)):
            found = list(self._late_hosts(inputs))
        self._known = frozenset(each.subject for each in found)
        yield from found

    def _late_hosts(self, inputs: DetectorInput) -> Iterator[Condition]:
        t, (moved, lines) = self._t, _moved(inputs, inputs.traffic_bps)
        total = moved.sum(axis=1)
        jobs: dict[bytes, _Job] = {}
        for host in _suspects(moved, lines, t)[:_MAX_SUSPECTS].tolist():
            similar = np.abs(total - total[host]) <= t.same * total[host]
            if similar.sum() <= t.peers:
                continue
            job = jobs.get(similar.tobytes())
            if job is None:
                job = jobs[similar.tobytes()] = _job(moved, lines, np.flatnonzero(similar))
            late = list(_late_exchanges(job, int(np.searchsorted(job.hosts, host)), t))
            begun = np.array([each.begun for each in late], np.bool_).reshape(-1, len(job.hosts))
            # Hosts that are as late each time, or nearly, are another job.
            if not late or (2 * begun.sum(axis=0) > len(late)).sum() < len(job.hosts) - 1:
                continue
            rows = inputs.structure.rails_of_hosts[host]
            name = inputs.structure.fabric.ports[int(rows[0])].node
            evidence = _evidence(job, late, t)
            # One that is on time again is not reported when its job stops for another reason.
            is_recent = late[-1].last > len(job.usual) - TICKS
            if (evidence >= t.flags and is_recent) or (name in self._known and evidence > 0):
                yield _condition(inputs, name, rows, job, late)


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


def _suspects(moved: Floats, lines: Floats, t: StragglerThresholds) -> Rows:
    """The hosts that move data, but not in some ticks in which others do; the most silent first."""
    busy = moved > t.busy_util * lines[:, None]
    quiet = ((busy.sum(axis=0) >= t.peers) & ~busy).sum(axis=1) * busy.any(axis=1)
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


def _late_exchanges(job: _Job, place: int, t: StragglerThresholds) -> Iterator[_LateOnce]:
    """The exchanges that a host of a job begins late, or has not begun yet while the others go on.

    All others may be silent before it begins, as in a ring: it has to move then what it lacked. A
    host that had no part in what they moved does not.
    """
    after, own = 0, job.before[place]
    goes_on = np.append(job.usual > t.busy_util, False)
    begins = goes_on[:-1] & (np.diff(job.usual, prepend=np.float32(0)) > 0)
    for first in np.flatnonzero(begins & (np.diff(own) < t.quiet * job.usual)).tolist():
        if first < after:
            continue
        moved = own[first + 1 :] - own[first]
        usual = job.usual_before[first + 1 :] - job.usual_before[first]
        late = int(np.append(moved >= t.quiet * usual, True).argmax())
        after = first + late
        behind = float(usual[late - 1] - moved[late - 1])
        late_ticks = late * behind / float(usual[late - 1])
        at_least = behind / float(job.usual.max())
        before = max(after - 1, first + 1)  # The last tick in which it was late.
        begun = job.before[:, before] - job.before[:, first] >= t.quiet * usual[before - first - 1]
        are_others = begun.sum() >= t.peers * (~begun).sum()
        # One tick, and a small part of one, are what samples at other instants make.
        if are_others and late_ticks >= 1 and (late > 1 or at_least >= t.quiet):
            ends = after + int((~goes_on[after:]).argmax())
            since = job.before[:, after : ends + 1] - job.before[:, after : after + 1]
            caught_up = float((since[place] - np.median(since, axis=0)).max())
            catches_up = at_least >= t.quiet and caught_up >= t.quiet * behind
            if goes_on[after - 1] or catches_up:
                yield _LateOnce(first, after, late_ticks, begun)


def _evidence(job: _Job, late: Sequence[_LateOnce], t: StragglerThresholds) -> float:
    """The log-odds, 0 or more, that a host is the last of its job in half of the exchanges."""
    hosts, is_busy = len(job.hosts), job.usual > t.busy_util
    exchanges = [
        (at, float(np.log(0.5 * hosts / (hosts - 1))))
        for at in (np.flatnonzero(is_busy[1:] & ~is_busy[:-1]) + 1).tolist()
        if not any(each.first <= at <= each.last + 1 for each in late)
    ]
    for each in late:
        odds = float(np.log(0.5 * hosts / (~each.begun).sum())) + each.late_ticks
        exchanges.append((each.first, min(odds, t.flags / 2)))
    total = 0.0
    for _, odds in sorted(exchanges):
        total = max(0.0, total + odds)
    return total


def lateness(times: int, late_s: float, period_s: float) -> str:
    """`late for 2 exchanges in 40 s, by about 2.5 s each`."""
    each = " each" if times > 1 else ""
    return (
        f"late for {plural(times, 'exchange')} in {period_s:.0f} s, by about {late_s:.1f} s{each}"
    )


def _condition(
    inputs: DetectorInput, name: str, rows: Rows, job: _Job, late: Sequence[_LateOnce]
) -> Condition:
    structure, ports = inputs.structure, inputs.structure.fabric.ports
    interval_s = inputs.snapshot.interval_s
    period_s = inputs.traffic_bps.shape[1] * interval_s
    late_s = median(np.array([each.late_ticks for each in late])) * interval_s
    level = float(np.mean([job.usual[each.first : each.last].mean() for each in late]))
    waiting = job.hosts[np.all([each.begun for each in late], axis=0)].tolist()
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=name,
        rows=tuple(rows.tolist()),
        text=(
            f"{name} was {lateness(len(late), late_s, period_s)}: the {len(waiting)} other hosts of"
            f" its job wait for it, and reach {rounded_percent(level)} of line rate on average"
            " meanwhile"
        ),
        evidence=(
            Evidence("late by", round(late_s, 1), "s"),
            Evidence("times late", len(late), f"in {period_s:.0f} s"),
            Evidence("other hosts of the job", len(waiting), "hosts"),
            Evidence("the others' traffic, of line rate", round(level * 100, 1), "%"),
        ),
        advice=CAUSE.advice,
        confidence=0.9,
        lost=round(min(1.0, len(late) * late_s / period_s), 3),
        victims=tuple(
            ports[int(structure.rails_of_hosts[each][0])].node for each in waiting[:MAX_VICTIMS]
        ),
        unseen="which hosts exchange data: it is inferred from equal traffic at the same times",
    )
