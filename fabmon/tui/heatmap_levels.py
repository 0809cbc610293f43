"""Which level of the heatmap fits a terminal, and its grid.

The finest level of which all rows fit is chosen: every port, else a row for each leaf, else pods.
At a level without a row for every node, units with findings come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rich.cells import cell_len

from fabmon.fabric.filter import Term
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
from fabmon.tui.heatmap_units import (
    Unit,
    range_name,
    role_starts,
    units_of,
    units_with,
    units_with_findings,
)
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.finding_groups import matching

_GAP = 3
"""Columns between units side by side."""
_MOST_BESIDE = 4
_INDENT = 2
_DETAILS = (
    (True, False),
    (False, False),
    (False, True),
)
"""Whether units have a blank row between them, and whether switches without hosts are single rows;
the roomiest first."""


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
    choice: LevelChoice | None = None,
) -> HeatmapGrid:
    """The grid of a fabric in `width` columns, and in `height` rows if possible."""
    choice = choice or LevelChoice()
    units = units_of(fabric)
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
    captions = 2 if any(unit.switches for unit in with_hosts) else 0
    for beside in range(1, _MOST_BESIDE + 1):
        if beside > max(1, len(with_hosts)):
            break
        columns = columns_of(with_hosts, room.frame(0, beside))
        if beside > 1 and not columns.fits:
            break
        for is_spaced, is_brief in _DETAILS:
            shown = Detail(is_spaced, level is Level.LINKS)
            tall = [height_of(unit, shown) for unit in with_hosts]
            rows = captions + sum(max(tall[at : at + beside]) for at in range(0, len(tall), beside))
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
    labelled = next((unit for unit in with_hosts if unit.switches), None)
    if labelled is not None:
        heads = [common_captions(labelled, frame, plan.columns) for frame in frames]
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
    builder.add(pod_caption(frame, plan))
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


@dataclass(slots=True)
class HeatmapState:
    """The grid as it was laid out last, None before that, and the choices of the user for it.

    `units` are those of the fabric in physical order. `widest` is the width of the widest block of
    cells, in columns.
    """

    grid: HeatmapGrid | None = None
    units: tuple[Unit, ...] = ()
    widest: int = 1
    _choice: LevelChoice = field(default_factory=LevelChoice)
    _fabric: Fabric | None = None
    _grid_of: tuple[Fabric, int, int, LevelChoice] | None = None
    _ordered_by: tuple[frozenset[str], tuple[Term, ...]] = (frozenset(), ())

    def layout(self, ctx: DrawContext, width: int, height: int) -> HeatmapGrid:
        """The grid, computed again only when the fabric, the size, the level or the filter changes,
        or a finding opens or closes."""
        self._update_order(ctx)
        of = (ctx.fabric, width, height, self._choice)
        known = self._grid_of
        if self.grid is None or known is None or known[0] is not of[0] or known[1:] != of[1:]:
            self.grid = build_grid(of[0], width, height, choice=self._choice)
            self._grid_of = of
            parts = (part for row in self.grid.rows for part in row)
            self.widest = max((each.width for part in parts for each in part.blocks), default=1)
        return self.grid

    def _update_order(self, ctx: DrawContext) -> None:
        """Put the units with findings first, or those that the filter matches, in an order that is
        kept while the findings and the filter are the same."""
        fabric, findings, matched = ctx.fabric, ctx.scene.findings, ctx.matched
        is_same = self._fabric is fabric
        if not is_same:
            self._fabric, self.units = fabric, units_of(fabric)
        by = frozenset(finding.key for finding in findings), ctx.choices.terms
        if is_same and by == self._ordered_by:
            return
        self._ordered_by = by
        first = units_with_findings(self.units, fabric, matching(findings, matched))
        if matched is not None:
            first = tuple(dict.fromkeys((*first, *units_with(self.units, matched.nodes))))
        reason = "findings" if matched is None else "matches"
        self._choice = replace(self._choice, first=first, first_have=reason)

    def toggle_unit(self, node: str) -> bool:
        """Expand the unit of a node in place, or collapse it; False if it is in no unit."""
        title = next(
            (unit.title for unit in self.units if any(each.name == node for each in unit.nodes)),
            None,
        )
        if title is None:
            return False
        opened = self._choice.opened
        others = tuple(each for each in opened if each != title)
        self._choice = replace(self._choice, opened=others if title in opened else (*opened, title))
        return True

    def go_back(self, *, keeps_level: bool) -> bool:
        """Collapse the unit that was expanded last, else, unless it is kept, return to the level
        that fits; False where there is nothing to go back from."""
        choice = self._choice
        if choice.opened:
            self._choice = replace(choice, opened=choice.opened[:-1])
        elif choice.level is not None and not keeps_level:
            self._choice = replace(choice, level=None)
        else:
            return False
        return True

    def change_level(self, by: int) -> bool:
        """Choose finer rows (`by` > 0: from pods to leaves, ports, NVLinks) or coarser ones; False
        before the first layout."""
        if self.grid is None:
            return False
        has_links = any(node.gpu_links() for unit in self.units for node in unit.hosts)
        finest = Level.LINKS if has_links else Level.PORTS
        level = Level(min(max(self.grid.level + by, Level.PODS), finest))
        self._choice = replace(self._choice, level=level, opened=())
        return True
