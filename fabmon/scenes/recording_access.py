"""The recording of a run, as the screen uses it: read it, bookmark, save cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.records import Note
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.cut import copy_range
from fabmon.recording.writing.recorder import Recorder, RecorderStatus
from fabmon.scenes.builder import SceneBuilder
from fabmon.scenes.recorded_past import RecordedPast


class SaveError(Exception):
    """A file cannot be saved; the message says which and why."""


class RecordingAccess:
    """What the screen can do with the recording of what it shows, and with its links.

    This base class is that of a screen without a recording; `problem` says why there is none.
    `cut` runs in a thread of the caller and raises OSError or SaveError.
    """

    def __init__(self, problem: str = "nothing is recorded") -> None:
        """Without a recording."""
        self._problem = problem

    @property
    def reader(self) -> RecordedPast | None:
        """Reads the recorded ticks; None if nothing is recorded."""
        return None

    @property
    def status(self) -> RecorderStatus | None:
        """State of the recorder; None if none is running, as in a replay."""
        return None

    @property
    def lost_bytes(self) -> int:
        """How much of a replayed recording could not be read so far; 0 for an intact one."""
        return 0

    @property
    def problem(self) -> str:
        """Why nothing is recorded, or nothing any more; empty if there is no problem."""
        return self._problem

    @property
    def bookmark_problem(self) -> str:
        """Why bookmarks cannot be set here; empty where they can."""
        return "nothing is recorded: a bookmark cannot be kept"

    def bookmark(self, note: Note) -> str:
        """Record a bookmark. Returns why that failed, else an empty string."""
        return self.bookmark_problem

    def cut(self, path: Path, from_ns: int, until_ns: int, is_wanted: Callable[[], bool]) -> None:
        """Copy what was recorded between two times into a new file, while it is wanted.

        A copy that is not finished leaves no file.
        """
        raise SaveError("nothing is recorded: there is nothing to cut out")


@dataclass(frozen=True, slots=True)
class ReplayStart:
    """How the screen begins to play a recording.

    From `from_ns` (None: its first tick), at `speed` recorded seconds a second (None: as fast as
    possible); with `follow` it waits at the end for what is still being recorded.
    """

    from_ns: int | None = None
    speed: float | None = 1.0
    follow: bool = False


class RunRecording(RecordingAccess):
    """RecordingAccess to some recordings, whose paths may change: those of a rotation do."""

    def __init__(
        self,
        scenes: SceneBuilder,
        paths: Callable[[], Sequence[Path]],
        past: RecordedPast | None,
        problem: str = "",
    ) -> None:
        super().__init__(problem)
        self._scenes = scenes
        self._paths = paths
        self._past = past

    def paths(self) -> Sequence[Path]:
        """The recordings as they are now; none where nothing is recorded."""
        return self._paths()

    @property
    def reader(self) -> RecordedPast | None:
        """Reads the recorded ticks; None if nothing is recorded."""
        return self._past

    def cut(self, path: Path, from_ns: int, until_ns: int, is_wanted: Callable[[], bool]) -> None:
        """Copy what was recorded between two times into a new file."""
        recordings = self._paths()
        if not recordings:
            super().cut(path, from_ns, until_ns, is_wanted)
        scenes = self._scenes
        try:
            with Timeline(recordings) as timeline:
                begin_ns = max(from_ns, timeline.start_ns)
                # A thread of its own runs this: the history shares nothing with that of the screen.
                snapshot_of = scenes.detached().recorded_history(timeline).accept
                copying = copy_range(
                    timeline, path, begin_ns, until_ns, snapshot_of, scenes.redactor
                )
                with closing(copying):  # A copy that is closed before its end removes its file.
                    for _ in copying:
                        if not is_wanted():
                            break
        except RecordingError as error:
            raise SaveError(str(error)) from None


class LiveRecording(RunRecording):
    """RecordingAccess to what a recorder writes.

    Instead of a recorder, a text says why there is none. With `hides_notes` the texts of bookmarks
    are not recorded.
    """

    def __init__(
        self, scenes: SceneBuilder, recorder: Recorder | str, hides_notes: bool = False
    ) -> None:
        if isinstance(recorder, str):
            super().__init__(scenes, list, None, recorder)
            self._recorder = None
        else:

            def paths() -> Sequence[Path]:
                path = recorder.status.path
                return [path.parent] if recorder.rotates else [path]

            super().__init__(scenes, paths, RecordedPast(paths, scenes))
            self._recorder = recorder
        self._hides_notes = hides_notes

    @property
    def status(self) -> RecorderStatus | None:
        """State of the recorder; None if none is running."""
        return None if self._recorder is None else self._recorder.status

    @property
    def problem(self) -> str:
        """Why nothing is recorded, or nothing any more."""
        return super().problem if self._recorder is None else self._recorder.status.trouble

    @property
    def bookmark_problem(self) -> str:
        """Why bookmarks cannot be set; empty while a recorder is running."""
        return super().bookmark_problem if self._recorder is None else ""

    def bookmark(self, note: Note) -> str:
        """Record a bookmark. Returns why that failed, else an empty string."""
        if self._recorder is None:
            return super().bookmark(note)
        if self._hides_notes:
            note = msgspec.structs.replace(note, text="bookmark")
        self._recorder.note(note)
        trouble = self._recorder.status.trouble
        return trouble and f"not kept: {trouble}"


class ReplayedRecording(RunRecording):
    """RecordingAccess to a timeline that the caller has opened and closes.

    Nothing after `until_ns` is shown. With a redactor, no original name is shown.
    """

    def __init__(
        self, scenes: SceneBuilder, timeline: Timeline, until_ns: int | None = None
    ) -> None:
        past = RecordedPast(timeline, scenes, until_ns)
        super().__init__(scenes, lambda: [file.path for file in timeline.files], past)
        self._timeline = timeline

    @property
    def lost_bytes(self) -> int:
        """How much of the recording could not be read so far."""
        return self._timeline.lost_bytes

    @property
    def bookmark_problem(self) -> str:
        """A recording that is replayed is not written to."""
        return "a recording is not changed: set bookmarks while it is being made"
