"""The options of `need` that describe the training job."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from fabmon.session.errors import UsageError

_RANKS = click.IntRange(min=1, max=1_000_000)
_HINT_OPTIONS = (
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
    click.option("--dp", type=_RANKS, metavar="N", help="Data-parallel ranks of the job."),
    click.option("--tp", type=_RANKS, metavar="N", help="Tensor-parallel ranks of the job."),
    click.option("--pp", type=_RANKS, metavar="N", help="Pipeline stages of the job."),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(min=1, max=1024),
        metavar="N",
        help="GPUs of a node.  [default: 8]",
    ),
    click.option("--fsdp", is_flag=True, help="Parameters are sharded too (FSDP, ZeRO stage 3)."),
    click.option(
        "--zero",
        type=click.IntRange(0, 3),
        metavar="STAGE",
        help="ZeRO stage: 3 is --fsdp; 0 to 2 send as many bytes as an all-reduce.",
    ),
    click.option("--sharp", is_flag=True, help="Switches reduce the gradients (NVIDIA SHARP)."),
    click.option(
        "--seq-len", type=_RANKS, metavar="N", help="Tokens of a sequence, for TFLOPS and MFU."
    ),
    click.option(
        "--global-batch", type=_RANKS, metavar="N", help="Sequences of a step, of all ranks."
    ),
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

    for option in reversed(_HINT_OPTIONS):
        with_hints = option(with_hints)
    return with_hints
