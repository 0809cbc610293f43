"""The question before NCCL's RAS is asked for a job: a query can crash it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from fabmon.analysis.nccl_ras.versions import parse_version, refusal
from fabmon.fabric.jobs.job import Job
from fabmon.tui.line import line, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.widgets.lines import Painted
from fabmon.tui.widgets.prompts import Prompt

YES = "yes"
"""The answer that leaves the version to the libraries that the job's processes have mapped."""

MOST_TRIED = 4
"""Nodes of a job that are connected to until one accepts: each may take seconds."""


class RasNotAsked(Exception):
    """RAS was not asked, or did not answer as it should; the message says why."""


class RasQuestion(Prompt):
    """Asks whether to send a query; its result is `yes`, the version, or None if cancelled."""

    def __init__(self, job: Job, nodes: Sequence[str], palette: Palette) -> None:
        """About a job; the first of its nodes that accepts a connection is asked."""
        super().__init__("ask RAS?", f"{YES}, or its version as in 2.29.3", palette, wrong_answer)
        others = nodes[1:MOST_TRIED]
        else_ = f" (if it accepts no connection: {', '.join(others)})" if others else ""
        self._text = (
            f"Ask NCCL's RAS on {nodes[0]}{else_} for the status of {job.label}? One query is sent."
            " With NCCL"
            " before 2.29.2 and with 2.29.7 a query can crash the job: these versions, and unknown"
            f" ones, are refused. Type {YES} to look for the version in the libraries that its"
            " processes have mapped, or type the version; esc cancels."
        )

    def compose(self) -> ComposeResult:
        """The risk, above the line to type in."""
        yield Painted(id="risk")
        yield from super().compose()

    def on_resize(self) -> None:
        """Draw the risk in the width of the terminal."""
        parts = wrap(self._text, max(20, self.app.size.width - 3))
        risk = self.query_one("#risk", Painted)
        risk.styles.height = len(parts)
        risk.show([line((f" {part}", self._palette.accent)) for part in parts], self._palette.text)


def wrong_answer(text: str) -> str:
    """What is wrong with an answer; empty where it permits a query."""
    if text.strip() == YES:
        return ""
    version = parse_version(text)
    if version is None:
        return f"type {YES}, or the version of its NCCL with three numbers; esc cancels"
    why_not = refusal(version)
    return f"not asked: {why_not}" if why_not is not None else ""
