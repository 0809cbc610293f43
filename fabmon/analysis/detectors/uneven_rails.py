"""Hosts send over some of their rails only: a collective is as fast as its busiest rail.

The rails of a host carry the same bytes in every iteration of a collective, also those that are
slow: they are only later. So all bytes of a window longer than an iteration are compared. A rail
with far fewer in both halves of it is left out: by hosts that used it before or most of whose job
use it, or by all of them. A job may be started on some NICs of its hosts on purpose: half of them
or fewer is no finding.

What the other rails could carry beside the busiest one is their unused bandwidth: 1 - mean/max of
the rails of a host. What the job loses by it is not measured: it may not need more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import (
    WINDOW_TICKS,
    DetectorInput,
    has_values,
    without_nan,
)
from fabmon.analysis.evidence.rails_in_use import RailsInUse, exchanged_bps, spare_rails
from fabmon.analysis.evidence.senders_place import LastSeen
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import ModelThresholds, Seconds, Share
from fabmon.fabric.model import Fabric
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="uneven_rails",
    title="Uneven rails",
    meaning="hosts send over some of their rails only: a collective is as fast as its busiest rail",
    severity=WARNING,
    rule=(
        "In both halves of 40 ticks, model.half of them read or more, rails of a host exchange less"
        " than model.half of its busiest one, which reaches uneven_rails.busy_util; where no"
        " counter would show a queue, less than model.some. They are half of its rails at most,"
        " with uneven_rails.lost_min of the host unused, or less than model.some. The host used"
        " them for 40 ticks before, or most hosts of its job do (of half of the rails, only if they"
        " are silent); where one is left,"
        " model.several leave out the same or use theirs evenly. Or all hosts that send,"
        " model.several or more, leave out rails of the same speed behind the same spines: fewer"
        " than half, and uneven_rails.lost_min of them. A queue, what slows one of these rails"
        " anywhere, and an incast on the only busy rail explain it."
    ),
    inputs="All rails of the host",
    not_observable=(
        "Whether the job wants it so, and what it loses. A next job on fewer GPUs that begins"
        " without a pause of uneven_rails.forget_s, where jobs are not known"
    ),
    confidence=0.9,
    picture="rails",
    advice=(
        "Check which NICs NCCL uses (NCCL_DEBUG=INFO, NCCL_IB_HCA, NCCL_CROSS_NIC) and that"
        " every GPU has its own."
    ),
    tables=("uneven_rails", "model"),
    traits=(Trait.NEEDS_TRAFFIC,),
)

_QUEUES = (Trait.MAKES_QUEUES, Trait.FULL_LINK_OF_GROUP, Trait.FULL_GROUP, Trait.OF_LINK)
"""A queue or an unhealthy link on one rail slows that rail; no job leaves it out."""


class UnevenRailsThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [uneven_rails]: shares of line rate and of a host; s."""

    busy_util: Share
    lost_min: Share
    forget_s: Seconds


class _Host(NamedTuple):
    """The ports of a host that are left out, and its other rails; what the busiest of all and the
    mean one of `low` send, shares of line rate over `ticks` of the window, and the share that is
    unused.

    `is_sure`: it used a low rail before, or most hosts of its job use them.
    """

    low: list[int]
    busy: list[int]
    top: float
    low_util: float
    unused: float
    ticks: int
    is_sure: bool


class UnevenRails:
    """Compares the rails of every host."""

    def __init__(self, thresholds: UnevenRailsThresholds, model: ModelThresholds) -> None:
        t = thresholds
        self._t, self._model = t, model
        self._rails = RailsInUse(t.busy_util, model.half, t.forget_s)
        self._seen = LastSeen()

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for all hosts with two rails or more that leave out the same rails."""
        self._rails.accept(inputs)
        found: dict[tuple[int, ...], list[_Host]] = defaultdict(list)
        for rows in self._suspects(inputs):
            by_most = inputs.once(self._rails.used_by_most)
            for host in self._uneven(inputs, rows, by_most):
                found[tuple(inputs.structure.rail[host.low].tolist())].append(host)
        sure = {low: hosts for low, each in found.items() if (hosts := self._sure(inputs, each))}
        named = {low: ", ".join(f"r{rail}" for rail in low) for low in sure}
        for low, hosts in sure.items():
            rails = named[low]
            # A subject names rails, not hosts: hosts are seen one after the other.
            every = [row for each in hosts for row in (*each.low, *each.busy)]
            subject = self._seen.subject(inputs, np.array(every, np.intp), f"rails {rails}")
            # What some of these hosts left out before, others may leave out now.
            if subject in {f"rails {each}" for each in named.values()}:
                subject = f"rails {rails}"
            yield self._condition(inputs, subject, rails, hosts)

    def _suspects(self, inputs: DetectorInput) -> Iterator[Rows]:
        """[hosts, rails] of hosts that may be uneven: those of the last ticks are."""
        known, rates = np.isfinite(inputs.util("tx")[:, -1]), exchanged_bps(inputs)
        for _, rows in inputs.structure.rail_tables:
            top = rates[rows].max(axis=1, keepdims=True)
            uneven = (rates[rows] < self._model.half * top).any(axis=1) & known[rows].all(axis=1)
            if rows.shape[1] > 1 and uneven.any():
                yield rows[uneven]

    def _uneven(self, inputs: DetectorInput, rows: Rows, by_most: Mask) -> Iterator[_Host]:
        """The hosts of these [hosts, rails] that leave out rails.

        All ticks count, those of a rail that is slow as well. Utilisation is by the line rate of a
        host's fastest rail: the rails of a collective carry the same bytes, whatever their speeds.
        """
        t, half, some = self._t, self._model.half, self._model.some
        lines = np.maximum(without_nan(inputs.snapshot.line_rate_bps[rows]).max(axis=1), 1)
        # [2, ticks, hosts, rails]
        sent, received = (
            np.stack(np.split(np.moveaxis(inputs.series(of, rows, WINDOW_TICKS), -1, 0), 2))
            for of in ("tx_bps", "rx_bps")
        )
        peaks = np.fmin(*(np.fmax.reduce(each, axis=(1, 3)) for each in (sent, received))) / lines
        known = np.isfinite(sent) & np.isfinite(received)
        counts = known.sum(axis=1)
        halves = np.fmin(
            *(without_nan(each).sum(axis=1) / np.maximum(counts, 1) for each in (sent, received))
        )
        halves /= lines[:, None]
        # What was not read in a half is not known of it.
        is_read = (counts >= half * known.shape[1]).all(axis=(0, 2))
        level = halves.mean(axis=0)
        carries = level >= half * level.max(axis=1, keepdims=True)
        in_use = self._rails.in_use[rows]
        is_rail = carries | in_use | by_most[rows]
        if not is_rail.all():
            is_rail |= spare_rails(inputs, rows, carries)
        halves, level = np.where(is_rail, halves, 0), np.where(is_rail, level, 0)
        least = np.where(_show_queues(inputs)[rows], half, some)
        low = is_rail & (halves < least * halves.max(axis=2, keepdims=True)).all(axis=0)
        count, rails, top = low.sum(axis=1), is_rail.sum(axis=1), level.max(axis=1)
        silent = is_rail & (level < some * top[:, None])
        unused = 1 - level.sum(axis=1) / np.maximum(rails * top, 1e-9)
        is_enough = (unused >= t.lost_min) | (silent.sum(axis=1) == count)
        uneven = (peaks > t.busy_util).all(axis=0) & (count > 0) & (2 * count <= rails) & is_enough
        uneven &= is_read
        was_used, by_most = (in_use & low).any(axis=1), (by_most[rows] | ~low).all(axis=1)
        by_most &= (rails == 2) | (2 * count < rails) | (silent | ~low).all(axis=1)
        low_util = (level * low).sum(axis=1) / np.maximum(count, 1)
        for host in np.flatnonzero(uneven).tolist():
            yield _Host(
                low=rows[host][low[host]].tolist(),
                busy=rows[host][is_rail[host] & ~low[host]].tolist(),
                top=float(top[host]),
                low_util=float(low_util[host]),
                unused=float(unused[host]),
                ticks=int(counts[:, host].max(axis=1).sum()),
                is_sure=bool(was_used[host] or by_most[host]),
            )

    def _sure(self, inputs: DetectorInput, hosts: list[_Host]) -> list[_Host]:
        """Those of some hosts that leave out the same rails for certain."""
        t, half, several, one = self._t, self._model.half, self._model.several, hosts[0]
        rails = len(one.low) + len(one.busy)
        sure = [each for each in hosts if each.is_sure]
        if sure:
            # The only busy rail of a host may carry a single large flow, unless others leave out
            # the same, or use as many rails evenly.
            rates = exchanged_bps(inputs)
            even = _hosts_with(inputs, rates >= half * float(rates[sure[0].busy].max()), rails)
            return sure if len(one.busy) > 1 or len(sure) + even >= several else []
        # One NIC of many that nobody uses may be for something else.
        is_some = len(one.low) >= t.lost_min * rails
        are_all = len(hosts) >= max(several, _hosts_with(inputs, inputs.peak_sent > t.busy_util))
        # Jobs may be started on half of the GPUs.
        is_half = len(one.low) > 1 and len(one.low) >= len(one.busy)
        return hosts if are_all and is_some and not is_half else []

    def _condition(
        self, inputs: DetectorInput, subject: str, rails: str, hosts: list[_Host]
    ) -> Condition:
        names = [inputs.structure.fabric.ports[each.low[0]].node for each in hosts]
        shares = [(each.top, each.low_util, each.unused) for each in hosts]
        top, low_util, unused = np.mean(shares, axis=0).tolist()
        who = names[0] if len(names) == 1 else f"{len(names)} hosts ({names[0]} …)"
        sends = "sends" if len(names) == 1 else "send"
        # The senders of an incast send on one rail.
        one_rail = (Trait.ONE_RAIL,) if len(hosts[0].busy) == 1 else ()
        window_s = max(each.ticks for each in hosts) * inputs.snapshot.interval_s
        return CAUSE.condition(
            subject=subject,
            rows=[row for each in hosts for row in each.low]
            + [row for each in hosts for row in each.busy],
            text=(
                f"{who} {sends} at {rounded_percent(low_util)} of"
                f" line rate on {rails} and at {rounded_percent(top)} on the other rails over"
                f" {duration(window_s)}: unused bandwidth {rounded_percent(unused)}"
            ),
            evidence=(
                Evidence("hosts", len(names), "hosts"),
                Evidence.percent("busiest rail", top),
                Evidence.percent(rails, low_util),
                Evidence.percent("unused bandwidth", unused),
            ),
            victims=tuple(names[1:]),
            unseen="what the job loses: whether it would send more over the unused rails",
            unless=_QUEUES + one_rail,
        )


def _show_queues(inputs: DetectorInput) -> Mask:
    """[ports]: whether a queue on the way from a rail would be seen: by RDMA counters of its host,
    or at the switch before it, whose uplinks would be full. On InfiniBand only that switch counts
    that a host takes its data too slowly."""
    counts = np.append(has_values(inputs.window("tx_bps")), False)
    is_infiniband = inputs.structure.once(_are_infiniband)
    shows: Mask = (inputs.has_rdma_counters & ~is_infiniband) | counts[inputs.structure.peer]
    return shows


def _are_infiniband(fabric: Fabric) -> Mask:
    """[ports]: whether a port is one of InfiniBand: RoCE devices count waiting as well, as 0."""
    return np.array([port.kind == "infiniband" for port in fabric.ports], np.bool_)


def _hosts_with(inputs: DetectorInput, chosen: Mask, rails: int = 1) -> int:
    """The number of hosts with so many rails, or more, of those that are chosen [ports]."""
    structure = inputs.structure
    _, of_hosts = np.unique(structure.node[chosen & structure.is_rail], return_counts=True)
    return int((of_hosts >= rails).sum())
