"""`fabmon need`: the bandwidth that a training job needs, from its arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabmon.cli.options import (
    Duration,
    LineRate,
    NumberRange,
    config_option,
    in_order,
    number_option,
    recording_option,
    report_option,
)
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.iteration.model_arithmetic import ExpectedTraffic, JobHints
    from fabmon.analysis.iteration.results import JobIteration
    from fabmon.report.requirement import Computing


_MOST_RANKS = 1_000_000
_HINT_OPTIONS = in_order(
    click.option(
        "--params",
        metavar="N",
        help="Model parameters of the training job (70e9 or 70B).",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["fp32", "bf16", "fp16", "fp8"]),
        help="Data type of the gradients.  [default: bf16]",
    ),
    number_option("--dp", 1, _MOST_RANKS, "Data-parallel ranks of the job."),
    number_option("--tp", 1, _MOST_RANKS, "Tensor-parallel ranks of the job."),
    number_option("--pp", 1, _MOST_RANKS, "Pipeline stages of the job."),
    number_option("--gpus-per-node", 1, 1024, "GPUs of a node.  [default: 8]"),
    click.option("--fsdp", is_flag=True, help="Parameters are sharded too (FSDP, ZeRO stage 3)."),
    click.option(
        "--zero",
        type=click.IntRange(0, 3),
        metavar="STAGE",
        help="ZeRO stage: 3 is --fsdp; 0 to 2 send as many bytes as an all-reduce.",
    ),
    click.option("--sharp", is_flag=True, help="Switches reduce the gradients (NVIDIA SHARP)."),
    number_option("--seq-len", 1, _MOST_RANKS, "Tokens of a sequence, for TFLOPS and MFU."),
    number_option("--global-batch", 1, _MOST_RANKS, "Sequences of a step, of all ranks."),
    click.option(
        "--peak-tflops",
        metavar="N|GPU",
        help="Peak of one GPU, or its name, such as H100, for MFU.",
    ),
)


def hint_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that describe the training job, as one argument `hints` (JobHints; None where
    nothing is said of it), in the help's order."""

    @functools.wraps(command)
    def with_hints(**arguments: Any) -> None:
        from fabmon.analysis.iteration.model_table import ModelError, ModelTable, job_hints

        given = {name: arguments.pop(name) for name in ModelTable.__struct_fields__}
        try:
            hints = job_hints(ModelTable(**given), lambda key: f"--{key.replace('_', '-')}")
        except ModelError as error:
            raise UsageError(str(error)) from None
        command(hints=hints, **arguments)

    return _HINT_OPTIONS(with_hints)


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
@number_option("--rails", 1, 1024, "NICs of a node that carry the traffic.  [default: one per GPU]")
@click.option(
    "--compute",
    "compute_s",
    type=Duration(),
    metavar="TIME",
    help="Time in which the GPUs compute in a step, as in 4.2s.",
)
@click.option(
    "--mfu",
    type=NumberRange(min=0, max=1, min_open=True),
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
    """The iterations of the job at the end of recordings. Raises UsageError if there are none, or
    if they may be aliases of shorter ones."""
    from fabmon.session.replay_run import PlayedRange, check_ticks, open_recordings
    from fabmon.session.session import Session

    session = replace(Session.load(config), hints=hints)
    with open_recordings(files) as timeline:
        check_ticks(timeline)
        begin = max(timeline.start_ns, timeline.until_ns - int(_STUDIED_S * 1e9))
        played = PlayedRange(session, timeline, begin, timeline.until_ns, "measuring")
        jobs: tuple[JobIteration, ...] = ()
        for scene in played.scenes():
            jobs = scene.iteration_report.jobs or jobs
    if not jobs:
        raise UsageError(f"{files[0]}: no iteration of a job is observable in its last minutes")
    job = next((job for job in jobs if job.expected is not None), jobs[0])
    if not job.resolved:
        raise UsageError(
            f"{files[0]}: the steps of {job.name} may be shorter than two samples: record with a"
            " shorter --interval, or give --compute"
        )
    return job
