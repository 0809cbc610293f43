"""`fabmon report`: recordings as one page to send around."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.hosts import FILE, config_option
from fabmon.cli.output import output
from fabmon.cli.passages import studied, working_out
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
from fabmon.cli.topology import load_topology, topology_option

if TYPE_CHECKING:
    from fabmon.recording.reading.timeline import Timeline
    from fabmon.report.page.page import Source

_LEAD_S = 120.0
"""Played before --from, so that what began earlier is found."""


@click.command()
@RECORDINGS
@click.option("-o", "--output", "path", type=FILE, required=True, help="The page to make: *.html.")
@FROM
@TO
@redact_option
@topology_option
@config_option
def report(
    files: tuple[Path, ...],
    path: Path,
    from_: str | None,
    to: str | None,
    redact: bool,
    topologies: tuple[Path, ...],
    config: Path | None,
) -> None:
    """What was recorded as one page: what was found and why, every link by time, the fabric.

    It needs nothing but a browser, and reaches nothing. Rates and findings are worked out anew.
    """
    from fabmon.fabric.redaction import Redactor
    from fabmon.report.page.digest import Bins, digest
    from fabmon.report.page.page import page
    from fabmon.report.selection import PlayedRange
    from fabmon.session.config import load

    settings = load(config)
    topology = load_topology(settings, config, topologies)
    with opened(some(files)) as timeline:
        begin, end = whole_span(timeline, from_, to)
        redactor = Redactor(timeline.hosts) if redact else None
        with output(path) as stream:
            study = studied(
                timeline,
                begin=begin,
                end=end,
                management=settings.management_ports,
                topology=topology,
            )
            with working_out(timeline.files[0].path.name) as tell:
                steady = study.result(on_progress=tell)
            with progress("reporting", (end - begin) / 1e9, "s") as tell:

                def reached(at_ns: int) -> None:
                    tell(max(0, at_ns - begin) / 1e9)

                played = PlayedRange(timeline, begin, end, redactor, reached, _LEAD_S, topology)
                scenes = played.scenes(settings.management_ports, settings.thresholds)
                made = digest(scenes, Bins(begin, end, timeline.interval_s))
            if redactor is not None:
                steady = steady.renamed(redactor.text)
            stream.write(page(made, _sources(timeline, redact), steady).encode())
        warn_of_losses(timeline)


def _sources(timeline: Timeline, redact: bool) -> list[Source]:
    from fabmon.report.page.page import Source

    losses = [
        (path, f"bytes {loss.at} to {loss.end}: {loss.text}") for path, loss in timeline.losses
    ]
    return [
        Source(
            name=f"recording {number}" if redact else file.path.name,
            size=file.size,
            tool=file.sessions[-1].tool,
            recorder="" if redact else file.sessions[-1].recorder,
            title="" if redact else file.sessions[-1].title,
            losses=tuple(text for path, text in losses if path == file.path),
        )
        for number, file in enumerate(timeline.files, 1)
    ]
