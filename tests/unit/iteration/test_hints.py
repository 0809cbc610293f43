"""What a person says of the model, as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fabmon.analysis.iteration.model_arithmetic import JobHints
from fabmon.cli.need import hint_options
from fabmon.session.errors import UsageError
from fabmon.session.session import Session


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], None),
        (["--params", "70e9", "--dp", "64"], JobHints(params=70e9, dp=64)),
        (
            ["--params", "1.5T", "--dp", "8", "--tp", "8", "--pp", "16", "--dtype", "fp8"],
            JobHints(params=1.5e12, dtype="fp8", dp=8, tp=8, pp=16),
        ),
        (
            ["--params", "350M", "--dp", "2", "--gpus-per-node", "4", "--sharp"],
            JobHints(params=350e6, dp=2, gpus_per_node=4, sharp=True),
        ),
        (
            [
                *("--params", "8B", "--dp", "2", "--fsdp", "--seq-len", "8192"),
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

    done = CliRunner().invoke(command, ["--params", "8B", "--dp", "2", *arguments])
    assert message in f"{done.output} {done.exception}"


@pytest.mark.parametrize("is_file", [False, True], ids=["fabmon.toml", "--model"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (('params = "70B"', "dp = 64"), JobHints(params=70e9, dp=64)),
        (("params = 8e9", "dp = 2", "zero = 3"), JobHints(params=8e9, dp=2, fsdp=True)),
        (("dp = 64",), r":{line}: \[model\] dp describes a model: add params"),
        (("params = 0",), r":{line}: \[model\] params: '0.0': write a number"),
        (('params = "70B"', "dp = 0"), r":{next}: .*: write 1 to 1000000"),
        (('params = "many"', "dp = 8"), r":{line}: \[model\] params: 'many': write a number"),
        (
            ('params = "70B"', "seq_length = 8"),
            r":{next}: .*`seq_length`.*; did you mean `seq_len`",
        ),
    ],
)
def test_a_model_is_described_in_the_configuration_or_in_a_file(
    lines: tuple[str, ...], expected: JobHints | str, is_file: bool, tmp_path: Path
) -> None:
    config, model = tmp_path / "fabmon.toml", tmp_path / "model.toml"
    config.touch()
    text = "\n".join(lines)
    if is_file:
        model.write_text(text)
    else:
        config.write_text(f"[model]\n{text}")
    given = (config, (), None, model) if is_file else (config,)
    if isinstance(expected, JobHints):
        assert Session.load(*given).hints == expected
        return
    name, first = ("model.toml", 1) if is_file else ("fabmon.toml", 2)
    with pytest.raises(UsageError, match=name + expected.format(line=first, next=first + 1)):
        Session.load(*given)


@pytest.mark.parametrize("text", ["0", "-3", "70X", "1e99", "..", "nan"])
def test_what_is_no_number_of_parameters_is_refused(text: str) -> None:
    @click.command()
    @hint_options
    def command(**_: Any) -> None:
        raise AssertionError("not reached")

    done = CliRunner().invoke(command, ["--params", text, "--dp", "1"])
    assert isinstance(done.exception, UsageError)
    assert "as in 70e9 or 70B" in str(done.exception)
