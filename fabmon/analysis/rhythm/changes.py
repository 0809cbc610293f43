"""What changed in a rhythm, told once: the same change is found anew as long as it is in sight."""

from __future__ import annotations

from fabmon.analysis.rhythm.beat import Beat, Change
from fabmon.analysis.rhythm.rhythm import Moved

_REMEMBERED_S = 600.0
_SAME_STEPS = 3.0
_LEAST_SHARE = 0.05
_NARROW = 0.1


class _Last:
    """The last change of one number.

    `factor` makes its unit of what is measured, `shown` that of the text.
    """

    def __init__(self, factor: float, shown: float = 1.0) -> None:
        self.moved: Moved | None = None
        self._factor = factor
        self._shown = shown

    def take(self, change: Change, at_ns: int, room_ns: int) -> str:
        """`4.4 → 6.2`, or nothing for what was known."""
        if self.moved is not None and at_ns <= self.moved.at_ns + room_ns:
            return ""
        before, after = change.before * self._factor, change.after * self._factor
        self.moved = Moved(before, at_ns)
        return f"{before * self._shown:.3g} → {after * self._shown:.3g}"

    def forget(self, before_ns: int) -> None:
        if self.moved is not None and self.moved.at_ns < before_ns:
            self.moved = None


class Changes:
    """The last changes of one job's step, share of communication and bytes."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._step = _Last(interval_s)
        self._comm = _Last(1.0, shown=100)
        self._bytes = _Last(interval_s / 8, shown=1e-9)

    @property
    def step(self) -> Moved | None:
        """The step before, in seconds, for ten minutes."""
        return self._step.moved

    @property
    def comm(self) -> Moved | None:
        """The share of communication before, 0 to 1."""
        return self._comm.moved

    @property
    def bytes(self) -> Moved | None:
        """The bytes that a rail sent in an iteration before."""
        return self._bytes.moved

    def accept(self, beat: Beat, ticks: int, now_ns: int) -> list[str]:
        """Take a beat measured over the last `ticks`; what is new in it."""
        interval_ns = self._interval_s * 1e9
        for last in (self._step, self._comm, self._bytes):
            last.forget(now_ns - int(_REMEMBERED_S * 1e9))

        def said(last: _Last, change: Change | None) -> str:
            if change is None:
                return ""
            longest = max(beat.period, beat.steps.before if beat.steps is not None else 0.0)
            at_ns = now_ns - int((ticks - change.at) * interval_ns)
            return last.take(change, at_ns, int(_SAME_STEPS * longest * interval_ns))

        shares = beat.shares
        clear = beat.share.high - beat.share.low < _NARROW
        if shares is not None and not (clear and abs(shares.after - shares.before) > _LEAST_SHARE):
            shares = None
        told = []
        if text := said(self._step, beat.steps):
            told.append(f"step {text} s")
        if text := said(self._comm, shares):
            told.append(f"comm {text} %")
        if text := said(self._bytes, beat.volumes):
            told.append(f"{text} GB a rail and step")
        return told
