"""What a page tells, gathered in one pass over the scenes of a recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.iteration.results import JobIteration
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.model import DOWNLINK, RAIL, UPLINK, Fabric, Port
from fabmon.fabric.snapshot import HEAT, Floats, Snapshot

# Values of ports by time, in few enough bins for a page.


MOST = 240
_DAY_NS = 86_400 * 10**9


class Bins:
    """Equal parts of the time between two ends, at most 240, each at least a tick long."""

    def __init__(self, from_ns: int, until_ns: int, interval_s: float) -> None:
        """`until_ns` is in the last of them; `is_dated` where a time of day alone may mean two."""
        self.from_ns = from_ns
        self.until_ns = until_ns
        ticks = (until_ns - from_ns) / (interval_s * 1e9) + 1
        self.count = max(1, min(MOST, round(ticks)))
        self.is_dated = until_ns - from_ns > _DAY_NS
        self.width_ns = max(1, -(-(until_ns - from_ns + int(interval_s * 1e9)) // self.count))

    def of(self, time_ns: int) -> int:
        """The bin of a time."""
        return min(self.count - 1, max(0, (time_ns - self.from_ns) // self.width_ns))

    def start_ns(self, place: int) -> int:
        """Where a bin begins."""
        return self.from_ns + place * self.width_ns


class Grid:
    """Mean and highest of a value by port row and bin; NaN where none is known."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._sums: NDArray[np.float64] = np.zeros((0, bins.count))
        self._counts: NDArray[np.int64] = np.zeros((0, bins.count), np.int64)
        self._highest: Floats = np.full((0, bins.count), np.nan, np.float32)

    def add(self, values: Floats, time_ns: int) -> None:
        """[ports] at a time."""
        new = len(values) - len(self._sums)
        if new > 0:
            room = ((0, new), (0, 0))
            self._sums = np.pad(self._sums, room)
            self._counts = np.pad(self._counts, room)
            self._highest = np.pad(self._highest, room, constant_values=np.nan)
        at, rows = self._bins.of(time_ns), np.flatnonzero(np.isfinite(values))
        self._sums[rows, at] += values[rows]
        self._counts[rows, at] += 1
        self._highest[rows, at] = np.fmax(self._highest[rows, at], values[rows])

    @property
    def mean(self) -> Floats:
        """[ports, bins]"""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Floats = (self._sums / self._counts).astype(np.float32)
        return mean

    @property
    def highest(self) -> Floats:
        """[ports, bins]"""
        return self._highest


_MOST_EVENTS = 1000
_MOST_FINDINGS = 200
_MOST_BARS = 32


@dataclass(frozen=True, slots=True)
class Bar:
    """A port beside its equals at one tick; numbers are NaN where they are not known."""

    port: str
    label: str
    guilty: bool
    tx_bps: float
    rx_bps: float
    tx_util: float
    rx_util: float
    up: float


@dataclass(slots=True)
class ReportedFinding:
    """A finding as it was told last, and its ports at the tick when it cost the most.

    `more` counts the ports for which there are no bars.
    """

    finding: Finding
    ports: tuple[str, ...]
    at_ns: int
    worst: float
    bars: tuple[Bar, ...]
    more: int


@dataclass(slots=True)
class Digest:
    """All of it. `findings` are in the order in which they began, `left_out` counts those and the
    events that did not fit.
    """

    bins: Bins
    busy: Grid
    paused: Grid
    ticks: int = 0
    fabric: Fabric | None = None
    last: Snapshot | None = None
    findings: dict[tuple[str, int], ReportedFinding] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    rhythms: tuple[JobIteration, ...] = ()
    left_out_findings: int = 0
    left_out_events: int = 0


def digest(scenes: Iterable[Scene], bins: Bins) -> Digest:
    """Of all scenes."""
    made = Digest(bins, Grid(bins), Grid(bins))
    carries: Mask = np.zeros(0, np.bool_)
    for scene in scenes:
        snapshot = scene.snapshot
        if snapshot.fabric is not made.fabric:
            carries = np.array([is_drawn(port, snapshot.fabric) for port in snapshot.fabric.ports])
        made.fabric, made.last = snapshot.fabric, snapshot
        busy = np.fmax(snapshot.tx_util, snapshot.rx_util)
        held = np.fmax(*(snapshot.heat[HEAT.index(name)] for name in ("pause_rx", "pause_tx")))
        made.busy.add(np.where(carries, busy, np.nan), snapshot.time_ns)
        made.paused.add(np.where(carries, held, np.nan), snapshot.time_ns)
        _findings(made, scene, first=made.ticks == 0)
        _events(made, scene)
        made.rhythms = scene.iteration_report.jobs or made.rhythms
        made.ticks += 1
    return made


def is_drawn(port: Port, fabric: Fabric) -> bool:
    """Whether a port has a row: hosts' rails, uplinks, and of the others one end of each cable."""
    if not port.node:
        return False
    if port.role == DOWNLINK:
        return port.peer is None or not fabric.ports[port.peer].node
    return port.role in (RAIL, UPLINK)


def _findings(made: Digest, scene: Scene, *, first: bool) -> None:
    changes = list(scene.changes)
    if first:
        new = {finding.key for _, finding in changes}
        changes += [(Change.OPEN, each) for each in scene.findings if each.key not in new]
    for _, finding in changes:
        key = (finding.key, finding.since_ns)
        told = made.findings.get(key)
        if told is not None:
            told.finding = finding
        elif len(made.findings) >= _MOST_FINDINGS:
            made.left_out_findings += 1
        else:
            ports = tuple(scene.snapshot.fabric.ports[row].id for row in finding.rows)
            made.findings[key] = ReportedFinding(finding, ports, 0, -1.0, (), 0)
    for finding in scene.findings:
        told = made.findings.get((finding.key, finding.since_ns))
        if told is not None and finding.lost > told.worst:
            told.worst, told.at_ns = finding.lost, scene.snapshot.time_ns
            told.bars, told.more = _bars(finding, scene.snapshot)


def _bars(finding: Finding, snapshot: Snapshot) -> tuple[tuple[Bar, ...], int]:
    """The ECMP group of the guilty port, in physical order, then the other ports of the finding."""
    fabric = snapshot.fabric
    rows = [row for row in finding.rows if fabric.ports[row].node]
    group = fabric.group_of(rows[0]) if rows else None
    shown = list(dict.fromkeys([*(group.rows if group is not None else ()), *rows]))
    one = len({fabric.ports[row].node for row in shown}) == 1
    bars = tuple(
        Bar(
            port=port.id,
            label=port.label if one else f"{port.node} {port.label}",
            guilty=row == rows[0],
            tx_bps=float(snapshot.column("tx_bps")[row]),
            rx_bps=float(snapshot.column("rx_bps")[row]),
            tx_util=float(snapshot.tx_util[row]),
            rx_util=float(snapshot.rx_util[row]),
            up=float(snapshot.up[row]),
        )
        for row in shown[:_MOST_BARS]
        for port in [fabric.ports[row]]
    )
    return bars, max(0, len(shown) - _MOST_BARS)


def _events(made: Digest, scene: Scene) -> None:
    """Those of this tick; findings are told of at their own place."""
    for event in reversed(scene.events):
        if event.seq != scene.snapshot.seq:
            break
        if event.kind == "finding":
            continue
        if len(made.events) < _MOST_EVENTS:
            made.events.append(event)
        else:
            made.left_out_events += 1
