"""Which NICs of a host its jobs send over together: its rails, and not its NICs for storage."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, WINDOW_TICKS, DetectorInput, without_nan
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.thresholds import Seconds, Share
from fabmon.fabric.jobs.job_table import NO_JOBS
from fabmon.fabric.model import SWITCH, Fabric
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import Floats


def exchanged_bps(inputs: DetectorInput) -> Floats:
    """[ports]: the mean rate of the last TICKS, the smaller of both directions. Hosts of a job
    exchange data; what is only sent or only received is that of a file system."""
    smaller: Floats = np.fmin(inputs.total("tx_bps"), inputs.total("rx_bps"))
    smaller /= np.float32(TICKS)
    return smaller


class RailsInUse:
    """Learns, tick by tick, over which rails each host sends while its job runs.

    A rail is used while it exchanges `low` or more of what the busiest rail of its host does, and
    that one more than `busy_util` of line rate. What was used is forgotten when no rail of the host
    has reached that for `forget_s`, or when another job runs on it.
    """

    def __init__(self, busy_util: Share, low: Share, forget_s: Seconds) -> None:
        self._busy_util, self._low, self._forget_s = busy_util, low, forget_s
        self._used_ticks: Floats = np.empty(0, np.float32)
        """[ports]: for how many ticks a rail was used since its job began."""
        self._idle_s: Floats = np.empty(0, np.float32)
        """[ports]: for how long no rail of the port's host has been busy."""
        self._jobs = NO_JOBS
        self._jobs_on: dict[str, frozenset[str]] = {}
        """The jobs that ran last on each host."""

    @property
    def in_use(self) -> Mask:
        """[ports]: whether a rail is one that the jobs of its host use: for longer than the window
        in which it may be left out."""
        used: Mask = self._used_ticks >= WINDOW_TICKS
        return used

    def accept(self, inputs: DetectorInput) -> None:
        """Take a tick."""
        ports = len(inputs.structure.peer)
        self._used_ticks, self._idle_s = (
            grown(each, ports)[:ports] for each in (self._used_ticks, self._idle_s)
        )
        rates, busy = exchanged_bps(inputs), inputs.peak_sent > self._busy_util
        for _, rows in inputs.structure.rail_tables:
            top = rates[rows].max(axis=1, keepdims=True)
            is_busy = busy[rows].any(axis=1, keepdims=True)
            used = is_busy & (top > 0) & (rates[rows] >= self._low * top)
            count = used.sum(axis=1, keepdims=True)
            # One busy NIC of many is no collective.
            self._used_ticks[rows] += used & (count > 1) & (2 * count >= rows.shape[1])
            idle_s = self._idle_s[rows] + np.float32(inputs.snapshot.interval_s)
            self._idle_s[rows] = np.where(is_busy, 0, idle_s)
        self._used_ticks[(self._idle_s >= self._forget_s) | self._runs_another(inputs)] = 0

    def used_by_most(self, inputs: DetectorInput) -> Mask:
        """[ports]: whether most hosts that use any rails use the one of this number, of the hosts
        of the same jobs, where jobs are known."""
        structure, in_use = inputs.structure, self.in_use
        jobs = [self._jobs_on.get(node.name, frozenset()) for node in structure.fabric.nodes]
        numbers = {on: number for number, on in enumerate(dict.fromkeys(jobs))}
        place = np.array([numbers[on] for on in jobs], np.intp)[structure.node]
        place = place * (int(structure.rail.max(initial=0)) + 1) + structure.rail
        used = in_use & structure.is_rail
        of_users = structure.is_rail & np.isin(structure.node, structure.node[used])
        most = int(place.max(initial=0)) + 1
        uses, known = (np.bincount(place[each], minlength=most) for each in (used, of_users))
        by_most: Mask = structure.is_rail & (2 * uses > known)[place]
        return by_most

    def _runs_another(self, inputs: DetectorInput) -> Mask:
        """[ports]: whether none of the jobs that ran on a host before runs there now, and another
        one does."""
        structure, jobs = inputs.structure, inputs.snapshot.jobs
        if jobs is self._jobs:
            return np.zeros(len(structure.peer), np.bool_)
        self._jobs, before = jobs, self._jobs_on
        now = {node: frozenset(job.number for job in on) for node, on in jobs.on_node.items()}
        self._jobs_on = {**before, **now}
        changed = {
            node for node, on in now.items() if before.get(node) and before[node].isdisjoint(on)
        }
        of_nodes = np.array([node.name in changed for node in structure.fabric.nodes], np.bool_)
        found: Mask = of_nodes[structure.node]
        return found


def spare_rails(inputs: DetectorInput, rows: Rows, busy: Mask) -> Mask:
    """[hosts, rails]: whether a NIC may be a rail though it is not in use: it is as fast as the
    fastest of its host and on the fabric of the busy ones, cabled to a leaf of theirs or to one
    with a spine of theirs. A network for storage has switches of its own."""
    structure, lines = inputs.structure, without_nan(inputs.snapshot.line_rate_bps[rows])
    above = structure.once(_above)
    spines = {name: place for place, name in enumerate(set().union(*above.values()))}
    cabled = np.zeros((len(structure.leaves) + 1, len(spines)), np.float32)
    for place, name in enumerate(structure.leaves):
        cabled[place, [spines[each] for each in above.get(name, ())]] = 1
    near = (cabled @ cabled.T > 0) | np.eye(len(cabled), dtype=np.bool_)
    near[-1, -1] = False  # NONE: its cable is not known.
    leaf, is_fast = structure.leaf[rows], lines >= lines.max(axis=1, keepdims=True)
    is_met = (near[leaf[:, :, None], leaf[:, None, :]] & busy[:, None, :]).any(axis=2)
    spare: Mask = is_met & is_fast
    return spare


def _above(fabric: Fabric) -> dict[str, frozenset[str]]:
    """The switches that each switch is known to be cabled to."""
    switches = {node.name for node in fabric.nodes if node.role == SWITCH}
    found = {name: set[str]() for name in switches}
    for port in fabric.ports:
        if port.cable is not None and {port.node, port.cable.node} <= switches:
            found[port.node].add(port.cable.node)
            found[port.cable.node].add(port.node)
    return {name: frozenset(each) for name, each in found.items()}
