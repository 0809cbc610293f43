"""`fabmon export`: recordings in the formats of other tools."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import click

from fabmon.cli.options import (
    output_option,
    plain_session,
    range_options,
    recordings_argument,
    redact_option,
)
from fabmon.session.errors import UsageError
from fabmon.session.stderr_lines import say

if TYPE_CHECKING:
    from fabmon.fabric.filter import LinkSelection, Mask
    from fabmon.fabric.snapshot import Snapshot
    from fabmon.session.replay_run import PlayedRange
    from fabmon.session.session import Session

_RATES = "rates, a row per port and tick"


class _Format(NamedTuple):
    """What a format has, for the help, and for one of rates what writes it: `module:class` of a
    _Table."""

    about: str
    table: str = ""


_FORMATS = {
    "csv": _Format(_RATES, "fabmon.report.rates:CsvRates"),
    "parquet": _Format(_RATES, "fabmon.report.parquet:ParquetRates"),
    "jsonl": _Format("as fabmon --format jsonl, including findings"),
    "openmetrics": _Format("the raw counters"),
}


@click.command()
@recordings_argument
@click.option(
    "--format",
    "style",
    type=click.Choice(list(_FORMATS)),
    required=True,
    help="; ".join(f"{name}: {each.about}" for name, each in _FORMATS.items()) + ".",
)
@output_option("The file to create; - is standard output.  [default: -]")
@range_options
@click.option(
    "--links",
    "filters",
    multiple=True,
    metavar="FILTER",
    help="Only these ports; the syntax is that of the / key of the screen. May be repeated: a port"
    " that matches any filter is exported.",
)
@redact_option
@plain_session
def export(
    files: tuple[Path, ...],
    style: str,
    path: Path | None,
    from_: str | None,
    to: str | None,
    filters: tuple[str, ...],
    redact: bool,
    session: Session,
) -> None:
    """Convert recordings for other tools.

    Rates and findings are computed again. Absent values are empty or null, never 0. Times are UTC.
    """
    from fabmon.fabric.filter import FilterError, LinkSelection
    from fabmon.report.scene_report import JsonLines
    from fabmon.session.printing import analysis_status, output, print_written
    from fabmon.session.replay_run import PlayedRange, open_recordings, whole_range

    if style == "parquet":
        _need_pyarrow()
        if path is None:
            raise UsageError("--format parquet: name a file with -o")
    with open_recordings(files) as timeline:
        session = session.for_recording(timeline, redact)
        try:
            links = LinkSelection(filters, session.redactor)
            if style == "openmetrics":
                links.check_constant()
        except FilterError as error:
            raise UsageError(f"--links {error}") from None
        begin, end = whole_range(timeline, from_, to)
        with output(path) as stream:
            played = PlayedRange(session, timeline, begin, end, "exporting")
            failed: tuple[str, ...] = ()
            if style == "openmetrics":
                directory = path.parent if path is not None else Path(tempfile.gettempdir())
                _write_counters(stream, directory, played, links)
            elif style == "jsonl":
                lines = JsonLines()
                for scene in played.scenes():
                    stream.writelines(lines.lines(scene, links.of(scene.snapshot)))
                    failed = scene.failed_detectors
            else:
                table = _table(style, stream)
                for snapshot in played.snapshots():
                    table.accept(snapshot, links.of(snapshot))
                table.close()
            # Before the file is finished: it would be in the way of the corrected command.
            _check_matches(links)
        if path is not None:
            print_written(path, begin, end)
    sys.exit(analysis_status(failed))


def _check_matches(links: LinkSelection) -> None:
    """Say which filters matched nothing. Raises UsageError for names that nothing has."""
    for text in links.unmatched:
        complaint = f"--links {text}: no port matched"
        if links.is_of_names(text):
            near = links.near(text)
            raise UsageError(
                f"{complaint}: did you mean {' or '.join(near)}?" if near else complaint
            )
        say(complaint)


class _Table(Protocol):
    """A file of rates, written tick by tick."""

    def accept(self, snapshot: Snapshot, wanted: Mask | None) -> None:
        """Write the rows of a tick."""

    def close(self) -> None:
        """Complete the file."""


def _table(style: str, stream: IO[bytes]) -> _Table:
    module, _, name = _FORMATS[style].table.partition(":")
    made: _Table = getattr(importlib.import_module(module), name)(stream)
    return made


def _write_counters(
    stream: IO[bytes], directory: Path, played: PlayedRange, links: LinkSelection
) -> None:
    """Write all counters as OpenMetrics, with temporary files in `directory`."""
    from fabmon.report.openmetrics import Transposer, families, series_filter
    from fabmon.session.printing import progress

    transposer = Transposer(directory, played.interval_s)
    try:
        for is_inside, tick in played.ticks():
            transposer.accept(tick, with_frames=is_inside)
        transposer.settle()
        with progress("writing", transposer.size) as report:
            for done, text in families(transposer, series_filter(transposer, played.hosts, links)):
                stream.write(text.encode())
                report(done * transposer.size)
    finally:
        transposer.close()


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        from fabmon.fabric.wording import needed_extra

        raise UsageError(
            f"--format parquet needs pyarrow, {needed_extra('parquet')}; csv needs nothing"
        ) from None
