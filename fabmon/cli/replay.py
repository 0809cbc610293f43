"""`fabmon replay`: recordings on the screen, or printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    STYLES,
    check_style,
    color_options,
    once_option,
    optional_recordings_argument,
    range_options,
    recording_session,
    redact_option,
)
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.session.session import Session


@click.command()
@optional_recordings_argument
@click.option(
    "--at",
    metavar="TIME",
    help="Begin here, as --from; a table or JSON is of this tick.",
)
@range_options
@click.option(
    "--speed",
    default="1",
    show_default=True,
    metavar="N|max",
    help="Recorded seconds per second, 0.5 to 64; max for as fast as possible.",
)
@click.option("--follow", is_flag=True, help="At the end, wait for what is still being recorded.")
@click.option(
    "--format",
    "style",
    type=click.Choice(STYLES),
    help="Print instead of showing the screen: jsonl prints every tick, table and json one: that of"
    " --at, else the last (--to).",
)
@once_option
@click.option(
    "--model-at",
    metavar="TIME",
    help="Print what the bottleneck model believes at this time, and why: links, NICs, evidence.",
)
@color_options
@redact_option
@recording_session
def replay(
    files: tuple[Path, ...],
    at: str | None,
    from_: str | None,
    to: str | None,
    speed: str,
    follow: bool,
    style: str | None,
    once: bool,
    model_at: str | None,
    color: str | None,
    theme: str | None,
    redact: bool,
    session: Session,
) -> None:
    """Replay recordings. Several files, or a directory of them, are one timeline.

    Rates and findings are computed again. Times: 14:03 (UTC), -10m (before the end), +10m (after
    the start), `event 3`, or a date. Without a FILE, what the last screen of fabmon recorded
    is replayed, of fabmon demo if there is no other; the file is named.
    """
    if at is not None and from_ is not None:
        raise UsageError("--at and --from both say where to begin: give only one of them")
    if once:
        check_style(style, once)
        style = style or "table"
    if at is not None and to is not None and style in ("table", "json"):
        raise UsageError(f"--at and --to both say which tick {style} is of: give only one of them")
    if model_at is not None and (at or from_ or to or style or follow):
        raise UsageError(
            "--model-at prints one tick as text: remove --at, --from, --to, --follow, --format and"
            " --once"
        )
    pace = _speed(speed)
    from fabmon.session.replay_run import ReplayOptions
    from fabmon.session.replay_run import replay as run_replay

    if model_at is not None:
        from fabmon.session.model_run import print_model

        sys.exit(print_model(session, files, model_at, redact))
    options = ReplayOptions(files, at, from_, to, pace, follow, style, color, theme, redact)
    sys.exit(run_replay(session, options))


def _speed(text: str) -> float | None:
    """Recorded seconds per second; None for as fast as possible. Raises UsageError."""
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 1000:
        raise UsageError(f"--speed {text}: write a number such as 0.5 or 8, or max")
    return speed
