"""Which level of the heatmap fits a terminal, and its grid.

The finest level of which all rows fit is chosen: every port, else a row for each leaf, else pods.
At a level without a row for every node, units with findings come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.cells import cell_len

from fabmon.fabric.model import Fabric
from fabmon.fabric.wording import plural
from fabmon.tui.heatmap_detail import (
    Columns,
    Detail,
    columns_of,
    common_captions,
    height_of,
    rows_of,
)
from fabmon.tui.heatmap_layout import (
    Frame,
    GridBuilder,
    HeatmapGrid,
    Kind,
    Level,
    Piece,
    name_width,
)
from fabmon.tui.heatmap_summary import (
    Summary,
    caption,
    pod_caption,
    pod_name,
    pod_plan,
    pod_row,
    pod_runs,
    summary_of,
    unit_row,
)
from fabmon.tui.heatmap_units import Unit, range_name, role_starts, units_of

_GAP = 3
"""Columns between units side by side."""
_MOST_BESIDE = 4
_INDENT = 2
_DETAILS = (
    (Detail(spaced=True), False),
    (Detail(), False),
    (Detail(), True),
    (Detail(captions=False), False),
    (Detail(captions=False), True),
)
"""How leaves are drawn, and whether switches without hosts are single rows; the roomiest first."""


@dataclass(frozen=True, slots=True)
class LevelChoice:
    """What the user chose: a level (None: the finest that fits), and the titles of `opened` units.

    `first` are the titles of units with findings or with matches of the filter (`first_have`), in
    their order.
    """

    level: Level | None = None
    opened: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    first_have: str = "findings"


@dataclass(frozen=True, slots=True)
class _Room:
    """The units, and the room for them."""

    fabric: Fabric
    units: tuple[Unit, ...]
    width: int
    height: int
    name: int
    starts: dict[str, int]

    def frame(self, x: int = 0, beside: int = 1) -> Frame:
        """The frame from column `x` on if so many units are side by side."""
        width = (self.width - (beside - 1) * _GAP) // beside
        return Frame(x, width - x if beside == 1 else width, self.name, self.starts)

    def frames(self, beside: int) -> list[Frame]:
        """The frames of so many units side by side."""
        width = self.frame(0, beside).width
        return [self.frame(number * (width + _GAP), beside) for number in range(beside)]

    def builder(self, level: Level) -> GridBuilder:
        """For the rows of a level."""
        return GridBuilder(level, len(self.fabric.ports), self.name)


def build_grid(
    fabric: Fabric,
    width: int,
    height: int,
    keep: frozenset[str] | None = None,
    choice: LevelChoice | None = None,
) -> HeatmapGrid:
    """The grid of a fabric in `width` columns, and in `height` rows if possible.

    `keep` are the names of the nodes to show (None: all).
    """
    choice = choice or LevelChoice()
    units = units_of(fabric, keep)
    room = _Room(fabric, units, width, height, name_width(units, width), role_starts(fabric))
    level = choice.level
    if level in (None, Level.PORTS, Level.LINKS):
        plan = _port_plan(room, level)
        if plan is not None:
            return _port_grid(room, plan)
    ordered = _findings_first(units, choice.first)
    if level is not Level.PODS:
        beside = _beside(room, len(ordered), choice)
        if beside is not None:
            return _leaf_grid(room, ordered, choice, beside)
    return _pod_grid(room, choice)


def _findings_first(units: Sequence[Unit], first: Sequence[str]) -> list[Unit]:
    by_title = {unit.title: unit for unit in units}
    leading = [by_title[title] for title in first if title in by_title]
    return [*leading, *(unit for unit in units if unit.title not in first)]


@dataclass(frozen=True, slots=True)
class _PortPlan:
    """How units with hosts are drawn, so many side by side; others in full, or as single rows."""

    level: Level
    beside: int
    detail: Detail
    columns: Columns
    brief: bool


def _port_plan(room: _Room, level: Level | None) -> _PortPlan | None:
    """The plan for a row for every node; None if the rows do not fit and no level is wanted."""
    with_hosts = [unit for unit in room.units if unit.hosts]
    others = [unit for unit in room.units if not unit.hosts]
    for beside in range(1, _MOST_BESIDE + 1):
        if beside > max(1, len(with_hosts)):
            break
        columns = columns_of(with_hosts, room.frame(0, beside))
        if beside > 1 and not columns.fits:
            break
        for detail, is_brief in _DETAILS:
            shown = Detail(detail.captions, detail.spaced, level is Level.LINKS)
            tall = [height_of(unit, shown) for unit in with_hosts]
            rows = sum(max(tall[at : at + beside]) for at in range(0, len(tall), beside))
            rows += 0 if detail.captions else 2
            rows += sum(1 if is_brief else height_of(unit, shown) for unit in others)
            # The last blank row needs no room.
            if rows - shown.spaced <= room.height:
                return _PortPlan(level or Level.PORTS, beside, shown, columns, is_brief)
    if level is None:
        return None
    columns = columns_of(with_hosts, room.frame())
    return _PortPlan(level, 1, Detail(links=level is Level.LINKS), columns, False)


def _port_grid(room: _Room, plan: _PortPlan) -> HeatmapGrid:
    builder, frames = room.builder(plan.level), room.frames(plan.beside)
    with_hosts = [unit for unit in room.units if unit.hosts]
    if with_hosts and not plan.detail.captions:
        heads = [common_captions(with_hosts[0], frame, plan.columns) for frame in frames]
        for pieces in zip(*heads[: len(with_hosts)], strict=True):
            builder.add(*pieces)
    for at in range(0, len(with_hosts), plan.beside):
        band = with_hosts[at : at + plan.beside]
        _add_band(
            builder,
            [
                rows_of(unit, frame, plan.columns, plan.detail)
                for unit, frame in zip(band, frames, strict=False)
            ],
        )
    others = [unit for unit in room.units if not unit.hosts]
    if plan.brief:
        summary = summary_of(room.units, room.frame()) or _NO_SUMMARY
        for unit in others:
            builder.add(unit_row(unit, room.frame(), summary))
        return builder.grid()
    columns = columns_of(others, room.frame())
    for unit in others:
        _add_band(builder, [rows_of(unit, room.frame(), columns, plan.detail)])
    return builder.grid()


_NO_SUMMARY = Summary(4, 0, 4, (1, 0), (1, 0))


def _add_band(builder: GridBuilder, columns: Sequence[Sequence[Piece]]) -> None:
    """Add units side by side; the shorter ones end earlier."""
    for y in range(max(map(len, columns))):
        builder.add(*(column[y] for column in columns if y < len(column)))


def _beside(room: _Room, count: int, choice: LevelChoice) -> int | None:
    """How many units share a row at the level of leaves; None if they need more rows than fit."""
    leading = len(choice.first)
    for beside in range(1, _MOST_BESIDE):
        if summary_of(room.units, room.frame(0, beside)) is None:
            break
        if 2 + leading + -(-(count - leading) // beside) <= room.height:
            return beside
    return 1 if choice.level is Level.LEAVES else None


def _leaf_grid(
    room: _Room, ordered: Sequence[Unit], choice: LevelChoice, beside: int
) -> HeatmapGrid:
    builder, frames = room.builder(Level.LEAVES), room.frames(beside)
    summary = summary_of(room.units, frames[0]) or _NO_SUMMARY
    known = {unit.title for unit in room.units}
    leading = sum(title in known for title in choice.first)
    builder.add(_sentence(room.units, leading, choice.first_have))
    heads = [caption(room.units, frame, summary) for frame in frames]
    builder.add(*heads)
    for unit in ordered[:leading]:
        builder.add(unit_row(unit, room.frame(), summary))
        _add_opened(builder, room, [unit], choice)
    for at in range(leading, len(ordered), beside):
        band = ordered[at : at + beside]
        builder.add(
            *(unit_row(unit, frame, summary) for unit, frame in zip(band, frames, strict=False))
        )
        _add_opened(builder, room, band, choice)
    return builder.grid()


def _pod_grid(room: _Room, choice: LevelChoice) -> HeatmapGrid:
    titles = [unit.title for unit in room.units if unit.hosts]
    if titles:
        longest = max(cell_len(range_name(pair)) for pair in pairwise([*titles, titles[-1]]))
        room = replace(room, name=min(max(room.name, longest), max(8, room.width // 5)))
    builder, frame = room.builder(Level.PODS), room.frame()
    known = {unit.title: unit for unit in room.units}
    leading = [known[title] for title in choice.first if title in known]
    shown = leading[: max(1, room.height // 4)]
    summary = summary_of(room.units, frame) or _NO_SUMMARY
    builder.add(_sentence(room.units, len(leading), choice.first_have))
    used = 2
    if shown:
        builder.add(caption(room.units, frame, summary))
        used += 1
    for unit in shown:
        builder.add(unit_row(unit, frame, summary))
        _add_opened(builder, room, [unit], choice)
    plan = pod_plan(room.units, frame, room.height - used - len(shown))
    builder.add(pod_caption(frame, plan, ""))
    opened = [title for title in choice.opened if title not in choice.first]
    for run in pod_runs(room.units, plan.per_row):
        if run[0].hosts:
            builder.add(pod_row(run, frame, plan, pod_name(run)))
        else:
            builder.add(unit_row(run[0], frame, summary))
        _add_opened(builder, room, run, LevelChoice(opened=tuple(opened)))
    return builder.grid()


def _add_opened(
    builder: GridBuilder, room: _Room, units: Iterable[Unit], choice: LevelChoice
) -> None:
    """Add the rows of those of the units that are expanded."""
    for unit in units:
        if unit.title in choice.opened:
            for piece in _opened(room, unit):
                builder.add(piece)


def _opened(room: _Room, unit: Unit) -> Iterator[Piece]:
    frame = room.frame(_INDENT)
    yield from rows_of(unit, frame, columns_of([unit], frame), Detail(spaced=True))


def _sentence(units: Sequence[Unit], leading: int, have: str) -> Piece:
    """What the rows are, and in which order."""
    leaves = sum(1 for unit in units for _ in unit.uplinks) or len(units)
    noun = "leaf" if any(unit.uplinks for unit in units) else "group"
    counted = f"{leaves} leaves" if noun == "leaf" and leaves != 1 else plural(leaves, noun)
    hosts = plural(sum(len(unit.hosts) for unit in units), "host")
    first = f"{leading} with {have} first" if leading else "in physical order"
    text = f"{counted}, {hosts} · {first} · enter expands, . more detail"
    return Piece(Kind.TEXT, 1, text)
