"""Numbers of the ticks of several recordings, by which what was not recorded is a gap."""

from __future__ import annotations

from collections.abc import Sequence

from fabmon.recording.reader import Recording
from fabmon.recording.records import SessionRecord

_Tick = tuple[int, int]


class Numbers:
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
