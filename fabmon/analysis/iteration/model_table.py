"""What a person says of a job's model: in [model] of fabmon.toml, in a file, or as options of
`fabmon need`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from fabmon.analysis.iteration.model_arithmetic import PEAK_TFLOPS, JobHints

_COUNT = re.compile(r"([0-9.]+(?:e[0-9]+)?)([MBT]?)", re.IGNORECASE)
_SCALES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}
_MAX_PARAMS = 1e15
_MAX_TFLOPS = 1e6
_SHARDS_PARAMETERS = 3
"""The ZeRO stage that shards parameters too."""

Ranks = Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="1 to 1000000")]
Gpus = Annotated[int, msgspec.Meta(ge=1, le=1024, description="1 to 1024")]
Stage = Annotated[int, msgspec.Meta(ge=0, le=3, description="0 to 3")]


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model of a job and how it is trained; None: not said.

    `params` are a number or a text such as `70B`, `peak_tflops` a number or the name of a GPU.
    """

    params: float | str | None = None
    dtype: Literal["fp32", "bf16", "fp16", "fp8"] | None = None
    dp: Ranks | None = None
    tp: Ranks | None = None
    pp: Ranks | None = None
    gpus_per_node: Gpus | None = None
    fsdp: bool | None = None
    zero: Stage | None = None
    sharp: bool | None = None
    seq_len: Ranks | None = None
    global_batch: Ranks | None = None
    peak_tflops: float | str | None = None


class ModelError(Exception):
    """What is said of a model does not fit together; the message says why. `key` is the one."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def number_of_params(text: object) -> float:
    """The number of parameters in `70e9` or `70B`. Raises ValueError."""
    match = _COUNT.fullmatch(str(text))
    try:
        count = float(match[1]) * _SCALES[match[2].upper()] if match else 0.0
    except ValueError:
        count = 0.0
    if not 0 < count <= _MAX_PARAMS:
        raise ValueError(f"{str(text)!r}: write a number of parameters, as in 70e9 or 70B")
    return count


def peak_tflops(text: object) -> float:
    """The peak of a GPU in 10^12 operations a second, from that number or its name. Raises
    ValueError."""
    name = str(text).upper()
    try:
        peak = PEAK_TFLOPS[name] if name in PEAK_TFLOPS else float(name)
    except ValueError:
        peak = 0.0
    if not 0 < peak <= _MAX_TFLOPS:
        names = ", ".join(PEAK_TFLOPS)
        raise ValueError(f"{str(text)!r}: write a number, as in 989, or one of {names}")
    return peak


_NUMBERS = {"params": number_of_params, "peak_tflops": peak_tflops}
"""The keys that are a number or a name of it; 0 is a mistake there."""


def job_hints(table: ModelTable, named: Callable[[str], str] = str) -> JobHints | None:
    """What the table says of the job; None if nothing. Raises ModelError, which calls the keys as
    they are `named` where they were written."""
    said: dict[str, Any] = {
        key: value
        for key, value in msgspec.structs.asdict(table).items()
        if value or (key in _NUMBERS and value is not None)
    }
    if not said:
        return None
    if said.pop("zero", 0) == _SHARDS_PARAMETERS:
        said["fsdp"] = True
    if "params" not in said:
        first = next(iter(said), "zero")
        raise ModelError(first, f"{named(first)} describes a model: add {named('params')}")
    for key, read in _NUMBERS.items():
        if key in said:
            try:
                said[key] = read(said[key])
            except ValueError as error:
                raise ModelError(key, f"{named(key)}: {error}") from None
    if "dp" not in said:
        text = f"{named('params')} needs {named('dp')}, the number of ranks that exchange gradients"
        raise ModelError("params", text)
    if "fsdp" in said and "sharp" in said:
        text = (
            f"{named('sharp')} is for all-reduces, which {named('fsdp')} does not use: remove one"
        )
        raise ModelError("sharp", text)
    if ("seq_len" in said) != ("global_batch" in said):
        text = f"{named('seq_len')} and {named('global_batch')} are needed together"
        raise ModelError("seq_len", text)
    if "peak_tflops" in said and "seq_len" not in said:
        text = f"{named('peak_tflops')} needs {named('seq_len')} and {named('global_batch')}"
        raise ModelError("peak_tflops", text)
    hints = JobHints(**said)
    tp, node = hints.tp, min(hints.gpus_per_node, hints.gpus)
    if node % tp and tp % node:
        text = (
            f"{named('tp')} {tp}: nodes of {node} GPUs do not hold whole groups of {tp} ranks:"
            f" write one that divides {node} or is a multiple of it, or another"
            f" {named('gpus_per_node')}"
        )
        raise ModelError("tp", text)
    return hints
