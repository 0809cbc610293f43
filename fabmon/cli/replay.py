"""`fabmon replay`: recordings again, through the same house."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.amounts import parse_time
from fabmon.cli.hosts import config_option
from fabmon.cli.progress import progress
from fabmon.cli.shared import color_option, redact_option
from fabmon.cli.topology import load_topology, topology_option
from fabmon.session.errors import Exit, UsageError

if TYPE_CHECKING:
    from fabmon.fabric.redaction import Redactor
    from fabmon.fabric.topology.plan import Topology
    from fabmon.recording.reading.timeline import Timeline
    from fabmon.session.config import Config

RECORDINGS = click.argument(
    "files", nargs=-1, metavar="FILE...", type=click.Path(exists=True, path_type=Path)
)
FROM = click.option("--from", "from_", metavar="TIME", help="Begin here: 14:03, -10m, event 3.")
TO = click.option("--to", metavar="TIME", help="End here.")


@click.command()
@RECORDINGS
@click.option("--at", metavar="TIME", help="Begin here, and play on to the end; as --from.")
@FROM
@TO
@click.option(
    "--speed",
    default="1",
    show_default=True,
    metavar="N|max",
    help="Recorded seconds a second, 0.5 to 64; max for as fast as it goes.",
)
@click.option("--follow", is_flag=True, help="At the end wait for what is still being recorded.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "jsonl"]),
    help="Print instead of the screen: jsonl streams; table and json tell of the end (--to).",
)
@color_option
@redact_option
@topology_option
@config_option
def replay(
    files: tuple[Path, ...],
    at: str | None,
    from_: str | None,
    to: str | None,
    speed: str,
    follow: bool,
    style: str | None,
    color: str | None,
    redact: bool,
    topologies: tuple[Path, ...],
    config: Path | None,
) -> None:
    """Play recordings: several files, or a directory of them, are one timeline.

    Rates and findings are worked out anew. Times: 14:03 (UTC), -10m (before the end), +10m (after
    the start), `event 3`, or a date. Without a FILE, what the last screen recorded by itself.
    """
    from fabmon.session import printing
    from fabmon.session.config import load
    from fabmon.session.presentation import can_paint

    if at is not None and from_ is not None:
        raise UsageError("--at and --from are the same: give one of them")
    settings = load(config)
    topology = load_topology(settings, config, topologies)
    pace = _speed(speed)
    with opened(files or _last_ring(settings)) as timeline:
        timeline.warm()
        begin, end = span_of(timeline, from_ if at is None else at, to)
        if style is None and not can_paint():
            style = "table"
        if style is not None:
            printing.log_to_stderr()
        try:
            code = asyncio.run(
                _play(timeline, settings, topology, begin, end, pace, follow, style, color, redact)
            )
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
        warn_of_losses(timeline)
    sys.exit(code)


async def _play(
    timeline: Timeline,
    settings: Config,
    topology: Topology,
    begin: int | None,
    end: int | None,
    speed: float | None,
    follow: bool,
    style: str | None,
    color: str | None,
    redact: bool,
) -> Exit:
    from fabmon.analysis.analyst import Analyst, analyse_ticks
    from fabmon.fabric.redaction import Redactor, redacted
    from fabmon.feeds.replay import ReplayFeed
    from fabmon.history.history import History
    from fabmon.recording.writing.cut import redacted_hosts, redacted_topology
    from fabmon.session import printing

    redactor = Redactor(timeline.hosts) if redact else None
    if style is None:
        return await _show(timeline, settings, topology, begin, end, speed, follow, redactor, color)
    pace = speed if style == "jsonl" else None
    feed = ReplayFeed(timeline, from_ns=begin, until_ns=end, speed=pace, follow=follow)
    hosts = redacted_hosts(timeline, redactor)
    cabled = redacted_topology(topology, redactor)
    history = History(hosts, feed.interval_s, settings.management_ports, topology=cabled)
    analyst = Analyst(settings.thresholds)
    async with (
        aclosing(feed),
        aclosing(analyse_ticks(redacted(feed, redactor), history, analyst)) as scenes,
    ):
        if style == "jsonl":
            return await printing.stream(scenes, None)
        return await printing.last(scenes, style)


async def _show(
    timeline: Timeline,
    settings: Config,
    topology: Topology,
    begin: int | None,
    end: int | None,
    speed: float | None,
    follow: bool,
    redactor: Redactor | None,
    color: str | None,
) -> Exit:
    """Recordings on the screen, which goes through them as a person likes."""
    from fabmon.analysis.analyst import Analyst
    from fabmon.fabric.fabric_builder import PortRows
    from fabmon.history.chunk_rates import RateChunkBuilder
    from fabmon.history.history import History
    from fabmon.recording.writing.cut import redacted_hosts, redacted_topology
    from fabmon.session.recorded_past import RecordedPast
    from fabmon.session.saved_files import saves
    from fabmon.tui.app import FabmonApp
    from fabmon.tui.time.time_keys import Travel

    rows = PortRows()
    cabled = redacted_topology(topology, redactor)

    def history(played: Timeline) -> History:
        ports, hosts = settings.management_ports, redacted_hosts(played, redactor)
        return History(hosts, played.interval_s, ports, topology=cabled, rows=rows)

    def cut(played: Timeline) -> History:
        ports, hosts = settings.management_ports, redacted_hosts(played, redactor)
        return History(hosts, played.interval_s, ports, topology=cabled)

    def analyst() -> Analyst:
        return Analyst(settings.thresholds)

    def rate_chunks() -> RateChunkBuilder:
        return RateChunkBuilder(settings.management_ports, topology)

    past = RecordedPast(timeline, history, analyst, end, redactor, rate_chunks)
    travel = Travel(
        past=past,
        why_not=lambda: "nothing is recorded",
        keep_note=lambda _: "a recording is not changed: bookmarks are set while it is made",
        plays=True,
        from_ns=begin,
        speed=speed,
        follow=follow,
    )
    title = "replay" if redactor else f"replay of {timeline.files[0].path.name}"
    kept = saves(lambda: [each.path for each in timeline.files], cut, redactor)
    colors = color or settings.color
    app = FabmonApp(None, title=title, color=colors, travel=travel, saves=kept)
    await app.run_async()
    return Exit(app.return_code or Exit.OK)


def opened(files: Sequence[Path]) -> Timeline:
    """Recordings as one timeline. Raises UsageError."""
    from fabmon.recording.format.errors import RecordingError
    from fabmon.recording.reading.timeline import Timeline, files_of

    try:
        with progress("opening", sum(map(_size, files_of(files)))) as tell:
            return Timeline(files, tell)
    except RecordingError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename or files[0]}: {error.strerror or error}") from None


def _size(path: Path) -> int:
    """Bytes of a file; 0 of one that is not there any more: a rotation removes some."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def span_of(timeline: Timeline, from_: str | None, to: str | None) -> tuple[int | None, int | None]:
    """What --from and --to mean in a timeline, in ns. Raises UsageError."""
    events = [note.time_ns for note in timeline.notes() if note.change in ("", "open")]
    found: list[int | None] = []
    for option, text in (("--from", from_), ("--to", to)):
        at = (
            None if text is None else parse_time(text, timeline.start_ns, timeline.until_ns, events)
        )
        if text is not None and at is None:
            raise UsageError(f"{option} {text}: a time such as 14:03, -10m, +1h or event 3")
        found.append(at)
    begin, end = found
    if begin is not None and begin > timeline.until_ns:
        raise UsageError(f"--from {from_} is after the end of the recording")
    if begin is not None:
        begin = max(begin, timeline.start_ns)
    if end is not None and end < (begin or timeline.start_ns):
        raise UsageError(f"--to {to} is before the start")
    return begin, end


def whole_span(timeline: Timeline, from_: str | None, to: str | None) -> tuple[int, int]:
    """The same, from the first tick to the last where nothing is said."""
    begin, end = span_of(timeline, from_, to)
    return (
        timeline.start_ns if begin is None else begin,
        timeline.until_ns if end is None else min(end, timeline.until_ns),
    )


def some(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files that were named. Raises UsageError where there is none."""
    if not files:
        raise UsageError("name a recording")
    return files


def warn_of_losses(timeline: Timeline) -> None:
    """Say on standard error what could not be read."""
    for path, loss in timeline.losses:
        where = f"bytes {loss.offset} to {loss.end}"
        print(f"fabmon: {path}: {where} are lost: {loss.text}", file=sys.stderr)


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 1000:
        raise UsageError(f"--speed {text}: a number such as 0.5 or 8, or max")
    return speed


def _last_ring(settings: Config) -> list[Path]:
    from fabmon.session.recorder_setup import ring_directories, runtime_directory

    own = settings.recording.directory
    found = ring_directories(Path(own).expanduser() if own else runtime_directory())
    if not found:
        raise UsageError("name a recording: no screen has recorded anything by itself here")
    return found[:1]
