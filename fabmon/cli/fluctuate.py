"""`fabmon fluctuate`: bandwidth variability in a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    links_option,
    parse_zone,
    plain_session,
    range_options,
    recordings_argument,
    report_option,
)
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.session.session import Session


@click.command()
@recordings_argument
@range_options
@links_option
@click.option(
    "--by",
    type=click.Choice(["rail", "link", "pair", "job", "user", "partition", "hour", "weekday"]),
    default="rail",
    show_default=True,
    help="What a row is.",
)
@click.option(
    "--mine", metavar="NODESET", help="Your hosts; the traffic of all others counts as foreign."
)
@click.option(
    "--tz",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="Time zone of the hours: Europe/Berlin or +2.",
)
@report_option
@plain_session
def fluctuate(
    files: tuple[Path, ...],
    from_: str | None,
    to: str | None,
    links: tuple[str, ...],
    by: str,
    mine: str | None,
    tz: str,
    style: str,
    session: Session,
) -> None:
    """Show how steady bandwidth was: median, 5th and 95th percentile, variation, steps and drift.

    Only samples in communication phases count. Several files, or a directory of them, are one
    timeline. Every sample is read: a day of 64 nodes takes about a minute. Times are as for replay.
    """
    from fabmon.report.fluctuation import fluctuation_table, stepped_kinds
    from fabmon.session.printing import print_report
    from fabmon.session.replay_run import open_recordings, study_progress, study_range, whole_range

    ours = None if mine is None else _hosts(mine)
    with open_recordings(files) as timeline:
        begin, end = whole_range(timeline, from_, to)
        study = study_range(
            session, timeline, begin, end, links=links, mine=ours, zone=parse_zone(tz)
        )
    with study_progress(files[0].name) as report:
        if style == "json":
            found = study.result(on_progress=report)
        else:
            found = study.result(stepped_kinds(by), report)
    print_report(style, found, lambda each: fluctuation_table(each, by) + "\n")


def _hosts(text: str) -> frozenset[str]:
    from fabmon.fabric.hosts.host_line import Bad, Word
    from fabmon.fabric.hosts.nodesets import expand

    try:
        return frozenset(expand(Word(text, 1)))
    except Bad as bad:
        raise UsageError(f"--mine {text}: {bad.text}; {bad.fix}") from None
