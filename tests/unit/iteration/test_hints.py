"""What a person says of the model, as it is typed."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from fabmon.analysis.iteration.model_arithmetic import JobHints
from fabmon.cli.hint_options import hint_options


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], None),
        (["--model-params", "70e9", "--dp", "64"], JobHints(params=70e9, dp=64)),
        (
            ["--model-params", "1.5T", "--dp", "8", "--tp", "8", "--pp", "16", "--dtype", "fp8"],
            JobHints(params=1.5e12, dtype="fp8", dp=8, tp=8, pp=16),
        ),
        (
            ["--model-params", "350M", "--dp", "2", "--gpus-per-node", "4", "--sharp"],
            JobHints(params=350e6, dp=2, gpus_per_node=4, sharp=True),
        ),
        (
            [
                *("--model-params", "8B", "--dp", "2", "--fsdp", "--seq-len", "8192"),
                *("--global-batch", "128", "--peak-tflops", "h100"),
            ],
            JobHints(params=8e9, dp=2, fsdp=True, seq_len=8192, global_batch=128, peak_tflops=989),
        ),
    ],
)
def test_hints_as_they_are_typed(arguments: list[str], expected: JobHints | None) -> None:
    seen: list[JobHints | None] = []

    @click.command()
    @hint_options
    def command(hints: JobHints | None) -> None:
        seen.append(hints)

    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    assert seen == [expected]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sharp", "--fsdp"], "--sharp is for all-reduces"),
        (["--seq-len", "8192"], "--seq-len and --global-batch are needed together"),
        (["--peak-tflops", "989"], "--peak-tflops needs --seq-len"),
        (["--peak-tflops", "H900"], "write a number, as in 989, or one of A100"),
        (["--peak-tflops", "inf"], "write a number, as in 989, or one of A100"),
    ],
)
def test_hints_that_do_not_fit_together_are_refused(arguments: list[str], message: str) -> None:
    @click.command()
    @hint_options
    def command(**_: Any) -> None:
        raise AssertionError("not reached")

    done = CliRunner().invoke(command, ["--model-params", "8B", "--dp", "2", *arguments])
    assert message in f"{done.output} {done.exception}"


@pytest.mark.parametrize("text", ["0", "-3", "70X", "1e99", "..", "nan"])
def test_what_is_no_number_of_parameters_is_refused(text: str) -> None:
    @click.command()
    @hint_options
    def command(**_: Any) -> None:
        raise AssertionError("not reached")

    done = CliRunner().invoke(command, ["--model-params", text, "--dp", "1"])
    assert done.exit_code == 2
    assert "as in 70e9 or 70B" in done.output or "number of parameters" in done.output
