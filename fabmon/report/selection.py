"""What of a recording is exported: which ports, over what time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.causes import Thresholds
from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import FilterError, Index, Mask, index, match, parse
from fabmon.fabric.model import Fabric
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.topology.plan import Topology
from fabmon.history.history import History
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.cut import redacted_hosts, redacted_topology

_STILL = ("role", "group", "node", "port", "rail")
"""Fields of a filter that do not change from tick to tick."""


class LinkSelection:
    """The ports that any of some filters leaves; all of them without filters.

    `has_matched` says whether there was any so far. What a `redactor` renamed is found by its
    original name.
    """

    def __init__(self, filters: Sequence[str], redactor: Redactor | None = None) -> None:
        """Raises FilterError."""
        self._redactor = redactor
        self._named: tuple[Fabric, Fabric] | None = None
        self._filters = [parse(text) for text in filters]
        self._index: Index | None = None
        self.has_matched = not self._filters

    def __bool__(self) -> bool:
        return bool(self._filters)

    def of(self, snapshot: Snapshot) -> Mask | None:
        """[ports] at a moment; None for all."""
        if not self._filters:
            return None
        snapshot = self._by_name(snapshot)
        if self._index is None or self._index.fabric is not snapshot.fabric:
            self._index = index(snapshot.fabric)
        masks = [match(terms, snapshot, self._index).ports for terms in self._filters]
        mask: Mask = masks[0]
        for each in masks[1:]:
            mask = mask | each
        self.has_matched = self.has_matched or bool(mask.any())
        return mask

    def _by_name(self, snapshot: Snapshot) -> Snapshot:
        """A moment with the names that its nodes and groups had before they were renamed."""
        if self._redactor is None:
            return snapshot
        name = self._redactor.original
        if self._named is None or self._named[0] is not snapshot.fabric:
            self._named = (snapshot.fabric, _renamed(snapshot.fabric, name))
        states = {name(node): status for node, status in snapshot.statuses.items()}
        return replace(snapshot, fabric=self._named[1], statuses=states)

    def check_still(self) -> None:
        """Raise FilterError where the choice would change while time goes on."""
        for terms in self._filters:
            for term in terms:
                if term.operator and term.field not in _STILL:
                    said = f"{term.field}{term.operator}{term.value}"
                    raise FilterError(
                        f"{said}: whole series are exported; choose them by name, "
                        + " ".join(f"{field}:" for field in _STILL)
                    )


def _renamed(fabric: Fabric, name: Callable[[str], str]) -> Fabric:
    """With other names of nodes and groups."""
    change = msgspec.structs.replace
    return change(
        fabric,
        nodes=tuple(change(n, name=name(n.name), group=name(n.group)) for n in fabric.nodes),
        ports=tuple(change(port, node=name(port.node)) for port in fabric.ports),
    )


class PlayedRange:
    """A part of a timeline, played through the house as fast as it goes.

    With a `redactor` nothing else sees a name of it. `hosts` are the nodes that were watched,
    `reached` is told the time of every tick.
    """

    def __init__(
        self,
        timeline: Timeline,
        from_ns: int,
        until_ns: int,
        redactor: Redactor | None,
        reached: Callable[[int], None],
        lead_s: float = 0.0,
        topology: Topology | None = None,
    ) -> None:
        """What lies between two times; `lead_s` before it is played, but not told of.

        `topology` is what was given of the cabling.
        """
        self._topology = redacted_topology(topology, redactor)
        self.hosts = redacted_hosts(timeline, redactor)
        self.interval_s = timeline.interval_s
        self.from_ns = from_ns
        self.until_ns = until_ns
        self._timeline = timeline
        self._start_ns = max(timeline.start_ns, from_ns - int(lead_s * 1e9))
        self._redactor = redactor
        self._reached = reached

    def ticks(self) -> Iterator[tuple[bool, Tick]]:
        """Ticks, and whether they are between the two times: those before say what was known."""
        for tick in self._timeline.prime(self._start_ns):
            yield False, self._told(tick)
        for tick in self._timeline.ticks(self._start_ns, self.until_ns):
            yield tick.time_ns >= self.from_ns, self._told(tick)
            self._reached(tick.time_ns)

    def moments(self, management: Sequence[str]) -> Iterator[Snapshot]:
        """Moments, rates worked out anew; `management` are patterns of ports, see History."""
        history = self._history(management)
        for is_told, tick in self.ticks():
            snapshot = history.accept(tick)
            if is_told:
                yield snapshot

    def scenes(self, management: Sequence[str], thresholds: Thresholds) -> Iterator[Scene]:
        """Scenes, findings worked out anew."""
        history = self._history(management)
        analyst = Analyst(thresholds)
        for is_told, tick in self.ticks():
            scene = analyst.accept(history.accept(tick))
            if is_told:
                yield scene

    def _history(self, management: Sequence[str]) -> History:
        return History(self.hosts, self.interval_s, management, topology=self._topology)

    def _told(self, tick: Tick) -> Tick:
        return tick if self._redactor is None else self._redactor.tick(tick)
