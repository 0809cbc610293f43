"""The probe watches itself: its CPU time, its memory, and how long each source's reads take."""

from __future__ import annotations

import os
import time
from typing import Dict, List, Optional, Sequence

from collectors.source import Object
from collectors.wire import Block, BlockLayout

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
        self._read_us: Dict[str, Optional[int]] = dict.fromkeys(sources)

    def took(self, source: str, duration_us: int) -> None:
        """Remember how long a source's read took."""
        self._read_us[source] = duration_us

    def read(self) -> Block:
        """The block, now."""
        values: List[Optional[int]] = [
            time.monotonic_ns(),
            time.process_time_ns() // 1000,
            _resident_bytes(),
            self.late_us,
        ]
        return values + list(self._read_us.values())


def _resident_bytes() -> Optional[int]:
    """Memory this process holds; None where /proc is not to be read."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None
