"""`fabmon export`: what is in recordings, for other tools."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import click

from fabmon.cli.hosts import FILE, config_option
from fabmon.cli.output import output
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
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.fabric.filter import Mask
    from fabmon.fabric.snapshot import Snapshot
    from fabmon.report.selection import LinkSelection, PlayedRange

_FORMATS = ["csv", "jsonl", "parquet", "openmetrics"]


@click.command()
@RECORDINGS
@click.option(
    "--format",
    "style",
    type=click.Choice(_FORMATS),
    required=True,
    help="csv and parquet: rates, a row a link and tick; jsonl: as fabmon --format jsonl, findings"
    " too; openmetrics: the raw counters.",
)
@click.option("-o", "--output", "path", type=FILE, help="The file to make; else standard output.")
@FROM
@TO
@click.option(
    "--links",
    "filters",
    multiple=True,
    metavar="FILTER",
    help="Only these, in the words of the screen's / key; of several filters any.",
)
@redact_option
@config_option
def export(
    files: tuple[Path, ...],
    style: str,
    path: Path | None,
    from_: str | None,
    to: str | None,
    filters: tuple[str, ...],
    redact: bool,
    config: Path | None,
) -> None:
    """What is in some recordings, for other tools.

    Rates are worked out anew. What is absent is empty or null, never 0. Times are UTC.
    """
    from fabmon.fabric.filter import FilterError
    from fabmon.fabric.redaction import Redactor
    from fabmon.report.scene_report import JsonLines
    from fabmon.report.selection import LinkSelection, PlayedRange
    from fabmon.session.config import load

    settings = load(config)
    if style == "parquet":
        _need_pyarrow()
        if path is None:
            raise UsageError("--format parquet: name a file with -o")
    with opened(some(files)) as timeline:
        redactor = Redactor(timeline.hosts) if redact else None
        try:
            links = LinkSelection(filters, redactor)
            if style == "openmetrics":
                links.check_still()
        except FilterError as error:
            raise UsageError(f"--links {error}") from None
        begin, end = whole_span(timeline, from_, to)
        with output(path) as stream, progress("exporting", (end - begin) / 1e9, "s") as tell:

            def reached(at_ns: int) -> None:
                tell(max(0, at_ns - begin) / 1e9)

            cabled = load_topology(settings, config)
            played = PlayedRange(timeline, begin, end, redactor, reached, topology=cabled)
            if style == "openmetrics":
                directory = path.parent if path is not None else Path(tempfile.gettempdir())
                _counters(stream, directory, played, links)
            elif style == "jsonl":
                lines = JsonLines()
                for scene in played.scenes(settings.management_ports, settings.thresholds):
                    stream.writelines(lines.lines(scene, links.of(scene.snapshot)))
            else:
                table = _table(style, stream)
                for snapshot in played.moments(settings.management_ports):
                    table.accept(snapshot, links.of(snapshot))
                table.close()
        if not links.has_matched:
            print(f"fabmon: no link matched --links {' --links '.join(filters)}", file=sys.stderr)
        warn_of_losses(timeline)


class _Table(Protocol):
    """Takes rates tick by tick."""

    def accept(self, snapshot: Snapshot, wanted: Mask | None) -> None:
        """The rows of a tick."""

    def close(self) -> None:
        """No more come."""


def _table(style: str, stream: IO[bytes]) -> _Table:
    if style == "csv":
        from fabmon.report.rates import CsvRates

        return CsvRates(stream)
    from fabmon.report.parquet import ParquetRates

    return ParquetRates(stream)


def _counters(
    stream: IO[bytes], directory: Path, played: PlayedRange, links: LinkSelection
) -> None:
    """The text of all counters; what is not in memory meanwhile is in `directory`."""
    from fabmon.report.openmetrics import Transposer, families, series_filter

    spool = Transposer(directory, played.interval_s)
    try:
        for is_told, tick in played.ticks():
            spool.accept(tick, with_frames=is_told)
        spool.settle()
        with progress("writing", spool.size) as tell:
            for done, text in families(spool, series_filter(spool, played.hosts, links)):
                stream.write(text.encode())
                tell(done * spool.size)
    finally:
        spool.close()


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(
            '--format parquet needs pyarrow: pip install "fabmon[parquet]"; csv needs nothing'
        ) from None
