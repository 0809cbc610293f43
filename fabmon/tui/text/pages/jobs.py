"""The page of jobs: a row for each, and what is special about the one under the cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.style import Style

from fabmon.analysis.causes import brief_loss, finding_title, sentence
from fabmon.analysis.finding import holds, shown_moment
from fabmon.analysis.job_summary import JobSummary, job_summaries, placement_text
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.jobs.collectives import Collective, CollectiveReport
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.jobs.job_table import MOST_OF_NODE
from fabmon.fabric.model import HOST
from fabmon.fabric.time_wording import SECOND_NS, duration, time_of_day
from fabmon.fabric.wording import (
    byte_count,
    byte_rate,
    percent_range,
    plural,
    rate,
    rounded_percent,
)
from fabmon.tui.cells import FADED_MARK
from fabmon.tui.line import JobTarget, Line, Span, fit, line, more_rows, paragraph, right, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.text import chart, labels
from fabmon.tui.text.draw_context import DrawContext

_LEAST_NAME, _MOST_NAME = 8, 32
_ABSENT = "·"
_WIDE = 100
_BEFORE_CURVE = 20
"""Columns before the curve of a job."""
_MOST_CURVE = 4
"""Rows of the curve of a job."""
_MOST_DETAILS = 3
"""Lines of each fact about the job under the cursor, but its finding."""
_MOST_ROWS = 256
"""Jobs with a row, 0.3 ms each at every tick: of more, a filter chooses."""
_OLD_S = 90
"""Records of NCCL Inspector that are older say when they are from."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its title, its width, the width of the page from which on it is shown, and the text
    of a job."""

    title: str
    width: int
    least_page: int
    text: Callable[[JobSummary, DrawContext], str]
    align: Literal["left", "right"] = "right"


def _traffic(job: JobSummary, ctx: DrawContext) -> str:
    """What its NICs send, in the chosen unit; a share is that of all of them."""
    if job.tx_bps is None:
        return _ABSENT
    return rate(job.tx_bps, job.rails_bps * len(job.nodes), ctx.choices.unit)


def _step(job: JobSummary, _: DrawContext) -> str:
    return _ABSENT if job.iteration is None else job.iteration.step_text


def _communication(job: JobSummary, _: DrawContext) -> str:
    if job.iteration is None:
        return _ABSENT
    return percent_range(job.iteration.comm_low, job.iteration.comm_high)


def _worst(job: JobSummary, ctx: DrawContext) -> str:
    if job.worst_row is None:
        return _ABSENT
    port = ctx.fabric.ports[job.worst_row]
    return f"{fit(port.display_name, 14)} {rounded_percent(job.worst_util):>5}"


def _runs(job: JobSummary, ctx: DrawContext) -> str:
    if not job.job.start_ns:
        return _ABSENT
    return duration(max(0, ctx.snapshot.time_ns - job.job.start_ns) / SECOND_NS)


_COLUMNS = (
    _Column("partition", 10, 120, lambda job, _: job.job.partition or _ABSENT, "left"),
    _Column("nodes", 5, 0, lambda job, _: _count(job.nodes, job.job.nodes)),
    _Column("leaves", 6, 0, lambda job, _: str(len(job.placement.leaves) or _ABSENT)),
    _Column("pods", 4, 130, lambda job, _: str(len(job.pods) or _ABSENT)),
    _Column("traffic", 9, 0, _traffic),
    _Column("step", 7, 0, _step),
    _Column("comm", 10, 100, _communication),
    _Column(
        "busbw", 9, 0, lambda job, _: _ABSENT if not job.busbw_bps else byte_rate(job.busbw_bps)
    ),
    _Column("busiest link", 20, 110, _worst, "left"),
    _Column("for", 11, 150, _runs),
)


def _count(watched: Sequence[str], every: Sequence[str]) -> str:
    """`16`, or `12/16` where not all nodes of a job are watched."""
    whole = len(every)
    return str(whole) if len(watched) == whole else f"{len(watched)}/{whole}"


def matching(ctx: DrawContext) -> list[Job]:
    """The jobs that match the filter, by number."""
    matched, table = ctx.matched, ctx.snapshot.jobs
    return [
        job
        for job in table.jobs
        if matched is None or not matched.nodes.isdisjoint(table.nodes_of(job))
    ]


def summaries(ctx: DrawContext, jobs: Sequence[Job]) -> tuple[JobSummary, ...]:
    """Those of these jobs that have a row: as many as can be drawn at every tick."""
    return job_summaries(ctx.scene, jobs[:_MOST_ROWS], (ctx.snapshot, ctx.window))


def page(ctx: DrawContext, every: Sequence[Job], jobs: Sequence[JobSummary]) -> list[Line]:
    """How many jobs run, from where that is known, and a row for each of `jobs`; `every` are all
    that match the filter."""
    palette, report = ctx.palette, ctx.snapshot.jobs.report
    lines = [_summary(ctx, every)]
    moved = (
        f"{job.label} runs on {fold(job.nodes)} now, which is not watched: add it to --hosts"
        for job in ctx.snapshot.jobs.moved[:_MOST_DETAILS]
    )
    notes = () if report is None else report.notes
    cut = map(_cut, list(ctx.snapshot.jobs.cut.items())[:_MOST_DETAILS])
    inspector = _inspector_problem(ctx.snapshot.collectives)
    for text in (_reason(report), *notes, *moved, *cut, inspector):
        lines += paragraph(text, ctx.width, palette.accent, indent=1)
    lines.append(line(("", palette.text)))
    if not jobs:
        is_hidden = bool(ctx.snapshot.jobs.jobs)
        text = "No job matches the filter" if is_hidden else _why_none(report)
        return lines + paragraph(text, ctx.width, palette.dim)
    columns = [each for each in _COLUMNS if ctx.width >= each.least_page]
    findings = len(_findings_title(ctx))
    number = _widest(jobs, lambda job: job.job.number, 3, 14)
    user = _widest(jobs, lambda job: job.job.user, 4, 10)
    taken = 3 + number + 2 + 2 + user + sum(2 + each.width for each in columns) + 2 + findings
    name = max(_LEAST_NAME, min(_MOST_NAME, ctx.width - taken))
    head = f"   {fit('job', number)}  {fit('name', name)}  {fit('user', user)}"
    for each in columns:
        head += f"  {_aligned(each, each.title)}"
    lines.append(line((fit(f"{head}  {_findings_title(ctx)}", ctx.width), palette.dim)))
    room = ctx.height - len(lines) - sum(2 + len(job.findings) for job in jobs)
    tall = min(_MOST_CURVE, room // max(1, len(jobs)))
    for job in jobs:
        lines.append(_row(ctx, job, columns, number, name, user))
        if tall > 0:
            lines += _below(ctx, job, tall)
    return lines + more_rows(len(every) - len(jobs), "job", palette.dim)


def _below(ctx: DrawContext, job: JobSummary, rows: int) -> list[Line]:
    """What a job sent in the last ticks as a curve, and its findings, where there is room."""
    palette, known = ctx.palette, np.isfinite(job.sent_bps)
    if not known.any():
        return []
    top = float(np.nanmax(job.sent_bps))
    most = f"  max {rate(top, job.rails_bps * len(job.nodes), ctx.choices.unit)}"
    span = duration(len(job.sent_bps) * ctx.snapshot.interval_s)
    first = right(f"sent in {span} ", _BEFORE_CURVE)
    columns = max(1, min(len(job.sent_bps) * 2, ctx.width - _BEFORE_CURVE - len(most) - 1))
    lines = [
        line(
            (first if place == 0 else " " * _BEFORE_CURVE, palette.dim),
            (text, palette.tx),
            (most if place == 0 else "", palette.dim),
        )
        for place, text in enumerate(chart.bars(job.sent_bps, columns, rows, top or 1.0))
    ]
    for finding in job.findings:
        sign, accent = labels.finding_sign(finding, ctx.snapshot, palette)
        loss = brief_loss(finding)
        spans = (
            (" " * _BEFORE_CURVE + f"{sign} {finding_title(finding)} ", accent),
            (labels.subject_name(finding, ctx.fabric), palette.text),
            (f", {loss}" if loss else "", palette.text),
        )
        lines.append(line(*spans))
    return [*lines, line(("", palette.text))]


def ras_page(ctx: DrawContext, texts: Sequence[str]) -> list[Line]:
    """What RAS said of a job; long lines are wrapped."""
    return [
        each
        for text in texts
        for each in paragraph(text, ctx.width, ctx.palette.text, indent=1)
        or [line(("", ctx.palette.text))]
    ]


def details(ctx: DrawContext, job: JobSummary) -> list[Line]:
    """Where a job's nodes are, if they are not together, and its first finding."""
    palette = ctx.palette
    label_of = {each.number: each.label for each in ctx.snapshot.jobs.jobs}
    placed = placement_text(job.placement, label_of)
    lines = []
    if placed:
        text = f"{job.job.label}: {placed}"
        lines += paragraph(text, ctx.width, palette.text, indent=1)[:_MOST_DETAILS]
    for text in [_collective(each, job, ctx) for each in job.collectives[:_MOST_DETAILS]]:
        lines += paragraph(text, ctx.width, palette.text, indent=1)[:_MOST_DETAILS]
    if job.findings:
        first = job.findings[0]
        sign, accent = labels.finding_sign(first, ctx.snapshot, palette)
        head = f"{sign} {finding_title(first)}:"
        start, *more = wrap(f"{head} {sentence(first, ctx.snapshot)}", ctx.width - 4)
        lines.append(line((f" {head}", accent), (start.removeprefix(head), palette.text)))
        lines += [line((f"   {text}", palette.text)) for text in more]
    return lines


def _collective(each: Collective, job: JobSummary, ctx: DrawContext) -> str:
    """`NCCL: AllReduce 256 MiB 312 GB/s busbw, 78 % of a node's NICs, on 16 nodes, lowest gpu007
    290 GB/s; busiest link leaf1 up5 98 %`."""
    what = " ".join(filter(None, (each.operation, each.size)))
    parts = [f"NCCL: {what} {_busbw(each.busbw)} busbw"]
    is_inside = each.nodes == 1
    if is_inside:
        parts.append(f"inside the node ({plural(each.ranks, 'rank')})")
    elif job.rails_bps:
        parts.append(f"{rounded_percent(each.busbw * 8 / job.rails_bps)} of a node's NICs")
    if each.nodes > 1:
        parts.append(f"on {each.nodes} nodes")
    if len(each.hosts) > 1:
        parts.append(f"lowest {each.lowest_host} {_busbw(each.lowest)}")
    if ctx.snapshot.time_ns - each.latest_ns > _OLD_S * SECOND_NS:
        parts.append(f"as of {time_of_day(each.latest_ns)}")
    link = ""
    if not is_inside and job.worst_row is not None:
        port = ctx.fabric.ports[job.worst_row]
        link = f"; busiest link {port.display_name} {rounded_percent(job.worst_util)}"
    return f"{', '.join(parts)}{link}"


def _busbw(bytes_per_s: float) -> str:
    return byte_rate(bytes_per_s * 8)


def _inspector_problem(report: CollectiveReport | None) -> str:
    """What is missing of NCCL Inspector's records; empty where nothing is."""
    if report is None:
        return ""
    parts = [report.reason] if report.reason else []
    if report.lost:
        parts.append(f"{plural(report.lost, 'record')} lost by full rings of communicators")
    if report.skipped:
        size = byte_count(report.skipped)
        parts.append(f"{size} skipped: its files grow faster than they may be read")
    if report.unread:
        parts.append(f"{plural(report.unread, 'line')} or files are no records")
    return f"NCCL Inspector: {'; '.join(parts)}" if parts else ""


def _summary(ctx: DrawContext, jobs: Sequence[Job]) -> Line:
    palette, table = ctx.palette, ctx.snapshot.jobs
    hosts = {node.name for node in ctx.fabric.nodes if node.role == HOST}
    busy = {node for job in jobs for node in table.nodes_of(job)}
    users = {job.user for job in jobs if job.user}
    of = f" of {plural(len(users), 'user')}" if users else ""
    spans: list[Span] = [
        (f" {plural(len(jobs), 'job')}", palette.strong),
        (f"{of} on {len(busy)} of {plural(len(hosts), 'host')}", palette.text),
    ]
    held = [each for each in ctx.scene.findings if holds(each, ctx.snapshot)]
    named = {label for finding in held for label in shown_moment(finding).jobs}
    hurt = sum(job.label in named for job in jobs)
    if hurt:
        spans.append((f"   ▲ {hurt} with findings", palette.accent))
    report = ctx.snapshot.jobs.report
    if report is not None and not report.reason:
        spans.append((f"   from {report.source}", palette.dim))
    return Line(tuple(spans))


def _reason(report: JobReport | None) -> str:
    """Why the scheduler's jobs are not known, or old; empty where they are current."""
    if report is None or not report.reason:
        return ""
    if report.read_ns:
        return f"As of {time_of_day(report.read_ns)}: {report.reason}"
    return f"Numbers of jobs alone, from processes that use RDMA: {report.reason}"


def _cut(of_node: tuple[str, int]) -> str:
    """That a node reports more jobs than are taken."""
    node, count = of_node
    return f"{node} reports {plural(count, 'job')} of its processes: {MOST_OF_NODE} are shown"


def _why_none(report: JobReport | None) -> str:
    if report is not None and not report.reason:
        return "No job runs on the watched nodes"
    return "No process that uses RDMA belongs to a Slurm job, as far as the nodes show"


def _row(
    ctx: DrawContext,
    job: JobSummary,
    columns: Sequence[_Column],
    number: int,
    name: int,
    user: int,
) -> Line:
    palette = ctx.palette
    spans: list[Span] = [
        _mark(job, ctx),
        (f"{fit(job.job.number, number)}  ", palette.strong),
        (f"{fit(job.job.name or _ABSENT, name)}  ", palette.text),
        (fit(job.job.user or _ABSENT, user), palette.text),
    ]
    for each in columns:
        text = each.text(job, ctx)
        spans.append((f"  {_aligned(each, text)}", _style(each, job, text, palette)))
    held = sum(holds(each, ctx.snapshot) for each in job.findings)
    sign, style = ("▲", palette.accent) if held else (FADED_MARK, palette.dim)
    count = f"{sign} {held or len(job.findings)}" if job.findings else _ABSENT
    spans.append((f"  {right(count, len(_findings_title(ctx)))}", style))
    return line(*spans, target=JobTarget(job.job.number))


def _findings_title(ctx: DrawContext) -> str:
    return "findings" if ctx.width >= _WIDE else "  ▲"


def _mark(job: JobSummary, ctx: DrawContext) -> Span:
    """The sign of the most severe finding, of those that hold if any does."""
    if not job.findings:
        return "   ", ctx.palette.text
    first = min(job.findings, key=lambda each: not holds(each, ctx.snapshot))
    sign, accent = labels.finding_sign(first, ctx.snapshot, ctx.palette)
    return f" {sign} ", accent


def _style(column: _Column, job: JobSummary, text: str, palette: Palette) -> Style:
    if text == _ABSENT:
        return palette.dim
    if column.title == "leaves" and job.placement.least_leaves < len(job.placement.leaves):
        return palette.key
    return palette.dim if column.title in ("partition", "for") else palette.text


def _aligned(column: _Column, text: str) -> str:
    return right(text, column.width) if column.align == "right" else fit(text, column.width)


def _widest(
    jobs: Sequence[JobSummary], text: Callable[[JobSummary], str], least: int, most: int
) -> int:
    return min(most, max(least, *(len(text(job)) for job in jobs)))
