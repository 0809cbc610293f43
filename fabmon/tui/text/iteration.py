"""The rhythm of training, in words: the step, what it was, how much of it is communication."""

from __future__ import annotations

from fabmon.analysis.iteration.results import IterationReport, JobIteration
from fabmon.fabric.wording import number, scaled_number
from fabmon.tui.line import Line, Span, line, wrap
from fabmon.tui.palette import Palette

_WORTH_TELLING = 0.95
_ONE_NUMBER = 0.05
MOST_JOBS = 3
"""Jobs in the panel of the overview; the rest is in the view of findings."""


def title(iteration_report: IterationReport, palette: Palette) -> list[list[Span]]:
    """What the panel is called, and what it cannot tell."""
    seconds = f"steps over {iteration_report.shortest_s:g} s"
    return [[("Rhythm", palette.strong)], [(seconds, palette.dim)]]


def panel(iteration_report: IterationReport, width: int, room: int, palette: Palette) -> list[Line]:
    """The largest jobs, as far as there is room: at least one line each."""
    lines: list[Line] = []
    shown = iteration_report.jobs[:MOST_JOBS]
    for place, rhythm in enumerate(shown):
        entry = _entry(rhythm, iteration_report, width, palette)
        left = room - len(lines) - (len(shown) - place - 1)
        lines += entry[: max(1, left)]
    return lines[:room]


def page(iteration_report: IterationReport, width: int, palette: Palette) -> list[Line]:
    """Every job, and what could not be told."""
    if not iteration_report.shortest_s:
        return []
    heading = line((" Rhythm of training, from byte counters", palette.strong))
    lines = [line(("", palette.text)), heading]
    for rhythm in iteration_report.jobs:
        lines += _entry(rhythm, iteration_report, width, palette)
    if not iteration_report.jobs:
        text = (
            "none yet: five steps or more are needed, alike"
            if iteration_report.hosts_watched
            else "no host with rails is watched"
        )
        lines.append(line((f"   {text}", palette.dim)))
    every_s = iteration_report.shortest_s / 3
    text = (
        f"Sampled every {every_s:g} s: only steps over {iteration_report.shortest_s:g} s are told."
    )
    lines += [line((f"   {part}", palette.dim)) for part in wrap(text, width - 4)]
    return lines


def step(rhythm: JobIteration) -> str:
    """`step 6.20 s (was 4.40 s), comm 61 %`."""
    was = f" (was {_seconds(rhythm.step_was.was)})" if rhythm.step_was is not None else ""
    return f"step {_seconds(rhythm.step_s)}{was}, comm {_share(rhythm)}"


def _entry(
    rhythm: JobIteration, iteration_report: IterationReport, width: int, palette: Palette
) -> list[Line]:
    lines = [line((f" {part}", palette.text)) for part in wrap(step(rhythm), width - 2)]
    texts = [", ".join(_facts(rhythm))]
    if not rhythm.resolved:
        fast = iteration_report.shortest_s / 3 * 2
        texts.append(f"or under {fast:g} s: faster steps look the same; B on a port tells")
    if rhythm.expected is not None:
        texts.append(_expected(rhythm))
    if not rhythm.hosts_sure:
        texts.append("another job moves so alike that hosts may be mixed up")
    return lines + [
        line((f"   {part}", palette.dim)) for text in texts for part in wrap(text, width - 4)
    ]


def _facts(rhythm: JobIteration) -> list[str]:
    facts = [rhythm.name]
    if rhythm.bound:
        facts.append(rhythm.bound)
    facts.append(f"{_bytes(rhythm.mean_rail_bytes)} a rail")
    if rhythm.line_share is not None:
        facts.append(f"at {rhythm.line_share * 100:.0f} % of line rate")
    best_s = rhythm.best_step_s
    if best_s is not None and best_s < _WORTH_TELLING * rhythm.step_s:
        facts.append(f"at 80 % it would be {_seconds(best_s)}")
    return facts


def _expected(rhythm: JobIteration) -> str:
    """Expected against measured."""
    due = rhythm.expected
    assert due is not None
    if due.bytes <= 0:
        return "expected: nothing to send, with one rank of dp"
    times = number(rhythm.mean_rail_bytes / due.bytes)
    text = f"expected {_bytes(due.bytes)} a rail: measured {times} times that"
    rails = len(rhythm.hosts) * len(rhythm.rail_bytes)
    if rails != due.gpus:
        text = f"for {due.gpus} GPUs {text}; this job has {rails} rails"
    if due.comm_s is not None:
        middle = (rhythm.comm_low + rhythm.comm_high) / 2 * rhythm.step_s
        text += f"; {_seconds(due.comm_s)} of comm: {_seconds(middle)}"
    return text


def _share(rhythm: JobIteration) -> str:
    low, high = rhythm.comm_low * 100, rhythm.comm_high * 100
    if rhythm.comm_high - rhythm.comm_low <= _ONE_NUMBER:
        return f"{(low + high) / 2:.0f} %"
    return f"{low:.0f} to {high:.0f} %"


def _seconds(seconds: float) -> str:
    return f"{number(seconds)} s"


def _bytes(count: float) -> str:
    amount, prefix = scaled_number(count)
    return f"{amount} {prefix}B"
