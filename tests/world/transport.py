"""How transports react to a full link: what each flow gets, and the marks, pauses and drops.

Rates converge within milliseconds, so between two events the fabric is in equilibrium:

- RoCE with DCQCN: senders share a full link equally. Its queue stays between Kmin and Kmax, at the
  depth whose marking probability balances the decreases with the increases: it grows with the
  number of flows as N^(2/3) (Zhu et al., "ECN or Delay", CoNEXT'16: p ~ (N^2 (1/B + N/TC)^2)^(1/3),
  between N^(2/3) and N^(4/3)). With many flows the queue oscillates above XOFF, and the switch
  pauses the ports that feed it for a share of the time.
- RoCE with PFC alone, and InfiniBand: the queue is full. The ports that feed it are paused (have no
  credits) for as much of the time as their rate is below line rate, all their flows equally: the
  pause spreads to the ports that feed those.
- TCP: drops at the full link; nothing is paused, and nobody waits behind another's queue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.world.flows import NO_LINK, Entries, FlowTable, Mask, fair_rates, sums
from tests.world.topology import Floats, Ints, Topology

ROCE, INFINIBAND, TCP = "roce", "infiniband", "tcp"

PACKET_BYTES = 4178.0
TCP_PACKET_BYTES = 1518.0
CNP_INTERVAL_S = 50e-6
"""The least time between two CNPs of one flow (default of mlx5: 50 us... per QP)."""

_SLOWED = 0.97
OVERLOADED = 1.03
"""Demand over capacity from which on a link is overloaded."""


@dataclass(frozen=True)
class Settings:
    """How a fabric's transport is configured, and how busy its links get when nothing is wrong."""

    transport: str = ROCE
    dcqcn: bool = True
    marks_of_two: float = 0.15
    """Share of packets marked at a link that two flows fill."""
    background: float = 0.0
    """Share of packets marked (RoCE), of time in xmit_wait (InfiniBand) or retransmitted (TCP) on
    every loaded path of a healthy fabric."""
    background_pause: float = 0.0
    overtaken: float = 0.0
    """Share of the packets of sprayed flows that arrive late and are taken for lost."""
    train_packets: float = 80.0
    """Packets of the background that are marked in a row: they make one CNP."""
    saturation: float = 0.98
    """What a NIC sends at most, as a share of line rate."""
    unstable_from: int = 12
    """DCQCN flows at one link above which its queue exceeds XOFF at times."""
    hol: float = 0.7
    """Share of head-of-line blocking: 0 with ideal virtual output queues, 1 with one FIFO."""


@dataclass
class State:
    """An equilibrium, for the active groups of `entries`. Per flow arrays are [all flows], per link
    arrays [links]."""

    entries: Entries
    rate: Floats
    """[active groups] bytes/s of each of their flows."""
    flow_rate: Floats
    flow_cap: Floats
    """What each flow could send: its share of its NIC."""
    slowed: Mask
    """Flows that a full link holds below that."""
    limit: Ints
    """[flows] the link that limits each flow."""
    load: Floats
    load_rdma: Floats
    offered: Floats
    """Bytes/s that would arrive at each link if it had room."""
    full: Mask
    queued: Mask
    """Full links with a queue of their own: the first full link on the path of some flow. What one
    full link lets through arrives at the next as fast as that can carry it, and finds no queue."""
    paused: Floats
    """Share of time in which the port that sends into a link is paused."""
    marking: Floats
    dropping: Floats
    flow_marked: Floats
    """Share of each flow's packets that arrive marked, without the background."""
    senders: Ints
    """[links] sending NICs of slowed flows at each full link."""
    queued_senders: Ints
    """[links] those of flows for which it is the first full link on their path."""
    src: Ints
    dst: Ints


class Transport:
    """Computes equilibria on one topology."""

    def __init__(self, topology: Topology, settings: Settings, seed: int) -> None:
        self.topology = topology
        self.settings = settings
        rng = np.random.default_rng(seed)
        ports, links = topology.ports, topology.links
        self.speed = np.concatenate(
            [topology.speed, np.tile(topology.speed[: topology.host_ports], 2)]
        )
        """[links] line rate as negotiated."""
        self.service = np.ones(links)
        """[links] share of line rate that a link can carry."""
        self.is_nic = np.zeros(links, np.bool_)
        self.is_nic[: topology.host_ports] = True
        self.service[self.is_nic] = np.clip(
            rng.normal(settings.saturation, 0.002, topology.host_ports), 0.9, 0.995
        )
        self.service[ports:] = 1.2
        if settings.transport == TCP:
            self.service[: topology.host_ports] *= 0.985
        self.loss = np.zeros(links)
        """[links] share of packets lost to damage."""
        self.host_factor = np.ones(links)
        """[links] faults: what is left of the service of a source or sink."""
        self.forced_pause = np.zeros(links)
        """[links] share of time paused whatever arrives."""
        self.is_down = np.zeros(links, np.bool_)
        self._role = np.full(links, -1)
        self._role[:ports] = topology.role
        self._is_last_hop = np.zeros(links, np.bool_)
        nics = np.arange(topology.host_ports)
        self._is_last_hop[topology.peer[nics]] = True

    def capacity(self) -> Floats:
        """[links] bytes/s."""
        return self.speed * self.service * self.host_factor

    def equilibrium(self, table: FlowTable) -> State:
        """The rates and queues of the active groups."""
        settings = self.settings
        entries = Entries.of(table)
        capacity = self.capacity()
        cap, weight = table.cap[entries.groups], table.weight[entries.groups]
        cap = np.minimum(cap, self._lossy_cap(entries, len(entries.groups)))
        rate, limit, tied = fair_rates(entries, capacity, cap, weight)
        state = self._state(table, entries, capacity, cap, rate, limit, tied)
        is_lossless = settings.transport != TCP
        if is_lossless and (not settings.dcqcn or self._blocked(state, capacity)):
            for _ in range(2):
                tighter = self._victims(state, capacity, cap)
                if tighter is None:
                    break
                cap = tighter
                rate, limit, tied = fair_rates(entries, capacity, cap, weight)
                full, senders, offered = state.full, state.senders, state.offered
                queued, queued_senders = state.queued, state.queued_senders
                wanted = state.flow_cap
                state = self._state(table, entries, capacity, cap, rate, limit, tied)
                # The queue that holds up the others is still the one that was full.
                state.full |= full
                state.queued |= queued
                state.queued_senders = np.maximum(queued_senders, state.queued_senders)
                state.senders = np.maximum(senders, state.senders)
                state.offered = np.maximum(offered, state.offered)
                state.flow_cap = np.maximum(wanted, state.flow_cap)
        self._marks(state, table)
        self._pauses(state, capacity, table)
        return state

    def _blocked(self, state: State, capacity: Floats) -> bool:
        """Whether some link that has arrivals carries nothing: DCQCN cannot keep that from
        spreading."""
        return bool((state.full & self._dead(capacity)).any())

    def _dead(self, capacity: Floats) -> Mask:
        """[links] links that carry next to nothing."""
        return capacity < 0.02 * self.speed

    def _lossy_cap(self, entries: Entries, groups: int) -> Floats:
        """[active groups] go-back-N: after a loss a window is sent again."""
        lost = self.loss[entries.link] * entries.share
        if not lost.any():
            return np.full(groups, np.inf)
        window = 300.0 if self.settings.transport != TCP else 60.0
        each = self.speed[entries.link] / (1 + lost * window)
        each[lost == 0] = np.inf
        return np.minimum.reduceat(each, entries.group_starts)

    def _state(
        self,
        table: FlowTable,
        entries: Entries,
        capacity: Floats,
        cap: Floats,
        rate: Floats,
        limit: Ints,
        tied: Mask,
    ) -> State:
        links, flows = self.topology.links, len(table.group)
        group_rate = np.zeros(len(table.active))
        group_rate[entries.groups] = rate
        group_limit = np.full(len(table.active), NO_LINK, np.intp)
        group_limit[entries.groups] = limit
        group_cap = np.full(len(table.active), np.inf)
        group_cap[entries.groups] = cap
        active = table.active[table.group]
        flow_rate = np.where(active, group_rate[table.group], 0.0)
        flow_limit = np.where(active, group_limit[table.group], NO_LINK)
        # What a flow could send: its part of its NIC, as far as its group's program wants.
        inside = active & (table.src >= 0)
        per_nic = np.bincount(table.src[inside], minlength=max(1, self.topology.host_ports))
        flow_cap = np.where(active, group_cap[table.group], 0.0)
        src = np.maximum(table.src, 0)
        share = capacity[src] / np.maximum(1, per_nic[src])
        flow_cap = np.where(inside, np.minimum(flow_cap, share), np.minimum(flow_cap, 1e12))
        e_rate = flow_rate[entries.flow] * entries.share
        load = sums(entries.link, e_rate, links)
        rdma = sums(entries.link, e_rate * ~table.tcp[entries.flow], links)
        held = tied
        wants = np.where(
            held & ~self.is_nic[entries.link], flow_cap[entries.flow], flow_rate[entries.flow]
        )
        offered = sums(entries.link, wants * entries.share, links)
        full = (offered > OVERLOADED * capacity) & (load > 0.98 * capacity)
        full &= ~self.is_nic & ~self.is_down
        # Not the memory side of a sender.
        full[self.topology.ports + self.topology.host_ports :] = False
        held_by_full = np.zeros(flows, np.bool_)
        held_by_full[entries.flow[held & full[entries.link]]] = True
        slowed = active & held_by_full & (flow_rate < _SLOWED * flow_cap)
        at = np.flatnonzero(slowed[entries.flow] & full[entries.link] & held)
        first = np.full(flows, len(entries.link), np.intp)
        np.minimum.at(first, entries.flow[at], entries.depth[at])
        own = at[entries.depth[at] == first[entries.flow[at]]]
        senders = self._senders(table, entries, at)
        queued = np.zeros(links, np.bool_)
        queued[entries.link[own]] = True
        # All that arrives at a dead link waits there.
        queued |= full & self._dead(capacity)
        nothing = np.zeros(links)
        return State(
            entries,
            rate,
            flow_rate,
            flow_cap,
            slowed,
            flow_limit,
            load,
            rdma,
            offered,
            full,
            queued,
            nothing,
            nothing,
            nothing,
            np.zeros(flows),
            senders,
            senders if len(own) == len(at) else self._senders(table, entries, own),
            table.src,
            table.dst,
        )

    def _senders(self, table: FlowTable, entries: Entries, at: Ints) -> Ints:
        """[links] the sending NICs of these entries; all outside of the fabric are one."""
        if not len(at):
            return np.zeros(self.topology.links, np.intp)
        ports = self.topology.host_ports + 1
        pairs = np.unique(entries.link[at] * ports + table.src[entries.flow[at]] + 1)
        return np.bincount(pairs // ports, minlength=self.topology.links)

    def _marks(self, state: State, table: FlowTable) -> None:
        settings, entries = self.settings, state.entries
        links = self.topology.links
        marking = np.zeros(links)
        dropping = np.zeros(links)
        if not state.queued.any():
            state.marking, state.dropping = marking, dropping
            return
        full_at = state.queued.copy()
        # A receiver that does not drain pauses the last hop, whose queue then marks.
        sinks = np.flatnonzero(state.queued[self.topology.ports :]) % self.topology.host_ports
        full_at[self.topology.peer[sinks]] = True
        held = state.slowed[entries.flow] & full_at[entries.link]
        flows = np.bincount(entries.link[held], minlength=links)
        if settings.transport == ROCE and settings.dcqcn:
            many = np.maximum(flows, 2) / 2
            marking = np.where(
                full_at, np.minimum(0.9, settings.marks_of_two * many ** (2 / 3)), 0.0
            )
        if settings.transport == TCP:
            dropping = np.where(
                full_at,
                np.minimum(0.03, 0.001 * np.maximum(flows, 1) ** 0.5 + settings.background / 4),
                0,
            )
        state.marking, state.dropping = marking, dropping
        if marking.any():
            p = marking[entries.link] * entries.share
            passed = np.bincount(entries.flow, np.log1p(-np.minimum(p, 0.99)), len(table.group))
            state.flow_marked = np.where(table.tcp, 0.0, 1 - np.exp(passed))

    def _pauses(self, state: State, capacity: Floats, table: FlowTable) -> None:
        settings, entries, topology = self.settings, state.entries, self.topology
        paused = np.zeros(topology.links)
        if settings.transport == TCP:
            state.paused = paused
            return
        forced = np.where(self.forced_pause > 0, self.forced_pause, 0.0)
        if not state.queued.any():
            state.paused = forced
            return
        queue = np.where(state.queued, 1.0, 0.0)
        if settings.dcqcn and settings.transport == ROCE:
            held = state.slowed[entries.flow] & state.queued[entries.link]
            flows = np.bincount(entries.link[held], minlength=topology.links)
            over = np.clip((flows - settings.unstable_from) / 40, 0.0, 0.5)
            queue = np.where(state.queued, over, 0.0)
        sink_full = state.queued.copy()
        sink_full[: topology.ports] = False
        queue[sink_full] = 1.0
        dead = state.queued & self._dead(capacity)
        queue[dead] = 1.0
        dead_spreads = dead.copy()
        inside = (entries.before >= 0) & (entries.before < topology.ports)
        rdma = ~table.tcp[entries.flow] & inside
        wants = state.flow_rate[entries.flow] < _SLOWED * state.flow_cap[entries.flow]
        for _ in range(4):
            at = rdma & (queue[entries.link] > 0.02) & wants
            if not at.any():
                break
            before = entries.before[at]
            share = queue[entries.link[at]] * (
                1 - np.minimum(1.0, state.load[before] / (self.speed * self.host_factor)[before])
            )
            was = paused.copy()
            np.maximum.at(paused, before, share)
            grown = paused > was + 0.02
            if not grown.any():
                break
            spread = 1.0 if not settings.dcqcn or settings.transport == INFINIBAND else 0.0
            from_dead = np.zeros(topology.links, np.bool_)
            from_dead[before[dead_spreads[entries.link[at]]]] = True
            dead_spreads |= from_dead
            queue = np.where(grown, np.where(dead_spreads, 1.0, spread * paused), 0.0)
            # A paused NIC keeps its data in memory: nobody is paused by it.
            queue[self.is_nic] = 0.0
        state.paused = np.maximum(paused, forced)

    def _victims(self, state: State, capacity: Floats, cap: Floats) -> Floats | None:
        """[active groups] tighter caps of the flows that wait behind others' full queue; None
        when there are none."""
        entries, settings, ports = state.entries, self.settings, self.topology.ports
        links = self.topology.links
        inside = (entries.before >= 0) & (entries.before < ports)
        into = state.queued[entries.link] & inside & state.slowed[entries.flow]
        if not into.any():
            return None
        scale = np.ones(links)
        ratio = state.flow_rate[entries.flow[into]] / np.maximum(
            1.0, state.flow_cap[entries.flow[into]]
        )
        np.minimum.at(scale, entries.before[into], ratio)
        factor = 1 - settings.hol * (1 - scale)
        dead = state.queued & self._dead(capacity)
        # What cannot move fills every queue that it has passed.
        stuck = np.zeros(len(state.slowed), np.bool_)
        stuck[entries.flow[into & dead[entries.link]]] = True
        passed = stuck[entries.flow] & (entries.link < ports) & ~dead[entries.link]
        factor[entries.link[passed]] = 0.0005
        behind = (factor[entries.link] < 0.98) & ~state.slowed[entries.flow]
        if not behind.any():
            return None
        limits = np.full(len(entries.groups), np.inf)
        wanted = (
            np.minimum(state.flow_cap, 1e12)[entries.flow[behind]] * factor[entries.link[behind]]
        )
        np.minimum.at(limits, entries.group[behind], wanted)
        tighter = np.minimum(cap, limits)
        return tighter if (tighter < cap * 0.999).any() else None
