"""Ticks become snapshots: raw counters, rates, and the last minutes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.fabric.fabric_builder import FabricBuilder, PortRows
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.flows.queue_pairs import QueuePairs, differ_only_in_queue_pairs
from fabmon.fabric.flows.sampled import RecentSamples, SampledTraffic
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.model import FABRIC, HOST, NVLINK, Host
from fabmon.fabric.node_metadata import NodeMetadata
from fabmon.fabric.port_arrays import grown, port_arrays
from fabmon.fabric.roles.port_roles import PortRoles
from fabmon.fabric.roles.rules import RoleRules
from fabmon.fabric.snapshot import RING_TICKS, Floats, Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import Frame
from fabmon.history.aligned_rates import AlignedRates
from fabmon.history.bursts import BurstAssembler
from fabmon.history.derived_metrics import US_PER_S, MetricDeriver, line_rate_overrides
from fabmon.history.live_rates import LiveRates
from fabmon.history.ring import RateRing
from fabmon.history.sample_times import SampleTimes
from fabmon.history.table_layout import Columns, NodeSlots, TableLayout

Indices = NDArray[np.intp]

_MAX_EARLY_FRAMES = 10
"""Frames of a node in one tick that are samples of their own: more than detectors look back."""


class History:
    """Keeps counters, rates and the last minutes; `accept` takes a tick and returns a snapshot.

    `hosts` are the nodes in the order of the hosts file. `roles` are the configured roles of
    ports. `topology` is the planned cabling. `rows` are the port rows of another history; both then
    number the same ports by the same rows.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        interval_s: float = 1.0,
        roles: RoleRules | None = None,
        ring_ticks: int = RING_TICKS,
        topology: Topology | None = None,
        rows: PortRows | None = None,
    ) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._interval_s = interval_s
        self._rates = LiveRates()
        self._ring = RateRing(ring_ticks)
        self._sample_times = SampleTimes(interval_s)
        self._aligned = AlignedRates(interval_s, self._ring)
        self.rows = PortRows() if rows is None else rows
        self._before_restart: dict[str, NodeSlots] = {}
        self._is_new = False
        self._built_of: list[str] = []
        self._columns = Columns((name, position) for position, name in enumerate(CATALOG))
        self._deriver = MetricDeriver({}, np.empty((0, 0), np.bool_))
        self._forget_nodes()
        self._builder = FabricBuilder(self.rows, PortRoles(roles), topology)
        self._fabric = self._builder.build(hosts, {}, 0)
        self._connections = Connections(self._fabric, {})
        self._ports = port_arrays(self._fabric)
        self._note_ports()
        self._lay_out()

    def restart(self) -> None:
        """Forget all counters and states: the next ticks are of another time.

        The slots of nodes are kept for when they send the same hello again: to process a thousand
        hellos takes a second.
        """
        self._is_new = True
        self._before_restart = {**self._before_restart, **self._nodes}
        self._forget_nodes()
        self._rates.restart()
        self._ring.restart()
        self._sample_times.restart()
        self._aligned.restart()
        self._deriver = self._layout.deriver(None)

    def _forget_nodes(self) -> None:
        """Set the state of all nodes and ports to that before the first tick."""
        self._nodes: dict[str, NodeSlots] = {}
        self._bursts = BurstAssembler()
        self._now_s = 0.0
        self._said = NodeMetadata()
        self._queue(self._hosts.values())
        self._last_heat: Floats = np.empty((len(HEAT), 0), np.float32)
        self._was_up: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._last_line_rate: Floats = np.empty(0, np.float32)
        self._best_line_rate: Floats = np.empty(0, np.float32)
        self._rated_since: Indices = np.empty(0, np.intp)
        self._recent_samples = RecentSamples()
        self._jumped_ns = 0
        self._sampled: SampledTraffic | None = None
        self._queue_pairs: dict[str, QueuePairs] = {}
        self._job_table: JobTable | None = None
        self._jobs_before: JobTable | None = None
        self._jobs_read_ns = 0

    def _queue(self, hosts: Iterable[Host]) -> None:
        """Add hosts that are new; no node has answered yet."""
        for host in hosts:
            self._hosts.setdefault(host.name, host)
            status = NodeStatus(host.name, NodeState.QUEUED, 0)
            self._said.statuses.setdefault(host.name, status)

    def accept(self, tick: Tick) -> Snapshot:
        """Take a tick. Returns the fabric at its end."""
        self.take(tick)
        return self._snapshot(tick, tick.time_ns / 1e9)

    def take(self, tick: Tick) -> None:
        """Take a tick without computing its snapshot: one before the first that is wanted."""
        now_s = tick.time_ns / 1e9
        if now_s < self._now_s:
            self._rates.shift(now_s - self._now_s)
        self._now_s = now_s
        self._queue(tick.hosts)
        # Of a damaged recording a node may be in no list of hosts.
        self._queue(Host(name=node) for node, _ in tick.hellos if node not in self._hosts)
        is_other_fabric = bool(tick.hosts)
        is_other_layout = queue_pairs_changed = False
        for node, hello in tick.hellos:
            old = self._nodes.get(node) or self._before_restart.get(node)
            # After a restart an equal hello is the same one, read from another part of a recording.
            if old is not None and (
                old.hello is hello or (node not in self._nodes and old.hello == hello)
            ):
                self._nodes[node] = old
                queue_pairs_changed |= self._note_queue_pairs(node, old.queue_pairs)
                continue
            # Queue pairs change with every job; that does not change the cabling.
            if old is None or not differ_only_in_queue_pairs(old.hello, hello):
                is_other_fabric = True
            if old is not None and hello.has_same_layout(old.hello):
                slots = old.slots
            else:
                slots = self._rates.add(hello, old.slots if old else None)
            groups = self._sample_times.add(node, hello, slots)
            new = self._nodes[node] = NodeSlots(
                self._hosts[node], self._hosts, hello, slots, groups, self.rows, self._columns
            )
            is_other_layout |= old is None or not new.is_same_layout(old)
            queue_pairs_changed |= self._note_queue_pairs(node, new.queue_pairs)
        self._said.apply(tick)
        if tick.hellos or is_other_fabric or self._is_new:
            self._update_fabric(is_other_fabric, is_other_layout, queue_pairs_changed)
        if tick.jobs is not None:
            self._job_table = None
        self._jobs_read_ns = tick.jobs_read_ns or self._jobs_read_ns
        frames = [each for each in tick.frames if each[0] in self._nodes]
        self._take_frames(frames, now_s)
        for node, reads in tick.reads:
            if node in self._nodes:
                self._rates.resume(self._nodes[node].slots, reads)
        self._intervals = self._sample_times.intervals(self._rates)
        self._rates.advance()
        stale = self._rates.stale(now_s)
        if tick.reads and stale.any():
            # Ports that had fallen silent by then are shown with their last known values.
            self._remember(*self._arrays()[2:])
        self._rates.discard(stale)
        self._bursts.accept(tick.answers, tick.time_ns)
        self._jumped_ns += tick.clock_jumped_ns
        if self._recent_samples.add(tick.sampled, tick.time_ns - self._jumped_ns):
            self._sampled = None

    def _take_frames(self, frames: Sequence[tuple[str, Frame]], now_s: float) -> None:
        """Take the frames of a tick. The rates at the tick are the means over all frames of a node;
        for aligned rates each of them is a sample."""
        last = dict(frames)
        early = [each for each in frames if last[each[0]] is not each[1]]
        while early:
            first = dict(reversed(early))
            self._accept_frames(first, now_s)
            early = [each for each in early if first[each[0]] is not each[1]]
            if len(early) <= _MAX_EARLY_FRAMES * len(first):
                self._group_ports()
                intervals = self._sample_times.intervals(self._rates)
                self._aligned.add_early(self._early_heat(), *intervals)
        self._accept_frames(last, now_s)

    def _accept_frames(self, frames: Mapping[str, Frame], now_s: float) -> None:
        nodes = self._nodes
        self._rates.accept([(nodes[name].slots, frame) for name, frame in frames.items()], now_s)
        self._sample_times.accept(now_s, frames)

    def _early_heat(self) -> Floats:
        """The heat of the frames that were accepted so far in this tick; NaN of other ports."""
        fresh, rates = self._rates.preview(self._layout.picked)
        values = self._layout.table(self._layout.cells[fresh], rates)
        line_rate = self._deriver.line_rate_bps(values, self._overrides, self._ports.pcie_bps)
        return self._deriver.heat(values, line_rate, self._ports.pcie_bps)

    def _update_fabric(
        self, is_other_fabric: bool, is_other_layout: bool, queue_pairs_changed: bool
    ) -> None:
        """Build the fabric and its connections again where something in them may have changed."""
        connections_changed = queue_pairs_changed or self._is_new
        self._is_new, self._job_table = False, None
        names = list(self._nodes)
        if is_other_fabric or names != self._built_of:
            is_other_layout |= names != self._built_of
            self._built_of = names
            hellos = {name: node.hello for name, node in self._nodes.items()}
            hosts = list(self._hosts.values())
            before = self._fabric
            self._fabric = self._builder.build(hosts, hellos, self._fabric.version + 1)
            if self._fabric.ports is not before.ports:
                self._note_ports()
            is_other_layout |= len(self._fabric.ports) != len(before.ports)
            connections_changed = True
        if is_other_layout:
            self._lay_out()
        if connections_changed:
            self._connections = Connections(self._fabric, self._queue_pairs, self._connections)

    def _note_queue_pairs(self, node: str, reported: QueuePairs | None) -> bool:
        """Keep the queue pairs that a node reports (None: it does not report any, which is not the
        same as having none). Returns whether they changed."""
        before = self._queue_pairs.get(node)
        if reported is before or (reported and before and reported.is_equal(before)):
            return False
        if reported is None:
            self._queue_pairs.pop(node, None)
        else:
            self._queue_pairs[node] = reported
        return True

    def _sampled_traffic(self) -> SampledTraffic:
        """The flows that switches sampled, on the fabric as it is now."""
        if self._sampled is None or self._sampled.fabric is not self._fabric:
            hellos = {name: node.hello for name, node in self._nodes.items()}
            agents = self._recent_samples.by_agent()
            self._sampled = SampledTraffic(self._fabric, hellos if agents else {}, agents)
        return self._sampled

    def _jobs(self) -> JobTable:
        """The jobs on the fabric as it is now."""
        if self._job_table is None:
            hosts = [node.name for node in self._fabric.nodes if node.role == HOST]
            before = self._jobs_before
            self._job_table = JobTable(self._said.jobs, hosts, self._queue_pairs, before)
            self._jobs_before = self._job_table
        return self._job_table

    def _note_ports(self) -> None:
        """Compute, once for this fabric, what its ports are."""
        self._ports = port_arrays(self._fabric, self._ports)
        self._ring.add_ports(self._ports.has_role(NVLINK))
        self._overrides: Floats = line_rate_overrides(self._fabric, self._hosts)
        self._carries = self._ports.has_role(*FABRIC)

    def _lay_out(self) -> None:
        """Compute, once for these layouts, which series fills which cell of the table."""
        self._layout = TableLayout(self._nodes, self._columns, self._fabric)
        self._deriver = self._layout.deriver(self._deriver)
        self._byte_cells: Indices = np.empty(0, np.intp)
        self._slow_clocks: Indices = np.full(len(self._fabric.ports), -1, np.intp)

    def _arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Values, line rates, heat and up of a snapshot, from the current rates."""
        rates = self._rates.rate[self._layout.picked]
        values = self._layout.values(rates)
        line_rate = self._deriver.line_rate_bps(values, self._overrides, self._ports.pcie_bps)
        heat = self._deriver.heat(values, line_rate, self._ports.pcie_bps)
        return values, line_rate, heat, self._deriver.up(values)

    def _snapshot(self, tick: Tick, now_s: float) -> Snapshot:
        values, line_rate, heat, up = self._arrays()
        saturated = np.zeros(len(values), np.bool_)
        full = self._rates.saturated[self._layout.picked]
        saturated[self._layout.cell_rows[full]] = True
        self._group_ports()
        layout, arrived_s = self._layout, np.full(len(self._nodes) + 1, -np.inf)
        np.maximum.at(arrived_s, layout.clock_node, self._rates.arrived_s[layout.clocks])
        age_s = (now_s - arrived_s)[layout.row_node].astype(np.float32)
        period_s = np.full(len(values), self._interval_s, np.float32)
        is_slow = self._slow_clocks >= 0
        slow = self._slow_clocks[is_slow]
        age_s[is_slow] = now_s - self._rates.arrived_s[slow]
        period_s[is_slow] = self._rates.period_s[slow]
        self._remember(heat, up)
        self._note_line_rates(line_rate, tick.seq)
        with np.errstate(divide="ignore", invalid="ignore"):
            tx_util = heat[HEAT.index("tx_bps")] / line_rate
            rx_util = heat[HEAT.index("rx_bps")] / line_rate
        busiest = np.fmax(tx_util, rx_util)[self._carries]
        worst = float(np.fmax.reduce(busiest)) if busiest.size else float("nan")
        self._ring.append(tick.seq, heat, worst)
        self._aligned.append(tick.seq, heat, *self._intervals)
        return Snapshot(
            seq=tick.seq,
            time_ns=tick.time_ns,
            interval_s=self._interval_s,
            fabric=self._fabric,
            statuses={**self._said.statuses, **self._reported_statuses()},
            notices=self._said.problems,
            logs=self._said.logs.by_node(),
            sampled=self._sampled_traffic(),
            jobs=self._jobs(),
            jobs_read_ns=self._jobs_read_ns,
            collectives=self._said.collectives,
            clock_jumped_ns=tick.clock_jumped_ns,
            probe_cpu=self._probe_cpu(),
            columns=self._layout.metrics,
            values=values,
            heat=heat,
            last_heat=self._last_heat,
            line_rate_bps=line_rate,
            best_line_rate_bps=self._best_line_rate,
            tx_util=tx_util,
            rx_util=rx_util,
            up=up,
            was_up=self._was_up,
            age_s=age_s,
            period_s=period_s,
            rated_since=self._rated_since,
            saturated=saturated,
            past=self._ring,
            aligned=self._aligned,
            stuck=self._layout.cells[full],
            bursts=dict(self._bursts.of_ports),
            connections=self._connections,
        )

    def _group_ports(self) -> None:
        """Note which ports are sampled together: by the block of the counter of their bytes, or of
        any counter of ports without."""
        cells = self._deriver.byte_cells(len(self._fabric.ports))
        if np.array_equal(cells, self._byte_cells):
            return
        self._byte_cells = cells
        group_of_cell = np.full(self._layout.has.size + 1, -1, np.intp)
        group_of_cell[self._layout.cells] = self._layout.cell_groups
        of_port = np.full(len(cells), -1, np.intp)
        of_port[self._layout.cell_rows[::-1]] = self._layout.cell_groups[::-1]
        of_port = np.where(cells >= 0, group_of_cell[cells], of_port)
        self._aligned.regroup(of_port, self._sample_times.is_slow)
        self._slow_clocks = self._sample_times.clocks_of_slow(of_port)

    def _remember(self, heat: Floats, up: Floats) -> None:
        """Keep the last known values of ports that are silent now."""
        known = self._last_heat.shape[1]
        last_heat, was_up = heat.copy(), up == 1
        silent = np.isnan(heat[:, :known])
        np.copyto(last_heat[:, :known], self._last_heat, where=silent)
        was_up[:known] |= self._was_up
        self._last_heat, self._was_up = last_heat, was_up

    def _note_line_rates(self, line_rate: Floats, seq: int) -> None:
        """Note at which tick the line rate of each port changed last, and its highest."""
        if np.array_equal(line_rate, self._last_line_rate, equal_nan=True):
            return
        ports = len(line_rate)
        before = grown(self._last_line_rate, ports, np.nan)
        changed = (line_rate != before) & np.isfinite(line_rate) & np.isfinite(before)
        self._rated_since = np.where(changed, seq, grown(self._rated_since, ports))
        self._last_line_rate = np.where(np.isnan(line_rate), before, line_rate)
        self._best_line_rate = np.fmax(grown(self._best_line_rate, ports, np.nan), line_rate)

    def _reported_statuses(self) -> dict[str, NodeStatus]:
        """States of nodes that are reported by others: up while the sender is up, else stale."""
        statuses = {}
        for name, sender in self._layout.senders.items():
            status = self._said.statuses[sender]
            state, reason, cause = NodeState.UP, f"reported by {sender}", ""
            if status.state is not NodeState.UP:
                state, cause = NodeState.STALE, "stale"
                reason = f"{reason}, which is {status.state}"
            statuses[name] = NodeStatus(name, state, status.since_ns, reason, cause)
        return statuses

    def _probe_cpu(self) -> dict[str, float]:
        """By node, the share of a core that the probe uses, 0 to 1."""
        slots = {name: node.cpu for name, node in self._nodes.items() if node.cpu is not None}
        rates = self._rates.rate[list(slots.values())].tolist()
        return {name: rate / US_PER_S for name, rate in zip(slots, rates, strict=True)}
