"""`fabmon info`, `verify` and `cut`: what a recording holds, whether it is sound, a part of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.hosts import FILE, config_option
from fabmon.cli.progress import progress
from fabmon.cli.replay import (
    FROM,
    RECORDINGS,
    TO,
    opened,
    some,
    warn_of_losses,
    whole_span,
)
from fabmon.cli.shared import redact_option
from fabmon.cli.topology import load_topology
from fabmon.session.errors import Exit, UsageError

if TYPE_CHECKING:
    from fabmon.recording.reading.reader import Recording


@click.command()
@RECORDINGS
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def info(files: tuple[Path, ...], style: str) -> None:
    """What recordings hold: when, how long, who, how large, what was noted."""
    import msgspec

    from fabmon.recording.reading.summary import summarise

    with opened(some(files)) as timeline:
        found = [summarise(each) for each in timeline.files]
    if style == "json":
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print("\n\n".join(each.text() for each in found))


@click.command()
@RECORDINGS
def verify(files: tuple[Path, ...]) -> None:
    """Read all of some recordings, and say what of them is damaged.

    The exit status is 5 when something is.
    """
    with opened(some(files)) as timeline:
        for each in timeline.files:
            with progress(f"verifying {each.path.name}", each.size) as tell:
                for done in each.verify():
                    tell(done)
            print(f"{each.path}: {_verdict(each)}")
        warn_of_losses(timeline)
        lost = bool(timeline.losses)
    sys.exit(Exit.FIX_NEEDED if lost else Exit.OK)


@click.command()
@RECORDINGS
@FROM
@TO
@redact_option
@click.option("-o", "--output", type=FILE, required=True, help="The file to make.")
@config_option
def cut(
    files: tuple[Path, ...],
    from_: str | None,
    to: str | None,
    redact: bool,
    output: Path,
    config: Path | None,
) -> None:
    """A part of some recordings as a recording of its own."""
    from fabmon.fabric.redaction import Redactor
    from fabmon.history.history import History
    from fabmon.recording.writing.cut import copy_range, redacted_hosts, redacted_topology
    from fabmon.session.config import load

    settings = load(config)
    cabled = load_topology(settings, config)
    with opened(some(files)) as timeline:
        begin, end = whole_span(timeline, from_, to)
        redactor = Redactor(timeline.hosts) if redact else None
        history = History(
            redacted_hosts(timeline, redactor),
            timeline.interval_s,
            settings.management_ports,
            topology=redacted_topology(cabled, redactor),
        )
        try:
            with progress(f"writing {output.name}", (end - begin) / 1e9, "s") as tell:
                for at_ns in copy_range(timeline, output, begin, end, history.accept, redactor):
                    tell((at_ns - begin) / 1e9)
        except FileExistsError:
            raise UsageError(f"{output}: there is such a file already") from None
        except OSError as error:
            raise UsageError(f"{output}: {error.strerror}") from None
        warn_of_losses(timeline)


def _verdict(recording: Recording) -> str:
    lost = sum(loss.end - loss.offset for loss in recording.losses)
    if lost:
        return f"{lost} of {recording.size} bytes are lost, in {len(recording.losses)} places"
    return "sound" if recording.is_closed else "sound, and still open or not closed"
