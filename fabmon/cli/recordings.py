"""`fabmon info`, `verify` and `cut`: contents, integrity and parts of recordings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    NEW_FILE,
    plain_session,
    range_options,
    recordings_argument,
    redact_option,
)
from fabmon.fabric.time_wording import date_time
from fabmon.fabric.wording import plural
from fabmon.session.errors import Exit, cannot_write

if TYPE_CHECKING:
    from fabmon.recording.reading.reader import Recording
    from fabmon.session.session import Session


@click.command()
@recordings_argument
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or JSON for programs.",
)
def info(files: tuple[Path, ...], style: str) -> None:
    """Show what recordings contain: times, nodes, size, findings, bookmarks and what is lost.

    The checksums of up to 1 GiB are compared; `fabmon verify` decodes everything.
    """
    from fabmon.recording.reading.summary import summarise
    from fabmon.report.output import as_json
    from fabmon.session.printing import write
    from fabmon.session.replay_run import compare_checksums, open_recordings

    with open_recordings(files) as timeline:
        compare_checksums(timeline)
        found = [summarise(each) for each in timeline.every_file]
    if style == "json":
        write(as_json(found))
    else:
        write("\n\n".join(each.text() for each in found).encode() + b"\n")


@click.command()
@recordings_argument
def verify(files: tuple[Path, ...]) -> None:
    """Read recordings completely, and report what is damaged.

    Exits with status 5 if a file is damaged.
    """
    from fabmon.fabric.wire.messages import printable
    from fabmon.session.printing import progress, write
    from fabmon.session.replay_run import open_recordings

    with open_recordings(files) as timeline:
        for each in timeline.every_file:
            with progress(f"verifying {each.path.name}", each.size) as report:
                for done in each.verify():
                    report(done)
            write(f"{printable(str(each.path))}: {_verdict(each)}\n".encode())
        lost = bool(timeline.losses)
    sys.exit(Exit.FIX_NEEDED if lost else Exit.OK)


@click.command()
@recordings_argument
@range_options
@redact_option
@click.option("-o", "--output", type=NEW_FILE, required=True, help="The file to create.")
@plain_session
def cut(
    files: tuple[Path, ...],
    from_: str | None,
    to: str | None,
    redact: bool,
    output: Path,
    session: Session,
) -> None:
    """Copy a part of some recordings to a new recording."""
    from fabmon.recording.reading.reader import Recording
    from fabmon.recording.writing.cut import copy_range
    from fabmon.session.printing import print_written, progress
    from fabmon.session.replay_run import open_recordings, whole_range
    from fabmon.session.stderr_lines import say

    with open_recordings(files) as timeline:
        begin, end = whole_range(timeline, from_, to)
        session = session.for_recording(timeline, redact)
        snapshot_of = session.recorded_history(timeline).accept
        copying = copy_range(timeline, output, begin, end, snapshot_of, session.redactor)
        try:
            with progress(f"writing {output.name}", (end - begin) / 1e9, "s") as report:
                for at_ns in copying:
                    report((at_ns - begin) / 1e9)
        except OSError as error:
            raise cannot_write(output, error) from None
    with Recording(output) as made:
        print_written(output, made.start_ns, made.until_ns)
        if made.start_ns < begin:
            known = "so that rates are known from there on"
            say(f"it begins two ticks before {date_time(begin)}, {known}")


def _verdict(recording: Recording) -> str:
    lost = sum(loss.end - loss.offset for loss in recording.losses)
    if lost:
        places = plural(len(recording.losses), "place")
        return f"{lost} of {recording.size} bytes are lost, in {places}"
    return "intact" if recording.is_closed else "intact, and still open or not closed"
