"""`fabmon demo`: a simulated fabric, to try fabmon and to learn its screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fabmon.cli.options import (
    FILE,
    NumberRange,
    check_style,
    color_options,
    config_option,
    duration_option,
    model_option,
    number_option,
    once_option,
    picture_option,
    record_option,
    style_option,
)
from fabmon.session.errors import UsageError


@click.command()
@click.option(
    "--topology",
    type=click.Choice(["leaf-spine", "rail", "fat-tree"]),
    help="leaf-spine: RoCE, all rails of a host on one leaf; rail: RoCE, one leaf per rail;"
    " fat-tree: InfiniBand.  [default: leaf-spine]",
)
@number_option("--hosts", 4, 1024, "Simulated hosts, a multiple of 4.  [default: 16]")
@click.option("--scenario", type=FILE, help="Simulate this TOML scenario instead of the tour.")
@click.option("--seed", type=int, metavar="N", help="Random seed: other hashes and other flows.")
@click.option(
    "--speed",
    type=NumberRange(0.1, 1000),
    default=1.0,
    show_default=True,
    metavar="N",
    help="Simulated seconds per second.",
)
@style_option
@once_option
@duration_option
@config_option
@color_options
@picture_option
@record_option
@model_option
def demo(
    topology: str | None,
    hosts: int | None,
    scenario: Path | None,
    seed: int | None,
    speed: float,
    **given: Any,
) -> None:
    """Try fabmon on a simulated fabric: jobs train, and faults are injected.

    No node is reached. The header says SIMULATED. The first minute explains the screen. Faults
    continue for 12 hours, each announced when it begins; esc hides the explanations.
    """
    if scenario is not None and topology is not None:
        raise UsageError("--scenario contains a topology: remove --topology")
    from fabmon.session.demo_run import watch_demo
    from fabmon.session.presentation import RunOptions

    options = RunOptions(**given)
    check_style(options.style, options.once)
    sys.exit(watch_demo(options, scenario, topology, hosts, seed, speed))
