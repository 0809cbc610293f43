"""What ticks told that were not written, until one is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fabmon.fabric.messages import Hello, Notice
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.recording.records import Note


class Untold:
    """Hosts, hellos, statuses and notices: without them the ticks after are of no use. And what
    was found in them and noted: what ended there would be open for ever.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._hellos: dict[str, Hello] = {}
        self._statuses: dict[str, NodeStatus] = {}
        self._notices: dict[tuple[str, str, str, str], tuple[str, Notice]] = {}
        self._notes: list[Note] = []

    def add(self, tick: Tick, notes: Sequence[Note] = ()) -> None:
        """Keep what a tick tells. Of the same thing, the last counts; of notes, all."""
        self._notes += notes
        self._hosts |= {host.name: host for host in tick.hosts}
        self._hellos |= dict(tick.hellos)
        self._statuses |= {status.node: status for status in tick.statuses}
        again = {node for node, _ in tick.hellos}
        self._notices = {key: each for key, each in self._notices.items() if key[0] not in again}
        for node, notice in tick.notices:
            key = (node, notice.source, notice.object, notice.metric)
            self._notices[key] = (node, notice)

    def note(self, note: Note) -> None:
        """Keep a bookmark."""
        self._notes.append(note)

    def told_with(self, tick: Tick) -> Tick:
        """A tick that tells it as well; the same where there is nothing to tell."""
        if not (self._hosts or self._hellos or self._statuses or self._notices):
            return tick
        self.add(tick)
        return msgspec.structs.replace(
            tick,
            hosts=tuple(self._hosts.values()),
            hellos=tuple(self._hellos.items()),
            statuses=tuple(self._statuses.values()),
            notices=tuple(self._notices.values()),
        )

    def noted_with(self, notes: Sequence[Note]) -> tuple[Note, ...]:
        """Notes after those that were not written."""
        return (*self._notes, *notes)
