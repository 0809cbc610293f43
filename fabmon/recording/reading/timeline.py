"""Several recordings as one timeline: the files of a rotation, or of one day after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from fabmon.fabric.jobs.job import JobReport
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.recording.format.errors import NotARecording, RecordingError
from fabmon.recording.format.minutes import Minute
from fabmon.recording.format.records import SUFFIX, Note, lost_statuses, with_opening_state
from fabmon.recording.reading.frame_reader import Loss, ProgressCallback, ignore_progress
from fabmon.recording.reading.merging import merge_begun, merged_minutes
from fabmon.recording.reading.open_files import OpenFiles
from fabmon.recording.reading.overlap import parts_of_others, read_from
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.tick_numbers import TickNumbers
from fabmon.recording.reading.view import FileView

T = TypeVar("T")


class Timeline:
    """Recordings by time.

    The ticks of a single session keep their numbers. The runs of several files, or of a directory,
    are numbered by their time, so that what was not recorded is a gap in the numbers. A tick keeps
    its number when files before it are removed and when more is written.
    """

    def __init__(
        self, paths: Sequence[Path], on_progress: ProgressCallback = ignore_progress
    ) -> None:
        """Open files; of a directory, the recordings in it.

        Those of a directory that cannot be read are in `losses`. `on_progress` is called with the
        bytes of all files read so far. Raises RecordingError or OSError.
        """
        self._paths = paths
        self._open_files = OpenFiles()
        self.every_file: list[Recording] = []
        """By their first ticks, those without any at the end."""
        self.files: list[Recording] = []
        """Those whose ticks are read: without `_parts`, of which another one has every tick."""
        self._parts: frozenset[Recording] = frozenset()
        self._begins_ns: dict[Recording, int] = {}
        self._numbers = TickNumbers()
        self._unreadable: dict[Path, Loss] = {}
        try:
            self._open(files_of(paths), on_progress)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files."""
        for each in self.every_file:
            each.close()

    def _open(self, paths: Sequence[Path], on_progress: ProgressCallback) -> None:
        """Open files that are new, close those that are gone, and sort all by time."""
        known = {each.path: each for each in self.every_file}
        wanted = frozenset(paths)
        for path, each in known.items():
            if path not in wanted:
                each.close()
        files = [each for path, each in known.items() if path in wanted]
        read_bytes = 0
        for path in paths:
            if path not in known:
                opened = self._opened(path, partial(_report_after, read_bytes, on_progress))
                if opened is not None:
                    files.append(opened)
                    read_bytes += opened.size
        self._unreadable = {path: loss for path, loss in self._unreadable.items() if path in wanted}
        if not files:
            for path, loss in self._unreadable.items():
                raise NotARecording(f"{path}: {loss.text}")
            raise NotARecording(f"{(*paths, *self._paths)[0]}: the file was removed")
        if files != list(known.values()):
            self._parts = frozenset(parts_of_others(files))
            self._begins_ns = read_from(each for each in files if each not in self._parts)
        # In one assignment each: other threads read the lists.
        self.every_file = sorted(
            files, key=lambda each: (each.start_ns or LATEST_NS, str(each.path))
        )
        self.files = [each for each in self.every_file if each not in self._parts]
        self._single = (
            len(self.files) == 1
            and len(self.files[0].sessions) == 1
            and self.files[0].path in self._paths
        )

    def _opened(self, path: Path, on_progress: ProgressCallback) -> Recording | None:
        """An opened file; None where one in a directory cannot be read or is gone by now."""
        if path in self._paths:
            return Recording(path, on_progress, self._open_files)
        try:
            size = path.stat().st_size
            if path in self._unreadable and self._unreadable[path].end == size:
                return None
            recording = Recording(path, on_progress, self._open_files)
        except RecordingError as error:
            self._unreadable[path] = Loss(0, size, str(error).removeprefix(f"{path}: "))
        except OSError as error:
            # It may be readable later; a file that a rotation has removed meanwhile is no loss.
            if os.path.lexists(path):
                self._unreadable[path] = Loss(0, 0, error.strerror or str(error))
        else:
            self._unreadable.pop(path, None)
            return recording
        return None

    def __enter__(self) -> Timeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_ns(self, file: Recording) -> int:
        """From when on a file is read: 0, or later where another one has its beginning."""
        return self._begins_ns.get(file, 0)

    @property
    def start_ns(self) -> int:
        """Time of the first tick; 0 without ticks."""
        return min((each.start_ns for each in self.files if each.start_ns), default=0)

    @property
    def until_ns(self) -> int:
        """Time of the last tick; 0 without ticks."""
        return max(each.until_ns for each in self.files)

    @property
    def is_closed(self) -> bool:
        """Whether the writers of all files completed them: nothing is being recorded there."""
        return all(each.is_closed for each in self.files)

    @property
    def run_starts_ns(self) -> tuple[int, ...]:
        """When the recorders of these files were started, by time."""
        runs_ns = {
            session.run_started_ns
            for file in self.files
            for session in file.sessions
            if session.run_started_ns >= self.begin_ns(file)
        }
        return tuple(sorted(runs_ns))

    @property
    def hosts(self) -> list[Host]:
        """All nodes that were watched."""
        return list({host.name: host for each in self.files for host in each.hosts}.values())

    @property
    def interval_s(self) -> float:
        """The time from one tick to the next."""
        return self.files[0].interval_s

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(each.size for each in self.files)

    @property
    def losses(self) -> list[tuple[Path, Loss]]:
        """What could not be read so far."""
        losses = [(each.path, loss) for each in self.every_file for loss in each.losses]
        return [*losses, *self._unreadable.items()]

    @property
    def lost_bytes(self) -> int:
        """How much could not be read so far, without the end of a file that is not complete: that
        may be a frame in progress."""
        growing = {each.path: each.size for each in self.files if not each.is_closed}
        return sum(
            loss.end - loss.offset for path, loss in self.losses if growing.get(path) != loss.end
        )

    def warm(self) -> None:
        """Read what every seek needs, so that the first seek takes no longer than others."""
        for each in self.files[-1:]:
            each.warm()

    def refresh(self) -> bool:
        """Read what was written since, open new files of a directory and close removed ones.

        Returns whether there was anything.
        """
        has_grown = sum([each.refresh() for each in self.files]) > 0
        if not any(path.is_dir() for path in self._paths):
            return has_grown
        before = [each.path for each in self.every_file]
        with suppress(RecordingError, OSError):  # Not begun yet, or just removed: try next time.
            self._open(files_of(self._paths), ignore_progress)
        return has_grown or before != [each.path for each in self.every_file]

    def ticks(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> Iterator[Tick]:
        """All ticks from a time up to and including another.

        The first tick of a file that continues another one is extended by all that was known then
        and was not in an earlier tick.
        """
        if self._single:
            return (tick for _, _, tick in self._by_time(from_ns, until_ns))
        return self._merged(from_ns, until_ns)

    def prime(self, at_ns: int) -> list[Tick]:
        """The ticks that bring a history to its state before a time, see Recording.prime.

        There is one of each file that was being written at the time.
        """
        before = [
            each for each in self.files if 0 < max(each.start_ns, self.begin_ns(each)) < at_ns
        ]
        within = [each for each in before if each.until_ns >= at_ns] or before[-1:]
        known = [(each, tick) for each in within if (tick := each.prime(at_ns)) is not None]
        if self._single:
            return [tick for _, tick in known]
        known.sort(key=lambda each: each[1].time_ns)

        def number(file: Recording, tick: Tick) -> int:
            session = file.read(lambda view: view.session_before(at_ns))
            return tick.seq + self._numbers.offset(self.files, file, session)

        # Ticks of the same time in files that were written side by side have the same number.
        first = max((number(*each) for each in known), default=0) - len(known) + 1
        return [
            msgspec.structs.replace(tick, seq=first + place)
            for place, (_, tick) in enumerate(known)
        ]

    def notes(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> list[Note]:
        """Bookmarks and changes of findings as they were reported at the time, by time."""
        notes = [
            note
            for each in self.files
            for note in each.notes(max(from_ns, self.begin_ns(each)), until_ns)
        ]
        return sorted(notes, key=lambda note: note.time_ns)

    def job_reports(self, until_ns: int = LATEST_NS) -> Iterator[JobReport]:
        """What schedulers reported up to a time, of each file by time."""
        for file in self.files:
            begin_ns = self.begin_ns(file)
            state = file.state(max(file.start_ns, begin_ns))
            yield from [state.jobs] if state.jobs else []
            yield from (each.jobs for each in file.events(begin_ns, until_ns) if each.jobs)

    def minutes(self, from_ns: int = 0, until_ns: int = LATEST_NS) -> Iterator[Minute]:
        """The recorded highest and mean values of each minute, by time, see merged_minutes."""
        return merged_minutes(self.files, self.begin_ns, from_ns, until_ns)

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins] utilisation of the busiest link of the fabric in each; NaN where none is known."""
        strips = [each.strip(from_ns, until_ns, bins) for each in self.files]
        strip: Floats = np.fmax.reduce(strips)
        return strip

    def _merged(self, from_ns: int, until_ns: int) -> Iterator[Tick]:
        """Ticks by time with consistent numbers; nodes that are no longer watched are lost."""
        last = -1
        files = self.files
        current = (-1, -1)
        for file, session, tick in self._by_time(from_ns, until_ns):
            last = max(last + 1, self._numbers.offset(files, files[file], session) + tick.seq)
            statuses = tick.statuses
            if (file, session) != current:
                lost = self._lost_statuses(current, (file, session), tick.time_ns)
                statuses, current = (*lost, *statuses), (file, session)
            yield msgspec.structs.replace(tick, seq=last, statuses=statuses)

    def _by_time(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int, Tick]]:
        """Ticks with the numbers of their file and session."""
        files = self.files
        begins_ns = [self.begin_ns(each) for each in files]
        not_begun = {
            number
            for number, each in enumerate(files)
            if each.start_ns >= from_ns and not begins_ns[number]
        }
        before = -1
        streams = sorted(
            (max(begin_ns, begins_ns[number]), number)
            for number, each in enumerate(files)
            for begin_ns, end_ns in [each.range_ns]
            if end_ns >= from_ns and max(begin_ns, begins_ns[number]) <= until_ns
        )
        due = (
            (at_ns, _stream(n, files[n], max(from_ns, begins_ns[n]), until_ns))
            for at_ns, n in streams
        )
        for _, number, session, tick in merge_begun(due, lambda each: each[:3]):
            extended = tick
            if number in not_begun and not session:
                not_begun.discard(number)
                opening = files[number].read(FileView.opening)
                if opening is not None:
                    known = files[before].state(tick.time_ns) if before >= 0 else None
                    extended = with_opening_state(tick, opening, known)
            before = number
            yield number, session, extended

    def _lost_statuses(
        self, before: tuple[int, int], now: tuple[int, int], time_ns: int
    ) -> Sequence[NodeStatus]:
        """Statuses of the nodes that only the session before watched, if it has ended."""
        if before[0] < 0 or (before[0] != now[0] and self.files[before[0]].until_ns >= time_ns):
            return []
        watched = [
            self.files[file].read(FileView.watched)[session] for file, session in (before, now)
        ]
        return lost_statuses(watched[0], watched[1], time_ns)


def _report_after(before: int, on_progress: ProgressCallback, done: float) -> None:
    """Report progress in a file that is read after `before` bytes of other files."""
    on_progress(before + done)


def _stream(
    number: int, file: Recording, from_ns: int, until_ns: int
) -> Iterator[tuple[int, int, int, Tick]]:
    for session, tick in file.numbered(from_ns, until_ns):
        yield tick.time_ns, number, session, tick


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The given files, and the recordings in given directories.

    Raises NotARecording for a directory without recordings.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob(f"*{SUFFIX}"))
            if not inside:
                raise NotARecording(f"{path}: no recordings (*{SUFFIX}) in this directory")
            files += inside
        else:
            files.append(path)
    return files
