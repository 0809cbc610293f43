"""What a person says of the model, as it is typed."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from fabmon.analysis.iteration.results import JobHints
from fabmon.cli.options import hint_options, hints


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], None),
        (["--model-params", "70e9", "--dp", "64"], JobHints(70e9, "bf16", 64, 1, 1)),
        (
            ["--model-params", "1.5T", "--dp", "8", "--tp", "8", "--pp", "16", "--dtype", "fp8"],
            JobHints(1.5e12, "fp8", 8, 8, 16),
        ),
        (["--model-params", "350M", "--dp", "2"], JobHints(350e6, "bf16", 2, 1, 1)),
    ],
)
def test_hints_as_they_are_typed(arguments: list[str], expected: JobHints | None) -> None:
    seen: list[JobHints | None] = []

    @click.command()
    @hint_options
    def command(model_params: float | None, **rest: Any) -> None:
        seen.append(hints(model_params, rest["dtype"], rest["dp"], rest["tp"], rest["pp"]))

    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    assert seen == [expected]


@pytest.mark.parametrize("text", ["0", "-3", "70X", "1e99", "..", "nan"])
def test_what_is_no_number_of_parameters_is_refused(text: str) -> None:
    @click.command()
    @hint_options
    def command(**_: Any) -> None:
        raise AssertionError("not reached")

    done = CliRunner().invoke(command, ["--model-params", text, "--dp", "1"])
    assert done.exit_code == 2
    assert "as in 70e9 or 70B" in done.output or "number of parameters" in done.output
