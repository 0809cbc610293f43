"""From ticks to moments: the one place where raw counters become what is drawn and judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.fabric.build import MANAGEMENT_PORTS, Rows, build
from fabmon.fabric.messages import Hello, Notice
from fabmon.fabric.model import MANAGEMENT, Host
from fabmon.fabric.moment import HEAT, Floats, Moment
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.history.derive import Deriver, overrides
from fabmon.history.ring import Ring
from fabmon.history.series import Place, Series

RING_TICKS = 900
"""Ticks kept for every port: 15 minutes at one a second."""

_PROBE_CPU = "probe_cpu_us"
_US_PER_S = 1e6


class _NodePlaces:
    """Where one node's series go in the table of ports."""

    def __init__(self, place: Place, hello: Hello) -> None:
        self.place = place
        self.hello = hello
        self.series: list[int] = []
        self.cells: list[tuple[str, str]] = []
        self.cpu: int | None = None
        for start, block in zip(place.starts, hello.blocks, strict=True):
            position = start
            for item in block.objects:
                for metric in item.metrics:
                    position += 1
                    if item.port is not None:
                        self.series.append(position)
                        self.cells.append((item.port, metric))
                    elif metric == _PROBE_CPU:
                        self.cpu = position


class History:
    """Keeps counters, rates and the last minutes; `accept` a tick, get a moment.

    `hosts` are the nodes in the order of the hosts file. `management` are patterns of ports that
    carry no training traffic.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        interval_s: float = 1.0,
        management: Sequence[str] = MANAGEMENT_PORTS,
        ring_ticks: int = RING_TICKS,
    ) -> None:
        self._hosts = tuple(hosts)
        self._interval_s = interval_s
        self._management = management
        self._series = Series()
        self._ring = Ring(ring_ticks)
        self._rows = Rows()
        self._nodes: dict[str, _NodePlaces] = {}
        self._columns = {name: position for position, name in enumerate(CATALOG)}
        self._statuses = {
            host.name: NodeStatus(host.name, NodeState.QUEUED, 0) for host in self._hosts
        }
        self._last_heat: Floats = np.empty((len(HEAT), 0), np.float32)
        self._was_up: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._notices: dict[str, dict[tuple[str, str, str], Notice]] = {}
        self._fabric = build(self._hosts, {}, self._rows, 0, management)
        self._wire_up()

    def accept(self, tick: Tick) -> Moment:
        """Take a tick and say how the fabric looks at its end."""
        now_s = tick.time_ns / 1e9
        for node, hello in tick.hellos:
            old = self._nodes.get(node)
            place = self._series.add(hello, old.place if old else None)
            self._nodes[node] = _NodePlaces(place, hello)
            self._notices.pop(node, None)
        for status in tick.statuses:
            self._statuses[status.node] = status
        for node, notice in tick.notices:
            self._note(node, notice)
        for node, frame in tick.frames:
            self._series.accept(self._nodes[node].place, frame, now_s)
        if tick.hellos:
            hellos = {name: node.hello for name, node in self._nodes.items()}
            version = self._fabric.version + 1
            self._fabric = build(self._hosts, hellos, self._rows, version, self._management)
            self._wire_up()
        self._series.advance(now_s)
        return self._moment(tick, now_s)

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
        series: list[int] = []
        rows: list[int] = []
        columns: list[int] = []
        self._extra_columns()
        for name, node in self._nodes.items():
            series += node.series
            rows += [self._rows.of(name, port) for port, _ in node.cells]
            columns += [self._columns[metric] for _, metric in node.cells]
        width = len(self._columns)
        self._picked: NDArray[np.intp] = np.array(series, np.intp)
        self._cells: NDArray[np.intp] = np.array(rows, np.intp) * width + np.array(columns, np.intp)
        self._cell_rows: NDArray[np.intp] = np.array(rows, np.intp)
        hosts = {host.name: host for host in self._hosts}
        self._overrides: Floats = overrides(self._fabric.ports, hosts)
        self._deriver = Deriver(self._columns)
        self._carries = np.array([port.role != MANAGEMENT for port in self._fabric.ports], np.bool_)
        node_of = {name: index for index, name in enumerate(self._nodes)}
        self._row_node = np.array(
            [node_of.get(port.node, len(node_of)) for port in self._fabric.ports], np.intp
        )

    def _extra_columns(self) -> None:
        """A newer probe may have metrics that this console's catalog has not."""
        for node in self._nodes.values():
            for _, metric in node.cells:
                self._columns.setdefault(metric, len(self._columns))

    def _moment(self, tick: Tick, now_s: float) -> Moment:
        ports = len(self._fabric.ports)
        values = np.full((ports, len(self._columns)), np.nan, np.float32)
        values.ravel()[self._cells] = self._series.rate[self._picked]
        saturated = np.zeros(ports, np.bool_)
        saturated[self._cell_rows[self._series.saturated[self._picked]]] = True
        arrived = [self._series.arrived_s(node.place) for node in self._nodes.values()]
        age_s = (now_s - np.array([*arrived, -np.inf]))[self._row_node].astype(np.float32)
        heat = self._deriver.heat(values)
        up = self._deriver.up(values)
        self._remember(heat, up)
        line_rate = self._deriver.line_rate_bps(values, self._overrides)
        with np.errstate(divide="ignore", invalid="ignore"):
            tx_util = heat[HEAT.index("tx_bps")] / line_rate
            rx_util = heat[HEAT.index("rx_bps")] / line_rate
        busiest = np.fmax(tx_util, rx_util)[self._carries]
        worst = float(np.fmax.reduce(busiest)) if busiest.size else float("nan")
        self._ring.append(tick.seq, heat, worst)
        return Moment(
            seq=tick.seq,
            time_ns=tick.time_ns,
            interval_s=self._interval_s,
            fabric=self._fabric,
            statuses=dict(self._statuses),
            notices={name: tuple(each.values()) for name, each in self._notices.items() if each},
            probe_cpu=self._probe_cpu(),
            columns=self._columns,
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
        )

    def _remember(self, heat: Floats, up: Floats) -> None:
        """Carry over what was known of ports that are silent now."""
        new = heat.shape[1] - self._last_heat.shape[1]
        before = np.pad(self._last_heat, ((0, 0), (0, new)), constant_values=np.nan)
        self._last_heat = np.where(np.isnan(heat), before, heat)
        self._was_up = np.pad(self._was_up, (0, new)) | (up == 1)

    def _probe_cpu(self) -> dict[str, float]:
        """Share of a core that the probe takes on each node."""
        rate = self._series.rate
        return {
            name: float(rate[node.cpu]) / _US_PER_S
            for name, node in self._nodes.items()
            if node.cpu is not None
        }
