"""Everything that an audit looks at: the fabric, a moment of it, and the raw counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fabmon.fabric.messages import Frame, Hello, Notice
from fabmon.fabric.model import RAIL, Port
from fabmon.fabric.moment import Moment
from fabmon.fabric.tick import Tick


@dataclass(frozen=True, slots=True)
class Survey:
    """What was heard. `totals` maps a port's id to its counters as they stand, by catalog name."""

    moment: Moment
    hellos: dict[str, Hello]
    frames: dict[str, Frame]
    notices: dict[str, tuple[Notice, ...]]
    totals: dict[str, dict[str, int]]

    def rails(self) -> Iterator[tuple[str, list[Port]]]:
        """The ports of each rail, (`r0`, ports), over all hosts that have it."""
        found: defaultdict[str, list[Port]] = defaultdict(list)
        for node in self.moment.fabric.nodes:
            for port in node.ports:
                if port.role == RAIL:
                    found[port.label].append(port)
        yield from found.items()

    def ports(self) -> Iterator[Port]:
        """Every port of every node, as they are shown."""
        for node in self.moment.fabric.nodes:
            yield from node.ports

    def level(self, port: Port, metric: str) -> float | None:
        """A gauge of a port as it is now; None when it is absent."""
        value = float(self.moment.column(metric)[port.row])
        return None if value != value else value


class Surveyor:
    """Listens to ticks until there is enough to judge by."""

    def __init__(self) -> None:
        self._hellos: dict[str, Hello] = {}
        self._frames: dict[str, Frame] = {}
        self._totals: dict[str, dict[str, int]] = {}
        self._heard: defaultdict[str, int] = defaultdict(int)

    def accept(self, tick: Tick) -> None:
        """Take what came; a hello makes the node begin anew."""
        for node, hello in tick.hellos:
            self._hellos[node] = hello
            self._heard[node] = 0
        for node, frame in tick.frames:
            self._frames[node] = frame
            self._heard[node] += 1
            self._count(node, self._hellos[node], frame)

    def frames_of(self, node: str) -> int:
        """Frames heard from a node since its last hello."""
        return self._heard[node]

    def survey(self, moment: Moment) -> Survey:
        """All that was heard so far, with the moment of the last tick."""
        return Survey(moment, self._hellos, self._frames, moment.notices, self._totals)

    def _count(self, node: str, hello: Hello, frame: Frame) -> None:
        for block, info in zip(frame.blocks, hello.blocks, strict=True):
            if block is None:
                continue
            position = 1
            for item in info.objects:
                if item.port is not None:
                    known = self._totals.setdefault(f"{item.node or node}/{item.port}", {})
                    for metric, value in zip(item.metrics, block[position:], strict=False):
                        if value is not None:
                            known[metric] = value
                position += len(item.metrics)
