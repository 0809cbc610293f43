"""Training iterations as text: step time, its last change and the communication share of a job."""

from __future__ import annotations

from fabmon.analysis.iteration.model_arithmetic import DELIVERED
from fabmon.analysis.iteration.results import JobIteration, exposed_at_most
from fabmon.analysis.job_summary import leaves_of
from fabmon.fabric.time_wording import interval, measured
from fabmon.fabric.wording import (
    Unit,
    byte_count,
    number,
    percent_range,
    plural,
    rate,
    rounded_percent,
)
from fabmon.tui.line import Line, Span, line, wrap
from fabmon.tui.text.draw_context import DrawContext

_WORTH_SHOWING = 0.95
"""The best possible step time is shown where it is below this share of the measured one."""
_ONE_NUMBER = 0.05
"""A communication share whose bounds are nearer than this is shown as their mean."""
MOST_JOBS = 3
"""Jobs in the panel of the overview; the view of findings has all."""


def title(ctx: DrawContext) -> list[list[Span]]:
    """The panel's title: its name, and the shortest step that can be measured."""
    shortest = f"steps over {interval(ctx.scene.iteration_report.shortest_s)}"
    return [[("Iterations", ctx.palette.strong)], [(shortest, ctx.palette.dim)]]


def panel(ctx: DrawContext, room: int) -> list[Line]:
    """The largest jobs in at most `room` lines, each with at least one line."""
    lines: list[Line] = []
    shown = ctx.scene.iteration_report.jobs[:MOST_JOBS]
    for place, job in enumerate(shown):
        left = room - len(lines) - (len(shown) - place - 1)
        lines += _entry(ctx, job)[: max(1, left)]
    return lines[:room]


def page(ctx: DrawContext) -> list[Line]:
    """Every job, and why there is none; empty where iterations are not measured."""
    report, palette = ctx.scene.iteration_report, ctx.palette
    if not report.shortest_s:
        return []
    lines = [
        line(("", palette.text)),
        line((" Iterations of training jobs, from byte counters", palette.strong)),
    ]
    for job in report.jobs:
        lines += _entry(ctx, job)
    if not report.jobs and ctx.time.is_reading:
        lines.append(line(("   Being read from the recording", palette.dim)))
    elif not report.jobs:
        text = (
            "None yet: five or more similar steps are needed"
            if report.hosts_watched
            else "No host with rails is watched"
        )
        lines.append(line((f"   {text}", palette.dim)))
    text = (
        f"Sampled every {interval(report.interval_s)}: only steps over"
        f" {interval(report.shortest_s)} are measured"
    )
    return lines + [line((f"   {part}", palette.dim)) for part in wrap(text, ctx.width - 4)]


def step_text(job: JobIteration) -> str:
    """`step 6.20 s (was 4.40 s), comm 61 %`; `6.20 s?` where it may be shorter."""
    was = f" (was {measured(job.step_was.was)})" if job.step_was is not None else ""
    return f"step {job.step_text}{was}, comm {_share(job)}"


def _entry(ctx: DrawContext, job: JobIteration) -> list[Line]:
    """One job: its step and communication share, then its facts and what is uncertain."""
    width, palette = ctx.width, ctx.palette
    lines = [line((f" {part}", palette.text)) for part in wrap(step_text(job), width - 2)]
    texts = [", ".join(_facts(ctx, job))]
    if not job.resolved:
        fast = interval(ctx.scene.iteration_report.fast_s)
        burst = ctx.key("burst")
        texts.append(f"may be under {fast}: press {burst} on a port to sample at 50 Hz")
    if job.expected is not None:
        texts += _expected(job, ctx.choices.unit)
    if not job.hosts_sure:
        texts.append("another job has a similar pattern: some hosts may be in the wrong job")
    return lines + [
        line((f"   {part}", palette.dim)) for text in texts for part in wrap(text, width - 4)
    ]


def _facts(ctx: DrawContext, job: JobIteration) -> list[str]:
    facts = [job.name]
    if job.job is not None:
        facts.append(plural(len(job.hosts), "node"))
        leaves = leaves_of(ctx.snapshot, job.hosts)
        facts += [plural(leaves, "leaf", "leaves")] if leaves else []
    if job.bound:
        facts.append(job.bound)
    facts.append(f"{byte_count(job.mean_rail_bytes)} per rail")
    if job.line_share is not None:
        facts.append(_line_share(job.line_share, job.mean_line_share))
    best_s = job.best_step_s
    if best_s is not None and best_s < _WORTH_SHOWING * job.step_s:
        facts.append(f"step {measured(best_s)} if all of it is at 80 % of line rate")
    return facts


def _line_share(usual: float, mean: float | None) -> str:
    """`at 66 % of line rate on average`: the bytes over the time in communication, so that the line
    adds up; `usually at 78 % of line rate` where that time is uncertain."""
    if mean is None:
        return f"usually at {rounded_percent(usual)} of line rate"
    return f"at {rounded_percent(mean)} of line rate on average"


def _expected(job: JobIteration, unit: Unit) -> list[str]:
    """The traffic that the hints on the command line lead to expect, against the measured."""
    due = job.expected
    assert due is not None
    texts = []
    if due.bytes > 0:
        times = number(job.mean_rail_bytes / due.bytes)
        text = f"expected {byte_count(due.bytes)} per rail, measured {times} times that"
        if due.comm_s is not None:
            comm_s = (job.comm_low + job.comm_high) / 2 * job.step_s
            text += f"; expected comm {measured(due.comm_s)}, measured {measured(comm_s)}"
        texts.append(f"for {plural(due.gpus, 'GPU')} {text}")
    else:
        texts.append("expected: no traffic between nodes, all ranks of dp are in one")
    texts.append(_needed(job, unit))
    tflops = due.tflops(job.step_s)
    if tflops is not None:
        text = f"{number(tflops)} TFLOPS per GPU"
        if job.mfu is not None and job.mfu > 1:
            text += ", more than the GPU's peak: the options describe another job"
        elif job.mfu is not None:
            waits = rounded_percent(exposed_at_most(job.comm_high, job.mfu))
            text += f", MFU {rounded_percent(job.mfu)}: at most {waits} of the step waits for data"
        texts.append(text)
    return texts


def _needed(job: JobIteration, unit: Unit) -> str:
    """`needs 61 to 250 Gb/s a rail to hide communication; a rail delivers 320 Gb/s`."""
    line_rate_bps = job.line_rate_bps
    unit = Unit.GBIT if line_rate_bps is None and unit is Unit.PERCENT else unit
    least, most, delivers = (
        "" if each is None else rate(each, line_rate_bps or 0.0, unit)
        for each in (*job.needed_bps, line_rate_bps and DELIVERED * line_rate_bps)
    )
    text = least if least == most else f"{least} to {most}" if most else f"at least {least}"
    text = f"needs {text} a rail to hide communication"
    return f"{text}; a rail delivers {delivers}" if delivers else text


def _share(job: JobIteration) -> str:
    """`61 %`, or `58 to 70 %` where the share of time in communication is uncertain."""
    if job.comm_high - job.comm_low <= _ONE_NUMBER:
        return rounded_percent((job.comm_low + job.comm_high) / 2)
    return percent_range(job.comm_low, job.comm_high)
