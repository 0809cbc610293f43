"""The views that are pages of lines: switches, nodes, findings, node, port, jobs, matrix, help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from fabmon.analysis.job_summary import JobSummary
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.tick import NodeState
from fabmon.fabric.topology.tier_matrix import TierLink, TierMatrix, tables
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.line import (
    FoldTarget,
    JobTarget,
    Line,
    NodeTarget,
    PairTarget,
    PortTarget,
    Span,
    line,
)
from fabmon.tui.metrics import heat_metric
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen, ZoomableScreen
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.header import colour_legend, mark_legend
from fabmon.tui.text.key_help import help_page
from fabmon.tui.text.pages import findings, jobs, matrix, node, nodes, port, switches
from fabmon.tui.widgets.lines import FoldRequested, LineView, OpenRequested, Painted
from fabmon.tui.widgets.prompts import FilterBar

_USUAL_MINUTES = 5


@dataclass
class BurstRequested(Message):
    """The user asked for fast samples of a port."""

    port: Port


class PortScreen(ZoomableScreen, LineScreen):
    """The charts of a port and every counter that it has."""

    VIEW = "port"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.PORT)]

    def __init__(
        self, screen_state: ScreenState, shown: Port, past: RecordedPast | None = None
    ) -> None:
        """Of a port: a row is never given to another port. `past` reads the recording."""
        super().__init__(screen_state, _USUAL_MINUTES, past)
        self.port = shown

    def crumb(self) -> str:
        """The name of the port."""
        return self.port.display_name

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The page of the port."""
        ports = ctx.fabric.ports
        if self.port.row >= len(ports) or not ports[self.port.row].node:
            return self.message(f"{self.port.display_name} does not exist any more")
        long = self.trend(ctx) if self.zoom.is_timeline else None
        return port.page(ctx, ports[self.port.row], long or self.zoom.minutes)

    def title_parts(self) -> list[list[Span]]:
        """The path, and the progress of reading the recording."""
        progress = self.progress if self.zoom.is_timeline else ""
        return [*super().title_parts(), *([[(progress, self.palette.accent)]] if progress else [])]

    def action_burst(self) -> None:
        """Request fast samples; the page shows them as they arrive."""
        self.post_message(BurstRequested(self.port))


class SwitchesScreen(LineScreen):
    """The uplinks of each switch side by side."""

    VIEW = "switches"

    def __init__(self, screen_state: ScreenState) -> None:
        super().__init__(screen_state)
        self._shown_key = ""

    def draw(self, ctx: DrawContext) -> None:
        """Draw the page; when another finding is selected, as the first one is, scroll to its
        port."""
        super().draw(ctx)
        key = ctx.selected_key
        if key != self._shown_key and ctx.selection is not None:
            for row in ctx.selection.finding.rows[:1]:
                # After the layout: before it there is nothing to scroll.
                self.call_after_refresh(self.query_one(LineView).select, PortTarget(row))
        self._shown_key = key

    def lines(self, ctx: DrawContext) -> list[Line]:
        """One block per switch."""
        return switches.page(ctx)


class RetryRequested(Message):
    """Nodes that are lost or failed are to be connected to now."""


class NodesScreen(LineScreen):
    """The connection state of every node; shown first, while nodes are being connected."""

    VIEW = "nodes"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.NODES)]

    def __init__(self, screen_state: ScreenState) -> None:
        super().__init__(screen_state)
        self._expanded: frozenset[FoldTarget] = frozenset()

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The table of nodes."""
        return nodes.nodes_page(ctx, self._expanded)

    def action_retry(self) -> None:
        """Connect to nodes that are lost or failed."""
        self.post_message(RetryRequested())

    def on_open_requested(self, event: OpenRequested) -> None:
        """Expand or collapse nodes that failed for the same reason; the app opens nodes."""
        if isinstance(event.target, FoldTarget):
            event.stop()
            self._expanded ^= {event.target}
            self.paint()

    def on_fold_requested(self, event: FoldRequested) -> None:
        """Expand nodes that failed for the same reason, or collapse them."""
        if isinstance(event.target, FoldTarget):
            event.stop()
            own = {event.target}
            self._expanded = self._expanded | own if event.unfold else self._expanded - own
            self.paint()


class FindingsScreen(LineScreen):
    """Open findings in full, then events."""

    VIEW = "findings"

    def on_screen_resume(self) -> None:
        """Put the cursor on the selected finding."""
        if not self.screen_state.follows_first:
            self.query_one(LineView).restore(self.selected_target())
        super().on_screen_resume()

    def lines(self, ctx: DrawContext) -> list[Line]:
        """Findings and events."""
        return findings.page(ctx)


class NodeScreen(LineScreen):
    """The ports of one node, and what it reports of itself."""

    VIEW = "node"

    def __init__(self, screen_state: ScreenState, target: NodeTarget) -> None:
        super().__init__(screen_state)
        self._node = target.node
        self._start = target.row

    def crumb(self) -> str:
        """The name of the node."""
        return self._node

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The page of the node."""
        try:
            found = ctx.fabric.node(self._node)
        except KeyError:
            return self.message(f"{self._node} is not watched")
        return node.node_page(ctx, found)

    def draw(self, ctx: DrawContext) -> None:
        """Draw the page; the first time, select the port of the target."""
        super().draw(ctx)
        if self._start is not None:
            self.query_one(LineView).select(PortTarget(self._start))
            self._start = None


class HelpScreen(LineScreen):
    """Keys and glossary for the view below."""

    VIEW = "help"
    SEARCHES_WORDS = True

    def __init__(self, screen_state: ScreenState, view: str) -> None:
        super().__init__(screen_state)
        self._view = view
        self._search = ""

    @property
    def filter_text(self) -> str:
        """The words that are searched for."""
        return self._search

    def footer_labels(self) -> Mapping[str, str]:
        """What `/` does in help."""
        return {"filter": "search"}

    def filter_part(self) -> list[list[Span]]:
        """The words that are searched for, as a part of the title."""
        return [[(f"search: {self._search}", self.palette.accent)]] if self._search else []

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        """Search for what is typed."""
        event.stop()
        event.prevent_default()  # The base class would filter the fabric.
        self._search = event.text
        self.query_one(LineView).scroll_home(animate=False, immediate=True)
        self.paint()

    def on_screen_suspend(self) -> None:
        """Begin at the top, with all of it, when it is opened again."""
        self._search = ""
        self.query_one(LineView).scroll_home(animate=False, immediate=True)

    def crumb(self) -> str:
        """`help: overview`."""
        return f"help: {self._view}"

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The page of help."""
        return self.waiting_lines(ctx.width)

    def waiting_lines(self, width: int) -> list[Line]:
        """The same: help needs no scene."""
        return help_page(self._view, width, self.palette, self.screen_state.keys, self._search)


class RasRequested(Message):
    """NCCL's RAS is to be asked for a job, which runs on some watched nodes: those that answer are
    first."""

    def __init__(self, job: Job, nodes: tuple[str, ...]) -> None:
        super().__init__()
        self.job = job
        self.nodes = nodes


class DetailedScreen(LineScreen):
    """Lines, and below them more about the one under the cursor, in the widget `DETAILS`."""

    DETAILS: ClassVar[str] = "inspect"

    def body(self) -> ComposeResult:
        """Title, lines and details."""
        yield from super().body()
        yield Painted(id=self.DETAILS)

    def draw(self, ctx: DrawContext) -> None:
        """Draw title, lines and details."""
        super().draw(ctx)
        self.draw_details(ctx)

    def draw_details(self, ctx: DrawContext) -> None:
        """Draw the details of the line under the cursor."""
        raise NotImplementedError

    def on_highlighted(self) -> None:
        """Draw the details of the line that is now under the cursor."""
        ctx = self.context()
        if ctx is not None:
            self.draw_details(ctx)


class JobsScreen(DetailedScreen):
    """A row for each job; opening one filters the overview to it. What RAS said of one is shown in
    their place, until it is left."""

    VIEW = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.JOBS)]

    def __init__(self, screen_state: ScreenState) -> None:
        super().__init__(screen_state)
        self._jobs: dict[str, JobSummary] = {}
        self._answering: frozenset[str] = frozenset()
        self._ras: list[str] = []

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The table of jobs."""
        if self._ras:
            return jobs.ras_page(ctx, self._ras)
        every = jobs.matching(ctx)
        found = jobs.summaries(ctx, every)
        self._jobs = {each.job.number: each for each in found}
        self._answering = frozenset(
            name for name, status in ctx.snapshot.statuses.items() if status.state is NodeState.UP
        )
        return jobs.page(ctx, every, found)

    def action_ras(self) -> None:
        """Request that NCCL's RAS is asked for the job under the cursor."""
        target = self.query_one(LineView).selected
        job = self._jobs.get(target.number) if isinstance(target, JobTarget) else None
        if job is not None:
            nodes = sorted(job.nodes, key=lambda node: node not in self._answering)
            self.post_message(RasRequested(job.job, tuple(nodes)))

    def show_ras(self, texts: list[str]) -> None:
        """Show what RAS said."""
        self._ras = texts
        self.query_one(LineView).scroll_home(animate=False, immediate=True)
        self.paint()

    def go_back(self) -> bool:
        """Leave what RAS said."""
        if not self._ras:
            return False
        self._ras = []
        self.paint()
        return True

    def draw_details(self, ctx: DrawContext) -> None:
        """Draw the job under the cursor in words."""
        target = self.query_one(LineView).selected
        job = self._jobs.get(target.number) if isinstance(target, JobTarget) else None
        lines = [] if job is None else jobs.details(ctx.sized(ctx.width - 1), job)
        widget = self.put("#inspect", lines)
        shown = len(lines) if widget.display else 0
        if shown != (widget.size.height if widget.display else 0) or bool(lines) != widget.display:
            self.resize(widget, len(lines))


class MatrixScreen(DetailedScreen):
    """The traffic between every pair of switches of neighbouring tiers."""

    VIEW = "matrix"

    def __init__(self, screen_state: ScreenState) -> None:
        super().__init__(screen_state)
        self._fabric: Fabric | None = None
        self._tables: tuple[TierMatrix, ...] = ()

    def draw_details(self, ctx: DrawContext) -> None:
        """Draw the pair under the cursor in words."""
        target, text = self.query_one(LineView).selected, line(("", self.palette.text))
        if isinstance(target, PairTarget):
            text = matrix.pair_summary(ctx, target, _links(self._tables, target))
        self.put("#inspect", [text])

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The tables, recomputed when the fabric changes."""
        if self._fabric is not ctx.fabric:
            self._fabric, self._tables = ctx.fabric, tables(ctx.fabric)
        return matrix.page(ctx, self._tables)

    def title_parts(self) -> list[list[Span]]:
        """The path, the meaning of a cell, the scale and the marks."""
        return [
            *super().title_parts(),
            [("left half up, right half down, % of line rate", self.palette.text)],
            colour_legend(heat_metric("tx"), self.screen_state.choices.digits, self.palette),
            *mark_legend(self.palette),
        ]


class PairScreen(LineScreen):
    """The links between two switches."""

    VIEW = "pair"

    def __init__(self, screen_state: ScreenState, target: PairTarget) -> None:
        super().__init__(screen_state)
        self._pair = target

    def crumb(self) -> str:
        """The names of both switches."""
        return matrix.pair_title(self._pair)

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The page of the pair."""
        links = _links(tables(ctx.fabric), self._pair)
        if not links:
            return self.message(f"{matrix.pair_title(self._pair)} are not connected any more")
        return matrix.pair_page(ctx, self._pair, links)


def _links(every: tuple[TierMatrix, ...], target: PairTarget) -> tuple[TierLink, ...]:
    return tuple(link for table in every for link in table.cells.get(target, ()))
