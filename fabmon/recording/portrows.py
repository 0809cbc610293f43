"""Which port a row of a minute's arrays is."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

from fabmon.recording.contents import Contents
from fabmon.recording.index import Entry
from fabmon.recording.records import TopologyRecord
from fabmon.recording.spans import Arranged


class PortRows:
    """The rows of ports, by id (`node/port`), as the topology records of a file tell them."""

    def __init__(self, frames: Arranged, contents: Contents) -> None:
        self._frames = frames
        self._contents = contents
        self._ends = [entry.at for entry in frames.topologies]
        self._last: tuple[int, Mapping[str, int]] = (-1, {})

    def before(self, entry: Entry) -> Mapping[str, int]:
        """Those that a minute's frame was written with; none where their record is lost.

        It is the record before it in the file, of the same session: another one has other rows.
        """
        place = bisect.bisect_left(self._ends, entry.at) - 1
        if place < 0:
            return {}
        found = self._frames.topologies[place]
        if self._frames.session_of(found) != self._frames.session_of(entry):
            return {}
        if self._last[0] != found.at:
            record = self._contents.json(found, TopologyRecord)
            ports = () if record is None else record.ports
            self._last = (found.at, {f"{p.node}/{p.name}": p.row for p in ports})
        return self._last[1]
