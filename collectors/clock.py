"""The clocks in whole nanoseconds. Python 3.6 has them as floats only.

A float has 53 bits: after a hundred days the monotonic clock is still exact to 2 ns, the wall clock
to 0.3 us.
"""

from __future__ import annotations

import sys
import time

if sys.version_info >= (3, 7):
    from time import monotonic_ns, process_time_ns, time_ns
else:

    def monotonic_ns() -> int:
        """Nanoseconds of the monotonic clock."""
        return int(time.monotonic() * 1e9)

    def process_time_ns() -> int:
        """Nanoseconds of CPU time of this process."""
        return int(time.process_time() * 1e9)

    def time_ns() -> int:
        """Nanoseconds since 1970."""
        return int(time.time() * 1e9)


__all__ = ["monotonic_ns", "process_time_ns", "time_ns"]
