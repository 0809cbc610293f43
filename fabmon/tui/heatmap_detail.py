"""The rows of a unit at the level of ports: its uplinks, then a row for each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from fabmon.fabric.model import RAIL, SWITCH, Node, Port
from fabmon.tui.heatmap_layout import (
    AGE,
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
    rest,
    slots,
    ticks,
    widest,
)
from fabmon.tui.heatmap_units import Unit, place_of, row_ports, second_ports


@dataclass(frozen=True, slots=True)
class Detail:
    """What is drawn of a unit: a blank row after it, and rows for the NVLinks of each GPU."""

    spaced: bool = False
    links: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """Cells in the rows of nodes (two strips) and of uplinks, and their shapes.

    `fits` is False where there are too many for the width, and neighbours share a cell.
    """

    first: int
    second: int
    uplinks: int
    shape: Shape
    uplink_shape: Shape
    fits: bool


def columns_of(units: Sequence[Unit], frame: Frame) -> Columns:
    """The widest cells with which units, all with hosts or all without, fit a frame."""
    nodes = [node for unit in units for node in _row_nodes(unit)]
    starts = frame.starts if any(unit.hosts for unit in units) else {}
    first = max(
        (place_of(port, starts) + 1 for node in nodes for port in row_ports(node)), default=0
    )
    second = max((len(second_ports(node)) for node in nodes), default=0)
    uplinks = max((len(ports) for unit in units for _, ports in unit.uplinks), default=0)
    gap = BLOCK_GAP if second else 0
    shape = widest(first + second, frame.room - gap)
    uplink_shape = widest(uplinks, frame.room - NOTE - 1) or widest(uplinks, frame.room)
    fits = shape is not None and uplink_shape is not None
    last = SHAPES[-1]
    return Columns(first, second, uplinks, shape or last, uplink_shape or last, fits)


def _row_nodes(unit: Unit) -> tuple[Node, ...]:
    """The nodes of a unit with a row of their own: hosts, else switches."""
    return unit.hosts or unit.switches


def common_captions(unit: Unit, frame: Frame, columns: Columns) -> list[Piece]:
    """The labels above all units with hosts and switches; `unit` is the first of them."""
    node = _node_caption(unit, frame, columns)
    return [_uplink_caption(unit, frame, columns), node] if columns.uplinks else [node]


def _uplink_caption(unit: Unit, frame: Frame, columns: Columns) -> Piece:
    ports = max((ports for _, ports in unit.uplinks), key=len, default=())
    strip = _uplink_strip(ports, frame, columns)
    labels = [_lead("uplinks", frame.cells_x), *ticks(strip, _numbers(strip, ports))]
    return Piece(Kind.CAPTION, frame.x, labels=(*labels, *beside_labels(frame, strip.end, NOTE)))


def _numbers(strip: Strip, ports: Sequence[Port]) -> list[int]:
    """The number, from 1, of the first port of each cell."""
    number_of = {port.row: port.index + 1 for port in ports}
    return [number_of.get(members[0], 0) if members else 0 for members in strip.cells]


def beside_labels(frame: Frame, end: int, note: int) -> list[tuple[int, str]]:
    """Labels of the busiest port and of the curve after cells that end before column `end`."""
    noted, curve = rest(frame, end, note)
    if noted[1]:
        return [(noted[0], "   max")]
    text = f"traffic of the last {curve[1]} ticks"
    return [(curve[0], text)] if curve[1] > cell_len(text) else []


def _lead(text: str, x: int) -> tuple[int, str]:
    """A label that ends one column before `x`."""
    return x - cell_len(text) - 1, text


def _node_caption(unit: Unit, frame: Frame, columns: Columns) -> Piece:
    """Labels of the ports in the rows of nodes, and the title of a unit that has no row."""
    labels: list[tuple[int, str]] = []
    title = "" if unit.hosts and unit.switches else unit.title
    nodes = _row_nodes(unit)
    if not unit.hosts:
        node = max(nodes, key=lambda each: len(row_ports(each)))
        strips = _node_strips(node, frame, columns)
        for strip, ports in zip(strips, (row_ports(node), second_ports(node)), strict=False):
            labels += ticks(strip, _numbers(strip, ports))
        labels += beside_labels(frame, strips[-1].end, 0)
        return Piece(Kind.CAPTION, frame.x, title, unit.title, labels=tuple(labels))
    named: dict[int, str] = {}
    for node in nodes:
        for port in row_ports(node):
            label = str(port.index) if port.role == RAIL else port.label
            named.setdefault(place_of(port, frame.starts), label)
    pitch = sum(columns.shape)
    gap = BLOCK_GAP if columns.second else 0
    for node in nodes:
        for index, port in enumerate(second_ports(node)):
            named.setdefault(columns.first + index, port.label)
    room = max(1, columns.shape[0])
    for place, label in sorted(named.items()):
        shown = label if cell_len(label) <= room else label[-room:]
        shift = gap if place >= columns.first else 0
        labels.append((frame.cells_x + shift + place * pitch, shown))
    labels += beside_labels(frame, _end_of_cells(frame, columns), 0)
    has_rails = any(port.role == RAIL for node in nodes for port in row_ports(node))
    if has_rails and not title:
        labels.insert(0, _lead("rail", frame.cells_x))
    return Piece(Kind.CAPTION, frame.x, title, unit.title, labels=tuple(labels))


def _end_of_cells(frame: Frame, columns: Columns) -> int:
    """The column after the cells of a node with all ports: curves begin there in every row, so that
    one label is true of all."""
    gap = BLOCK_GAP if columns.second else 0
    return frame.cells_x + (columns.first + columns.second) * sum(columns.shape) + gap


def _uplink_strip(ports: Sequence[Port], frame: Frame, columns: Columns) -> Strip:
    cells: tuple[Members, ...] = tuple((port.row,) for port in ports)
    return Strip(frame.cells_x, columns.uplink_shape, merged(cells, _most(frame, columns)))


def _most(frame: Frame, columns: Columns) -> int:
    """Cells that fit a row."""
    return max(1, frame.room // sum(columns.uplink_shape)) if not columns.fits else columns.uplinks


def _node_strips(node: Node, frame: Frame, columns: Columns) -> tuple[Strip, ...]:
    starts = {} if node.role == SWITCH else frame.starts
    first = slots(row_ports(node), starts, columns.first)
    strips = [Strip(frame.cells_x, columns.shape, _fitting(first, frame, columns))]
    second = tuple((port.row,) for port in second_ports(node))
    if second:
        x = strips[0].end + BLOCK_GAP
        room = (frame.x + frame.width - x) // sum(columns.shape)
        strips.append(Strip(x, columns.shape, merged(second, max(1, room))))
    return tuple(strips)


def _fitting(cells: tuple[Members, ...], frame: Frame, columns: Columns) -> tuple[Members, ...]:
    if columns.fits:
        return cells
    return merged(cells, max(1, (frame.room - (BLOCK_GAP + 8 if columns.second else 0))))


def height_of(unit: Unit, detail: Detail) -> int:
    """The number of rows of a unit."""
    nodes = _row_nodes(unit)
    first = len(unit.switches) if unit.hosts and unit.switches else 1
    links = sum(len(node.gpu_links()) for node in nodes) if detail.links else 0
    return first + len(nodes) + links + detail.spaced


def rows_of(unit: Unit, frame: Frame, columns: Columns, detail: Detail) -> list[Piece]:
    """The rows of a unit: uplinks, or labels of those without, nodes, and a blank one."""
    made = []
    if unit.hosts and unit.switches:
        known = {node.name: ports for node, ports in unit.uplinks}
        for switch in unit.switches:
            made.append(_uplink_row(unit, switch, known.get(switch.name, ()), frame, columns))
    else:
        made.append(_node_caption(unit, frame, columns))
    for node in _row_nodes(unit):
        strips = _node_strips(node, frame, columns)
        end = strips[-1].end
        is_aligned = bool(unit.hosts) and columns.fits
        _, curve = rest(frame, _end_of_cells(frame, columns) if is_aligned else end, 0)
        left = min(AGE, frame.x + frame.width - end)
        age = (end + AGE - left, left) if left >= AGE - 1 else (0, 0)
        made.append(
            Piece(Kind.NODE, frame.x, node.name, unit.title, (node,), strips, note=age, curve=curve)
        )
        if detail.links:
            made += _link_rows(unit, node, frame)
    if detail.spaced:
        made.append(Piece(Kind.CAPTION, frame.x))
    return made


def _uplink_row(
    unit: Unit, switch: Node, ports: Sequence[Port], frame: Frame, columns: Columns
) -> Piece:
    strip = _uplink_strip(ports, frame, columns)
    note, curve = rest(frame, strip.end, NOTE)
    return Piece(
        Kind.UPLINKS, frame.x, switch.name, unit.title, (switch,), (strip,), note=note, curve=curve
    )


def _link_rows(unit: Unit, node: Node, frame: Frame) -> list[Piece]:
    """A row for each GPU of a node with its NVLinks."""
    made = []
    for gpu, links in node.gpu_links():
        cells: tuple[Members, ...] = tuple((port.row,) for port in links)
        shape = widest(len(cells), frame.room - NOTE - 1) or SHAPES[-1]
        strip = Strip(frame.cells_x, shape, merged(cells, frame.room // sum(shape)))
        note, curve = rest(frame, strip.end, NOTE)
        title = f"  {gpu.label}"
        piece = Piece(
            Kind.GPU, frame.x, title, unit.title, (node,), (strip,), note=note, curve=curve
        )
        made.append(piece)
    return made
