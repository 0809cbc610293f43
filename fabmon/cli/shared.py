"""Options that mean the same in several commands, worded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from fabmon.cli.hosts import FILE

_Command = TypeVar("_Command", bound=Callable[..., Any])

style_option = click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "jsonl"]),
    help="Print instead of the screen: jsonl streams, table and json go with --once.",
)
once_option = click.option(
    "--once", is_flag=True, help="Print one report, as a table or as JSON, and leave."
)
duration_option = click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Leave after so long.",
)
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "truecolor", "256", "16", "none"]),
    help="Colours of the screen.  [default: auto; of a --picture truecolor]",
)
picture_option = click.option(
    "--picture",
    type=FILE,
    help="Write what the screen shows after --duration (10 s) to an SVG file, and leave.",
)
report_option = click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For a person, or for a program.",
)


def patience_option(seconds: float) -> Callable[[_Command], _Command]:
    """How long to wait for nodes, where nothing else is said."""
    return click.option(
        "--duration",
        type=click.FloatRange(min=0, min_open=True),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="Wait so long for the last node, at most.",
    )
