"""What the screen asks of a recording, and what it is told. Who reads it is somebody else."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.scene import Scene
from fabmon.fabric.snapshot import Floats
from fabmon.recording.format.records import Note
from fabmon.recording.reading.tiers import Tier, TierQuery


@dataclass(frozen=True, slots=True)
class RecordingContents:
    """What there is: times of the first and the last tick, and the notes, by time.

    `runs_ns` are the times at which recording began anew, by time too. `start_ns` is 0 where
    there is no tick yet.
    """

    start_ns: int = 0
    until_ns: int = 0
    notes: tuple[Note, ...] = ()
    runs_ns: tuple[int, ...] = ()

    def marks_ns(self) -> list[int]:
        """Times of what `event 17` means: findings that opened, and bookmarks."""
        return [note.time_ns for note in self.notes if note.change in ("", "open")]


@dataclass(frozen=True, slots=True)
class Curve:
    """Utilisation of the busiest link (0 to 1; NaN where unknown) in equal parts of a time."""

    from_ns: int
    until_ns: int
    values: Floats


class PastReader(Protocol):
    """A recording, read in a thread of its own: nothing here holds up the screen.

    All of it raises PastError where the recording cannot be read.
    """

    async def look(self) -> RecordingContents:
        """What there is by now."""

    async def seek(self, at_ns: int) -> Scene | None:
        """The last tick up to a time, with the rates and states of then; None where there is none.

        What takes the minutes before it is not known yet: findings are those of then, as recorded.
        """

    @property
    def is_settled(self) -> bool:
        """Whether the last scene that was given knows what the minutes before it tell."""

    async def settle(self, at_ns: int) -> Scene | None:
        """The tick of a time again, with all that the minutes before it tell.

        None where another one is asked for meanwhile.
        """

    async def step(self, at_ns: int, by: int) -> Scene | None:
        """The tick so many after that of a time, or before it; the last one there is where there
        are fewer; None where there is none at all."""

    def give_up(self) -> None:
        """Whatever is being worked through is not wanted any more."""

    async def curve(self, from_ns: int, until_ns: int, parts: int) -> Curve:
        """The busiest link in so many parts of a time."""

    async def study(
        self,
        from_ns: int,
        until_ns: int,
        ports: Collection[str] | None,
        told: Callable[[float], None],
    ) -> Fluctuation:
        """How steady bandwidth was between two times on some ports, by id (None: on all).

        It may take minutes, and holds up nothing else: `told` hears how far it is, 0 to 1.
        """

    async def tier(self, wanted: TierQuery, told: Callable[[float], None]) -> Tier:
        """The highest and the mean of ports over hours or days, as far as minutes of it are kept.

        It may take seconds, and holds up nothing else: `told` hears how far it is, 0 to 1.
        """

    async def close(self) -> None:
        """Let it go."""


class PastError(Exception):
    """What was recorded cannot be read; the text says why, for a person."""
