"""The jobs: where each runs, what it sends, what slows it."""

from __future__ import annotations

from textual.app import ComposeResult

from fabmon.analysis.job_summary import JobSummary
from fabmon.tui.line import JobTarget, Line
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.pages import jobs
from fabmon.tui.widgets.lines import LineView, Painted


class JobsScreen(LineScreen):
    """A row for each job; opening one filters the overview to it."""

    VIEW = "jobs"

    def __init__(self, screen_state: ScreenState) -> None:
        """With no job known."""
        super().__init__(screen_state)
        self._jobs: dict[str, JobSummary] = {}

    def body(self) -> ComposeResult:
        """The table, and the job under the cursor in words."""
        yield from super().body()
        yield Painted(id="inspect")

    def draw(self, ctx: DrawContext) -> None:
        """Draw the table and the job under the cursor."""
        super().draw(ctx)
        self._draw_details(ctx)

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The table of jobs."""
        found = jobs.summaries(ctx)
        self._jobs = {each.job.number: each for each in found}
        return jobs.page(ctx, found)

    def on_highlighted(self) -> None:
        """Draw the job under the cursor."""
        ctx = self.context()
        if ctx is not None:
            self._draw_details(ctx)

    def _draw_details(self, ctx: DrawContext) -> None:
        target = self.query_one(LineView).selected
        job = self._jobs.get(target.number) if isinstance(target, JobTarget) else None
        lines = [] if job is None else jobs.details(ctx.sized(ctx.width - 1), job)
        widget = self.put("#inspect", lines)
        shown = len(lines) if widget.display else 0
        if shown != (widget.size.height if widget.display else 0) or bool(lines) != widget.display:
            self.resize(widget, len(lines))
