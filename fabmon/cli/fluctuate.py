"""`fabmon fluctuate`: how steady bandwidth was in a recording."""

from __future__ import annotations

import datetime
from contextlib import suppress
from pathlib import Path

import click

from fabmon.cli.hosts import config_option
from fabmon.cli.passages import LINKS, studied, working_out
from fabmon.cli.replay import FROM, RECORDINGS, TO, opened, span_of, warn_of_losses
from fabmon.cli.topology import load_topology
from fabmon.session.errors import UsageError

_HOURS_OF_A_DAY = 24


@click.command()
@RECORDINGS
@FROM
@TO
@LINKS
@click.option(
    "--by",
    type=click.Choice(["rail", "link", "pair", "job", "hour", "weekday"]),
    default="rail",
    show_default=True,
    help="What a line is.",
)
@click.option("--mine", metavar="NODESET", help="Our hosts; the traffic of all others is foreign.")
@click.option(
    "--tz", default="UTC", show_default=True, metavar="ZONE", help="Whose hours: Europe/Berlin, +2."
)
@click.option(
    "--format", "style", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@config_option
def fluctuate(
    files: tuple[Path, ...],
    from_: str | None,
    to: str | None,
    links: tuple[str, ...],
    by: str,
    mine: str | None,
    tz: str,
    style: str,
    config: Path | None,
) -> None:
    """How steady bandwidth was: median, 5th and 95th percentile, variation, steps and drift.

    Only samples in communication phases count. Several files, or a directory of them, are one
    timeline; every sample is read, a day of 64 nodes takes about a minute. Times are as for replay.
    """
    if not files:
        raise UsageError("name a recording")
    from fabmon.report.fluctuation import fluctuation_table, stepped_kinds
    from fabmon.session.config import load

    settings = load(config)
    ours = None if mine is None else _hosts(mine)
    with opened(files) as timeline:
        begin, end = span_of(timeline, from_, to)
        study = studied(
            timeline,
            begin=begin,
            end=end,
            links=links,
            mine=ours,
            zone=_zone(tz),
            management=settings.management_ports,
            topology=load_topology(settings, config),
        )
        warn_of_losses(timeline)
    if links and not study.links:
        raise UsageError(f"--links {' '.join(links)}: no rail and no switch port is called so")
    if style == "json":
        import msgspec

        with working_out(files[0].name) as tell:
            found = study.result(on_progress=tell)
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        with working_out(files[0].name) as tell:
            found = study.result(stepped_kinds(by), tell)
        print(fluctuation_table(found, by))


def _hosts(text: str) -> frozenset[str]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return frozenset(map(str, NodeSet(text)))
    except NodeSetException as error:
        raise UsageError(f"--mine {text}: {error}") from None


def _zone(text: str) -> datetime.tzinfo:
    """`Europe/Berlin`, or what to add to UTC: `+2`, `-3.5`, `+05:30`. Raises UsageError."""
    import zoneinfo

    if text == "UTC":
        return datetime.UTC  # Machines without the tz database know it too.
    with suppress(ValueError):
        return datetime.timezone(datetime.timedelta(hours=_hours(text)))
    with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo(text)
    raise UsageError(f"--tz {text}: a zone such as Europe/Berlin, or hours such as +2 or +05:30")


def _hours(text: str) -> float:
    """Raises ValueError where that is no offset of less than a day."""
    whole, colon, minutes = text.partition(":")
    part = float(minutes) / 60 if colon else 0.0
    hours = float(whole) + (-part if whole.startswith("-") else part)
    if not abs(hours) < _HOURS_OF_A_DAY or not 0 <= part < 1:
        raise ValueError(text)
    return hours
