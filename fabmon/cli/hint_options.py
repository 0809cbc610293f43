"""The options that describe the training job, as `fabmon`, `demo` and `need` have them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.iteration.model_arithmetic import JobHints

_COUNT = re.compile(r"([0-9.]+(?:e[0-9]+)?)([MBT]?)", re.IGNORECASE)
_SCALES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}
_MAX_PARAMS = 1e15
_MAX_TFLOPS = 1e6


class _Params(click.ParamType[float]):
    """A number of model parameters, such as `70e9` or `70B`."""

    name = "params"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _COUNT.fullmatch(str(value))
        try:
            count = float(match[1]) * _SCALES[match[2].upper()] if match else 0.0
        except ValueError:
            count = 0.0
        if not 0 < count <= _MAX_PARAMS:
            self.fail(f"{value!r}: write a number of parameters, as in 70e9 or 70B", param, ctx)
        return count


class _Peak(click.ParamType[float]):
    """The peak of a GPU in 10^12 operations a second, or its name."""

    name = "peak"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from fabmon.analysis.iteration.model_arithmetic import PEAK_TFLOPS

        text = str(value).upper()
        try:
            peak = PEAK_TFLOPS[text] if text in PEAK_TFLOPS else float(text)
        except ValueError:
            peak = 0.0
        if not 0 < peak <= _MAX_TFLOPS:
            names = ", ".join(PEAK_TFLOPS)
            self.fail(f"{value!r}: write a number, as in 989, or one of {names}", param, ctx)
        return peak


_SHARDS_PARAMETERS = 3
"""The ZeRO stage that shards parameters too."""

_RANKS = click.IntRange(min=1, max=1_000_000)
_HINT_OPTIONS = (
    click.option(
        "--model-params",
        "--params",
        "model_params",
        type=_Params(),
        metavar="N",
        help="Model parameters of the training job (70e9 or 70B), to compare its traffic with the"
        " expected traffic.",
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
    *("model_params", "dtype", "dp", "tp", "pp", "gpus_per_node", "fsdp", "zero", "sharp"),
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
    said = {name: value for name, value in given.items() if value}
    if said.pop("zero", 0) == _SHARDS_PARAMETERS:
        said["fsdp"] = True
    params = said.pop("model_params", None)
    if params is None:
        for name in said:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} describes a model: add --model-params")
        return None
    if "dp" not in said:
        raise UsageError("--model-params needs --dp, the number of ranks that exchange gradients")
    if "fsdp" in said and "sharp" in said:
        raise UsageError("--sharp is for all-reduces, which --fsdp does not use: remove one")
    if ("seq_len" in said) != ("global_batch" in said):
        raise UsageError("--seq-len and --global-batch are needed together")
    if "peak_tflops" in said and "seq_len" not in said:
        raise UsageError("--peak-tflops needs --seq-len and --global-batch")
    from fabmon.analysis.iteration.model_arithmetic import JobHints

    hints = JobHints(params=params, **said)
    tp, node = hints.tp, min(hints.gpus_per_node, hints.gpus)
    if node % tp and tp % node:
        raise UsageError(
            f"--tp {tp}: nodes of {node} GPUs do not hold whole groups of {tp} ranks: write a --tp"
            f" that divides {node} or is a multiple of it, or another --gpus-per-node"
        )
    return hints
