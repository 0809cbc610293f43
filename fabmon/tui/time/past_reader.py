"""What the screen asks of a recording. `fabmon.session` implements it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.recording.format.records import Note
from fabmon.recording.reading.rate_tiers import Tier, TierQuery
from fabmon.recording.writing.recorder import RecorderStatus


@dataclass(frozen=True, slots=True)
class RecordingContents:
    """What a recording holds: times of the first and last tick (ns), and the notes, by time.

    `runs_ns` are the times at which a recorder was started, by time. `start_ns` is 0 if there is no
    tick yet. `is_complete`: nothing is being added.
    """

    start_ns: int = 0
    until_ns: int = 0
    notes: tuple[Note, ...] = ()
    runs_ns: tuple[int, ...] = ()
    is_complete: bool = False

    def marks_ns(self) -> list[int]:
        """Times of the numbered events (`event 17`): findings that opened, and bookmarks."""
        return [note.time_ns for note in self.notes if note.change in ("", "open")]


@dataclass(frozen=True, slots=True)
class Curve:
    """Utilisation of the busiest link (0 to 1; NaN: unknown) in equal parts of a time range."""

    from_ns: int
    until_ns: int
    values: Floats


class PastReader(Protocol):
    """Reads a recording in a thread of its own, so that the screen never waits for a file.

    All methods raise PastError if the recording cannot be read.
    """

    async def look(self) -> RecordingContents:
        """What is recorded so far."""

    async def seek(self, at_ns: int) -> Scene | None:
        """The last tick up to a time, with the rates and states of then; None if there is none.

        Its findings are those that were recorded: the minutes before it are not analysed yet.
        """

    @property
    def is_settled(self) -> bool:
        """Whether the minutes before the last scene that was returned are analysed."""

    async def settle(self, at_ns: int) -> Scene | None:
        """The tick of a time again, after the analysis of the minutes before it.

        None if another tick is asked for in the meantime.
        """

    async def step(self, at_ns: int, by: int) -> Scene | None:
        """The tick `by` ticks after that of a time (before it if negative).

        The last or first tick if there are fewer; None if there is none at all.
        """

    def give_up(self) -> None:
        """Cancel the read that is running."""

    async def curve(self, from_ns: int, until_ns: int, parts: int) -> Curve:
        """Utilisation of the busiest link in `parts` equal parts of a time range."""

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

    async def tier(self, query: TierQuery, on_progress: Callable[[float], None]) -> Tier:
        """Highest and mean values of ports over hours or days, as far as minutes are recorded.

        May take seconds, in a thread of its own; `on_progress` gets the share done, 0 to 1.
        """

    async def values(
        self, ports: Sequence[str], columns: Sequence[str], from_ns: int, until_ns: int
    ) -> tuple[list[int], Floats]:
        """The times (ns) of the ticks between two times, both included, and what columns of HEAT of
        some ports (ids) were then: [columns, ports, ticks], NaN where nothing is known.

        Reads all nodes of every tick.
        """

    async def close(self) -> None:
        """Stop all reads, and close the recordings that were opened for them."""


class PastError(Exception):
    """The recording cannot be read; the message says why."""


class SaveError(Exception):
    """A file cannot be saved; the message says which and why."""


class RecordingAccess:
    """What the screen can do with the recording of what it shows, and with its links.

    This base class is that of a screen without a recording; `problem` says why there is none.
    `fabmon.session` has the others. `table` and `cut` run in a thread of the caller and raise
    OSError or SaveError.
    """

    def __init__(self, problem: str = "nothing is recorded") -> None:
        """Without a recording."""
        self._problem = problem

    @property
    def reader(self) -> PastReader | None:
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

    def table(self, snapshot: Snapshot, ports: Mask | None) -> bytes:
        """CSV of the selected ports of a snapshot (None: all ports)."""
        raise SaveError("tables are not available here")

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
