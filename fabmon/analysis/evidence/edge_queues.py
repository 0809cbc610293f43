"""Whether the hosts behind the edge ports of a switch show that a queue slows their flows."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput, without_nan
from fabmon.analysis.evidence.flow_control import flow_control_of
from fabmon.analysis.evidence.queue_signals import ORDINARY, QueueThresholds, queue_signals
from fabmon.analysis.fabric_structure import NONE, LinkGroup, Mask, Rows
from fabmon.fabric.snapshot import Floats

CNPS_OR_MARKS = "CNPs or marks"
"""How a queue is seen at senders that congestion control slows, or at their receivers."""

_MUCH = 0.25
"""Share of time, 0 to 1, without credits or paused, from which on a link of another switch is
slowed: on loaded paths of InfiniBand some ports wait for a fifth of it, and nothing is wrong."""

_CALM = 0.02
"""Share of the time with traffic, 0 to 1, paused or without credits, below which a host is not
slowed."""


class EdgeQueues:
    """The signs of a queue at the hosts whose traffic a group of links carries: at senders for the
    uplinks of a leaf, at receivers for the links into one."""

    def __init__(self, inputs: DetectorInput, t: QueueThresholds, group: LinkGroup) -> None:
        self._inputs = inputs
        self._t = t
        self._group = group
        self._signals = queue_signals(inputs, t)
        peer = inputs.structure.peer[group.edges]
        # [edges]: the host behind an edge port, where it has one.
        self._has_host: Mask = peer != NONE
        self._host: Rows = np.where(self._has_host, peer, 0)

    def queued(self) -> Mask:
        """[edges]: whether the host behind an edge port shows a queue."""
        seen = self._signals.marked if self._group.is_inward else self._signals.slowed
        return (seen[self._host] & self._has_host) | (self.waiting() > 0)

    @cached_property
    def signs(self) -> tuple[Floats, Floats]:
        """[edges] each: CNPs (of receivers, marks) per gigabit, and waiting, of the hosts behind
        edge ports; 0 where they are no queue."""
        events = self._signals.marks if self._group.is_inward else self._signals.cnps
        counts = self.queued() & self._has_host
        return np.where(counts, events[self._host], np.float32(0)), self.waiting()

    def are_lasting(self) -> Mask:
        """[edges]: whether the CNPs (of receivers, marks) of the host behind an edge port are more
        than background in most of the last ticks."""
        events, background = self._events(self._host)
        lasting: Mask = (events > background).sum(axis=1) > TICKS // 2
        return lasting & self._has_host

    def _events(self, hosts: Rows) -> tuple[Floats, Floats]:
        """[hosts, TICKS] each: CNPs of senders, marks of receivers (CNPs sent of those that do not
        count marks), NaN where not counted; and how many are background at most."""
        series, t = self._inputs.series, self._t
        is_inward = self._group.is_inward
        events = series("cnp_sent" if is_inward else "cnp", hosts, TICKS)
        least = np.full((len(hosts), 1), t.cnps_per_gbit, np.float32)
        if is_inward:
            marks = series("ecn", hosts, TICKS)
            counts = np.isfinite(marks).any(axis=1, keepdims=True)
            events = np.where(counts, marks, events)
            least[counts] = t.marks_per_gbit
        bps = without_nan(series("rx_bps" if is_inward else "tx_bps", hosts, TICKS))
        return events, least * bps / np.float32(1e9)

    def waiting(self) -> Floats:
        """[edges]: share of the time with traffic in which the host behind an edge port was paused
        or without credits, where that is a queue; else 0. Receivers do not wait for traffic."""
        if self._group.is_inward:
            return np.zeros(len(self._host), np.float32)
        waits = self._signals.waiting[self._host]
        is_queue = waits >= self._t.waiting
        is_queue &= self._signals.of_all_time[self._host] >= ORDINARY
        waiting: Floats = np.where(self._has_host & is_queue, waits, np.float32(0))
        return waiting

    def wait_much(self) -> Mask:
        """[edges]: whether what is behind an edge port waits for a good part of all the time."""
        much: Mask = (self._signals.of_all_time[self._host] >= _MUCH) & (self.waiting() > 0)
        return much

    def seen_at(self, edges: Rows) -> str:
        """How a queue is seen at the hosts behind some edge ports; empty where it is not."""
        hosts = self._hosts(edges)
        if (self._signals.waiting[hosts] >= self._t.waiting).any():
            ports = self._inputs.structure.fabric.ports
            return flow_control_of(ports[row] for row in hosts.tolist())
        seen = self._signals.marked if self._group.is_inward else self._signals.slowed
        return CNPS_OR_MARKS if seen[hosts].any() else ""

    def are_calm(self, edges: Rows, least_wait: float = 0.0) -> bool:
        """Whether the hosts behind some edge ports count CNPs or waiting and have next to none:
        they wait for less than a share of the time with traffic.

        Then their flows just fit, and what limits them is elsewhere. Where half of them or more
        count neither, or their counters are stuck, the others do not speak for them.
        """
        inputs, hosts = self._inputs, self._hosts(edges)
        events, background = self._events(hosts)
        waits = np.fmax(inputs.window("pause_rx")[hosts], inputs.window("stall")[hosts])
        is_known = np.isfinite(events).any(axis=1) | np.isfinite(waits).any(axis=1)
        if 2 * is_known.sum() <= len(hosts):
            return False
        is_short = self._signals.waiting[hosts] < max(least_wait, _CALM)
        has_few = without_nan(events).sum(axis=1) <= background.sum(axis=1)
        return bool(has_few.all() and is_short.all())

    def _hosts(self, edges: Rows) -> Rows:
        """The NICs behind some edge ports."""
        peer = self._inputs.structure.peer[edges]
        hosts: Rows = peer[peer != NONE]
        return hosts
