"""The grid that the heatmap shows: its level, the units that are expanded, and their order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fabmon.fabric.filter import Term
from fabmon.fabric.model import Fabric
from fabmon.tui.heatmap_layout import HeatmapGrid, Level
from fabmon.tui.heatmap_levels import LevelChoice, build_grid
from fabmon.tui.heatmap_units import Unit, units_of, units_with, units_with_findings
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.finding_groups import matching


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
            self._fabric, self.units = fabric, units_of(fabric, None)
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
