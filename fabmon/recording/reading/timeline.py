"""Numbers of the ticks of several recordings, by which what was not recorded is a gap."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.recording.format.errors import NotARecording, RecordingError
from fabmon.recording.format.minutes import Minute
from fabmon.recording.format.records import Note, SessionRecord, lost_statuses, with_opening_state
from fabmon.recording.reading.frame_reader import Loss, OnProgress, ignore_progress
from fabmon.recording.reading.reader import Recording

_Tick = tuple[int, int]


class TickNumbers:
    """A run's ticks are numbered as it numbered them itself, from a number on that is given by
    the time of its first tick; it stays the same as long as this is asked.

    By time alone two ticks could have one number: a run begins with some that follow each other
    sooner than others.
    """

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._origin_ns: int | None = None

    def before(self, files: Sequence[Recording], file: Recording, session: int) -> int:
        """What to add to the numbers of a session's ticks."""
        run = _run(file.sessions[session])
        if run not in self._before:
            self._place(files)
        return self._before.get(run, 0)

    def _place(self, files: Sequence[Recording]) -> None:
        """Give every run that has none its place, behind all ticks of those that ended before."""
        last = (0, 0)
        for (first_ns, first), run, (until_ns, end) in _runs(files):
            if self._origin_ns is None:
                self._origin_ns = first_ns
            if run not in self._before:
                interval_ns = files[0].interval_s * 1e9
                number = round((first_ns - self._origin_ns) / interval_ns)
                if first_ns > last[0] > 0:
                    number = max(number, last[1] + 1)
                self._before[run] = number - first
            last = max(last, (until_ns, self._before[run] + end))


def _runs(files: Sequence[Recording]) -> list[tuple[_Tick, int, _Tick]]:
    """Runs with their first and their last tick, by time."""
    found: dict[int, list[_Tick]] = {}
    for file in files:
        for number, session in enumerate(file.sessions):
            found.setdefault(_run(session), []).extend(file.ends(number))
    return sorted((min(ends), run, max(ends)) for run, ends in found.items() if ends)


def _run(session: SessionRecord) -> int:
    return session.run_ns or session.started_ns


# Several recordings as one timeline: files of a rotation, of one day after the other.


SUFFIX = ".fabrec"
_LATEST = (1 << 63) - 1


class Timeline:
    """Recordings by time. Ticks of one session keep their numbers; runs of several, and of a
    directory, are numbered by their time, so that what was not recorded is a gap. A tick keeps its
    number when files before it go, and when more is written.
    """

    def __init__(self, paths: Sequence[Path], told: OnProgress = ignore_progress) -> None:
        """Raises RecordingError or OSError; a directory stands for the recordings in it, of which
        those that cannot be read are told as `losses`.

        `told` hears how far they are while they are opened, in bytes of all of them.
        """
        self._paths = paths
        self.files: list[Recording] = []
        self._numbers = TickNumbers()
        self._unreadable: dict[Path, Loss] = {}
        try:
            self._open(files_of(paths), told)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the files go."""
        for each in self.files:
            each.close()

    def _open(self, paths: Sequence[Path], told: OnProgress) -> None:
        """Open those that are not, close those that are gone, and put all in their order."""
        known = {each.path: each for each in self.files}
        for path, each in known.items():
            if path not in paths:
                each.close()
        files = [each for path, each in known.items() if path in paths]
        before = 0
        for path in paths:
            if path not in known:
                opened = self._opened(path, _after(before, told))
                files += opened
                before += sum(each.size for each in opened)
        self._unreadable = {at: loss for at, loss in self._unreadable.items() if at in paths}
        if not files:
            for path, loss in self._unreadable.items():
                raise NotARecording(f"{path}: {loss.text}")
            raise NotARecording(f"{(*paths, *self._paths)[0]}: removed meanwhile")
        # At once: others read the list in their own threads.
        self.files = sorted(files, key=lambda each: (each.start_ns or _LATEST, str(each.path)))
        self._single = (
            len(self.files) == 1
            and len(self.files[0].sessions) == 1
            and self.files[0].path in self._paths
        )

    def _opened(self, path: Path, told: OnProgress) -> list[Recording]:
        """A file; none where one in a directory cannot be read, or is gone by now."""
        if path in self._paths:
            return [Recording(path, told)]
        try:
            size = path.stat().st_size
            if path in self._unreadable and self._unreadable[path].end == size:
                return []
            found = Recording(path, told)
        except RecordingError as error:
            self._unreadable[path] = Loss(0, size, str(error).removeprefix(f"{path}: "))
        except OSError as error:
            # Another time it may be read; what a rotation has removed meanwhile is no loss.
            if os.path.lexists(path):
                self._unreadable[path] = Loss(0, 0, error.strerror or str(error))
        else:
            self._unreadable.pop(path, None)
            return [found]
        return []

    def __enter__(self) -> Timeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def start_ns(self) -> int:
        """Time of the first tick; 0 when there is none."""
        return min((each.start_ns for each in self.files if each.start_ns), default=0)

    @property
    def until_ns(self) -> int:
        """Time of the last tick."""
        return max(each.until_ns for each in self.files)

    @property
    def hosts(self) -> list[Host]:
        """Every node that was watched in any."""
        return list({host.name: host for each in self.files for host in each.hosts}.values())

    @property
    def interval_s(self) -> float:
        """From one tick to the next."""
        return self.files[0].interval_s

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)

    @property
    def losses(self) -> list[tuple[Path, Loss]]:
        """What could not be read so far."""
        found = [(each.path, loss) for each in self.files for loss in each.losses]
        return [*found, *self._unreadable.items()]

    def warm(self) -> None:
        """Read what every seek needs, so that the first one takes no longer than others."""
        for each in self.files[-1:]:
            each.warm()

    def refresh(self) -> bool:
        """Take in what was written since, files that are new in a directory included, and let go
        of those that a rotation removed; whether there was anything.
        """
        has_grown = sum([each.refresh() for each in self.files]) > 0
        if not any(path.is_dir() for path in self._paths):
            return has_grown
        before = [each.path for each in self.files]
        with suppress(RecordingError, OSError):  # Not yet begun, or just removed: the next time.
            self._open(files_of(self._paths), ignore_progress)
        return has_grown or before != [each.path for each in self.files]

    def ticks(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Tick]:
        """Every tick from a time up to and with another. The first of a file that goes on where
        another one ended tells what was known by then, as far as it was not told before.
        """
        if self._single:
            return (tick for _, _, tick in self._by_time(from_ns, until_ns))
        return self._merged(from_ns, until_ns)

    def prime(self, at_ns: int) -> list[Tick]:
        """What brings a history to where it was before a time, a tick of each file that was being
        recorded to; see Recording.prime.
        """
        before = [each for each in self.files if each.start_ns and each.start_ns < at_ns]
        within = [each for each in before if each.until_ns >= at_ns] or before[-1:]
        if self._single:
            return [tick for each in within if (tick := each.prime(at_ns)) is not None]
        known = sorted(
            (
                msgspec.structs.replace(tick, seq=tick.seq + self._before(each, at_ns))
                for each in within
                if (tick := each.prime(at_ns)) is not None
            ),
            key=lambda tick: tick.time_ns,
        )
        # Of files that were written at the same time, ticks of the same time have one number.
        last = max((tick.seq for tick in known), default=0) - len(known) + 1
        return [
            msgspec.structs.replace(tick, seq=last + number) for number, tick in enumerate(known)
        ]

    def notes(self, from_ns: int = 0, until_ns: int = _LATEST) -> list[Note]:
        """Bookmarks, and what was found at the time, by time."""
        found = [note for each in self.files for note in each.notes(from_ns, until_ns)]
        return sorted(found, key=lambda note: note.time_ns)

    def minutes(self, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Minute]:
        """What was drawn, minute by minute."""
        for each in self.files:
            yield from each.minutes(from_ns, until_ns)

    def strip(self, from_ns: int, until_ns: int, bins: int) -> Floats:
        """[bins] utilisation of the busiest link of the fabric in each; NaN where none is known."""
        strips = [each.strip(from_ns, until_ns, bins) for each in self.files]
        strip: Floats = np.fmax.reduce(strips)
        return strip

    def _before(self, file: Recording, at_ns: int) -> int:
        return self._numbers.before(self.files, file, file.session_before(at_ns))

    def _merged(self, from_ns: int, until_ns: int) -> Iterator[Tick]:
        """All ticks by time, each with its number; who is watched no more is said to be lost."""
        last = -1
        files = self.files
        current = (-1, -1)
        for file, session, tick in self._by_time(from_ns, until_ns):
            before = self._numbers.before(files, files[file], session)
            last = max(last + 1, before + tick.seq)
            statuses = tick.statuses
            if (file, session) != current:
                statuses = (*self._left_behind(current, (file, session), tick.time_ns), *statuses)
                current = (file, session)
            yield msgspec.structs.replace(tick, seq=last, statuses=statuses)

    def _by_time(self, from_ns: int, until_ns: int) -> Iterator[tuple[int, int, Tick]]:
        """Ticks with the numbers of their file and session."""
        files = self.files
        unbegun = {number for number, each in enumerate(files) if each.start_ns >= from_ns}
        before = -1
        streams = [_stream(number, each, from_ns, until_ns) for number, each in enumerate(files)]
        for _, number, session, tick in heapq.merge(*streams, key=lambda each: each[:3]):
            told = tick
            if number in unbegun and not session:
                unbegun.discard(number)
                opening = files[number].opening()
                if opening is not None:
                    known = files[before].state(tick.time_ns) if before >= 0 else None
                    told = with_opening_state(tick, opening, known)
            before = number
            yield number, session, told

    def _left_behind(
        self, before: tuple[int, int], now: tuple[int, int], time_ns: int
    ) -> list[NodeStatus]:
        """States of the nodes that only the session before watched, if it is over."""
        if before[0] < 0 or (before[0] != now[0] and self.files[before[0]].until_ns >= time_ns):
            return []
        watched = [self.files[file].watched(session) for file, session in (before, now)]
        return lost_statuses(watched[0], watched[1], time_ns)


def _stream(
    number: int, file: Recording, from_ns: int, until_ns: int
) -> Iterator[tuple[int, int, int, Tick]]:
    for session, tick in file.numbered(from_ns, until_ns):
        yield tick.time_ns, number, session, tick


def _after(before: int, told: OnProgress) -> OnProgress:
    """Tells of what comes behind so many bytes."""
    return lambda done: told(before + done)


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The recordings, and those in directories. Raises NotARecording where one has none."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob(f"*{SUFFIX}"))
            if not inside:
                raise NotARecording(f"{path}: a directory without recordings (*{SUFFIX})")
            files += inside
        else:
            files.append(path)
    return files
