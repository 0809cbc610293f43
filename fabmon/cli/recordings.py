"""`fabmon info`, `verify` and `cut`: what a recording holds, whether it is sound, a part of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.errors import Exit, UsageError
from fabmon.cli.hosts import FILE
from fabmon.cli.progress import progress
from fabmon.cli.replay import FROM, RECORDINGS, TO, opened, span_of, warn_of_losses

if TYPE_CHECKING:
    from fabmon.recording.reader import Recording


@click.command()
@RECORDINGS
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text")
def info(files: tuple[Path, ...], style: str) -> None:
    """What recordings hold: when, how long, who, how large, what was noted."""
    import msgspec

    from fabmon.recording.summary import summary

    with opened(_some(files)) as timeline:
        found = [summary(each) for each in timeline.files]
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
    with opened(_some(files)) as timeline:
        for each in timeline.files:
            with progress(f"verifying {each.path.name}", each.size) as tell:
                for done in each.verify():
                    tell(done)
            print(f"{each.path}: {_verdict(each)}")
        warn_of_losses(timeline)
        lost = bool(timeline.losses)
    sys.exit(Exit.TO_MEND if lost else Exit.OK)


@click.command()
@RECORDINGS
@FROM
@TO
@click.option("-o", "--output", type=FILE, required=True, help="The file to make.")
def cut(files: tuple[Path, ...], from_: str | None, to: str | None, output: Path) -> None:
    """A part of some recordings as a recording of its own."""
    from fabmon.history.history import History
    from fabmon.recording.cut import copy

    with opened(_some(files)) as timeline:
        begin, end = span_of(timeline, from_, to)
        begin = timeline.start_ns if begin is None else begin
        end = timeline.until_ns if end is None else end
        history = History(timeline.hosts, timeline.interval_s)
        try:
            with progress(f"writing {output.name}", end - begin) as tell:
                for at_ns in copy(timeline, output, begin, end, history.accept):
                    tell(at_ns - begin)
        except FileExistsError:
            raise UsageError(f"{output}: there is such a file already") from None
        except OSError as error:
            raise UsageError(f"{output}: {error.strerror}") from None
        warn_of_losses(timeline)


def _verdict(recording: Recording) -> str:
    lost = sum(loss.end - loss.at for loss in recording.losses)
    if lost:
        return f"{lost} of {recording.size} bytes are lost, in {len(recording.losses)} places"
    return "sound" if recording.is_closed else "sound, and still open or not closed"


def _some(files: tuple[Path, ...]) -> tuple[Path, ...]:
    if not files:
        raise UsageError("name a recording")
    return files
