"""What a person says of the job that trains, so that its traffic can be held against it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.iteration.results import JobHints

_Command = TypeVar("_Command", bound=Callable[..., Any])

_COUNT = re.compile(r"([0-9.]+(?:e[0-9]+)?)([MBT]?)", re.IGNORECASE)
_SCALES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}
_MOST_PARAMS = 1e15

RANKS = click.IntRange(min=1, max=1_000_000)


class _Params(click.ParamType[float]):
    """`70e9` or `70B`."""

    name = "params"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _COUNT.fullmatch(str(value))
        try:
            count = float(match[1]) * _SCALES[match[2].upper()] if match else 0.0
        except ValueError:
            count = 0.0
        if not 0 < count <= _MOST_PARAMS:
            self.fail(f"{value!r}: a number of parameters, as in 70e9 or 70B", param, ctx)
        return count


def hint_options(command: _Command) -> _Command:
    """The options, in the order of the help."""
    for option in reversed(
        (
            click.option(
                "--model-params",
                type=_Params(),
                metavar="N",
                help="The job's parameters, as in 70e9 or 70B: what its steps ought to send.",
            ),
            click.option(
                "--dtype",
                type=click.Choice(["fp32", "bf16", "fp16", "fp8"]),
                help="Of the gradients that are exchanged.  [default: bf16]",
            ),
            click.option("--dp", type=RANKS, metavar="N", help="Data-parallel ranks of the job."),
            click.option("--tp", type=RANKS, metavar="N", help="Tensor-parallel ranks."),
            click.option("--pp", type=RANKS, metavar="N", help="Pipeline stages."),
        )
    ):
        command = option(command)
    return command


def hints(
    params: float | None, dtype: str | None, dp: int | None, tp: int | None, pp: int | None
) -> JobHints | None:
    """The hints; None when none were given. Raises UsageError for half of them."""
    if params is None:
        for name, value in (("dtype", dtype), ("dp", dp), ("tp", tp), ("pp", pp)):
            if value is not None:
                raise UsageError(f"--{name} tells of a model: add --model-params")
        return None
    if dp is None:
        raise UsageError("--model-params needs --dp: how many ranks exchange gradients")
    from fabmon.analysis.iteration.results import JobHints

    return JobHints(params, dtype or "bf16", dp, tp or 1, pp or 1)
