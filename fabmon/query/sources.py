"""What questions are answered from: a recording, or the scenes of a running watch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Change, Finding, from_stored
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.measures import known_mean
from fabmon.fabric.moved_times import moved
from fabmon.fabric.snapshot import RING_TICKS, Floats, Snapshot
from fabmon.fabric.time_wording import SECOND_NS, duration
from fabmon.query.questions import QueryError
from fabmon.recording.format.records import PARTLY_ANALYSED, Note
from fabmon.recording.reading.rate_tiers import TierQuery, choose_bins
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.scenes.recording_contents import PastError, RecordingContents

_MOST_CLOSED = 1000
"""Closed findings that a watch keeps."""
_NOW_S = 10.0
"""A running watch answers for a time that is at most so long ago."""
_MOST_READS = 128 * 900
"""Nodes times ticks of a range that is read tick by tick, at most: it takes some ten seconds."""
_EXACT = "values exact to 0.4 % of the minute's highest"

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """A finding and the ids of its ports, as last known. `is_partial`: it was recorded, and not
    every tick since it began was analysed."""

    finding: Finding
    ports: tuple[str, ...]
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """Values of some ports in equal parts of time: `highest` and `mean` are [columns, ports,
    parts], NaN where nothing is known; part n begins at `from_ns` + n * `part_ns`. `note` says
    where they are from, and how exact; empty where they are of the ticks."""

    from_ns: int
    part_ns: int
    highest: Floats
    mean: Floats
    note: str = ""


class Source(Protocol):
    """Scenes, findings and curves. All methods raise QueryError."""

    @property
    def name(self) -> str:
        """What is asked: the name of a file, or the title of the watch."""

    @property
    def is_live(self) -> bool:
        """Whether all scenes are analysed as they come."""

    @property
    def failed_detectors(self) -> tuple[str, ...]:
        """Those that failed in the scenes that were asked for."""

    async def range_ns(self) -> tuple[int, int]:
        """The first and the last time that can be asked about."""

    async def tick_ns(self, until_ns: int) -> int:
        """The time of the last tick up to a time of the range."""

    async def events_ns(self) -> list[int]:
        """The times of the numbered events (`event 3`)."""

    async def findings(self, until_ns: int) -> list[KnownFinding]:
        """All findings that opened up to a time, as they were last then."""

    async def jobs(self) -> Sequence[Job]:
        """The jobs of the scheduler that ran at some time, as far as is known."""

    async def scene(self, at_ns: int, is_analysed: bool) -> Scene:
        """The last tick up to a time; with `is_analysed` with the rates of the minutes before."""

    async def series(
        self, ports: Names, columns: Names, range_ns: tuple[int, int], parts: int
    ) -> Series:
        """Columns of HEAT of some ports (ids) over a range of time, in at most `parts` parts."""


class WatchSource:
    """The scenes of a running watch: it keeps the last one, and the findings that closed."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._last: Scene | None = None
        self._first_ns = 0
        self._ticks_ns: deque[int] = deque(maxlen=RING_TICKS)
        self._closed: deque[KnownFinding] = deque(maxlen=_MOST_CLOSED)

    def take(self, scene: Scene) -> None:
        """Take the next scene."""
        time_ns = scene.snapshot.time_ns
        self._first_ns = self._first_ns or time_ns
        jumped_ns = scene.snapshot.clock_jumped_ns
        if self._last is not None and jumped_ns:
            # What was seen moves with the clock: else it may be in the future.
            self._first_ns += jumped_ns
            self._ticks_ns = deque([each + jumped_ns for each in self._ticks_ns], RING_TICKS)
            self._closed = deque([moved(each, jumped_ns) for each in self._closed], _MOST_CLOSED)
        self._last = scene
        self._ticks_ns.append(time_ns)
        for change, finding in scene.changes:
            if change is Change.CLOSE:
                self._closed.append(known_finding(finding, scene.snapshot))

    @property
    def name(self) -> str:
        """The title of the watch."""
        return f"watch of {self._title}"

    @property
    def is_live(self) -> bool:
        """True."""
        return True

    @property
    def failed_detectors(self) -> tuple[str, ...]:
        """Those that failed so far."""
        return () if self._last is None else self._last.failed_detectors

    @property
    def _scene(self) -> Scene:
        if self._last is None:
            raise QueryError("nothing has been received yet: ask again in some seconds")
        return self._last

    async def range_ns(self) -> tuple[int, int]:
        """Since the watch was started."""
        return self._first_ns or self._scene.snapshot.time_ns, self._scene.snapshot.time_ns

    async def tick_ns(self, until_ns: int) -> int:
        """Of the ticks whose rates are in memory; an earlier time is as it was asked."""
        return next((each for each in reversed(self._ticks_ns) if each <= until_ns), until_ns)

    async def events_ns(self) -> list[int]:
        """None: events are numbered in recordings."""
        return []

    async def findings(self, until_ns: int) -> list[KnownFinding]:
        """Those open now, and the last ones that closed."""
        scene = self._scene
        now = [known_finding(finding, scene.snapshot) for finding in scene.findings]
        return [each for each in (*self._closed, *now) if each.finding.since_ns <= until_ns]

    async def jobs(self) -> Sequence[Job]:
        """Those that run now."""
        return self._scene.snapshot.jobs.jobs

    async def scene(self, at_ns: int, is_analysed: bool) -> Scene:
        """The newest scene."""
        newest_ns = self._scene.snapshot.time_ns
        if at_ns < newest_ns - _NOW_S * SECOND_NS:
            raise QueryError(
                "a running watch knows links and jobs of now: leave out the time, ask for the"
                " history of a port, or ask a recording"
            )
        return self._scene

    async def series(
        self, ports: Names, columns: Names, range_ns: tuple[int, int], parts: int
    ) -> Series:
        """From the rates in memory, 15 minutes at one tick a second."""
        snapshot = self._scene.snapshot
        row_of = {port.id: port.row for port in snapshot.fabric.ports}
        rows = [row_of[port] for port in ports if port in row_of]
        tick_ns = max(1, int(snapshot.interval_s * SECOND_NS))
        kept_ns = snapshot.time_ns - RING_TICKS * tick_ns
        kept = f"the watch keeps rates of the last {duration(RING_TICKS * snapshot.interval_s)}"
        if range_ns[1] < kept_ns:
            raise QueryError(f"{kept}: ask for a part of that, or ask a recording")
        from_ns = max(range_ns[0], kept_ns)
        skipped = max(0, (snapshot.time_ns - range_ns[1]) // tick_ns)
        ticks = int(max(1, min(RING_TICKS, (snapshot.time_ns - from_ns) // tick_ns)))
        windows = np.stack([snapshot.window(column, rows, ticks) for column in columns])
        windows = windows[..., : max(1, ticks - skipped)]
        each = -(-windows.shape[-1] // parts)
        missing = -windows.shape[-1] % each
        padded = np.pad(windows, ((0, 0), (0, 0), (missing, 0)), constant_values=np.nan)
        end_ns = snapshot.time_ns - skipped * tick_ns
        ticks = padded.shape[-1]
        places = np.arange(ticks) // each
        begin_ns = end_ns - (ticks - 1) * tick_ns
        found = _in_parts(padded, places, ticks // each, begin_ns, each * tick_ns)
        return found if range_ns[0] >= kept_ns else replace(found, note=kept)


class RecordedSource:
    """A recording, read by a RecordedPast."""

    def __init__(self, name: str, past: RecordedPast) -> None:
        self._name = name
        self._past = past
        self._failed_detectors: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the recording."""
        return self._name

    @property
    def is_live(self) -> bool:
        """False: a scene is analysed on request."""
        return False

    @property
    def failed_detectors(self) -> tuple[str, ...]:
        """Those that failed in the minutes that were analysed last."""
        return self._failed_detectors

    async def range_ns(self) -> tuple[int, int]:
        """The times of the first and the last tick."""
        found = await self._look()
        return found.start_ns, found.until_ns

    async def tick_ns(self, until_ns: int) -> int:
        """The tick that a replay shows."""
        return (await self.scene(until_ns, is_analysed=False)).snapshot.time_ns

    async def events_ns(self) -> list[int]:
        """The times of findings that opened, and of bookmarks."""
        return (await self._look()).marks_ns()

    async def findings(self, until_ns: int) -> list[KnownFinding]:
        """As they were recorded."""
        found = await self._look()
        return list(_recorded(found.notes, found.runs_ns, until_ns))

    async def jobs(self) -> Sequence[Job]:
        """Those that were reported, and those of the last tick, which processes may show too."""
        found = await self._look()
        last = await self.scene(found.until_ns, is_analysed=False)
        try:
            every = [*await self._past.jobs(), *last.snapshot.jobs.jobs]
        except PastError as error:
            raise QueryError(str(error)) from None
        return list({each.label: each for each in every}.values())

    async def scene(self, at_ns: int, is_analysed: bool) -> Scene:
        """The last tick up to a time, with the findings that were recorded or computed again."""
        try:
            scene = await self._past.seek(at_ns)
            if scene is not None and is_analysed:
                scene = await self._past.settle(scene.snapshot.time_ns) or scene
                self._failed_detectors = scene.failed_detectors
        except PastError as error:
            raise QueryError(str(error)) from None
        if scene is None:
            raise QueryError("no tick of the recording can be read at that time")
        return scene

    async def series(
        self, ports: Names, columns: Names, range_ns: tuple[int, int], parts: int
    ) -> Series:
        """From the ticks, of a longer range from the recorded minutes: their parts of 10 s and
        more that have nothing from outside the range."""
        from_ns, to_ns = range_ns
        try:
            scene = await self.scene(to_ns, is_analysed=False)
            tick_ns = max(1, int(scene.snapshot.interval_s * SECOND_NS))
            ticks = (to_ns - from_ns) // tick_ns + 1
            if ticks * max(1, len(scene.snapshot.statuses)) <= _MOST_READS:
                times_ns, values = await self._past.values(ports, columns, from_ns, to_ns)
                each = -(-ticks // parts)
                places = (np.array(times_ns, np.int64) - from_ns) // (each * tick_ns)
                return _in_parts(values, places, -(-ticks // each), from_ns, each * tick_ns)
            bins = choose_bins(*range_ns, parts)
            tier = await self._past.tier(TierQuery(ports, columns, False, *bins), lambda done: None)
        except PastError as error:
            raise QueryError(str(error)) from None
        found = await self._look()
        starts_ns = tier.wanted.from_ns + np.arange(tier.wanted.bins) * tier.wanted.bin_ns
        inside = (starts_ns >= from_ns) | (from_ns <= found.start_ns)
        inside &= (starts_ns + tier.wanted.bin_ns <= to_ns) | (to_ns >= found.until_ns)
        first = int(inside.argmax())
        return Series(
            int(starts_ns[first]),
            tier.wanted.bin_ns,
            tier.highest[..., inside],
            tier.mean[..., inside],
            f"from the recorded minutes: parts of 10 s or more inside the range, {_EXACT}",
        )

    async def _look(self) -> RecordingContents:
        try:
            found = await self._past.look()
        except PastError as error:
            raise QueryError(str(error)) from None
        if not found.start_ns:
            raise QueryError("the recording is empty")
        return found


def _in_parts(
    values: Floats, places: NDArray[np.intp], parts: int, from_ns: int, part_ns: int
) -> Series:
    """Values [columns, ports, ticks] in equal parts; `places` [ticks] are the parts of the ticks,
    ascending."""
    highest = np.full((*values.shape[:2], parts), np.nan, np.float32)
    mean = highest.copy()
    for place in np.unique(places).tolist():
        of_part = values[..., places == place]
        highest[..., place] = np.fmax.reduce(of_part, axis=-1)
        mean[..., place] = known_mean(of_part)
    return Series(from_ns, part_ns, highest, mean)


def known_finding(finding: Finding, snapshot: Snapshot) -> KnownFinding:
    """A finding of a snapshot."""
    ports = snapshot.fabric.ports
    return KnownFinding(finding, tuple(ports[row].id for row in finding.rows if row < len(ports)))


def _recorded(
    notes: tuple[Note, ...], runs_ns: tuple[int, ...], until_ns: int
) -> Iterator[KnownFinding]:
    """The findings of notes, each as it was known at a time, by the time of their last note: open
    until its end was noted, as in a replay. One that was open when the recorder was started again
    ended then."""
    latest: dict[tuple[str, object], Note] = {}
    for note in notes:
        if note.kind == "finding" and note.time_ns <= until_ns:
            cause = note.finding.get("opened_as") or note.finding.get("cause")
            key = f"{cause}:{note.finding.get('subject')}", note.finding.get("since_ns")
            latest[key] = note
    for note in latest.values():
        finding = from_stored(note.finding)
        if finding is None:
            continue
        if finding.until_ns is None:
            restart_ns = next((each for each in runs_ns if each > note.time_ns), None)
            ended_ns = note.time_ns if note.change == "close" else restart_ns
            if ended_ns is not None and ended_ns <= until_ns:
                finding = msgspec.structs.replace(finding, until_ns=ended_ns)
        yield KnownFinding(finding, note.ports, bool(note.finding.get(PARTLY_ANALYSED)))
