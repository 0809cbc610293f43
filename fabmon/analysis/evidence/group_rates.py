"""How the parallel links of a group are loaded, and what the ports that feed it send."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import (
    TICKS,
    WINDOW_TICKS,
    DetectorInput,
    without_nan,
)
from fabmon.analysis.evidence.edge_queues import EdgeQueues
from fabmon.analysis.evidence.full_link import EcmpGroupThresholds
from fabmon.analysis.evidence.link_queues import link_queues
from fabmon.analysis.evidence.pause_graph import pause_graph
from fabmon.analysis.evidence.queue_signals import QueueThresholds, queue_signals
from fabmon.analysis.evidence.sharing import (
    ACCOUNTED,
    ALL_ON_IT,
    SLOWED_BELOW,
    SLOWED_BELOW_TCP,
    Sharers,
    sharing,
)
from fabmon.analysis.fabric_structure import NONE, LinkGroup, Mask
from fabmon.analysis.median import medians
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import NodeState

_BIG, _LEAST = 0.1, 0.01
"""Share of what the largest sender sends, and of line rate, 0 to 1, above which a port takes part
in sharing a group: less is not limited by the group, and is subtracted from its capacity."""

_KNOWN_FEEDERS = 0.5
"""Share of what a group carries, 0 to 1, that the ports that feed it must bring for them to be
known."""

_HELD = 0.5
"""Share of the fastest sender's rate, 0 to 1, from which on the link holds a sender that shares it:
slower ones are held elsewhere, or have less to send."""

_SLOWER = 1.02
"""Ports that never send more than this many times the line rate of slower ones may wait for
them."""

_DROPPED = 0.05
"""Share of a link's load, 0 to 1, above which what enters a switch and does not leave it was
dropped: clocks and counters differ by less."""

_NOT_READ = (NodeState.STALE, NodeState.LOST, NodeState.FAILED)


class GroupRates:
    """The loads of one group over the last WINDOW_TICKS, oldest first.

    `bps`, `util` and `known_util` are [members, WINDOW_TICKS], bits/s and shares of line rate, NaN
    (`known_util`: 0) where not known; `is_up` and `capacity_bps` are [members]. `full_util` is the
    share of line rate from which on a member is full, `slowed_below` that of what a port could send
    below which it is slowed. `queues` are the signs of a queue at the hosts, `has_queue`,
    `queue_ticks` and `has_no_queue` [members] say what is known of their own queues (LinkQueues);
    `waits` [members] is whether a member is paused, or without credits, so much that what it waits
    for is behind it, `holds_up` [members] of links into a switch whether the switch before it makes
    others wait, and waits for none, where no host handles CNPs: the queue is at that switch, and
    no receiver shows it.
    """

    def __init__(
        self,
        inputs: DetectorInput,
        t: EcmpGroupThresholds,
        queue: QueueThresholds,
        group: LinkGroup,
    ) -> None:
        self.inputs = inputs
        self.thresholds = t
        self.queues = EdgeQueues(inputs, queue, group)
        self.group = group
        lines = inputs.snapshot.line_rate_bps
        self.bps = np.ascontiguousarray(inputs.leaving(group.rows, WINDOW_TICKS))
        self.capacity_bps = lines[group.rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            self.util: Floats = self.bps / self.capacity_bps[:, None]
        is_up = np.isfinite(self.util[:, -TICKS:]).any(axis=1)
        is_up &= inputs.snapshot.up[group.rows] != 0
        self.util[~is_up] = np.nan
        self.known_util: Floats = without_nan(self.util)
        self.is_up = is_up
        # Of a switch that no host is cabled to, the traffic is of all hosts.
        rails = group.hosts if len(group.hosts) else np.flatnonzero(inputs.structure.is_rail)
        self._counts_rdma = bool(inputs.has_rdma_counters[rails].any())
        is_rdma = self._counts_rdma or not len(rails)
        self.full_util = t.full_util if is_rdma else t.full_util_tcp
        self.slowed_below = SLOWED_BELOW if is_rdma else SLOWED_BELOW_TCP
        self.members = int(is_up.sum())
        own = link_queues(inputs, queue)
        self.has_queue = own.queued[group.rows]
        self.queue_ticks = own.ticks[group.rows]
        self.has_no_queue = own.has_none[group.rows]
        self.waits = queue_signals(inputs, queue).waiting[group.rows] >= queue.waiting
        self.holds_up: Mask = np.zeros(len(group.rows), np.bool_)
        if group.is_inward and not inputs.total("cnp").any():
            roots = list(pause_graph(inputs).roots)
            self.holds_up = np.isin(inputs.structure.node[group.rows], roots)

    def load(self, member: int, ticks: Mask) -> Floats:
        """[ticks that count]: bits/s on a member; 0 where it is not known."""
        load: Floats = np.fmax(self.bps[member][ticks], np.float32(0))
        return load

    def level(self, ticks: Mask) -> Floats:
        """[members]: mean utilisation in some ticks, NaN where it is not known in any."""
        known = np.isfinite(self.util) & ticks
        with np.errstate(invalid="ignore"):
            level: Floats = np.where(known, self.util, 0).sum(axis=1) / known.sum(axis=1)
        return level.astype(np.float32, copy=False)

    def carried(self, ticks: Mask) -> float:
        """Bits/s on all members in some ticks."""
        return float(np.fmax(self.bps[:, ticks], 0).mean(axis=1).sum())

    def are_known(self, feeds: Floats) -> bool:
        """Whether the ports that feed the group account for what it carries."""
        carried = float(without_nan(self.bps[:, -TICKS:]).sum())
        return float(feeds[:, -TICKS:].sum()) >= _KNOWN_FEEDERS * carried

    def may_be_known_soon(self) -> bool:
        """Whether what feeds the group is not known yet: its switch has no rates so far, or was
        first read after the other ends of the links, whose counters say what these carry."""
        fed = np.isfinite(self._fed(TICKS)).any(axis=0)
        if not fed.any():
            switch = self.inputs.snapshot.statuses.get(self.group.node)
            return (
                len(self.group.edges) > 0 and switch is not None and switch.state not in _NOT_READ
            )
        carried = np.isfinite(self.bps[:, -TICKS:]).any(axis=0)
        return int(fed.argmax()) > int(carried.argmax())

    def _fed(self, ticks: int) -> Floats:
        """[edges, ticks] bits/s that the switch's other ports bring or take; NaN: not known."""
        of = self.inputs.leaving if self.group.is_inward else self.inputs.entering
        return of(self.group.edges, ticks)

    def feeders(self) -> tuple[Floats, Floats]:
        """[edges, ticks] bits/s that the switch's other ports bring to the group (or take from it,
        for links into a switch), and what they can send [edges], bits/s: their line rates, or that
        of slower NICs that they may wait for; 0 where not known."""
        inputs = self.inputs
        feeds = np.ascontiguousarray(without_nan(self._fed(WINDOW_TICKS)))
        lines = without_nan(inputs.snapshot.line_rate_bps[self.group.edges])
        most = feeds.max(axis=1)
        for slower in inputs.once(_speeds_in_full_use):
            lines = np.where(most <= _SLOWER * slower, np.fmin(lines, slower), lines)
        return feeds, lines

    def shares(self, feeds: Floats, lines: Floats, carried: float) -> tuple[Floats, Floats, Mask]:
        """[edges] bits/s that a port sends in the ticks of `feeds`, in which the group carries so
        many, and that it could send: the smaller of its line rate and its fair share of the group;
        0 for ports that send next to nothing. And whether it is slowed, most of the time."""
        rate: Floats = feeds.mean(axis=1)
        is_big = takes_part(rate, lines)
        fair = self.fair_share(rate, is_big, carried)
        possible: Floats = np.where(is_big, np.fmin(lines, fair), 0)
        mostly = np.fmax(rate, medians(feeds.T))
        return rate, possible, (possible > 0) & (mostly < self.slowed_below * possible)

    def sharers(
        self,
        member: int,
        sent: Floats,
        slowed: Mask,
        load: Floats,
        full_links: int = 1,
        most: float = ALL_ON_IT,
    ) -> Sharers:
        """Which of the slowed edge ports share a member: as `sharing`; of the ports whose traffic
        forwarding tables send over it, where those of them that are slowed account for its load."""
        are_on_it = False
        known = self.inputs.snapshot.connections.known_on_link(int(self.group.rows[member]))
        if known is not None:
            nic = self.inputs.structure.peer[self.group.edges[slowed]]
            if np.append(self.inputs.structure.is_rail, False)[nic].all():
                on_it = slowed.copy()
                on_it[slowed] = np.isin(nic, known.dst if self.group.is_inward else known.src)
                brought = float(sent[on_it].sum(axis=0).mean())
                if on_it.sum() >= 2 and brought >= ACCOUNTED * float(load.mean()):
                    slowed, are_on_it = on_it, known.are_connections
        return sharing(sent, slowed, load, self.queues.signs, full_links, most, are_on_it)

    def held(self, rate: Floats, sharers: Mask) -> Mask:
        """[edges]: which of the ports that share a link are slowed by it: flows that have less than
        others on it have no more to send, or are slowed elsewhere. What comes from other switches
        may be of fewer hosts: what waits is slowed."""
        held: Mask = rate >= _HELD * rate[sharers].max(initial=0)
        if not len(self.group.hosts):
            held |= self.queues.wait_much()
        return held & sharers

    def fair_share(self, rate: Floats, wants_more: Mask, carried: float) -> np.float32:
        """Bits/s that each port that wants more could send, where a group carries so many."""
        capacity = float(np.nansum(self.capacity_bps[self.is_up]))
        return max_min_share(capacity, rate, wants_more, self.crossing(rate, carried))

    def could_send(
        self, rate: Floats, lines: Floats, sharers: Mask, ticks: Mask, active: float = 1.0
    ) -> Floats:
        """[edges] bits/s that ports could send if the flows of those that share a full link were
        on all links: ports that send much less than these have no more to send at the time. Rates
        are those in some ticks, over the share of time with traffic.

        What comes from other switches is of many hosts: it could be as many times more as these
        could send, up to line rate and to what others leave of the group.
        """
        carried = self.carried(ticks) / active
        wants_more = rate >= _HELD * rate[sharers].max(initial=0)
        could: Floats = np.fmin(lines, self.fair_share(rate, wants_more, carried))
        util = self._util_of_hosts_behind(ticks) / active
        known = np.isfinite(util)
        if known.any():
            wanted = np.fmin(np.where(known, rate / np.fmin(util, 1), could), lines)
            others = max(0.0, carried - float(rate[sharers].sum()))
            left = float(np.nansum(self.capacity_bps[self.is_up])) - others
            could = wanted * np.float32(min(1.0, left / max(float(wanted[sharers].sum()), 1.0)))
        return could

    def _util_of_hosts_behind(self, ticks: Mask) -> Floats:
        """[edges]: the share of their line rates that the hosts send in some ticks which send
        through the switch behind an edge port; NaN where there is none, or it has no hosts, or
        these send much to each other."""
        structure = self.inputs.structure
        util = np.full(len(self.group.edges), np.nan, np.float32)
        if self.group.is_inward or len(self.group.hosts):
            return util
        peer = structure.peer[self.group.edges]
        for node in np.unique(structure.node[peer[peer != NONE]]).tolist():
            hosts = structure.edges_of.get(node, peer[:0])
            sent = without_nan(self.inputs.entering(hosts, WINDOW_TICKS)[:, ticks]).mean(axis=1)
            lines = without_nan(self.inputs.snapshot.line_rate_bps[hosts])
            sends = takes_part(sent, lines)
            away = structure.uplinks_of.get(node, peer[:0])
            left = without_nan(self.inputs.leaving(away, WINDOW_TICKS)[:, ticks]).mean(axis=1)
            if sends.any() and sent.sum() <= left.sum() / ACCOUNTED:
                at = (peer != NONE) & (structure.node[peer] == node)
                util[at] = sent[sends].sum() / lines[sends].sum()
        return util

    def crossing(self, rate: Floats, carried: float) -> float:
        """The share of what ports send that goes over the group, which carries so many bits/s:
        traffic between two ports of the same switch does not."""
        return min(1.0, carried / max(float(rate.sum()), 1.0))

    def dropped_bps(self, ticks: Mask, load: float) -> float:
        """Bits/s that enter the switch of the group and do not leave it, where that is more than
        counters differ by; 0 for links into a switch, whose drops are at other switches, and of
        RDMA, which loses none. Senders that do not slow down (UDP) lose them."""
        if self.group.is_inward or self._counts_rdma:
            return 0.0
        structure = self.inputs.structure
        own = np.flatnonzero(structure.node == structure.node[self.group.rows[0]])
        enters, leaves = (
            float(without_nan(of(own, WINDOW_TICKS)[:, ticks]).mean(axis=1).sum())
            for of in (self.inputs.entering, self.inputs.leaving)
        )
        return enters - leaves if enters - leaves > _DROPPED * load else 0.0


def rates_of_group(
    inputs: DetectorInput, t: EcmpGroupThresholds, queue: QueueThresholds, place: int
) -> GroupRates:
    """The rates of the group at a place in `structure.groups`, computed once a tick."""
    return inputs.once(_rates_of_group, t, queue, place)


def _rates_of_group(
    inputs: DetectorInput, t: EcmpGroupThresholds, queue: QueueThresholds, place: int
) -> GroupRates:
    return GroupRates(inputs, t, queue, inputs.structure.groups[place])


def max_min_share(
    capacity_bps: float, rate: Floats, wants_more: Mask, crosses: float
) -> np.float32:
    """Bits/s that each port that wants more could send, if this share of what ports send crosses a
    group: a port that wants no more than its `rate` [ports] leaves the rest to the others.

    Max-min fairness: the level at which the group is full, and the highest over how many of the
    others are below it.
    """
    others = np.sort(rate[~wants_more]).astype(np.float64) * crosses
    left = capacity_bps - np.append(0, np.cumsum(others))
    ports = crosses * (int(wants_more.sum()) + np.arange(len(others), -1, -1))
    return np.float32(max(float((left / np.fmax(ports, 1e-9)).max()), 0.0))


def lost_share(
    rate: Floats, possible: Floats, held: Mask, util: float, dropped_bps: float = 0.0
) -> float:
    """1 - achieved / possible of the ports that a link at its utilisation holds, 0 to 1. No link
    carries more than the full one: 93 to 99 % of its line rate."""
    achieved = max(0.0, float(rate[held].sum()) - dropped_bps)
    return max(0.0, 1.0 - achieved / (min(1.0, util) * float(possible[held].sum())))


def _speeds_in_full_use(inputs: DetectorInput) -> tuple[np.float32, ...]:
    """The line rates, bits/s, highest first, at which some rail sends or receives, where not all
    rails are as fast."""
    rail, lines = inputs.structure.is_rail, inputs.snapshot.line_rate_bps
    known = lines[rail & np.isfinite(lines)]
    if not len(known) or known.min() == known.max():
        return ()
    used = np.fmax(inputs.sent, inputs.received_filled).max(axis=1)
    return tuple(np.unique(lines[rail & (used >= SLOWED_BELOW)])[::-1])


def takes_part(rate: Floats, lines: Floats) -> Mask:
    """[ports]: whether a port sends enough to be limited by the links that it shares."""
    big: Mask = (rate > _BIG * rate.max(initial=0)) & (rate > _LEAST * lines) & (lines > 0)
    return big
