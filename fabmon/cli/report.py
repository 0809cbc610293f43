"""`fabmon report`: recordings as one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    output_option,
    range_options,
    recording_session,
    recordings_argument,
    redact_option,
)

if TYPE_CHECKING:
    from fabmon.recording.reading.timeline import Timeline
    from fabmon.report.page.page import ReportSource
    from fabmon.session.session import Session


@click.command()
@recordings_argument
@output_option("The page: *.html; - is standard output.", required=True)
@range_options
@redact_option
@recording_session
def report(
    files: tuple[Path, ...],
    path: Path | None,
    from_: str | None,
    to: str | None,
    redact: bool,
    session: Session,
) -> None:
    """Make an HTML page of recordings: findings and their causes, links over time, the fabric.

    The page is one file and loads nothing from elsewhere. Rates and findings are computed again.
    """
    from fabmon.report.page.digest import Bins, digest
    from fabmon.report.page.page import page
    from fabmon.session.printing import analysis_status, output, print_written
    from fabmon.session.replay_run import (
        PlayedRange,
        open_recordings,
        study_progress,
        study_range,
        whole_range,
    )

    with open_recordings(files) as timeline:
        begin, end = whole_range(timeline, from_, to)
        session = session.for_recording(timeline, redact)
        with output(path) as stream:
            study = study_range(session, timeline, begin, end)
            with study_progress(timeline.files[0].path.name) as studied:
                fluctuation = study.result(on_progress=studied)
            played = PlayedRange(session, timeline, begin, end, "reporting")
            made = digest(played.scenes(), Bins(begin, end, timeline.interval_s))
            if session.redactor is not None:
                fluctuation = fluctuation.redacted(session.redactor)
            stream.write(page(made, _sources(timeline, redact), fluctuation).encode())
    if path is not None:
        print_written(path, begin, end)
    sys.exit(analysis_status(made.failed_detectors))


def _sources(timeline: Timeline, redact: bool) -> list[ReportSource]:
    from fabmon.fabric.wire.messages import printable
    from fabmon.report.page.page import ReportSource

    losses = [
        (path, f"bytes {loss.offset} to {loss.end}: {loss.text}") for path, loss in timeline.losses
    ]
    return [
        ReportSource(
            name=f"recording {number}" if redact else printable(file.path.name),
            size=file.size,
            tool=file.sessions[-1].tool,
            recorder="" if redact else file.sessions[-1].recorder,
            title="" if redact else file.sessions[-1].title,
            losses=tuple(text for path, text in losses if path == file.path),
        )
        for number, file in enumerate(timeline.files, 1)
    ]
