"""Everything that an audit looks at: the fabric, a moment of it, and the raw counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from fabmon.fabric.model import RAIL, Host, Port
from fabmon.fabric.object_owner import owner_of
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, Notice, fits


@dataclass(frozen=True, slots=True)
class Survey:
    """What was heard. `frames` have the last reading of every source; `totals` maps a port's id to
    its counters as they stand, by catalog name.
    """

    snapshot: Snapshot
    hellos: dict[str, Hello]
    frames: dict[str, Frame]
    notices: dict[str, tuple[Notice, ...]]
    totals: dict[str, dict[str, int]]

    def rails(self) -> Iterator[tuple[str, list[Port]]]:
        """The ports of each rail, (`r0`, ports), over all hosts that have it."""
        found: defaultdict[str, list[Port]] = defaultdict(list)
        for node in self.snapshot.fabric.nodes:
            for port in node.ports:
                if port.role == RAIL:
                    found[port.label].append(port)
        yield from found.items()

    def ports(self) -> Iterator[Port]:
        """Every port of every node, as they are shown."""
        for node in self.snapshot.fabric.nodes:
            yield from node.ports

    def level(self, port: Port, metric: str) -> float | None:
        """A gauge of a port as it is now; None when it is absent."""
        value = float(self.snapshot.column(metric)[port.row])
        return None if value != value else value


class Surveyor:
    """Listens to ticks until there is enough to judge by; `hosts` are those of the hosts file."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._hellos: dict[str, Hello] = {}
        self._frames: dict[str, Frame] = {}
        self._heard: defaultdict[str, int] = defaultdict(int)

    def accept(self, tick: Tick) -> None:
        """Take what came; a hello makes the node begin anew.

        What was read before it still stands when only facts are different in it.
        """
        for host in tick.hosts:
            self._hosts.setdefault(host.name, host)
        for node, hello in tick.hellos:
            before = self._hellos.get(node)
            if before is None or not hello.has_same_layout(before):
                self._frames.pop(node, None)
            self._hellos[node] = hello
            self._heard[node] = 0
        for node, frame in tick.frames:
            hello = self._hellos[node]
            if fits(frame, hello):
                self._frames[node] = _completed(frame, self._frames.get(node))
                self._heard[node] += 1

    def frames_of(self, node: str) -> int:
        """Frames heard from a node since its last hello."""
        return self._heard[node]

    def survey(self, snapshot: Snapshot) -> Survey:
        """All that was heard so far, with the moment of the last tick."""
        totals: dict[str, dict[str, int]] = {}
        for node, frame in self._frames.items():
            self._count(totals, self._hosts[node], self._hellos[node], frame)
        return Survey(snapshot, self._hellos, self._frames, snapshot.notices, totals)

    def _count(
        self, totals: dict[str, dict[str, int]], speaker: Host, hello: Hello, frame: Frame
    ) -> None:
        """Add what one node says of its ports, and of others where it has a say in them."""
        for block, info in zip(frame.blocks, hello.blocks, strict=True):
            if block is None:
                continue
            position = 1
            for item in info.objects:
                about = owner_of(item, speaker, self._hosts)
                if item.port is not None and about is not None:
                    known = totals.setdefault(f"{about}/{item.port}", {})
                    for metric, value in zip(item.metrics, block[position:], strict=False):
                        if value is not None:
                            known[metric] = value
                position += len(item.metrics)


def _completed(frame: Frame, before: Frame | None) -> Frame:
    """A frame with the last reading of every source that it was not the turn of."""
    if before is None:
        return frame
    blocks = [
        old if new is None else new for new, old in zip(frame.blocks, before.blocks, strict=True)
    ]
    return Frame(frame.seq, frame.wall_ns, frame.mono_ns, blocks)


# What an audit finds: something that is set or built wrongly, whether or not it hurts just now.


FIX = "mend"
KNOW = "know"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a careful engineer would want changed before a run, or would want to know.

    `check` names the check, equal for equal faults. `severity` is `mend` or `know`. `ports` are
    `node/port`, or a node for what it lacks; `text` is one sentence, numbers first; `advice` says
    what to do.
    """

    check: str
    severity: str
    ports: tuple[str, ...]
    text: str
    advice: str
