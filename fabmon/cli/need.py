"""`fabmon need`: the bandwidth that a training job needs, from its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.hint_options import hint_options
from fabmon.cli.options import Duration, LineRate, config_option, recording_option, report_option
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.iteration.model_arithmetic import ExpectedTraffic, JobHints
    from fabmon.analysis.iteration.results import JobIteration
    from fabmon.report.requirement import Computing

_MFU = 0.4
"""Share of its peak that a GPU reaches in a dense training step: 38 to 43 % for Llama 3 405B
(Grattafiori et al. 2024, table 4)."""

_STUDIED_S = 240.0
"""The end of a recording in which steps are measured."""


@click.command()
@hint_options
@click.option(
    "--line-rate",
    type=LineRate(),
    default="400G",
    show_default=True,
    metavar="RATE",
    help="Line rate of a NIC in one direction.",
)
@click.option(
    "--rails",
    type=click.IntRange(min=1, max=1024),
    metavar="N",
    help="NICs of a node that carry the traffic.  [default: one per GPU]",
)
@click.option(
    "--compute",
    "compute_s",
    type=Duration(),
    metavar="TIME",
    help="Time in which the GPUs compute in a step, as in 4.2s.",
)
@click.option(
    "--mfu",
    type=click.FloatRange(min=0, max=1, min_open=True),
    metavar="SHARE",
    help=f"Share of --peak-tflops while computing, without --compute.  [default: {_MFU}]",
)
@recording_option("Measure the step in the last minutes of this recording of the job.")
@report_option
@config_option
def need(
    hints: JobHints | None,
    line_rate: float,
    rails: int | None,
    compute_s: float | None,
    mfu: float | None,
    recordings: tuple[Path, ...],
    style: str,
    config: Path | None,
) -> None:
    """Compute the bandwidth that a training job needs.

    \b
    fabmon need --params 70e9 --dp 64 --tp 8 --compute 4s
    fabmon need --params 8B --dp 128 --zero 3 --seq-len 8192 --global-batch 512 --peak-tflops H100

    Bytes that each rail sends in a step, and the rate that hides them behind computing, against
    80 % of line rate, which collectives usually achieve. The compute time is given (--compute),
    estimated (--seq-len, --global-batch, --peak-tflops, --mfu) or measured (--recording). Reaches
    no node.
    """
    from fabmon.analysis.iteration.model_arithmetic import expected_traffic
    from fabmon.report.requirement import requirement_record, requirement_table
    from fabmon.session.printing import print_report

    if hints is None:
        raise UsageError("need: describe the model with --params and --dp, as in --params 70e9")
    if mfu is not None and not hints.peak_tflops:
        raise UsageError("--mfu needs --peak-tflops, --seq-len and --global-batch")
    if compute_s is not None and recordings:
        raise UsageError("--compute and --recording both say how long computing takes: remove one")
    rails = rails or hints.gpus_per_node
    due = expected_traffic(hints, line_rate, rails)
    job = _recorded(recordings, hints, config) if recordings else None
    computing = _computing(due, compute_s, mfu, job)
    record = requirement_record(hints, rails, line_rate, computing, job)
    print_report(style, record, requirement_table)


def _computing(
    due: ExpectedTraffic, compute_s: float | None, mfu: float | None, job: JobIteration | None
) -> Computing | None:
    """The time in which GPUs compute; None if nothing was given."""
    from fabmon.fabric.wording import rounded_percent
    from fabmon.report.requirement import Computing

    if job is not None:
        return Computing.of_job(job)
    if compute_s is not None:
        return Computing(compute_s, compute_s, "given")
    share = mfu or _MFU
    estimate = due.compute_s(share)
    if estimate is None:
        return None
    return Computing(estimate, estimate, f"estimated at an MFU of {rounded_percent(share)}")


def _recorded(files: Sequence[Path], hints: JobHints, config: Path | None) -> JobIteration:
    """The iterations of the job at the end of recordings. Raises UsageError if there are none."""
    from fabmon.session.replay_run import PlayedRange, open_recordings
    from fabmon.session.session import Session

    session = replace(Session.load(config), hints=hints)
    with open_recordings(files) as timeline:
        begin = max(timeline.start_ns, timeline.until_ns - int(_STUDIED_S * 1e9))
        played = PlayedRange(session, timeline, begin, timeline.until_ns, "measuring")
        jobs: tuple[JobIteration, ...] = ()
        for scene in played.scenes():
            jobs = scene.iteration_report.jobs or jobs
    if not jobs:
        raise UsageError(f"{files[0]}: no iteration of a job is observable in its last minutes")
    return next((job for job in jobs if job.expected is not None), jobs[0])
