"""The clock of a far end's samples, kept from jumping."""

from __future__ import annotations


class SampleClock:
    """Turns the times that a node gives its samples into a clock that rates can be made with.

    A switch's wall clock may be set, and an uptime of 32 bits of hundredths of a second starts anew
    after 497 days. When the node's time moved by `tolerance_s` more or less than the console's
    since the last sample, the console's step is taken instead.
    """

    def __init__(self, tolerance_s: float) -> None:
        self._tolerance_ns = int(tolerance_s * 1e9)
        self._far_ns: int | None = None
        self._near_ns = 0
        self._now_ns = 0

    def at(self, far_ns: int, near_ns: int) -> int | None:
        """The clock for a sample that the node dates `far_ns` and that came at `near_ns`.

        `near_ns` is the console's monotonic clock. None when the node says that it is the sample of
        last time.
        """
        if self._far_ns is None:
            self._far_ns, self._near_ns, self._now_ns = far_ns, near_ns, near_ns
            return near_ns
        far_step, near_step = far_ns - self._far_ns, near_ns - self._near_ns
        if far_step == 0:
            return None
        trusted = far_step > 0 and abs(far_step - near_step) <= self._tolerance_ns
        self._now_ns += far_step if trusted else near_step
        self._far_ns, self._near_ns = far_ns, near_ns
        return self._now_ns
