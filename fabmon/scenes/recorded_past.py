"""Reads recordings: ticks become scenes again, in a thread, so that no screen waits for a file."""

from __future__ import annotations

import asyncio
import bisect
import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import Tick
from fabmon.history.history import History
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.reading.rate_tiers import Tier, TierQuery
from fabmon.recording.reading.raw_chunks import PlayedTicks
from fabmon.recording.reading.recorded_findings import (
    RecordedFindings,
    recorded_begins,
    redacted_notes,
)
from fabmon.recording.reading.timeline import Timeline
from fabmon.scenes.background_readers import StudyReader, TierReader
from fabmon.scenes.builder import SceneBuilder
from fabmon.scenes.findings_at_the_time import findings_open_at, note_events
from fabmon.scenes.lead_in import lead_in_ns
from fabmon.scenes.pipeline import Pipeline
from fabmon.scenes.recording_contents import Curve, PastError, RecordingContents
from fabmon.scenes.scene_cache import SceneCache

_LATEST = (1 << 63) - 1

T = TypeVar("T")


class RecordedPast:
    """Reads some recordings. All methods raise PastError if they cannot be read.

    `recordings` returns their paths, which are opened at the first read; or it is a timeline, which
    the caller closes. Nothing after `until_ns` is returned. With a redactor no original name is
    returned.
    """

    def __init__(
        self,
        recordings: Callable[[], Sequence[Path]] | Timeline,
        scenes: SceneBuilder,
        until_ns: int | None = None,
    ) -> None:
        self._scenes = scenes
        self._redactor = scenes.redactor
        self._studies = StudyReader(self._paths, scenes)
        self._tiers = TierReader(self._paths, scenes, until_ns)
        self._recordings = recordings
        self._until_ns = until_ns
        self._thread = ThreadPoolExecutor(1, "fabmon-past")
        self._timeline = recordings if isinstance(recordings, Timeline) else None
        self._history: History | None = None
        self._pipeline: Pipeline | None = None
        self._ticks: PlayedTicks | None = None
        self._kept = SceneCache()
        self._begun_ns = self._position_ns = self._at_ns = 0
        self._requests = 0
        self._read_to = -1
        self._findings = RecordedFindings()
        self._events: list[tuple[int, Event]] = []
        """The time of a note, and its event."""

    async def look(self) -> RecordingContents:
        """The time range, notes and runs that are recorded so far."""
        return await self._read(self._look)

    async def seek(self, at_ns: int) -> Scene | None:
        """The last tick up to a time, with the rates and states of then; None if there is none.

        Its findings are those that were recorded: the minutes before it are not analysed yet.
        """
        self._requests += 1
        return await self._read(lambda: self._seek(at_ns))

    @property
    def is_settled(self) -> bool:
        """Whether the minutes before the last scene that was returned are analysed."""
        return self._at_ns > self._begun_ns

    async def settle(self, at_ns: int) -> Scene | None:
        """The tick of a time again, after the analysis of the minutes before it.

        None if another tick is asked for in the meantime.
        """
        self._requests += 1
        request = self._requests
        return await self._read(lambda: self._settle(at_ns, lambda: self._requests == request))

    async def step(self, at_ns: int, by: int) -> Scene | None:
        """The tick `by` ticks after that of a time (before it if negative).

        The last or first tick if there are fewer; None if there is none at all.
        """
        self._requests += 1
        return await self._read(lambda: self._step(at_ns, by))

    def give_up(self) -> None:
        """Cancel the read that is running."""
        self._requests += 1

    async def curve(self, from_ns: int, until_ns: int, parts: int) -> Curve:
        """Utilisation of the busiest link in `parts` equal parts of a time range."""
        return await self._read(lambda: self._curve(from_ns, until_ns, parts))

    async def study(
        self,
        from_ns: int,
        until_ns: int,
        ports: Collection[str] | None,
        on_progress: Callable[[float], None],
    ) -> Fluctuation:
        """Bandwidth variability between two times on some ports, by id (None: on all ports).

        May take minutes, in a thread of its own; `on_progress` gets the share done, 0 to 1.
        """
        last_ns = min(until_ns, self._until_ns or until_ns)
        with _readable():
            return await self._studies.of(from_ns, last_ns, ports, on_progress)

    async def tier(self, query: TierQuery, on_progress: Callable[[float], None]) -> Tier:
        """Highest and mean values of ports over hours or days, as far as minutes are recorded.

        May take seconds, in a thread of its own; `on_progress` gets the share done, 0 to 1.
        """
        with _readable():
            return await self._tiers.of(query, on_progress)

    async def values(
        self, ports: Sequence[str], columns: Sequence[str], from_ns: int, until_ns: int
    ) -> tuple[list[int], Floats]:
        """The times (ns) of the ticks between two times, both included, and what columns of HEAT of
        some ports (ids) were then: [columns, ports, ticks], NaN where nothing is known.

        Reads all nodes of every tick.
        """
        return await self._read(lambda: self._values(ports, columns, from_ns, until_ns))

    async def jobs(self) -> list[Job]:
        """The jobs that a scheduler reported at any time, each as it was last."""
        return await self._read(self._jobs)

    async def close(self) -> None:
        """Stop all reads, and close the recordings that were opened here."""
        self._studies.close()
        self._tiers.close()
        self._requests += 1
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    # Everything below runs in the thread.

    async def _read(self, work: Callable[[], T]) -> T:
        with _readable():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _close(self) -> None:
        if self._timeline is not None and self._timeline is not self._recordings:
            self._timeline.close()

    def _paths(self) -> Sequence[Path]:
        if isinstance(self._recordings, Timeline):
            return [file.path for file in self._recordings.files]
        return self._recordings()

    def _open(self) -> Timeline:
        """The recordings, with what was written since the last read."""
        if self._timeline is None:
            assert not isinstance(self._recordings, Timeline)
            self._timeline = Timeline(self._recordings())
            self._timeline.warm()
        elif self._ticks is not None:
            self._ticks.refresh()
        else:
            self._timeline.refresh()
        return self._timeline

    def _look(self) -> RecordingContents:
        timeline = self._open()
        until_ns = min(timeline.until_ns, self._until_ns or timeline.until_ns)
        findings = self._all_findings(timeline)
        notes = tuple(findings.notes[: findings.count_until(until_ns)])
        is_complete = timeline.is_closed or until_ns < timeline.until_ns
        return RecordingContents(
            timeline.start_ns, until_ns, notes, timeline.run_starts_ns, is_complete
        )

    def _all_findings(self, timeline: Timeline) -> RecordedFindings:
        if self._read_to != timeline.size:
            findings = self._findings
            from_ns = findings.notes[-1].time_ns if findings.notes else 0
            known = findings.count_until(from_ns - 1)
            notes = timeline.notes(from_ns)
            if known + len(notes) == _count(timeline):
                notes = notes[len(findings.notes) - known :]
            else:
                # A bookmark was added before the last note, or a file was removed.
                notes, self._findings, self._events = timeline.notes(), RecordedFindings(), []
            notes = redacted_notes(timeline, notes, self._redactor)
            for note in notes:
                self._findings.add(note)
            noted_ns = (note.time_ns for note in notes if note.change != "update")
            self._events += zip(noted_ns, note_events(notes), strict=True)
            self._read_to = timeline.size
        return self._findings

    def _curve(self, from_ns: int, until_ns: int, parts: int) -> Curve:
        timeline = self._open()
        end = min(until_ns, self._until_ns or until_ns)
        values = timeline.strip(from_ns, until_ns, parts)
        if end < until_ns:
            values[round((end - from_ns) / (until_ns - from_ns) * parts) :] = float("nan")
        return Curve(from_ns, until_ns, values)

    def _begin(self, timeline: Timeline, from_ns: int) -> tuple[PlayedTicks, Pipeline]:
        """Ticks, history and analyst that begin at a time."""
        self._ticks = PlayedTicks(timeline, from_ns, self._until_ns)
        if self._history is None:
            self._history = self._scenes.recorded_history(timeline)
        self._history.restart()
        begins = recorded_begins(self._all_findings(timeline), timeline.run_starts_ns)
        self._pipeline = Pipeline(self._history, self._scenes.analyst(begins))
        self._kept.clear()
        self._begun_ns = from_ns
        return self._ticks, self._pipeline

    def _seek(self, at_ns: int) -> Scene | None:
        timeline, is_first = self._open(), self._history is None
        last_ns = min(at_ns, self._until_ns or at_ns)
        ticks, pipeline = self._begin(timeline, max(last_ns, timeline.start_ns) + 1)
        if not ticks.primed:
            return None
        *before, last = (self._tick(ticks) for _ in range(ticks.primed))
        for tick in before:
            if tick is not None:
                pipeline.history.take(tick)
        if last is None:
            return None
        snapshot = pipeline.history.accept(last)
        if is_first:
            # The hellos of a thousand nodes stay in memory; without this every full garbage
            # collection would take 0.1 s for them, in the middle of some seek.
            gc.freeze()
        self._begun_ns = self._position_ns = snapshot.time_ns
        return self._show(Scene(snapshot, (), (), ()), timeline)

    def _seek_beyond(self, timeline: Timeline, at_ns: int, by_ns: int) -> Scene | None:
        """The tick `by_ns` after a time, or the first after a gap; at the end the last tick."""
        scene = self._seek(at_ns + by_ns)
        if scene is not None and scene.snapshot.time_ns > at_ns:
            return scene
        following = next(timeline.ticks(at_ns + 1, self._until_ns or _LATEST), None)
        return scene if following is None else self._seek(following.time_ns)

    def _settle(self, at_ns: int, is_wanted: Callable[[], bool]) -> Scene | None:
        if not is_wanted():
            return None
        timeline = self._open()
        self._begin(timeline, max(at_ns - lead_in_ns(timeline), timeline.start_ns))
        scene = None
        while scene is None or scene.snapshot.time_ns < at_ns:
            if not is_wanted():
                return None
            following = self._next()
            if following is None:
                break
            scene = following
        return None if scene is None else self._show(scene, timeline)

    def _step(self, at_ns: int, by: int) -> Scene | None:
        timeline = self._open()
        kept = self._kept.step(at_ns, by)
        if kept is not None:
            return self._show(kept, timeline)
        interval_ns = int(timeline.interval_s * 1e9)
        if by < 0:
            return self._seek(at_ns - 1 + (by + 1) * interval_ns)
        if at_ns > self._position_ns or not (
            at_ns == self._position_ns or self._kept.covers(at_ns)
        ):
            return self._seek_beyond(timeline, at_ns, by * interval_ns)
        last = self._kept.at(_LATEST)
        ahead = self._kept.after(at_ns)
        for _ in range(by - ahead):
            following = self._next()
            if following is None:
                break
            last = following
        return None if last is None else self._show(last, timeline)

    def _values(
        self, ports: Sequence[str], columns: Sequence[str], from_ns: int, until_ns: int
    ) -> tuple[list[int], Floats]:
        ticks, pipeline = self._begin(self._open(), from_ns)
        self._position_ns = 0
        places = [HEAT.index(column) for column in columns]
        times_ns, found = list[int](), list[Floats]()
        while (tick := self._tick(ticks)) is not None and tick.time_ns <= until_ns:
            snapshot = pipeline.history.accept(tick)
            if tick.time_ns < from_ns:
                continue
            rows = snapshot.fabric.rows_of(ports)
            values = np.full((len(columns), len(ports)), np.nan, np.float32)
            for place, port in enumerate(ports):
                if port in rows:
                    values[:, place] = snapshot.heat[places, rows[port]]
            times_ns.append(tick.time_ns)
            found.append(values)
        empty = np.full((len(columns), len(ports), 0), np.nan, np.float32)
        return times_ns, np.stack(found, axis=-1) if found else empty

    def _jobs(self) -> list[Job]:
        reports = self._open().job_reports(self._until_ns or _LATEST)
        jobs = {job.label: job for report in reports for job in report.jobs}
        redactor = self._redactor
        return [job if redactor is None else redactor.job(job) for job in jobs.values()]

    def _show(self, scene: Scene, timeline: Timeline) -> Scene:
        """A scene with the events before it. A finding that was open when the analysis began opens
        in it again: that is no event of its own.

        If no minutes before it were analysed yet, its findings are those that were recorded.
        """
        snapshot = scene.snapshot
        self._at_ns = snapshot.time_ns
        recorded = self._all_findings(timeline)
        if snapshot.time_ns <= self._begun_ns:
            found = findings_open_at(recorded, timeline.run_starts_ns, snapshot)
            scene = replace(scene, findings=found)
        count = bisect.bisect_right(self._events, self._begun_ns, key=lambda each: each[0])
        earlier = tuple(event for _, event in self._events[:count])
        known = {(each.time_ns, each.text) for each in earlier}
        own = (each for each in scene.events if (each.time_ns, each.text) not in known)
        return replace(scene, events=(*earlier, *own))

    def _tick(self, ticks: PlayedTicks) -> Tick | None:
        """The next tick, redacted if names are hidden; None at the end."""
        tick = next(ticks, None)
        return tick if tick is None or self._redactor is None else self._redactor.tick(tick)

    def _next(self) -> Scene | None:
        """The scene of the next tick; None at the end."""
        assert self._ticks is not None
        assert self._pipeline is not None
        tick = self._tick(self._ticks)
        if tick is None:
            return None
        scene = self._pipeline.accept(tick)
        self._position_ns = scene.snapshot.time_ns
        self._kept.add(scene)
        return scene


@contextmanager
def _readable() -> Iterator[None]:
    """Turn errors of reading a recording into PastError."""
    try:
        yield
    except (RecordingError, OSError) as error:
        raise PastError(str(error)) from None


def _count(timeline: Timeline) -> int:
    """Number of notes in all files."""
    entries = (entry for file in timeline.files for entry in file.entries())
    return sum(entry.header.kind == FrameKind.NOTE for entry in entries)
