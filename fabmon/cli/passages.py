"""Recordings read for their traffic alone, with a progress bar."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from fabmon.cli.progress import Progress, progress

if TYPE_CHECKING:
    from fabmon.analysis.fluctuation.study import Study
    from fabmon.fabric.topology.plan import Topology
    from fabmon.recording.reading.timeline import Timeline

LINKS = click.option(
    "--links",
    multiple=True,
    metavar="PATTERN",
    help="Only these: a port (leaf1/*), a node (gpu00[1-4]) or a label (r3). May be repeated.",
)


def working_out(name: str) -> AbstractContextManager[Progress]:
    """How far it is with what every sample of a recording tells, from 0 to 1."""
    return progress(f"steps and drift of {name}", 1.0, "share")


def studied(
    timeline: Timeline,
    *,
    begin: int | None = None,
    end: int | None = None,
    links: Sequence[str] = (),
    mine: Collection[str] | None = None,
    zone: datetime.tzinfo = datetime.UTC,
    management: Sequence[str] = (),
    topology: Topology | None = None,
) -> Study:
    """A timeline between two times, every sample of it."""
    from fabmon.analysis.fluctuation.links import port_filter
    from fabmon.analysis.fluctuation.study import Study
    from fabmon.history.chunk_rates import RateChunkBuilder
    from fabmon.recording.reading.raw_chunks import raw_chunks

    first = timeline.start_ns if begin is None else begin
    last = timeline.until_ns if end is None else end
    study = Study(port_filter(links), mine, zone)
    name = timeline.files[0].path.name
    with progress(f"reading {name}", (last - first) / 1e9, "s") as tell:
        made = RateChunkBuilder(management, topology).of(
            raw_chunks(timeline, first, last), first, last
        )
        for rate_chunk in made:
            study.accept(rate_chunk)
            tell(max(0, rate_chunk.start_ns - first) / 1e9)
    return study
