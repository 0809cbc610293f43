"""Runs that read recordings: replays, and the ranges that exports, reports and studies read."""

from __future__ import annotations

import datetime
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabmon.analysis.finding import Change
from fabmon.analysis.fluctuation.links import is_of_pattern, port_filter
from fabmon.analysis.fluctuation.study import Study
from fabmon.analysis.scene import Scene
from fabmon.fabric.names import natural, nearest
from fabmon.fabric.redaction import redacted
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import file_error, name_list
from fabmon.feeds.replay import ReplayFeed
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.reading.raw_chunks import raw_chunks
from fabmon.recording.reading.time_parsing import KnownTimes, TimeError
from fabmon.recording.reading.timeline import Timeline, files_of
from fabmon.recording.writing.cut import redacted_hosts
from fabmon.recording.writing.segments import Rotation, Segments, size_of
from fabmon.scenes.lead_in import lead_in_ns
from fabmon.session import event_loop
from fabmon.session.config import RecordingConfig
from fabmon.session.errors import Exit, UsageError
from fabmon.session.presentation import can_draw, show_screen, warn_of_simulation
from fabmon.session.printing import Progress, log_to_stderr, print_last, print_lines, progress
from fabmon.session.recorder_setup import DEMO_MARK, last_ring
from fabmon.session.session import Session, scenes_of
from fabmon.session.stderr_lines import say
from fabmon.tui.run_facts import RunFacts

if TYPE_CHECKING:
    from fabmon.tui.choices import Preferences


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to replay, and how; `from_` and `to` are times as the user writes them.

    `at` is like `from_`, and the tick that a table or JSON is of. `speed` is in recorded seconds a
    second, None for as fast as possible. With `follow` the replay waits at the end for what is
    still being recorded. `style` is the --format, None for the screen.
    """

    files: tuple[Path, ...]
    at: str | None = None
    from_: str | None = None
    to: str | None = None
    speed: float | None = 1.0
    follow: bool = False
    style: str | None = None
    color: str | None = None
    theme: str | None = None
    redact: bool = False


def replay(session: Session, options: ReplayOptions) -> Exit:
    """Replay recordings; without files, what the last screen recorded. Raises UsageError."""
    from fabmon.scenes.recording_access import ReplayedRecording, ReplayStart
    from fabmon.session.preferences import start_screen

    files = options.files or (last_screen(session.settings.recording),)
    with open_recordings(files) as timeline:
        if not options.follow:
            check_ticks(timeline)
        timeline.warm()
        session = session.for_recording(timeline, options.redact)
        from_ns, until_ns, notes = _start_and_end(timeline, options)
        style = options.style
        if style is None and not can_draw():
            style = "table"
        if style in ("table", "json") and options.at is not None and from_ns is not None:
            until_ns = from_ns
        is_demo = is_simulated(timeline)
        if is_demo and style is not None:
            warn_of_simulation()
        try:
            if style is None:
                name = printable(timeline.files[0].path.name)
                title = "replay" if options.redact else f"replay of {name}"
                start = start_screen(session.settings, options.theme, is_live=False)
                facts = RunFacts(
                    title,
                    options.color or session.settings.color,
                    mark=DEMO_MARK if is_demo else "",
                    recording=ReplayedRecording(session, timeline, until_ns),
                    start=ReplayStart(from_ns, options.speed, options.follow),
                    preferences=_with_notes(start, notes),
                    nodes_options=None if is_demo else "--hosts FILE",
                    thresholds=session.settings.thresholds,
                )
                running = show_screen(None, facts)
            else:
                log_to_stderr()
                speed = options.speed if style == "jsonl" else None
                feed = ReplayFeed(
                    timeline,
                    from_ns=from_ns,
                    until_ns=until_ns,
                    lead_ns=lead_in_ns(timeline),
                    speed=speed,
                    follow=options.follow,
                )
                running = _print_replay(session, timeline, feed, style, from_ns)
            code = event_loop.run(running)
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
    return code


def is_simulated(timeline: Timeline) -> bool:
    """Whether a recording is of the demo."""
    return timeline.files[0].sessions[-1].title.startswith(DEMO_MARK)


def _with_notes(preferences: Preferences, notes: Sequence[str]) -> Preferences:
    """Preferences of a screen that shows these notes first: it hides standard error."""
    texts = [each for each in (*notes, preferences.notice) if each]
    return replace(preferences, notice="; ".join(texts))


def _start_and_end(
    timeline: Timeline, options: ReplayOptions
) -> tuple[int | None, int | None, Sequence[str]]:
    """Where the replay starts (--at, --from) and ends (--to), and what of it is not recorded.
    Raises UsageError."""
    if options.at is None:
        return time_range(timeline, options.from_, options.to)
    at_ns = time_at(timeline, "--at", options.at)
    _, until_ns, notes = time_range(timeline, None, options.to)
    if until_ns is not None and until_ns < at_ns:
        raise UsageError(f"--to {options.to} is before --at {options.at}")
    return at_ns, until_ns, notes


async def _print_replay(
    session: Session, timeline: Timeline, feed: ReplayFeed, style: str, from_ns: int | None
) -> Exit:
    pipeline = session.recorded_pipeline(timeline)
    scenes = scenes_of(pipeline, redacted(feed, session.redactor))
    async with aclosing(feed), aclosing(scenes), aclosing(_since(scenes, from_ns or 0)) as shown:
        if style == "jsonl":
            return await print_lines(shown, None)
        return await print_last(scenes, style)


async def _since(scenes: AsyncIterator[Scene], from_ns: int) -> AsyncGenerator[Scene, None]:
    """The scenes from a time on, as in an export."""
    is_first = from_ns > 0
    async for scene in scenes:
        if scene.snapshot.time_ns >= from_ns:
            yield _with_open(scene) if is_first else scene
            is_first = False


@contextmanager
def open_recordings(files: Sequence[Path]) -> Iterator[Timeline]:
    """Recordings as one timeline, opened with a progress bar. Raises UsageError.

    At the end, what could not be read is printed to standard error.
    """
    if not files:
        raise UsageError("name a recording")
    try:
        with progress("opening", sum(map(size_of, files_of(files)))) as report:
            timeline = Timeline(files, report)
    except RecordingError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        path = error.filename or files[0]
        raise UsageError(f"{path}: {file_error(error)}{_rotated(Path(path))}") from None
    with timeline:
        try:
            yield timeline
        finally:
            read = {each.path for each in timeline.every_file}
            for path, loss in timeline.losses:
                # Of a file that is not read at all, the reason is what it says where it is named.
                where = f"bytes {loss.offset} to {loss.end} are lost: " if path in read else ""
                say(f"{path}: {where}{loss.text}")


def check_ticks(timeline: Timeline) -> None:
    """Raises UsageError for recordings of which no tick can be read: what is said of them would be
    of 1970, or of nothing."""
    first = next(timeline.ticks(timeline.start_ns, timeline.until_ns), None)
    if first is None:
        names = ", ".join(str(each.path) for each in timeline.files)
        is_lost = bool(timeline.losses)
        raise UsageError(f"{names}: {'no tick can be read' if is_lost else 'no tick is recorded'}")


_MOST_COMPARED_BYTES = 1 << 30
"""Checksums are compared of so much of the recordings of a command that reads less: a second or
two."""


def compare_checksums(timeline: Timeline) -> None:
    """Compare the checksums of the first files that have _MOST_COMPARED_BYTES together: a command
    that reads little of a file finds its damage too."""
    left = _MOST_COMPARED_BYTES
    with progress("checking", min(left, timeline.size)) as report:
        for each in timeline.every_file:
            if each.size <= left:
                for done in each.compare_checksums():
                    report(_MOST_COMPARED_BYTES - left + done)
                left -= each.size


def _rotated(path: Path) -> str:
    """Where a file does not exist, because --rotate gave its name to several: which ones."""
    written = Segments(path, Rotation(every_s=1)).files() if not path.exists() else []
    if not written:
        return ""
    names = written[-1].name if len(written) == 1 else f"{written[0].name} to {written[-1].name}"
    return f"; record --rotate wrote {names}: name these files, or their directory"


def last_screen(config: RecordingConfig) -> Path:
    """The ring of the screen that was shown last, named on standard error. Raises UsageError if
    there is none to trust."""
    try:
        ring = last_ring(config)
    except OSError as error:
        raise UsageError(f"{error.filename}: {file_error(error)}") from None
    if ring is None:
        raise UsageError("name a recording: no screen was recorded on this machine")
    say(f"the recording of the last screen: {ring}")
    return ring


def known_times(timeline: Timeline) -> KnownTimes:
    """What times can mean in a timeline."""
    events_ns = [note.time_ns for note in timeline.notes() if note.change in ("", "open")]
    return KnownTimes(timeline.start_ns, timeline.until_ns, events_ns)


def time_at(timeline: Timeline, option: str, text: str) -> int:
    """The time (ns) that an option means in a timeline. Raises UsageError if it is not in it."""
    try:
        return known_times(timeline).at(option, text)
    except TimeError as error:
        raise UsageError(str(error)) from None


def time_range(
    timeline: Timeline, from_: str | None, to: str | None
) -> tuple[int | None, int | None, Sequence[str]]:
    """The times (ns) that --from and --to mean in a timeline, and what of them is not recorded, as
    notes that are printed to standard error as well. Raises UsageError if nothing is."""
    try:
        begin, end, notes = known_times(timeline).part(("--from", from_), ("--to", to))
    except TimeError as error:
        raise UsageError(str(error)) from None
    for note in notes:
        say(note)
    return begin, end, notes


def whole_range(timeline: Timeline, from_: str | None, to: str | None) -> tuple[int, int]:
    """Like time_range; an option that is not given means the first or the last tick. Raises
    UsageError too where there is none."""
    check_ticks(timeline)
    begin, end, _ = time_range(timeline, from_, to)
    return (
        timeline.start_ns if begin is None else begin,
        timeline.until_ns if end is None else min(end, timeline.until_ns),
    )


class PlayedRange:
    """The ticks, snapshots or scenes of a part of a timeline, as fast as possible.

    The progress bar shows `what` is done. `hosts` are the nodes, by the names that are shown.
    """

    def __init__(
        self,
        session: Session,
        timeline: Timeline,
        from_ns: int,
        until_ns: int,
        what: str,
    ) -> None:
        self.hosts = redacted_hosts(timeline, session.redactor)
        self.interval_s = timeline.interval_s
        self._session = session
        self._timeline = timeline
        self._from_ns = from_ns
        self._until_ns = until_ns
        self._what = what

    def ticks(self, lead_ns: int = 0) -> Iterator[tuple[bool, Tick]]:
        """Ticks, and whether each is in the range: those before it hold the state at its start, and
        those of `lead_ns` before it what was found by then."""
        start_ns = max(self._timeline.start_ns, self._from_ns - lead_ns)
        for tick in self._timeline.prime(start_ns):
            yield False, self._redacted(tick)
        with progress(self._what, (self._until_ns - self._from_ns) / 1e9, "s") as report:
            for tick in self._timeline.ticks(start_ns, self._until_ns):
                yield tick.time_ns >= self._from_ns, self._redacted(tick)
                report(max(0, tick.time_ns - self._from_ns) / 1e9)

    def snapshots(self) -> Iterator[Snapshot]:
        """The snapshot of every tick; rates are computed again."""
        history = self._session.recorded_history(self._timeline)
        for is_inside, tick in self.ticks():
            snapshot = history.accept(tick)
            if is_inside:
                yield snapshot

    def scenes(self) -> Iterator[Scene]:
        """The scene of every tick; findings are detected again, and those that were open before are
        opened in the first one."""
        pipeline, is_first = self._session.recorded_pipeline(self._timeline), True
        for is_inside, tick in self.ticks(lead_in_ns(self._timeline)):
            scene = pipeline.accept(tick)
            if is_inside:
                yield _with_open(scene) if is_first else scene
                is_first = False

    def _redacted(self, tick: Tick) -> Tick:
        redactor = self._session.redactor
        return tick if redactor is None else redactor.tick(tick)


def _with_open(scene: Scene) -> Scene:
    """A scene at which the findings open that were open before it."""
    changes = [each for each in scene.changes if each[0] is not Change.UPDATE]
    known = {finding.key for _, finding in changes}
    opened = ((Change.OPEN, each) for each in scene.findings if each.key not in known)
    return replace(scene, changes=(*changes, *opened))


def study_range(
    session: Session,
    timeline: Timeline,
    from_ns: int,
    until_ns: int,
    *,
    links: Sequence[str] = (),
    mine: Collection[str] | None = None,
    zone: datetime.tzinfo = datetime.UTC,
) -> Study:
    """The variability study of a part of a timeline, from every sample of it.

    `links` are patterns of ports (none: all), `mine` the hosts whose traffic is not foreign, `zone`
    is that of the hours of a day. Raises UsageError for a name that nothing has, and where no host
    is of `mine`; those that are not recorded are printed to standard error.
    """
    hosts = {host.name for host in timeline.hosts}
    missing = sorted(set(mine or ()) - hosts, key=natural)
    if missing and hosts.isdisjoint(mine or ()):
        raise _unknown("--mine", missing[0], "no host has such a name", hosts)
    if missing:
        say(f"--mine: not in the recording: {name_list(missing, 5)}")
    study = Study(port_filter(links), mine, zone)
    name = timeline.files[0].path.name
    chunks = raw_chunks(timeline, from_ns, until_ns)
    with progress(f"reading {name}", (until_ns - from_ns) / 1e9, "s") as report:
        for chunk in session.chunk_builder().of(chunks, from_ns, until_ns):
            study.accept(chunk)
            report(max(0, chunk.start_ns - from_ns) / 1e9)
    for pattern in links:
        if not any(is_of_pattern(link, pattern) for link in study.links):
            names = _port_names(session, timeline, until_ns)
            raise _unknown("--links", pattern, "no rail and no switch port has such a name", names)
    return study


def _unknown(option: str, text: str, what: str, names: Iterable[str]) -> UsageError:
    """That nothing has a name, with the most similar ones."""
    near = nearest(text, names, 3)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"{option} {text}: {what}{hint}")


def _port_names(session: Session, timeline: Timeline, at_ns: int) -> Iterator[str]:
    """Ids, nodes and labels of the ports that were known at a time."""
    history = session.recorded_history(timeline)
    for tick in timeline.prime(at_ns + 1):
        for port in history.accept(tick).fabric.ports:
            yield from filter(None, (port.id, port.node, port.label))


def study_progress(name: str) -> AbstractContextManager[Progress]:
    """A progress bar, from 0 to 1, for the results of a study of a recording."""
    return progress(f"steps and drift of {name}", 1.0, "share")
