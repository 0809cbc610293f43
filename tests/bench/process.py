"""CPU time and memory of other processes, as the kernel accounts them."""

from __future__ import annotations

import os
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds, user and system, of a process and its threads so far.

    From the scheduler's own sum in nanoseconds where the kernel has it: the usual count in /proc is
    in hundredths of a second.
    """
    total_ns = 0
    for task in Path("/proc", str(pid), "task").iterdir():
        try:
            total_ns += int((task / "schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return _cpu_ticks_s(pid)
    return total_ns / 1e9


def _cpu_ticks_s(pid: int) -> float:
    fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def rss_mb(pid: int) -> float:
    """Resident memory in megabytes."""
    pages = int(Path("/proc", str(pid), "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
