"""Rates, queues that mark, and pause that spreads, in a steady state of the fabric.

Between two events nothing changes, so one `Regime` describes that time, as rates per second:

1. Every group moves at its max-min fair rate (the rate that DCQCN or credits settle at).
2. A switch port with more offered load than capacity has a queue. It marks packets (ECN); the
   receiver answers with CNPs, at most one in 50 us, which slow the sender.
3. While the queue oscillates, and always where nothing is marked, the switch pauses the senders for
   part of the time, upstream hop by hop, less at each hop. A slow receiver pauses its leaf; that
   spreads further, since the leaf cannot send at all meanwhile. InfiniBand has no pause frames: the
   same share of time is spent waiting for credits.
4. A link that is paused for part of the time carries less, also for flows that cause no congestion
   (victims).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.demo.fabric_state import FabricState
from fabmon.feeds.demo.flows import Flows
from fabmon.feeds.demo.hardware import Hardware
from fabmon.feeds.demo.routing import FlowPaths, Router

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_SLACK = 1e-9

NOISE_PERIODS_S = (3.7, 6.1, 13.3)
"""Each flow of a noisy group varies with a random share of each of these."""


def sums(place: Indices, values: Floats, size: int) -> Floats:
    """[size]: the sum of the values of each place."""
    return np.bincount(place, values, size).astype(np.float64, copy=False)


def fair_rates(
    capacity: Floats, link: Indices, group: Indices, weight: Floats, demand: Floats
) -> Floats:
    """Max-min fair rates [groups] by progressive filling: no rate above its demand, no link above
    its capacity.

    All flows of a group move in step, as in a synchronous collective. A group that loads a link
    with `weight` w uses w times its rate there; a single flow is a group that loads each link of
    its path with 1.

    `capacity` is [links], `demand` [groups], in the same unit; `link`, `group` and `weight` list
    the load of each group on each link. Every demand must be finite.

    A link whose share is the smallest on the path of every group that crosses it fills first for
    all of them, so all such links are filled at once: a few rounds instead of one per link.
    """
    rate = np.zeros(len(demand))
    live = np.ones(len(demand), np.bool_)
    left = capacity.astype(np.float64)
    while live.any():
        load = sums(link, weight, len(capacity))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(load > 0, np.maximum(left, 0.0) / load, np.inf)
        on_link = share[link]
        least = demand.copy()
        np.minimum.at(least, group, on_link)
        elsewhere = least[group] < on_link * (1 - _SLACK)
        waits = np.zeros(len(capacity), np.bool_)
        waits[link[elsewhere]] = True
        freeze = live & (demand <= least * (1 + _SLACK))
        freeze[group[~waits[link]]] = True
        rate[freeze] = least[freeze]
        gone = freeze[group]
        left -= sums(link[gone], weight[gone] * rate[group[gone]], len(capacity))
        live &= ~freeze
        link, group, weight = link[~gone], group[~gone], weight[~gone]
    return rate


PACKET_BYTES = 4150
"""Bytes of a RoCE packet with the largest payload and its headers."""

_MARKED_AT_MOST = 0.05
_MARKED_AT_LEAST = 0.005
_CNP_PER_S = 20_000.0
_SPREADS_MARKED, _SPREADS_LOSSLESS, _SPREADS_PAUSED = 0.06, 0.4, 0.35
"""Share of an excess, or of a pause, for which the next hop upstream is paused."""

_OFFERED_ABOVE, _FULL = 1.02, 0.97
_STALLED_PERCENT = 70.0


@dataclass(frozen=True, slots=True)
class Regime:
    """Rates per second. `rate` [groups]: bytes per NIC of the group; `load` [ports]: bytes sent.

    `pause` [ports] is the share of time in which the port is paused. The others are [nics]: marked
    packets received, CNPs sent and handled, packets out of order, retransmitted packets, and the
    percent of time in which PCIe stalls.

    `noise` [len(NOISE_PERIODS_S), ports] is how much `load` varies with each period, and `limit`
    [ports] is what a port can send; None where no flow varies.
    """

    rate: Floats
    load: Floats
    pause: Floats
    marked: Floats
    cnp_sent: Floats
    cnp_handled: Floats
    out_of_order: Floats
    sent_again: Floats
    stalled: Floats
    noise: Floats | None
    limit: Floats

    def load_at(self, now_s: float) -> Floats:
        """[ports]: bytes sent per second at this time."""
        if self.noise is None:
            return self.load
        turns = 2 * np.pi * (now_s / np.array(NOISE_PERIODS_S) + np.arange(len(NOISE_PERIODS_S)))
        varied: Floats = self.load + np.sqrt(2 / len(turns)) * np.sin(turns) @ self.noise
        return np.clip(varied, 0.0, self.limit)


class RoutedTraffic:
    """All flows of an epoch (a time without changes in the fabric's state), routed.

    `wants` [groups] is the share of line rate that a NIC of the group can send, or, where
    `absolute`, the rate itself. `noise` [groups] is the relative variation of the rate of a flow
    over time.
    """

    def __init__(
        self,
        hardware: Hardware,
        router: Router,
        conditions: FabricState,
        flows: Flows,
        wants: Floats,
        absolute: NDArray[np.bool_],
        noise: Floats,
    ) -> None:
        self._hardware, self._c, self._flows = hardware, conditions, flows
        self._paths: FlowPaths = router.route(flows, conditions.rules)
        self._void, self._dead = router.void, router.dead
        self._group = flows.group[self._paths.flow]
        self._groups = len(wants)
        self.demand = self._demand(wants, absolute)
        self._capacity = self._capacities()
        used = self._paths.links.ravel()
        size = hardware.ports + 2
        cells = np.repeat(self._group, 4) * size + used
        keys, places = np.unique(cells, return_inverse=True)
        weight = sums(places, np.repeat(self._paths.weight, 4), len(keys))
        real = keys % size != self._void
        self._entry_group = (keys // size)[real]
        self._entry_link = (keys % size)[real]
        self._entry_weight = weight[real]
        self._entry_noise: list[Floats] = []
        if noise.any():
            for period in range(len(NOISE_PERIODS_S)):
                normal = np.random.default_rng([8, period]).standard_normal(len(flows)).clip(-2, 2)
                varies = (normal * noise[flows.group])[self._paths.flow] * self._paths.weight
                self._entry_noise.append(sums(places, np.repeat(varies, 4), len(keys))[real])
        self._group_load = np.zeros((self._groups, size))
        self._group_load[self._entry_group, self._entry_link] = self._entry_weight
        self._is_sound = not (self._own_pause().any() or conditions.errors.any())

    def _demand(self, wants: Floats, absolute: NDArray[np.bool_]) -> Floats:
        """[groups]: the rate of each without limits in the fabric; its slowest NIC decides."""
        hardware, flows = self._hardware, self._flows
        cells, weight = _sums(flows.group * hardware.nics + flows.src, flows.weight)
        group, nic = cells // hardware.nics, cells % hardware.nics
        fed = self._c.send[nic] * self._c.speed[nic] / weight
        least = np.full(self._groups, np.inf)
        np.minimum.at(least, group, fed)
        least[np.isinf(least)] = 0.0
        demand: Floats = np.where(absolute, np.minimum(wants, least), wants * least)
        return demand

    def _capacities(self) -> Floats:
        c, hardware = self._c, self._hardware
        capacity = np.append(c.capacity, [np.inf, 0.0])
        capacity[: hardware.ports][~(c.rules.up & c.rules.up[c.rules.peer])] = 0.0
        capacity[: hardware.nics] *= c.send
        to_nic = c.rules.peer[: hardware.nics]
        capacity[to_nic] *= np.minimum(c.accept, 1.0 - c.storm)
        capacity[c.stuck] = 0.0
        return capacity

    def regime(self, active: NDArray[np.bool_]) -> Regime:
        """The steady state while these groups have something to send (`active` is [groups])."""
        demand = np.where(active, self.demand, 0.0)
        size = self._hardware.ports + 2
        if self._is_sound:
            load = demand @ self._group_load
            if (load <= self._capacity).all():
                none = np.empty(0, np.intp)
                return self._finish(demand, load, np.zeros(size), np.zeros(size), none)
        on = active[self._entry_group]
        group, link, weight = (
            self._entry_group[on],
            self._entry_link[on],
            self._entry_weight[on],
        )
        rate = fair_rates(self._capacity, link, group, weight, demand)
        ways = np.flatnonzero(active[self._group])
        offered = self._offered(demand, ways)
        load = sums(link, weight * rate[group], size)
        excess, pause = self._queues(offered, load)
        if (excess > 0).any() or (pause > 0).any():
            self._spread(excess, pause, ways)
            spread = self._capacity * np.where(self._own_pause() > 0, 1.0, 1.0 - pause)
            rate = fair_rates(spread, link, group, weight, demand)
            load = sums(link, weight * rate[group], size)
        return self._finish(rate, load, excess, pause, ways)

    def _offered(self, demand: Floats, ways: Indices) -> Floats:
        """[links]: offered load; at each hop no more than the hop before lets through."""
        size = self._hardware.ports + 2
        links = self._paths.links[ways]
        arriving = self._paths.weight[ways] * demand[self._group[ways]]
        total = np.zeros(size)
        for hop in range(4):
            here = links[:, hop]
            offered = sums(here, arriving, size)
            total += offered
            with np.errstate(divide="ignore", invalid="ignore"):
                passes = np.where(offered > 0, np.minimum(1.0, self._capacity / offered), 1.0)
            passes[self._void] = 1.0
            arriving = arriving * passes[here]
        return total

    def _own_pause(self) -> Floats:
        """[links]: the pause that the capacity already includes, of slow receivers and
        deadlocks."""
        own = np.zeros(self._hardware.ports + 2)
        to_nic = self._c.rules.peer[: self._hardware.nics]
        own[to_nic] = np.maximum(1.0 - self._c.accept, self._c.storm)
        own[self._c.stuck] = 1.0
        return own

    def _queues(self, offered: Floats, load: Floats) -> tuple[Floats, Floats]:
        """[links]: the share of the offered load above capacity, and the share of time paused."""
        capacity = self._capacity
        full = (offered > capacity * _OFFERED_ABOVE) & (load >= capacity * _FULL) & (capacity > 0)
        full[: self._hardware.nics] = False
        excess = np.zeros(len(capacity))
        excess[full] = 1.0 - capacity[full] / offered[full]
        pause = np.where(full, self._own_pause(), 0.0)
        to_nic = self._c.rules.peer[: self._hardware.nics]
        pause[to_nic] = np.maximum(pause[to_nic], self._c.storm)
        pause[self._c.stuck] = 1.0
        return excess, pause

    def _spread(self, excess: Floats, pause: Floats, ways: Indices) -> None:
        """Pause the senders into a queue, from the last hop to the first; changes `pause`."""
        marks = self._hardware.topology.ecn and not self._hardware.is_ib
        factor = _SPREADS_MARKED if marks else _SPREADS_LOSSLESS
        links = self._paths.links[ways]
        trouble = (excess > 0) | (pause > 0)
        links = links[trouble[links].any(axis=1)]
        for hop in (3, 2, 1):
            here = links[:, hop]
            before = links[:, hop - 1]
            if hop == 3:
                before = np.where(before == self._void, links[:, 0], before)
            held = np.maximum(factor * excess[here], _SPREADS_PAUSED * pause[here])
            real = (here != self._void) & (held > 0)
            np.maximum.at(pause, before[real], held[real])
        pause[self._void] = pause[self._dead] = 0.0

    def _finish(
        self, rate: Floats, load: Floats, excess: Floats, pause: Floats, ways: Indices
    ) -> Regime:
        hardware, c = self._hardware, self._c
        nics, ports = hardware.nics, hardware.ports
        errors = np.append(c.errors, [0.0, 0.0])
        # Errors are stored at the receiving port; a link has the number of the sending port.
        dirty = np.zeros(ports + 2)
        dirty[:ports] = errors[c.rules.peer]
        marked = np.zeros(nics)
        cnp_sent, cnp_handled, late, again = (np.zeros(nics) for _ in range(4))
        queued = (excess > 0) & (np.arange(ports + 2) >= nics)
        touched = ways[(queued | (dirty > 0))[self._paths.links[ways]].any(axis=1)]
        if len(touched):
            links = self._paths.links[touched]
            flow = self._paths.flow[touched]
            src, dst = self._flows.src[flow], self._flows.dst[flow]
            packets = self._paths.weight[touched] * rate[self._group[touched]] / PACKET_BYTES
            if hardware.topology.ecn and not hardware.is_ib:
                odds = np.where(queued, np.maximum(excess * _MARKED_AT_MOST, _MARKED_AT_LEAST), 0.0)
                marks = packets * (1.0 - np.prod(1.0 - odds[links], axis=1))
                marked = sums(dst, marks, nics)
                with np.errstate(divide="ignore", invalid="ignore"):
                    answered = np.where(marked > 0, np.minimum(1.0, _CNP_PER_S / marked), 0.0)
                cnps = marks * answered[dst]
                cnp_sent = sums(dst, cnps, nics)
                cnp_handled = sums(src, cnps, nics)
            through = sums(links.ravel(), np.repeat(packets, 4), ports + 2)
            with np.errstate(divide="ignore", invalid="ignore"):
                odds = np.where((dirty > 0) & (through > 0), dirty / through, 0.0)
            lost = packets * np.minimum(odds[links].sum(axis=1), 1.0)
            late = sums(dst, lost, nics)
            again = sums(src, lost, nics)
        to_nic = c.rules.peer[:nics]
        busy = (load[to_nic] > 0.5 * self._capacity[to_nic]) | (
            load[:nics] > 0.5 * c.send * c.speed[:nics]
        )
        stalled = np.where(c.pcie & busy & (load[:nics] + load[to_nic] > 0), _STALLED_PERCENT, 0.0)
        return Regime(
            rate=rate,
            load=load[:ports],
            pause=pause[:ports],
            marked=marked,
            cnp_sent=cnp_sent,
            cnp_handled=cnp_handled,
            out_of_order=late,
            sent_again=again,
            stalled=stalled,
            noise=self._noise(rate),
            limit=self._capacity[:ports],
        )

    def _noise(self, rate: Floats) -> Floats | None:
        """[len(NOISE_PERIODS_S), ports]: how much the load varies at these rates [groups]."""
        if not self._entry_noise:
            return None
        size = self._hardware.ports + 2
        moves = rate[self._entry_group]
        each = [sums(self._entry_link, part * moves, size) for part in self._entry_noise]
        return np.stack(each)[:, : self._hardware.ports]


def _sums(keys: Indices, values: Floats) -> tuple[Indices, Floats]:
    """The distinct keys, and the sum of the values of each."""
    distinct, places = np.unique(keys, return_inverse=True)
    return distinct, sums(places, values, len(distinct))
