"""From ticks to moments: the one place where raw counters become what is drawn and judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.fabric.fabric_builder import MANAGEMENT_PORTS, PortRows, build
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.flows.queue_pairs import QueuePairs, only_queue_pairs_moved, queue_pairs_of
from fabmon.fabric.model import FABRIC, NVLINK, Fabric, Host
from fabmon.fabric.node_facts import ReportedFacts
from fabmon.fabric.object_owner import owner_of
from fabmon.fabric.snapshot import HEAT, Floats, Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import Hello, Notice
from fabmon.history.bursts import BurstAssembler
from fabmon.history.derived_metrics import MetricDeriver, line_rate_overrides
from fabmon.history.rates import FrameSlots, LiveRates
from fabmon.history.ring import RateRing

RING_TICKS = 900
"""Ticks kept for every port: 15 minutes at one a second."""

Indices = NDArray[np.intp]

_PROBE_CPU = "probe_cpu_us"
_US_PER_S = 1e6


class _Columns(dict[str, int]):
    """Metric name -> its number, in the catalog's order; a newer probe's get one at first sight."""

    def of(self, name: str) -> int:
        return self.setdefault(name, len(self))


class _Seat:
    """Where one node's series lie, and which cells of the table of ports they fill.

    `series`, `rows` and `columns` are parallel, one element a value that belongs to a port.
    """

    def __init__(
        self,
        speaker: Host,
        given: Mapping[str, Host],
        hello: Hello,
        place: FrameSlots,
        rows: PortRows,
        columns: _Columns,
    ) -> None:
        self.hello = hello
        self.queue_pairs = queue_pairs_of(hello)
        self.place = place
        self.cpu: int | None = None
        series: list[int] = []
        row_of: list[int] = []
        column_of: list[int] = []
        for start, block in zip(place.starts, hello.blocks, strict=True):
            position = start + 1
            for item in block.objects:
                width = len(item.metrics)
                node = owner_of(item, speaker, given)
                if item.port is not None and node is not None:
                    series += range(position, position + width)
                    row_of += [rows.of(node, item.port)] * width
                    column_of += [columns.of(metric) for metric in item.metrics]
                elif _PROBE_CPU in item.metrics:
                    self.cpu = position + item.metrics.index(_PROBE_CPU)
                position += width
        self.series: Indices = np.array(series, np.intp)
        self.rows: Indices = np.array(row_of, np.intp)
        self.columns: Indices = np.array(column_of, np.intp)


class History:
    """Keeps counters, rates and the last minutes; `accept` a tick, get a moment.

    `hosts` are the nodes in the order of the hosts file. `management` are patterns of ports that
    carry no training traffic. `topology` is what was given of the cabling. `rows` are those of
    another history that is to call the same ports by the same rows.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        interval_s: float = 1.0,
        management: Sequence[str] = MANAGEMENT_PORTS,
        ring_ticks: int = RING_TICKS,
        topology: Topology | None = None,
        rows: PortRows | None = None,
    ) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._interval_s = interval_s
        self._management = management
        self._topology = topology
        self._series = LiveRates()
        self._ring = RateRing(ring_ticks)
        self._bursts = BurstAssembler()
        self.rows = PortRows() if rows is None else rows
        self._nodes: dict[str, _Seat] = {}
        self._told_before: dict[str, _Seat] = {}
        self._is_new = False
        self._built_of: list[str] = []
        self._columns = _Columns((name, position) for position, name in enumerate(CATALOG))
        self._statuses = {name: NodeStatus(name, NodeState.QUEUED, 0) for name in self._hosts}
        self._last_heat: Floats = np.empty((len(HEAT), 0), np.float32)
        self._was_up: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._metrics: dict[str, int] = {}
        self._deriver = MetricDeriver(self._metrics, np.empty((0, 0), np.bool_))
        self._notices: dict[str, dict[tuple[str, str, str], Notice]] = {}
        self._queue_pairs: dict[str, QueuePairs] = {}
        self._heard = ReportedFacts()
        self._fabric = self._built({}, 0)
        self._connections = Connections(self._fabric, {})
        self._wire_up()

    def restart(self) -> None:
        """Forget all counters and states: the next ticks are of another time.

        What nodes said of themselves is known again as soon as they say the same: a thousand
        hellos take a second else.
        """
        self._is_new = True
        self._told_before = {**self._told_before, **self._nodes}
        self._nodes = {}
        self._series.restart()
        self._ring.restart()
        self._bursts = BurstAssembler()
        self._statuses = {name: NodeStatus(name, NodeState.QUEUED, 0) for name in self._hosts}
        self._last_heat = np.empty((len(HEAT), 0), np.float32)
        self._was_up = np.empty(0, np.bool_)
        self._notices = {}
        self._queue_pairs = {}
        self._deriver = MetricDeriver(self._metrics, self._has)

    def accept(self, tick: Tick) -> Snapshot:
        """Take a tick and say how the fabric looks at its end."""
        self.take(tick)
        return self._moment(tick, tick.time_ns / 1e9)

    def take(self, tick: Tick) -> None:
        """Take a tick that nobody looks at: one before that which is wanted."""
        now_s = tick.time_ns / 1e9
        for host in tick.hosts:
            self._hosts.setdefault(host.name, host)
            self._statuses.setdefault(host.name, NodeStatus(host.name, NodeState.QUEUED, 0))
        is_other_fabric = bool(tick.hosts)
        moved = False
        for node, hello in tick.hellos:
            old = self._nodes.get(node) or self._told_before.get(node)
            if old is not None and old.hello is hello:
                self._nodes[node] = old
                moved |= self._note_queue_pairs(node, old.queue_pairs)
                self._notices.pop(node, None)
                continue
            # Queue pairs come and go with every job: what is cabled to what stays as it is.
            is_other_fabric |= old is None or not only_queue_pairs_moved(old.hello, hello)
            if old is not None and hello.counts_like(old.hello):
                place = old.place
            else:
                place = self._series.add(hello, old.place if old else None)
            seat = self._nodes[node] = _Seat(
                self._hosts[node], self._hosts, hello, place, self.rows, self._columns
            )
            moved |= self._note_queue_pairs(node, seat.queue_pairs)
            self._notices.pop(node, None)
        for status in tick.statuses:
            self._statuses[status.node] = status
        for node, notice in tick.notices:
            self._note(node, notice)
        for node, frame in tick.frames:
            if node in self._nodes:
                self._series.accept(self._nodes[node].place, frame, now_s)
        for node, reads in tick.reads:
            if node in self._nodes:
                self._series.resume(self._nodes[node].place, reads)
        if tick.hellos or is_other_fabric or self._is_new:
            self._told_by(list(self._nodes), is_other_fabric, moved)
        self._series.advance()
        stale = self._series.stale(now_s)
        if tick.reads and stale.any():
            # Who had fallen silent by then is drawn as it was before.
            self._remember(*self._drawn()[2:])
        self._series.let_go(stale)
        self._bursts.accept(tick.answers, tick.time_ns)

    def _told_by(self, names: list[str], is_other_fabric: bool, moved: bool) -> None:
        """The fabric of what these nodes say now; as it was where they say the same."""
        moved |= self._is_new
        self._is_new = False
        if is_other_fabric or names != self._built_of:
            self._built_of = names
            hellos = {name: node.hello for name, node in self._nodes.items()}
            self._fabric = self._built(hellos, self._fabric.version + 1)
            self._wire_up()
            moved = True
        if moved:
            before = self._connections
            self._connections = Connections(self._fabric, self._queue_pairs, before)

    def _built(self, hellos: Mapping[str, Hello], version: int) -> Fabric:
        hosts = list(self._hosts.values())
        return build(
            hosts, hellos, self.rows, version, self._management, self._topology, self._heard
        )

    def _note_queue_pairs(self, node: str, told: QueuePairs | None) -> bool:
        """Keep what a node tells of its connections; nothing is another state than none.

        Whether that is something else than before.
        """
        before = self._queue_pairs.get(node)
        if told is before or (told and before and told.is_like(before)):
            return False
        if told is None:
            self._queue_pairs.pop(node, None)
        else:
            self._queue_pairs[node] = told
        return True

    def _note(self, node: str, notice: Notice) -> None:
        """Keep what is wrong on a node now; a recovery takes its trouble away."""
        notices = self._notices.setdefault(node, {})
        key = (notice.source, notice.object, notice.metric)
        if notice.event == "recovered":
            notices.pop(key, None)
        else:
            notices[key] = notice

    def _wire_up(self) -> None:
        """Work out once, for this fabric, which series goes to which cell of the table."""
        seats = list(self._nodes.values())
        rows = _joined([seat.rows for seat in seats])
        self._picked = _joined([seat.series for seat in seats])
        columns = _joined([seat.columns for seat in seats])
        # A port has a tenth of what the catalog has: what nobody has takes no room.
        there, place = np.unique(columns, return_inverse=True)
        names = list(self._columns)
        self._metrics = {names[column]: number for number, column in enumerate(there.tolist())}
        self._cells = rows * len(there) + place
        self._cell_rows = rows
        self._ring.place(np.array([port.role == NVLINK for port in self._fabric.ports], np.bool_))
        self._overrides: Floats = line_rate_overrides(self._fabric.ports, self._hosts)
        self._has = np.zeros((len(self._fabric.ports), len(there)), np.bool_)
        self._has.ravel()[self._cells] = True
        self._deriver = MetricDeriver(self._metrics, self._has, self._deriver)
        self._carries = np.array([port.role in FABRIC for port in self._fabric.ports], np.bool_)
        clocks = [(start, index) for index, seat in enumerate(seats) for start in seat.place.starts]
        self._clocks, self._clock_node = np.array(clocks, np.intp).reshape(-1, 2).T
        # Who tells of a port: the last of `_nodes` stands for nobody.
        self._row_node = np.full(len(self._fabric.ports), len(seats), np.intp)
        self._speakers: dict[str, str] = {}
        for index, (speaker, seat) in enumerate(self._nodes.items()):
            self._row_node[seat.rows] = index
            told_of = {self._fabric.ports[row].node for row in np.unique(seat.rows)} - {speaker, ""}
            self._speakers.update(dict.fromkeys(told_of, speaker))

    def _drawn(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Values, line rates, heat and up of a moment, from the rates as they are."""
        values = np.full((len(self._fabric.ports), len(self._metrics)), np.nan, np.float32)
        values.ravel()[self._cells] = self._series.rate[self._picked]
        line_rate = self._deriver.line_rate_bps(values, self._overrides)
        return values, line_rate, self._deriver.heat(values, line_rate), self._deriver.up(values)

    def _moment(self, tick: Tick, now_s: float) -> Snapshot:
        values, line_rate, heat, up = self._drawn()
        saturated = np.zeros(len(values), np.bool_)
        full = self._series.saturated[self._picked]
        saturated[self._cell_rows[full]] = True
        arrived_s = np.full(len(self._nodes) + 1, -np.inf)
        np.maximum.at(arrived_s, self._clock_node, self._series.arrived_s[self._clocks])
        age_s = (now_s - arrived_s)[self._row_node].astype(np.float32)
        self._remember(heat, up)
        with np.errstate(divide="ignore", invalid="ignore"):
            tx_util = heat[HEAT.index("tx_bps")] / line_rate
            rx_util = heat[HEAT.index("rx_bps")] / line_rate
        busiest = np.fmax(tx_util, rx_util)[self._carries]
        worst = float(np.fmax.reduce(busiest)) if busiest.size else float("nan")
        self._ring.append(tick.seq, heat, worst)
        return Snapshot(
            seq=tick.seq,
            time_ns=tick.time_ns,
            interval_s=self._interval_s,
            fabric=self._fabric,
            statuses={**self._statuses, **self._told_statuses()},
            notices={name: tuple(each.values()) for name, each in self._notices.items() if each},
            probe_cpu=self._probe_cpu(),
            columns=self._metrics,
            values=values,
            heat=heat,
            last_heat=self._last_heat,
            line_rate_bps=line_rate,
            tx_util=tx_util,
            rx_util=rx_util,
            up=up,
            was_up=self._was_up,
            age_s=age_s,
            saturated=saturated,
            past=self._ring,
            stuck=self._cells[full],
            bursts=dict(self._bursts.of_ports),
            connections=self._connections,
        )

    def _remember(self, heat: Floats, up: Floats) -> None:
        """Carry over what was known of ports that are silent now."""
        known = self._last_heat.shape[1]
        last_heat, was_up = heat.copy(), up == 1
        silent = np.isnan(heat[:, :known])
        np.copyto(last_heat[:, :known], self._last_heat, where=silent)
        was_up[:known] |= self._was_up
        self._last_heat, self._was_up = last_heat, was_up

    def _told_statuses(self) -> dict[str, NodeStatus]:
        """States of the nodes that others tell of: as good as the speaker's, or stale."""
        told = {}
        for name, speaker in self._speakers.items():
            status = self._statuses[speaker]
            if status.state is NodeState.UP:
                told[name] = NodeStatus(name, NodeState.UP, status.since_ns, f"told by {speaker}")
            else:
                reason = f"told by {speaker}, which is {status.state}"
                told[name] = NodeStatus(name, NodeState.STALE, status.since_ns, reason, "stale")
        return told

    def _probe_cpu(self) -> dict[str, float]:
        """Share of a core that the probe takes on each node."""
        rate = self._series.rate
        return {
            name: float(rate[node.cpu]) / _US_PER_S
            for name, node in self._nodes.items()
            if node.cpu is not None
        }


def _joined(parts: Sequence[Indices]) -> Indices:
    return np.concatenate(parts) if parts else np.empty(0, np.intp)
