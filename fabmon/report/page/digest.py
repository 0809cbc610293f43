"""What a page tells, gathered in one pass over the scenes of a recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.rhythm.rhythm import Rhythm
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.model import DOWNLINK, RAIL, UPLINK, Fabric, Port
from fabmon.fabric.moment import HEAT, Moment
from fabmon.report.page.bins import Bins, Grid

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
class Told:
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
    last: Moment | None = None
    findings: dict[tuple[str, int], Told] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    rhythms: tuple[Rhythm, ...] = ()
    left_out_findings: int = 0
    left_out_events: int = 0


def digest(scenes: Iterable[Scene], bins: Bins) -> Digest:
    """Of all scenes."""
    made = Digest(bins, Grid(bins), Grid(bins))
    carries: Mask = np.zeros(0, np.bool_)
    for scene in scenes:
        moment = scene.moment
        if moment.fabric is not made.fabric:
            carries = np.array([is_drawn(port, moment.fabric) for port in moment.fabric.ports])
        made.fabric, made.last = moment.fabric, moment
        busy = np.fmax(moment.tx_util, moment.rx_util)
        held = np.fmax(*(moment.heat[HEAT.index(name)] for name in ("pause_rx", "pause_tx")))
        made.busy.add(np.where(carries, busy, np.nan), moment.time_ns)
        made.paused.add(np.where(carries, held, np.nan), moment.time_ns)
        _findings(made, scene, first=made.ticks == 0)
        _events(made, scene)
        made.rhythms = scene.beats.rhythms or made.rhythms
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
            ports = tuple(scene.moment.fabric.ports[row].id for row in finding.rows)
            made.findings[key] = Told(finding, ports, 0, -1.0, (), 0)
    for finding in scene.findings:
        told = made.findings.get((finding.key, finding.since_ns))
        if told is not None and finding.lost > told.worst:
            told.worst, told.at_ns = finding.lost, scene.moment.time_ns
            told.bars, told.more = _bars(finding, scene.moment)


def _bars(finding: Finding, moment: Moment) -> tuple[tuple[Bar, ...], int]:
    """The ECMP group of the guilty port, in physical order, then the other ports of the finding."""
    fabric = moment.fabric
    rows = [row for row in finding.rows if fabric.ports[row].node]
    group = fabric.group_of(rows[0]) if rows else None
    shown = list(dict.fromkeys([*(group.rows if group is not None else ()), *rows]))
    one = len({fabric.ports[row].node for row in shown}) == 1
    bars = tuple(
        Bar(
            port=port.id,
            label=port.label if one else f"{port.node} {port.label}",
            guilty=row == rows[0],
            tx_bps=float(moment.column("tx_bps")[row]),
            rx_bps=float(moment.column("rx_bps")[row]),
            tx_util=float(moment.tx_util[row]),
            rx_util=float(moment.rx_util[row]),
            up=float(moment.up[row]),
        )
        for row in shown[:_MOST_BARS]
        for port in [fabric.ports[row]]
    )
    return bars, max(0, len(shown) - _MOST_BARS)


def _events(made: Digest, scene: Scene) -> None:
    """Those of this tick; findings are told of at their own place."""
    for event in reversed(scene.events):
        if event.seq != scene.moment.seq:
            break
        if event.kind == "finding":
            continue
        if len(made.events) < _MOST_EVENTS:
            made.events.append(event)
        else:
            made.left_out_events += 1
