"""Hosts send over some of their rails only: a collective is as fast as its busiest rail.

The rails of a host carry the same bytes in every iteration of a collective, also those that are
slow: they are only later. So all bytes of a window longer than an iteration are compared. A rail
with far fewer in both halves of it, or next to none, is left out: by one host, where others use it
or its job did before, or by all hosts that send. A job may be started on some NICs of its hosts on
purpose: half of them or fewer is no finding.

What the other rails could carry beside the busiest one is their unused bandwidth: 1 - mean/max of
the rails of a host. What the job loses by it is not measured: it may not need more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    WINDOW_TICKS,
    DetectorInput,
    has_values,
    without_nan,
)
from fabmon.analysis.evidence.rails_in_use import EXCHANGED, MIN_BUSY, RailsInUse
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.model import SWITCH, Fabric
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="uneven_rails",
    title="Uneven rails",
    meaning="hosts send over some of their rails only: a collective is as fast as its busiest rail",
    severity=WARNING,
    rule=(
        "Over uneven_rails.of_ticks, and in each half of them, rails of a host carry less than"
        " uneven_rails.low of its busiest one, which is above uneven_rails.busy_util in"
        " uneven_rails.ticks. They are at most half of its rails (half only if the host used them"
        " before, or they carry less than a tenth), and leave uneven_rails.lost_min of the host"
        " unused or carry less than a tenth; always that where no counter would show a queue. The"
        " host used them before, or most hosts (of its job, where known) use them, or four hosts"
        " and nine in ten that send leave them out; all receive as they send. A queue, what slows"
        " one of these rails anywhere, and an incast on the only busy rail explain it."
    ),
    inputs="All rails of the host",
    not_observable=(
        "Whether the job wants it so, and what it loses. A next job on fewer GPUs that begins"
        " without a pause, where jobs are not known"
    ),
    picture="rails",
    advice=(
        "Check which NICs NCCL uses (NCCL_DEBUG=INFO, NCCL_IB_HCA, NCCL_CROSS_NIC) and that"
        " every GPU has its own."
    ),
    tables=("uneven_rails",),
    traits=(Trait.NEEDS_TRAFFIC,),
)

_SAME_SPEED = 0.9
"""Share of the fastest rail's line rate, 0 to 1, from which on a NIC is as fast as the rails."""

_ALL = 0.9
"""Share of the hosts that send, 0 to 1, from which on a rail that they leave out is left out by
all of them."""

_QUEUES = (Trait.MAKES_QUEUES, Trait.FULL_LINK_OF_GROUP, Trait.FULL_GROUP, Trait.OF_LINK)
"""A queue or an unhealthy link on one rail slows that rail; no job leaves it out."""

_MIN_HOSTS, _SAME_RATE = 4, 0.25
"""Hosts that leave out the same rails, or that use theirs evenly at a rate within this share of
that of the one that does not: fewer may be the senders of single large flows."""

_SILENT = 0.1
"""Share of its busiest rail, 0 to 1, below which a rail of a host is left out where a queue would
not be seen: one slows a rail, and does not silence it."""

_SPARE = 2
"""NICs of a host that may serve storage beside its rails."""

_SUSPECT = 0.4
"""Share of `lost_min` over the last ticks from which on a host is examined closely."""


class UnevenRailsThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [uneven_rails]: shares of line rate, of the busiest rail; ticks.

    `of_ticks` is the window, of which 40 ticks are known, and `ticks` are those of it in which a
    host sends. `lost_min` is the least unused bandwidth that is reported, 0 to 1.
    """

    busy_util: Share
    low: Share
    ticks: Ticks
    of_ticks: Ticks
    lost_min: Share


class UnevenRails:
    """Compares the rails of every host."""

    def __init__(self, thresholds: UnevenRailsThresholds) -> None:
        self._t = thresholds
        self._rails = RailsInUse(thresholds.busy_util, thresholds.low)

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for all hosts with two rails or more that leave out the same rails."""
        self._rails.accept(inputs)
        found: dict[tuple[int, ...], list[tuple[Rows, Floats]]] = defaultdict(list)
        suspects = list(self._suspects(inputs))
        if not suspects:
            return
        by_most = self._rails.used_by_most(inputs)
        silent = np.where(_show_queues(inputs), self._t.low, min(self._t.low, _SILENT))
        for rows in suspects:
            for used, level in self._uneven(inputs, rows, by_most):
                low = used[level < silent[used] * float(level.max())]
                if len(low):
                    found[tuple(inputs.structure.rail[low].tolist())].append((used, level))
        found = {
            low: sure
            for low, hosts in found.items()
            if (sure := self._sure(inputs, low, hosts, by_most))
        }
        subjects = {low_rails: f"rails {_rail_names(low_rails)}" for low_rails in found}
        for low_rails, hosts in found.items():
            subjects[low_rails] = subject = (
                _open_subject(inputs, hosts, set(subjects.values())) or subjects[low_rails]
            )
            every = np.concatenate([rows for rows, _ in hosts])
            low = every[np.isin(inputs.structure.rail[every], low_rails)]
            were_used = bool(self._rails.ever_used[low].any())
            yield _condition(inputs, subject, low_rails, hosts, were_used)

    def _suspects(self, inputs: DetectorInput) -> Iterator[Rows]:
        """[hosts, rails] of hosts that may be uneven: all have data now, their totals differ, and
        those that were in use together do not carry the same, or many NICs carry next to nothing.
        """
        known = np.isfinite(inputs.util("tx")[:, -1])
        total = inputs.total("tx_bps")
        used = self._rails.in_use
        for _, rows in inputs.structure.rail_tables:
            if rows.shape[1] < MIN_BUSY:
                continue
            sums = total[rows]
            top = sums.max(axis=1)
            uneven = top - sums.mean(axis=1) >= _SUSPECT * self._t.lost_min * top
            # One busy NIC of many is no collective, unless the others were part of one.
            carries = (sums >= self._t.low * top[:, None]).sum(axis=1)
            uneven &= (2 * carries >= rows.shape[1] - _SPARE) | (used[rows].sum(axis=1) > carries)
            rows = rows[uneven & (top > 0) & known[rows].all(axis=1)]
            if len(rows):
                yield rows

    def _uneven(
        self, inputs: DetectorInput, rows: Rows, by_most: Mask
    ) -> Iterator[tuple[Rows, Floats]]:
        """The rails in use of the uneven ones of some hosts [hosts, rails], and their levels."""
        # The seconds of `_levels`: a NIC for storage begins to send while the rails are silent.
        sent, received = (
            without_nan(inputs.series(of, rows, WINDOW_TICKS)).mean(axis=-1)
            for of in ("tx_bps", "rx_bps")
        )
        busy = sent >= self._t.low * sent.max(axis=1, keepdims=True)
        # A NIC for storage sends checkpoints, or receives what is loaded.
        busy &= received >= EXCHANGED * sent
        used = busy | self._rails.in_use[rows]
        used |= by_most[rows]
        if not used.all():
            used |= _are_spare_rails(inputs, rows, busy)
        found: dict[int, tuple[Rows, Floats]] = {}
        for pattern in np.unique(used[used.sum(axis=1) > 1], axis=0):
            hosts = np.flatnonzero((used == pattern).all(axis=1))
            own = rows[hosts][:, pattern]
            levels, is_uneven = _levels(self._t, inputs, own)
            for place in np.flatnonzero(is_uneven).tolist():
                found[int(hosts[place])] = own[place], levels[place]
        yield from (found[host] for host in sorted(found))

    def _sure(
        self,
        inputs: DetectorInput,
        low: tuple[int, ...],
        hosts: list[tuple[Rows, Floats]],
        by_most: Mask,
    ) -> list[tuple[Rows, Floats]]:
        """Those of some hosts that leave out their rails `low` for certain: others use them, these
        hosts did, or so do all that send. The only busy rail of a host may carry a single large
        flow."""
        rail = inputs.structure.rail
        every = np.concatenate([each for each, _ in hosts])
        if not _exchange(inputs, every):
            return []
        # Jobs may be started on half of the GPUs of their hosts.
        rails = len(hosts[0][0])
        is_half = rails > MIN_BUSY and 2 * len(low) >= rails
        if not self._rails.in_use[every[np.isin(rail[every], low)]].any():
            others = [each for each in hosts if not is_half or _is_one_job(rail, low, *each)]
            left_out = [rows[np.isin(rail[rows], low)] for rows, _ in others]
            if not left_out or not by_most[np.concatenate(left_out)].all():
                sending = _sending_hosts(inputs, self._t)
                are_all = not is_half and len(hosts) >= max(_MIN_HOSTS, _ALL * sending)
                # One NIC of many that nobody uses may be for something else.
                are_all &= len(low) >= self._t.lost_min * rails
                return hosts if are_all else []
            hosts = others
        is_one = rails - len(low) < MIN_BUSY
        return hosts if not is_one or _even_hosts(inputs, hosts[0][0]) >= _MIN_HOSTS else []


def _is_one_job(rail: Rows, low: tuple[int, ...], rows: Rows, level: Floats) -> bool:
    """Whether the `low` rails of a host are all but silent: two jobs on half of its NICs each send
    at rates of their own."""
    return bool(level[np.isin(rail[rows], low)].max() < _SILENT * level.max())


def _show_queues(inputs: DetectorInput) -> Mask:
    """[ports]: whether a queue on the way from a rail would be seen: by RDMA counters of its host,
    or at the switch before it, whose uplinks would be full. On InfiniBand only that switch counts
    that a host takes its data too slowly."""
    peer = inputs.structure.peer
    counts = np.append(has_values(inputs.window("tx_bps")), False)
    is_infiniband = inputs.structure.once(_are_infiniband)
    shows: Mask = (inputs.has_rdma_counters & ~is_infiniband) | counts[peer]
    return shows


def _are_infiniband(fabric: Fabric) -> Mask:
    """[ports]: whether a port is one of InfiniBand: RoCE devices count waiting as well, as 0."""
    return np.array([port.kind == "infiniband" for port in fabric.ports], np.bool_)


def _are_spare_rails(inputs: DetectorInput, rows: Rows, busy: Mask) -> Mask:
    """[hosts, rails]: whether a NIC may be a rail though it is not in use: it is as fast as the
    fastest of its host and on the fabric of the busy ones, cabled to a leaf of theirs or to one
    with the same spines. A network for storage has switches of its own."""
    structure, lines = inputs.structure, without_nan(inputs.snapshot.line_rate_bps[rows])
    is_fast: Mask = lines >= _SAME_SPEED * lines.max(axis=1, keepdims=True)
    spines = structure.once(_neighbours)
    places = {name: place for place, name in enumerate(sorted(set().union(*spines.values())))}
    above = np.zeros((len(structure.leaves) + 1, len(places)), np.float32)
    for number, name in enumerate(structure.leaves):
        above[number, [places[spine] for spine in spines.get(name, ())]] = 1
    is_same = (above @ above.T > 0) | np.eye(len(above), dtype=np.bool_)
    is_same[NONE] = is_same[:, NONE] = False
    leaf = structure.leaf[rows]
    near = is_same[leaf[:, :, None], leaf[:, None, :]] & busy[:, None, :]
    return is_fast & near.any(axis=2)


def _neighbours(fabric: Fabric) -> dict[str, set[str]]:
    """The switches that each switch is known to be cabled to."""
    switches = {node.name for node in fabric.nodes if node.role == SWITCH}
    found: dict[str, set[str]] = defaultdict(set)
    for port in fabric.ports:
        if port.cable is not None and {port.node, port.cable.node} <= switches:
            found[port.node].add(port.cable.node)
            found[port.cable.node].add(port.node)
    return found


def _even_hosts(inputs: DetectorInput, rows: Rows) -> int:
    """The number of hosts that send as fast as a host's busiest rail, on as many of theirs."""
    rate = inputs.total("tx_bps") / TICKS
    own = float(rate[rows].max())
    return sum(
        int(((np.abs(rate[each] - own) <= _SAME_RATE * own).sum(axis=1) >= len(rows)).sum())
        for _, each in inputs.structure.rail_tables
    )


def _exchange(inputs: DetectorInput, rows: Rows) -> bool:
    """Whether some ports receive about as much as they send: hosts that exchange data with each
    other, and not with a file system."""
    sent, received = (float(inputs.filled(each)[rows].sum()) for each in ("tx_bps", "rx_bps"))
    return received >= EXCHANGED * sent


def _sending_hosts(inputs: DetectorInput, t: UnevenRailsThresholds) -> int:
    """The number of hosts one of whose rails is busy in some recent tick."""
    busy = inputs.peak_sent > t.busy_util
    return sum(int(busy[rows].any(axis=1).sum()) for _, rows in inputs.structure.rail_tables)


def _levels(t: UnevenRailsThresholds, inputs: DetectorInput, rows: Rows) -> tuple[Floats, Mask]:
    """[hosts, rails]: mean utilisation of the rails of some hosts over the window; [hosts]: whether
    some of them are low in it, and in its first and its second half.

    All ticks count, those of a rail that is slow as well: in an iteration it moves as many bytes as
    the others, only later. Utilisation is by the line rate of the host's fastest rail: the rails of
    a collective carry the same bytes, whatever their speeds.
    """
    # [ticks, rails, hosts]
    sent = np.moveaxis(inputs.series("tx_bps", rows.T, min(t.of_ticks, WINDOW_TICKS)), -1, 0)
    sent = without_nan(sent / np.fmax.reduce(inputs.snapshot.line_rate_bps[rows], axis=1))
    halves = np.array_split(sent, 2)
    levels = [part.mean(axis=0) for part in (sent, *halves)]
    low = np.all([level < t.low * level.max(axis=0) for level in levels], axis=0).sum(axis=0)
    whole = np.ascontiguousarray(levels[0].T)
    with np.errstate(invalid="ignore"):
        unused = 1.0 - (whole.mean(axis=1) / whole.max(axis=1)).astype(np.float64)
    silent = (whole < _SILENT * whole.max(axis=1, keepdims=True)).sum(axis=1)
    is_uneven = (low > 0) & (2 * low <= rows.shape[1])
    is_uneven &= (unused >= t.lost_min) | (silent == low)
    for part in halves:
        is_uneven &= 2 * (part.max(axis=1) > t.busy_util).sum(axis=0) >= t.ticks
    return whole, is_uneven


def _condition(
    inputs: DetectorInput,
    subject: str,
    low_rails: tuple[int, ...],
    hosts: list[tuple[Rows, Floats]],
    were_used: bool,
) -> Condition:
    structure = inputs.structure
    names = [structure.fabric.ports[int(rows[0])].node for rows, _ in hosts]
    every = np.concatenate([rows for rows, _ in hosts])
    is_low = np.isin(structure.rail[every], low_rails)
    low, busy = every[is_low].tolist(), every[~is_low].tolist()
    tops = np.array([level.max() for _, level in hosts])
    unused = float(np.mean(1 - np.array([level.mean() for _, level in hosts]) / tops))
    top = float(np.mean(tops))
    # A host has each of these rails once.
    low_levels = np.concatenate([level for _, level in hosts])[is_low].reshape(len(hosts), -1)
    low_util = float(np.mean(low_levels.mean(axis=1)))
    who = names[0] if len(names) == 1 else f"{len(names)} hosts ({names[0]} …)"
    rails = _rail_names(low_rails)
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=subject,
        rows=(*low, *busy),
        text=(
            f"{who} {'sends' if len(names) == 1 else 'send'} at {rounded_percent(low_util)} of"
            f" line rate on {rails} and at {rounded_percent(top)} on the other rails: unused"
            f" bandwidth {rounded_percent(unused)}"
        ),
        evidence=(
            Evidence("hosts", len(names), "hosts"),
            Evidence("busiest rail", round(top * 100, 1), "%"),
            Evidence(rails, round(low_util * 100, 1), "%"),
            Evidence("unused bandwidth", round(unused * 100, 1), "%"),
        ),
        advice=CAUSE.advice,
        confidence=0.85,
        victims=tuple(names[1:]),
        unseen="what the job loses: whether it would send more over the unused rails",
        # No queue keeps a rail silent from the start; the senders of an incast send on one rail.
        unless=(() if not were_used and low_util < _SILENT * top else _QUEUES)
        + ((Trait.ONE_RAIL,) if len(busy) == len(hosts) else ()),
    )


def _rail_names(rails: tuple[int, ...]) -> str:
    """`r2, r3`."""
    return ", ".join(f"r{rail}" for rail in rails)


def _open_subject(inputs: DetectorInput, hosts: list[tuple[Rows, Floats]], taken: set[str]) -> str:
    """The subject of an open finding about some of the same hosts, unless another condition has it
    now; empty without one. A subject names rails, not hosts: hosts are seen one after the other.
    """
    mine = set(np.concatenate([rows for rows, _ in hosts]).tolist())
    for finding in inputs.open_of(CAUSE):
        if finding.subject not in taken and mine & set(finding.rows):
            return finding.subject
    return ""
