"""Units as single rows, and pods: rows that several units share. A cell is the busiest port."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from fabmon.fabric.model import Node
from fabmon.tui.heatmap_layout import (
    BLOCK_GAP,
    NOTE,
    SHAPES,
    Frame,
    Kind,
    Members,
    Piece,
    Shape,
    Strip,
    merged,
    ticks,
)
from fabmon.tui.heatmap_units import Unit, range_name, row_ports, second_ports

_MOST_CELLS = 64
"""Cells of one strip, at most."""
MAX_UPLINK = "max uplink"
"""The label of the busiest port of a row: of its uplinks, not of its hosts."""
_BUSIEST = 13
_BUSIEST_IN_POD = 21
"""Columns of the highest value and its port: `58.3 % up20`, in a pod `58.3 % leaf181 up20`."""
_LEAST_CURVE, _MOST_CURVE = 12, 60
"""Columns of the curve of a unit's hosts."""
_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((3, 1), (3, 1)),
    ((3, 1), (1, 1)),
    ((3, 1), (1, 0)),
    ((2, 1), (1, 0)),
    ((1, 0), (1, 0)),
)
"""Shapes of (hosts, uplinks) to try for the row of a unit."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Cells in the rows of units: hosts, their GPUs, uplinks; and their shapes."""

    hosts: int
    gpus: int
    uplinks: int
    shape: Shape
    uplink_shape: Shape

    @property
    def width(self) -> int:
        """Columns of all cells."""
        strips = [(self.hosts, self.shape), (self.gpus, self.shape)]
        strips.append((self.uplinks, self.uplink_shape))
        used = [count * sum(shape) for count, shape in strips if count]
        return sum(used) + BLOCK_GAP * (len(used) - 1)


def summary_of(units: Iterable[Unit], frame: Frame) -> Summary | None:
    """The widest cells with which units fit a frame beside their busiest port; None without."""
    with_hosts = [unit for unit in units if unit.hosts]
    hosts = min(max((len(unit.hosts) for unit in with_hosts), default=0), _MOST_CELLS)
    has_gpus = any(second_ports(node) for unit in with_hosts for node in unit.hosts)
    count = max((sum(len(p) for _, p in unit.uplinks) for unit in with_hosts), default=0)
    uplinks = min(count, _MOST_CELLS)
    while True:
        for shape, uplink_shape in _SHAPES:
            made = Summary(hosts, hosts if has_gpus else 0, uplinks, shape, uplink_shape)
            if made.width + NOTE <= frame.room:
                return made
        if max(hosts, uplinks) <= 4:
            return None
        hosts, uplinks = min(hosts, max(4, hosts // 2)), min(uplinks, max(4, uplinks // 2))


def caption(units: Sequence[Unit], frame: Frame, summary: Summary) -> Piece:
    """The labels above the rows of units."""
    largest = max(units, key=lambda unit: sum(len(ports) for _, ports in unit.uplinks))
    strips = unit_strips(largest, frame, summary)
    names = ["hosts", *(["NVLink"] if summary.gpus else []), "uplinks"]
    labels = [(strip.x, name) for strip, name in zip(strips, names, strict=False)]
    if largest.hosts and summary.uplinks and len(strips) == len(names):
        room = strips[-1].x - (strips[-2].x + len(names[-2])) - 2
        numbers = _numbers(largest, strips[-1])
        labels.pop()
        if room >= len("uplinks"):
            labels.append((strips[-1].x - len("uplinks") - 1, "uplinks"))
        labels += ticks(strips[-1], numbers)
    most = MAX_UPLINK if largest.hosts and summary.uplinks else "   max"
    labels.append((frame.cells_x + summary.width + 1, most))
    if largest.hosts:
        labels += _curve_labels(_unit_curve(frame, summary))
    return Piece(Kind.CAPTION, frame.x, "", labels=tuple(labels))


def _numbers(unit: Unit, strip: Strip) -> list[int]:
    number_of = {port.row: port.index + 1 for _, ports in unit.uplinks for port in ports}
    return [number_of.get(members[0], 0) if members else 0 for members in strip.cells]


def unit_strips(unit: Unit, frame: Frame, summary: Summary) -> tuple[Strip, ...]:
    """The strips of a unit: hosts, GPUs and uplinks; of one without hosts: its switches, or the
    ports of its only switch."""
    x, shape = frame.cells_x, summary.shape
    if not unit.hosts:
        return (_switch_strip(unit, frame, summary),)
    strips = []
    each = [_rows(node) for node in unit.hosts]
    strips.append(Strip(x, shape, _filled(merged(each, summary.hosts), summary.hosts)))
    if summary.gpus:
        inside = [tuple(port.row for port in second_ports(node)) for node in unit.hosts]
        x = strips[-1].end + BLOCK_GAP
        strips.append(Strip(x, shape, _filled(merged(inside, summary.gpus), summary.gpus)))
    links: list[Members] = [(port.row,) for _, ports in unit.uplinks for port in ports]
    if summary.uplinks:
        x = strips[-1].end + BLOCK_GAP
        strips.append(Strip(x, summary.uplink_shape, merged(links, summary.uplinks)))
    return tuple(strips)


def _rows(node: Node) -> Members:
    return tuple(port.row for port in row_ports(node))


def _filled(cells: tuple[Members, ...], count: int) -> tuple[Members, ...]:
    return (*cells, *([()] * (count - len(cells))))


def _switch_strip(unit: Unit, frame: Frame, summary: Summary) -> Strip:
    if len(unit.switches) > 1:
        cells = [_rows(node) + tuple(p.row for p in second_ports(node)) for node in unit.switches]
    else:
        node = unit.switches[0]
        cells = [(port.row,) for port in (*row_ports(node), *second_ports(node))]
    shape = summary.shape
    if len(cells) * sum(shape) > summary.width:
        shape = SHAPES[-1]
    return Strip(frame.cells_x, shape, merged(cells, max(1, summary.width // sum(shape))))


def unit_row(unit: Unit, frame: Frame, summary: Summary) -> Piece:
    """The row of a unit, with all room after its cells for a text."""
    strips = unit_strips(unit, frame, summary)
    x = frame.cells_x + summary.width + 1
    note = (x, max(0, frame.x + frame.width - x))
    curve = _unit_curve(frame, summary) if unit.hosts else (0, 0)
    return Piece(
        Kind.UNIT, frame.x, unit.title, unit.title, unit.nodes, strips, note=note, curve=curve
    )


def _curve(frame: Frame, x: int) -> tuple[int, int]:
    """(x, columns) of the traffic of the hosts of a row, from `x` on; (0, 0) if too few."""
    columns = min(frame.x + frame.width - x, _MOST_CURVE)
    return (x, columns) if columns >= _LEAST_CURVE else (0, 0)


def _unit_curve(frame: Frame, summary: Summary) -> tuple[int, int]:
    return _curve(frame, frame.cells_x + summary.width + 1 + _BUSIEST)


def _pod_curve(frame: Frame, plan: PodPlan) -> tuple[int, int]:
    return _curve(frame, frame.cells_x + plan.width() + 1 + _BUSIEST_IN_POD)


def _curve_labels(curve: tuple[int, int]) -> list[tuple[int, str]]:
    """The label above curves, if it fits."""
    x, columns = curve
    texts = (f"traffic, last {columns} ticks", "traffic")
    return [(x, text) for text in texts if len(text) <= columns][:1]


@dataclass(frozen=True, slots=True)
class PodPlan:
    """How units share rows: so many per row, cells of a unit's hosts, the shape of all cells."""

    per_row: int
    hosts: int
    shape: Shape

    def width(self) -> int:
        """Columns of the cells of hosts, with a gap between units, and of those of uplinks."""
        gap = 1 if self.hosts > 1 else 0
        return (self.per_row * (self.hosts + gap + 1)) * sum(self.shape) + BLOCK_GAP


def pod_runs(units: Sequence[Unit], per_row: int) -> list[tuple[Unit, ...]]:
    """Runs of up to `per_row` units of the same pod; units without hosts are runs of their own."""
    runs: list[tuple[Unit, ...]] = []
    for (_, has_hosts), run in groupby(units, key=lambda unit: (unit.pod, bool(unit.hosts))):
        each = list(run)
        step = per_row if has_hosts else 1
        runs += [tuple(each[at : at + step]) for at in range(0, len(each), step)]
    return runs


def pod_plan(units: Sequence[Unit], frame: Frame, rows: int) -> PodPlan:
    """The plan with the fewest units per row that fits the width and, if one does, the height."""
    most = max((len(unit.hosts) for unit in units), default=1)
    fitting: list[PodPlan] = []
    for per_row in (2, 3, 4, 6, 8, 12, 16, 24, 32, 64):
        for hosts in dict.fromkeys((min(most, 32), min(most, 8), min(most, 4), 1)):
            for shape in ((2, 1), (1, 1), (1, 0)):
                plan = PodPlan(per_row, hosts, shape)
                if plan.width() + NOTE <= frame.room:
                    fitting.append(plan)
        for plan in fitting:
            if plan.per_row == per_row and len(pod_runs(units, per_row)) <= rows:
                return plan
    return fitting[-1] if fitting else PodPlan(4, 1, SHAPES[-1])


def pod_name(run: Sequence[Unit]) -> str:
    """The name of a run of units: from the first to the last."""
    return range_name([run[0].title, run[-1].title])


def pod_row(run: Sequence[Unit], frame: Frame, plan: PodPlan, units: str) -> Piece:
    """The row of several units: the hosts of each, then a cell for the uplinks of each."""
    hosts: list[Members] = []
    uplinks: list[Members] = []
    for unit in run:
        each = [_rows(node) for node in unit.hosts]
        hosts += _filled(merged(each, plan.hosts), plan.hosts)
        hosts += [()] if plan.hosts > 1 else []
        uplinks.append(tuple(port.row for _, ports in unit.uplinks for port in ports))
    first = Strip(frame.cells_x, plan.shape, tuple(hosts))
    gap = 1 if plan.hosts > 1 else 0
    x = frame.cells_x + plan.per_row * (plan.hosts + gap) * sum(plan.shape) + BLOCK_GAP - gap
    second = Strip(x, plan.shape, tuple(uplinks))
    end = frame.cells_x + plan.width() + 1
    nodes = tuple(node for unit in run for node in unit.nodes)
    note = (end, max(0, frame.x + frame.width - end))
    strips, curve = (first, second), _pod_curve(frame, plan)
    return Piece(Kind.POD, frame.x, units, run[0].title, nodes, strips, note=note, curve=curve)


def pod_caption(frame: Frame, plan: PodPlan) -> Piece:
    """The labels above the rows of pods."""
    gap = 1 if plan.hosts > 1 else 0
    x = frame.cells_x + plan.per_row * (plan.hosts + gap) * sum(plan.shape) + BLOCK_GAP - gap
    end = frame.cells_x + plan.width() + 1
    curve = _curve_labels(_pod_curve(frame, plan))
    labels = ((frame.cells_x, "hosts"), (x, "uplinks"), (end, MAX_UPLINK), *curve)
    return Piece(Kind.CAPTION, frame.x, labels=labels)
