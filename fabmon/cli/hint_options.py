"""The options of `need` that describe the training job."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.iteration.model_arithmetic import JobHints


class _Params(click.ParamType[float]):
    """A number of model parameters, such as `70e9` or `70B`."""

    name = "params"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from fabmon.analysis.iteration.model_table import number_of_params

        try:
            return number_of_params(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Peak(click.ParamType[float]):
    """The peak of a GPU in 10^12 operations a second, or its name."""

    name = "peak"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from fabmon.analysis.iteration.model_table import peak_tflops

        try:
            return peak_tflops(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_RANKS = click.IntRange(min=1, max=1_000_000)
_HINT_OPTIONS = (
    click.option(
        "--params",
        type=_Params(),
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
        type=_Peak(),
        metavar="N|GPU",
        help="Peak of one GPU, or its name, such as H100, for MFU.",
    ),
)
_HINT_NAMES = (
    *("params", "dtype", "dp", "tp", "pp", "gpus_per_node", "fsdp", "zero", "sharp"),
    *("seq_len", "global_batch", "peak_tflops"),
)


def hint_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that describe the training job, as one argument `hints`, in the help's order."""

    @functools.wraps(command)
    def with_hints(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in _HINT_NAMES}
        command(hints=_hints(given), **arguments)

    for option in reversed(_HINT_OPTIONS):
        with_hints = option(with_hints)
    return with_hints


def _hints(given: dict[str, Any]) -> JobHints | None:
    """What the user said of the job; None if nothing. Raises UsageError if a part is missing."""
    from fabmon.analysis.iteration.model_table import ModelError, ModelTable, job_hints

    try:
        return job_hints(ModelTable(**given), lambda key: f"--{key.replace('_', '-')}")
    except ModelError as error:
        raise UsageError(str(error)) from None
