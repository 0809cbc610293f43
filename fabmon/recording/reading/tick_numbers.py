"""The numbers of the ticks of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.view import FileView

_TimeAndNumber = tuple[int, int]


class TickNumbers:
    """Offsets that make the tick numbers of several runs consistent, with gaps between the runs.

    The ticks of a run keep their steps. The number of its first tick follows from its time, and
    stays the same for the lifetime of this object. Numbering each tick by its time could give two
    ticks one number: the first ticks of a run may follow each other faster than later ones.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self._origin_ns: int | None = None

    def offset(self, files: Sequence[Recording], file: Recording, session: int) -> int:
        """What to add to the numbers of the ticks of a file's session."""
        run_ns = file.sessions[session].run_started_ns
        if run_ns not in self._offsets:
            self._add_runs(files)
        return self._offsets.get(run_ns, 0)

    def _add_runs(self, files: Sequence[Recording]) -> None:
        """Give every new run an offset that puts it after all runs that ended before."""
        last = (0, 0)
        for (first_ns, first), run_ns, (until_ns, end) in _runs(files):
            if self._origin_ns is None:
                self._origin_ns = first_ns
            if run_ns not in self._offsets:
                interval_ns = files[0].interval_s * 1e9
                number = round((first_ns - self._origin_ns) / interval_ns)
                if first_ns > last[0] > 0:
                    number = max(number, last[1] + 1)
                self._offsets[run_ns] = number - first
            last = max(last, (until_ns, self._offsets[run_ns] + end))


def _runs(files: Sequence[Recording]) -> list[tuple[_TimeAndNumber, int, _TimeAndNumber]]:
    """For each run: its first tick, when the run began, its last tick; by time."""
    runs: dict[int, list[_TimeAndNumber]] = {}
    for file in files:
        for number, session in enumerate(file.sessions):
            ends = file.read(partial(FileView.ends, session=number))
            runs.setdefault(session.run_started_ns, []).extend(ends)
    return sorted((min(ends), run_ns, max(ends)) for run_ns, ends in runs.items() if ends)
