"""Reads a packet-level scene (`*.npz`), and makes the ticks of it that reach the console."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import HOST, SWITCH, Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame
from tests.packets.archive import SceneMeta, SceneNode, SceneTruth
from tests.packets.counters import Counts, tables_of, values_of
from tests.packets.hellos import hello
from tests.world.sampling import START_NS
from tests.world.watched_nodes import Table

_UNREADABLE = (KeyError, EOFError, OSError, ValueError, BadZipFile, msgspec.MsgspecError)
_BETWEEN_BLOCKS_NS = 40_000
"""Time that a node takes for each block of a frame."""


@dataclass(frozen=True)
class PacketScene:
    """A scene: its description, and its counters from the beginning on.

    `tick_times` are seconds, [ticks]; `counters` have the names of the archive, [ticks, ports], the
    ports in the order of `meta.ports`. What is not watched is in it for the truth.
    """

    meta: SceneMeta
    tick_times: NDArray[np.float64]
    counters: dict[str, Counts]

    @property
    def name(self) -> str:
        """The name of the scene."""
        return self.meta.name

    @property
    def truth(self) -> SceneTruth:
        """What was wrong."""
        return self.meta.truth

    @property
    def watched(self) -> list[SceneNode]:
        """The nodes that send their counters."""
        return [node for node in self.meta.nodes if node.watched]

    def hosts(self) -> list[Host]:
        """The watched nodes as a hosts file lists them."""
        roles = {"switch": SWITCH, "host": HOST}
        return [Host(name=node.name, role=roles[node.role]) for node in self.watched]

    def ticks(self) -> Iterator[Tick]:
        """What reaches the console, tick by tick; the first one has the hellos of all nodes."""
        layouts = {role: tables_of(self.meta, role) for role in ("host", "switch")}
        speed = self._speeds()
        samplers = [
            _NodeSampler(self, node, layouts[node.role], speed, number)
            for number, node in enumerate(self.watched)
        ]
        for seq, at_s in enumerate(self.tick_times.tolist()):
            time_ns = START_NS + round(at_s * 1e9)
            frames = tuple((each.node.name, each.frame(seq, at_s)) for each in samplers)
            if seq > 0:
                yield Tick(seq, time_ns, (), frames, ())
                continue
            hellos = tuple(
                (each.node.name, hello(self.meta, each.node, each.layout)) for each in samplers
            )
            up = tuple(NodeStatus(name, NodeState.UP, time_ns) for name, _ in hellos)
            yield Tick(seq, time_ns, hellos, frames, up)

    def _speeds(self) -> Counts:
        """The line rate that each port reports, bits/s, [ticks, ports]."""
        ports = self.meta.ports
        first = np.array([round(port.speed_bps) for port in ports], np.int64)
        speed = np.tile(first, (len(self.tick_times), 1))
        column = {port.id: number for number, port in enumerate(ports)}
        for change in sorted(self.meta.speed_changes, key=lambda each: each.from_s):
            speed[self.tick_times >= change.from_s, column[change.port]] = round(change.speed_bps)
        return speed


def load(path: Path) -> PacketScene:
    """The scene of a file. Raises ValueError if it is none."""
    try:
        with path.open("rb") as file, np.load(file) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = msgspec.json.decode(str(arrays["meta"]), type=SceneMeta)
        counters = {
            name: arrays[name].astype(np.int64).cumsum(axis=0) * counter.scale
            for name, counter in meta.counters.items()
        }
        times = arrays["tick_times"].astype(np.float64)
    except _UNREADABLE as error:
        raise ValueError(f"{path}: not a packet-level scene: {error}") from error
    shape = (len(times), len(meta.ports))
    for name, values in counters.items():
        if values.shape != shape:
            raise ValueError(f"{path}: {name} is {values.shape}, not {shape} (ticks, ports)")
    return PacketScene(meta, times, counters)


class _NodeSampler:
    """Makes the frames of one node, with clocks of its own."""

    def __init__(
        self, scene: PacketScene, node: SceneNode, layout: list[Table], speed: Counts, number: int
    ) -> None:
        self.node, self.layout, self._number = node, layout, number
        columns = [i for i, port in enumerate(scene.meta.ports) if port.node == node.name]
        of_node = {name: values[:, columns] for name, values in scene.counters.items()}
        is_switch = node.role == "switch"
        ticks = len(scene.tick_times)
        self._values: list[list[list[int]]] = [
            values_of(table, is_switch, of_node, speed[:, columns]).reshape(ticks, -1).tolist()
            for table in layout
        ]
        self._without_counters = scene.meta.cabling_known + (scene.meta.routes and is_switch)
        # The same on every run, and another one for each node.
        self._mono_offset_ns = zlib.crc32(node.name.encode()) * 10**6 + 10**9

    def frame(self, seq: int, tick_s: float) -> Frame:
        """The frame of a tick: its counters are of when the node read them."""
        read_ns = round((tick_s - self.node.read_before_tick_s) * 1e9)
        mono = self._mono_offset_ns + read_ns
        blocks: list[list[int | None] | None] = []
        for table, values in zip(self.layout, self._values, strict=True):
            if (seq + self._number) % table.every and seq > 1:
                blocks.append(None)
                continue
            blocks.append([mono + _BETWEEN_BLOCKS_NS * len(blocks), *values[seq]])
        blocks += [None] * self._without_counters
        return Frame(seq, START_NS + read_ns, mono, blocks)
