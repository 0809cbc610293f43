"""The fabric at one tick: rates and states as arrays by port row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.flows.sampled import SampledTraffic
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.jobs.job_table import NO_JOBS, JobTable
from fabmon.fabric.model import Fabric
from fabmon.fabric.tick import STALE_READS, NodeState, NodeStatus
from fabmon.fabric.wire.messages import Notice

WAYS = ("tx", "rx")


@dataclass(frozen=True, slots=True)
class BurstSamples:
    """The samples of a burst so far: bytes of one port, sampled many times a second. `time_ns` is
    the console's wall clock when it began to arrive.

    `source` counts the bytes (`ib`: on RoCE those of RDMA alone; `netdev`: the kernel's stack).
    `at_s` [samples] is the node's monotonic clock, 0 at the first; `counts` [2, samples] are tx and
    rx bytes, each 0 at its first sample, NaN where it could not be read. `error` is why samples are
    missing.
    """

    time_ns: int
    asked_hz: float
    asked_s: float
    source: str
    at_s: NDArray[np.float64]
    counts: NDArray[np.float64]
    done: bool
    error: str = ""


Floats = NDArray[np.float32]
Rows = NDArray[np.intp]

RING_TICKS = 900
"""Ticks for which the history keeps the traffic of every port, and the busiest link: 15 minutes at
one a second."""

MOST_OF_LINE_RATE = 1.1
"""A rate may be above the line rate by so much where reads are late. One that is more above it is
wrong: no share is made of it."""


class RateHistory(Protocol):
    """Rates of the last minutes, from the history."""

    def window(self, column: str, rows: Sequence[int] | Rows, ticks: int, end_seq: int) -> Floats:
        """Values [len(rows), ticks] of a HEAT column up to `end_seq`; NaN where there are none.

        Traffic is kept for the whole ring; the other columns, and single NVLinks, for two minutes.
        """

    def worst(self, ticks: int, end_seq: int) -> Floats:
        """Utilisation [ticks] of the busiest direction of any fabric link, 0 to 1; NaN if none."""


class AlignedHistory(Protocol):
    """Rates of the last ticks between instants that are common to all ports."""

    def window(self, column: str, ticks: int, end_seq: int, rows: Rows | None = None) -> Floats:
        """Values [ports, ticks] of a HEAT column, or [len(rows), ticks] of some ports, an interval
        apart, the last between the latest instants of which nearly all nodes have samples at
        `end_seq`; NaN where there are none."""

    def spread_s(self, ticks: int, end_seq: int) -> float:
        """The longest time between the samples of one of some ticks up to `end_seq`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One tick, immutable. NaN is absent everywhere: not supported, not permitted, not yet known.

    `values` is float32 [ports, columns]: per second for counters, the level for gauges; `columns`
    names those that some port has, as the catalog does. `heat` is float32 [len(HEAT), ports].
    `line_rate_bps` and the rest are [ports]; utilisation is bits/s over line rate, per direction,
    as it is counted: `believed` leaves out what the line does not carry.
    `last_heat` is `heat`, with the last known value where a port fell silent. `up` is 1 up, 0 down,
    NaN unknown; `was_up` is True where the port has been up since the start. `age_s` is the time
    since the port's last sample, infinite where there was none; `period_s` the usual time from one
    to the next, a tick or more; `stale` is True where the last sample is older than STALE_READS of
    its periods. `rated_since` is the `seq` of the tick at which the line rate changed last, 0 where
    it did not; `best_line_rate_bps` is the highest since the start. `saturated` is True where some
    counter of the port is saturated; `stuck` are the flat indices of those counters in `values`.
    `bursts` are the last fast samples of a port, by node and port. `connections` are the flows that
    hosts report. `logs` are, by node, the last message of each kind that its kernel logged about a
    device, oldest first. `sampled` are the flows that switches sampled. `jobs` are those that run
    on the watched nodes; `jobs_read_ns` is when Slurm reported its own last (wall clock, 0: never).
    `clock_jumped_ns` is by how much the wall clock, and with it `time_ns`, was set since the tick
    before.
    """

    seq: int
    time_ns: int
    interval_s: float
    fabric: Fabric
    statuses: dict[str, NodeStatus]
    notices: dict[str, tuple[Notice, ...]]
    probe_cpu: dict[str, float]
    columns: dict[str, int]
    values: Floats
    heat: Floats
    last_heat: Floats
    line_rate_bps: Floats
    best_line_rate_bps: Floats
    tx_util: Floats
    rx_util: Floats
    up: Floats
    was_up: NDArray[np.bool_]
    age_s: Floats
    period_s: Floats
    saturated: NDArray[np.bool_]
    past: RateHistory
    aligned: AlignedHistory
    connections: Connections
    rated_since: Rows = field(default_factory=lambda: np.empty(0, np.intp))
    stuck: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    bursts: Mapping[tuple[str, str], BurstSamples] = field(default_factory=dict)
    logs: Mapping[str, tuple[Notice, ...]] = field(default_factory=dict)
    sampled: SampledTraffic | None = None
    jobs: JobTable = NO_JOBS
    jobs_read_ns: int = 0
    collectives: CollectiveReport | None = None
    clock_jumped_ns: int = 0
    stale: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        is_late = self.age_s > STALE_READS * self.period_s
        object.__setattr__(self, "stale", is_late & np.isfinite(self.age_s))

    @property
    def nodes_up(self) -> int:
        """The number of nodes that send data."""
        return sum(status.state is NodeState.UP for status in self.statuses.values())

    @property
    def is_first_sample(self) -> bool:
        """Whether the nodes have been up too briefly for a rate, which needs two reads."""
        since_ns = [s.since_ns for s in self.statuses.values() if s.state is NodeState.UP]
        waited_s = (self.time_ns - min(since_ns, default=0)) / 1e9
        return waited_s <= STALE_READS * self.interval_s

    def state(self, row: int) -> str:
        """`up`, `down`, `stale` or `unknown`, of one port."""
        if self.stale[row]:
            return "stale"
        up = self.up[row]
        return "unknown" if np.isnan(up) else "up" if up else "down"

    def is_stuck(self, name: str) -> NDArray[np.bool_]:
        """[ports]: whether a catalog metric is saturated, so that its rate is unknown."""
        found = np.zeros(len(self.up), np.bool_)
        position = self.columns.get(name)
        if position is not None and len(self.stuck):
            width = self.values.shape[1]
            found[self.stuck[self.stuck % width == position] // width] = True
        return found

    def column(self, name: str) -> Floats:
        """[ports] of a HEAT column or of a catalog metric; all NaN when no port has it. Do not
        modify."""
        if name in HEAT:
            heat: Floats = self.heat[HEAT.index(name)]
            return heat
        position = self.columns.get(name)
        if position is None:
            return np.broadcast_to(np.float32(np.nan), self.up.shape)
        column: Floats = self.values[:, position]
        return column

    def window(self, column: str, rows: Sequence[int] | Rows, ticks: int) -> Floats:
        """[len(rows), ticks] of a HEAT column up to and including this tick, oldest first."""
        return self.past.window(column, rows, ticks, self.seq)

    def worst(self, ticks: int) -> Floats:
        """[ticks] utilisation of the busiest link, oldest first."""
        return self.past.worst(ticks, self.seq)


def shares_of_line(bps: Floats, line_rate_bps: Floats) -> Floats:
    """Rates as shares of line rates of the same shape; NaN for what the line does not carry."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return believed(bps / line_rate_bps)


def believed(shares: Floats) -> Floats:
    """Shares of line rate, NaN where they cannot be."""
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(shares > MOST_OF_LINE_RATE, np.float32(np.nan), shares)
    return found


FIRST_SAMPLE = "the first sample is being taken"


def unknown_ports(snapshot: Snapshot) -> NDArray[np.bool_]:
    """[ports]: whether neither direction has a rate, of ports that are not down: they are not
    judged."""
    rates = snapshot.heat[[HEAT.index("tx_bps"), HEAT.index("rx_bps")]]
    unknown: NDArray[np.bool_] = np.isnan(rates).all(axis=0) & (snapshot.up != 0)
    return unknown


def has_line_rates(snapshot: Snapshot) -> bool:
    """Whether the line rate of any port is known: without it no link is judged to be full."""
    return bool((snapshot.line_rate_bps > 0).any())
