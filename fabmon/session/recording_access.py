"""The recording of a run, as the screen uses it: read it, bookmark, save tables and cuts."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from fabmon.fabric.filter import Mask
from fabmon.fabric.snapshot import Snapshot
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.records import Note
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.cut import copy_range
from fabmon.recording.writing.recorder import Recorder, RecorderStatus
from fabmon.report.rates import CsvRates
from fabmon.session.recorded_past import RecordedPast
from fabmon.session.recorder_setup import recorded_files
from fabmon.session.session import Session
from fabmon.tui.time.past_reader import PastReader, RecordingAccess, SaveError


class RunRecording(RecordingAccess):
    """RecordingAccess to some recordings, whose paths may change: those of a rotation do."""

    def __init__(
        self,
        session: Session,
        paths: Callable[[], Sequence[Path]],
        past: RecordedPast | None,
        problem: str = "",
    ) -> None:
        super().__init__(problem)
        self._session = session
        self._paths = paths
        self._past = past

    def paths(self) -> Sequence[Path]:
        """The recordings as they are now; none where nothing is recorded."""
        return self._paths()

    @property
    def reader(self) -> PastReader | None:
        """Reads the recorded ticks; None if nothing is recorded."""
        return self._past

    def table(self, snapshot: Snapshot, ports: Mask | None) -> bytes:
        """CSV of the selected ports, in the format of `fabmon export`."""
        text = io.BytesIO()
        CsvRates(text).accept(snapshot, ports)
        return text.getvalue()

    def cut(self, path: Path, from_ns: int, until_ns: int, is_wanted: Callable[[], bool]) -> None:
        """Copy what was recorded between two times into a new file."""
        recordings = self._paths()
        if not recordings:
            super().cut(path, from_ns, until_ns, is_wanted)
        session = self._session
        try:
            with Timeline(recordings) as timeline:
                begin_ns = max(from_ns, timeline.start_ns)
                # A thread of its own runs this: the history shares nothing with that of the screen.
                snapshot_of = session.detached().recorded_history(timeline).accept
                copying = copy_range(
                    timeline, path, begin_ns, until_ns, snapshot_of, session.redactor
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
        self, session: Session, recorder: Recorder | str, hides_notes: bool = False
    ) -> None:
        if isinstance(recorder, str):
            super().__init__(session, list, None, recorder)
            self._recorder = None
        else:

            def paths() -> Sequence[Path]:
                return recorded_files(recorder)

            super().__init__(session, paths, RecordedPast(paths, session))
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

    Nothing after `until_ns` is shown. With a redactor in the session, no original name is shown.
    """

    def __init__(self, session: Session, timeline: Timeline, until_ns: int | None = None) -> None:
        past = RecordedPast(timeline, session, until_ns)
        super().__init__(session, lambda: [file.path for file in timeline.files], past)
        self._timeline = timeline

    @property
    def lost_bytes(self) -> int:
        """How much of the recording could not be read so far."""
        return self._timeline.lost_bytes

    @property
    def bookmark_problem(self) -> str:
        """A recording that is replayed is not written to."""
        return "a recording is not changed: set bookmarks while it is being made"
