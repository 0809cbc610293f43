"""The input and the output of an audit: what the nodes of a fabric reported, and problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from fabmon.fabric.model import RAIL, Host, Port
from fabmon.fabric.node_facts import owner_of
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, Notice, fits

FIX, NOTE = "fix", "note"
"""Severities of problems, as `fabmon doctor --format json` has them."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit finds: something set up or built wrongly, whether or not it has effects now.

    `check` is the name of the check. `severity` is `fix` for what should be fixed before a run,
    `note` for the rest. `ports` are `node/port`, or a node that lacks something; `text` is one
    sentence with its numbers, `advice` says what to do.
    """

    check: str
    severity: str
    ports: tuple[str, ...]
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What the nodes reported. `frames` have the last reading of every source; `totals` maps a
    port's id to the current values of its counters, by catalog name.
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
        """Every port of every node, in display order."""
        for node in self.snapshot.fabric.nodes:
            yield from node.ports

    def level(self, port: Port, metric: str) -> float | None:
        """The current value of a gauge; None when it is absent."""
        value = float(self.snapshot.column(metric)[port.row])
        return None if value != value else value


class Surveyor:
    """Collects ticks for an audit; `hosts` are those of the hosts file."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._hellos: dict[str, Hello] = {}
        self._frames: dict[str, Frame] = {}
        self._heard: defaultdict[str, int] = defaultdict(int)

    def accept(self, tick: Tick) -> None:
        """Add a tick. A new hello resets its node, unless only facts in it are different: then the
        readings before it are kept.
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
        """The number of frames of a node since its last hello."""
        return self._heard[node]

    def sources_of(self, node: str) -> set[str]:
        """The sources that a node reads, by its last hello."""
        hello = self._hellos.get(node)
        return set() if hello is None else {block.source for block in hello.blocks}

    def survey(self, snapshot: Snapshot) -> Survey:
        """All that was reported so far, with the snapshot of the last tick."""
        totals: dict[str, dict[str, int]] = {}
        for node, frame in self._frames.items():
            self._count(totals, self._hosts[node], self._hellos[node], frame)
        return Survey(snapshot, self._hellos, self._frames, snapshot.notices, totals)

    def _count(
        self, totals: dict[str, dict[str, int]], reporter: Host, hello: Hello, frame: Frame
    ) -> None:
        """Add the counters of one node: of its own ports and of those it reports for others."""
        for block, info in zip(frame.blocks, hello.blocks, strict=True):
            if block is None:
                continue
            position = 1
            for item in info.objects:
                owner = owner_of(item, reporter, self._hosts)
                if item.port is not None and owner is not None:
                    known = totals.setdefault(f"{owner}/{item.port}", {})
                    for metric, value in zip(item.metrics, block[position:], strict=False):
                        if value is not None:
                            known[metric] = value
                position += len(item.metrics)


def _completed(frame: Frame, before: Frame | None) -> Frame:
    """A frame completed with the last reading of every source that was not read for it."""
    if before is None:
        return frame
    blocks = [
        old if new is None else new for new, old in zip(frame.blocks, before.blocks, strict=True)
    ]
    return Frame(frame.seq, frame.wall_ns, frame.mono_ns, blocks)
