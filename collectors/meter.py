"""The probe watches itself: its CPU time, its memory, and how long each source's reads take."""

from __future__ import annotations

import os
import time
from typing import Dict, List, Optional, Sequence

from collectors.hostfs import File
from collectors.wire import Block, BlockLayout, Object

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Meter:
    """The last block of every frame: the node itself, then one object a source."""

    def __init__(self, sources: Sequence[str]) -> None:
        node = Object(
            "node", "node", None, {}, ("probe_cpu_us", "probe_rss_bytes", "probe_late_us")
        )
        objects = [Object(name, "node", None, {}, ("probe_read_us",)) for name in sources]
        self.layout = BlockLayout("probe", 1, [node, *objects])
        self.late_us = 0
        self._statm = _own_statm()
        self._read_us: Dict[str, Optional[int]] = dict.fromkeys(sources)

    def took(self, source: str, duration_us: int) -> None:
        """Remember how long a source's read took."""
        self._read_us[source] = duration_us

    def read(self) -> Block:
        """The block, now."""
        values: List[Optional[int]] = [
            time.monotonic_ns(),
            time.process_time_ns() // 1000,
            _resident_bytes(self._statm),
            self.late_us,
        ]
        return values + list(self._read_us.values())


def _own_statm() -> Optional[File]:
    """The file in which the kernel says how much memory this process holds; None without /proc."""
    try:
        return File("/proc/self/statm")
    except OSError:
        return None


def _resident_bytes(statm: Optional[File]) -> Optional[int]:
    try:
        return None if statm is None else int(statm.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None
