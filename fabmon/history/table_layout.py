"""Which series of the nodes fills which cell of the table of ports and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.fabric_builder import PortRows
from fabmon.fabric.flows.queue_pairs import queue_pairs_of
from fabmon.fabric.model import GPU, Fabric, Host
from fabmon.fabric.node_facts import owner_of
from fabmon.fabric.port_source import clock_rank
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wire.messages import Hello
from fabmon.history.derived_metrics import RECORDED_SUMS, MetricDeriver
from fabmon.history.live_rates import FrameSlots

Indices = NDArray[np.intp]
SmallIndices = NDArray[np.int32]
"""Of what is kept for every value of every node: half the memory."""

_PROBE_CPU = "probe_cpu_us"


class Columns(dict[str, int]):
    """Metric name -> its number, in the catalog's order; unknown metrics get the next numbers."""

    def of(self, name: str) -> int:
        """The number of a metric."""
        return self.setdefault(name, len(self))


class NodeSlots:
    """The slots of one node's series, and the cells of the table of ports that they fill.

    `series`, `rows`, `columns`, `groups` and `ranks` are parallel, one element a value that belongs
    to a port; `ranks` are those of their clocks, the best is 0. `block_groups` are the groups of
    the node's blocks in SampleTimes. `cpu` is the slot of the probe's CPU time, None where it is
    not reported. `reported` are the nodes that own ports.
    `may_have_rivals`: two values may be of one metric of one port.
    """

    def __init__(
        self,
        sender: Host,
        given: Mapping[str, Host],
        hello: Hello,
        slots: FrameSlots,
        block_groups: Indices,
        rows: PortRows,
        columns: Columns,
    ) -> None:
        """The slots of what `sender` sends; `given` are the nodes by name."""
        self.hello = hello
        self.queue_pairs = queue_pairs_of(hello)
        self.slots = slots
        self.cpu: int | None = None
        self.reported: set[str] = set()
        series: list[int] = []
        row_of: list[int] = []
        column_of: list[int] = []
        block_of: list[int] = []
        ranks: list[int] = []
        columns_of: dict[tuple[str, ...], list[int]] = {}
        for block, position, item in hello.objects():
            first, width = slots.start + position, len(item.metrics)
            node = owner_of(item, sender, given)
            if item.port is not None and node is not None:
                self.reported.add(node)
                series += range(first, first + width)
                row_of += [rows.of(node, item.port)] * width
                metrics = tuple(item.metrics)
                if metrics not in columns_of:
                    columns_of[metrics] = [columns.of(metric) for metric in metrics]
                column_of += columns_of[metrics]
                block_of += [block] * width
                ranks += [clock_rank(item.info, hello.blocks[block].every)] * width
            elif _PROBE_CPU in item.metrics:
                self.cpu = first + item.metrics.index(_PROBE_CPU)
        self.series: SmallIndices = np.array(series, np.int32)
        self.rows: SmallIndices = np.array(row_of, np.int32)
        self.columns: SmallIndices = np.array(column_of, np.int32)
        self.distinct_columns: SmallIndices = np.unique(self.columns)
        self.ranks: SmallIndices = np.array(ranks, np.int32)
        pairs = self.rows.astype(np.int64) << 32 | self.columns
        has_doubles = len(np.unique(pairs)) < len(pairs)
        self.may_have_rivals = has_doubles or not self.reported <= {sender.name}
        self.groups: SmallIndices = block_groups[np.array(block_of, np.intp)].astype(np.int32)

    def is_same_layout(self, other: NodeSlots) -> bool:
        """Whether the same series fill the same cells."""
        return self.slots == other.slots and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("series", "rows", "columns", "groups", "ranks")
        )


class TableLayout:
    """The cells of the table [ports, metrics] that the series of all nodes fill, for one fabric.

    `metrics` are the columns by name, `has` [ports, metrics] which cells are filled. `picked`,
    `cells`, `cell_rows` and `cell_groups` are parallel, one element a series that fills a cell: its
    slot, the cell in the flat table, its port and its group in SampleTimes. `clocks` are the slots
    of the clocks of all blocks and `clock_node` the numbers of their nodes; `row_node` [ports] is
    the number of the node that reports a port, the number of nodes for none. `senders` are the
    nodes that report other nodes, by the name of those.
    """

    def __init__(self, slots: Mapping[str, NodeSlots], columns: Columns, fabric: Fabric) -> None:
        self._fabric = fabric
        nodes = list(slots.values())
        rows = _joined([node.rows for node in nodes])
        self.picked = _joined([node.series for node in nodes])
        # A port has a tenth of the catalog's metrics: those that no port has get no column.
        used = np.unique(_joined([node.distinct_columns for node in nodes]))
        names = list(columns)
        number_of = np.zeros(len(names), np.intp)
        number_of[used] = np.arange(len(used))
        column = number_of[_joined([node.columns for node in nodes])]
        self.metrics = {names[each]: number for number, each in enumerate(used.tolist())}
        cells = rows * len(used) + column
        node_of = np.repeat(np.arange(len(nodes)), [len(node.rows) for node in nodes])
        order = None
        if any(node.may_have_rivals for node in nodes):
            order = _best_last(cells, _joined([node.ranks for node in nodes]))
        self._has_rivals = order is not None
        if order is not None:
            self.picked, rows, column, cells, node_of = (
                each[order] for each in (self.picked, rows, column, cells, node_of)
            )
        self.cells = cells
        self.cell_rows = rows
        groups = _joined([node.groups for node in nodes])
        self.cell_groups = groups if order is None else groups[order]
        summed = [self.metrics[name] for name in RECORDED_SUMS if name in self.metrics]
        self._sums: Indices = np.flatnonzero(np.isin(column, summed))
        self.has = np.zeros((len(fabric.ports), len(used)), np.bool_)
        self.has.ravel()[cells] = True
        starts = [np.array(node.slots.starts, np.intp) for node in nodes]
        self.clocks = _joined(starts)
        self.clock_node = np.repeat(np.arange(len(nodes)), [len(each) for each in starts])
        self.row_node = np.full(len(self.has), len(nodes), np.intp)
        self.row_node[rows] = node_of
        known = {node.name for node in fabric.nodes}
        self.senders: dict[str, str] = {}
        for sender, node in slots.items():
            self.senders.update(dict.fromkeys((node.reported & known) - {sender}, sender))

    def deriver(self, before: MetricDeriver | None) -> MetricDeriver:
        """What derives metrics from the table; `before` is that of the layout before it."""
        return MetricDeriver(self.metrics, self.has, before, self._gpus_without_links())

    def values(self, rates: Floats) -> Floats:
        """[ports, metrics] with the rates of the picked series; NaN elsewhere."""
        values = self.table(self.cells, rates)
        if len(self._sums):
            # Rules record a sum for each source of a port: ethtool, netdev, rdma.
            known = self._sums[~np.isnan(rates[self._sums])]
            values.ravel()[self.cells[known]] = 0.0
            np.add.at(values.ravel(), self.cells[known], rates[known])
        return values

    def table(self, cells: Indices, rates: Floats) -> Floats:
        """[ports, metrics] with rates at some cells; NaN elsewhere. Of several rates of a cell the
        last one that is known counts."""
        values = np.full(self.has.shape, np.nan, np.float32)
        if self._has_rivals:
            known = ~np.isnan(rates)
            cells, rates = cells[known], rates[known]
        values.ravel()[cells] = rates
        return values

    def _gpus_without_links(self) -> NDArray[np.bool_]:
        """[ports]: whether the port is a GPU and none of its links is a port."""
        found = np.zeros(len(self.has), np.bool_)
        for node in self._fabric.nodes:
            linked = {gpu.row for gpu, _ in node.gpu_links()}
            gpus = [port.row for port in node.ports if port.role == GPU]
            found[[row for row in gpus if row not in linked]] = True
        return found


def _best_last(cells: Indices, ranks: Indices) -> Indices | None:
    """The order in which the values of each cell are from the worst rank to the best, 0; None where
    no cell has two."""
    if len(np.unique(cells)) == len(cells):
        return None
    return np.argsort(-ranks, kind="stable")


def _joined(parts: Sequence[Indices] | Sequence[SmallIndices]) -> Indices:
    return np.concatenate(parts, dtype=np.intp) if parts else np.empty(0, np.intp)
