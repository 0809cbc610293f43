"""Builders of small fabrics for tests: hellos, frames, ticks, and pipelines that process them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from collectors import wire
from collectors.wire import Object
from fabmon.analysis.analyst import Analyst
from fabmon.analysis.causes import Thresholds
from fabmon.analysis.evidence.detector_input import Detector
from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.iteration.model_arithmetic import JobHints
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import HOST, SWITCH, Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import WORD, Frame, Hello, Values, decode
from fabmon.scenes.pipeline import Pipeline
from fabmon.session.config import load
from fabmon.session.session import Session

SECOND_NS = 1_000_000_000
START_NS = 1_763_700_000 * SECOND_NS
GBPS = 1_000_000_000

METRICS = ("netdev_up", "netdev_tx_bytes", "netdev_rx_bytes", "netdev_tx_drops")


def port(name: str, mac: str = "", metrics: Sequence[str] = METRICS, **info: Any) -> Object:
    """One Ethernet port with the counters of `metrics`."""
    return Object(name, "ethernet", name, {"netdev": name, "mac": mac, **info}, tuple(metrics))


def ecmp(*members: str) -> Object:
    """An ECMP group over some ports of the node."""
    info = {"members": [{"dev": dev} for dev in members], "destinations_count": 1}
    return Object("ecmp/1", "ecmp", None, info, ())


def neighbour(dev: str, mac: str) -> Object:
    """The MAC address of the neighbour of one port."""
    return Object(f"{dev}/{mac}", "neighbour", None, {"dev": dev, "mac": mac}, ())


def hello(*objects: Object, interval_s: float = 1.0, **about: Any) -> Hello:
    """A hello of one block, encoded for the wire and decoded again."""
    layout = [wire.BlockLayout("netdev", 1, objects)]
    message = decode(wire.hello(layout, {"interval_s": interval_s, **about}))
    assert isinstance(message, Hello)
    return message


def without_neighbours(said: Hello, node: str, ports: Collection[str]) -> Hello:
    """A hello of a node whose `ports` (`node/port`) report no neighbour, as when they are down."""
    (block,) = said.blocks
    kept = tuple(
        each
        for each in block.objects
        if each.kind != "neighbour" or f"{node}/{each.info['dev']}" not in ports
    )
    layout = f"{said.layout} of {len(kept)}"
    return msgspec.structs.replace(
        said, layout=layout, blocks=(msgspec.structs.replace(block, objects=kept),)
    )


def frame(seq: int, *values: int | None, mono_ns: int | None = None) -> Frame:
    """A frame of one block; the node's clock advances with `seq` unless `mono_ns` is given."""
    clock = (seq + 1) * SECOND_NS if mono_ns is None else mono_ns
    return Frame(seq, START_NS + clock, clock, [block(clock, *values)])


def block(*values: int | None) -> Values:
    """A block as the wire and recordings have it: an array where no value is absent."""
    try:
        return array(WORD, values)  # type: ignore[type-var]
    except (TypeError, OverflowError):
        return list(values)


def tick(
    seq: int,
    frames: Mapping[str, Frame] | None = None,
    hellos: Mapping[str, Hello] | None = None,
    statuses: Sequence[NodeStatus] = (),
) -> Tick:
    """Tick `seq`, one second after the one before."""
    return Tick(
        seq,
        START_NS + seq * SECOND_NS,
        hellos=tuple((hellos or {}).items()),
        frames=tuple((frames or {}).items()),
        statuses=tuple(statuses),
    )


def up(*names: str) -> tuple[NodeStatus, ...]:
    """Statuses of nodes whose counters come in."""
    return tuple(NodeStatus(name, NodeState.UP, START_NS) for name in names)


def new_pipeline(
    hosts: Sequence[Host],
    interval_s: float = 1.0,
    hints: JobHints | None = None,
    judged_by: Callable[[Thresholds], Sequence[Detector]] | None = None,
) -> Pipeline:
    """A pipeline from ticks to scenes with the default settings, whatever the user's file says.

    `judged_by` makes the detectors to use instead of all, of the default thresholds.
    """
    session = Session(load(Path("/dev/null")), hints=hints)
    if judged_by is None:
        return session.pipeline(hosts, interval_s)
    thresholds = session.settings.thresholds
    analyst = Analyst(thresholds, hints, judged_by(thresholds))
    return Pipeline(session.history(hosts, interval_s), analyst)


class LeafSpine:
    """One leaf with uplinks to as many spines, and hosts below; counters that a test moves.

    `sent` and `received` map `node/port` to bits/s, `counted` maps (`node/port`, metric) to events
    a second, for the `metrics` that hosts, and `leaf_metrics` and `spine_metrics` that the ports
    of switches, have beside METRICS; `send` sets both ends of links, and
    `step` lets one second pass. `speeds` are line rates of single ports by `node/port`, else it is
    `rate_bps`. The leaf has `management` ports that lead out of the fabric. `clock_off_ns` sets the
    console's clock.
    """

    def __init__(
        self,
        uplinks: int = 4,
        hosts: int = 2,
        rate_bps: float = 100e6,
        management: int = 0,
        metrics: Sequence[str] = (),
        speeds: Mapping[str, float] | None = None,
        leaf_metrics: Sequence[str] = (),
        spine_metrics: Sequence[str] = (),
    ) -> None:
        self.spines = [f"spine{i + 1}" for i in range(uplinks)]
        self.servers = [f"gpu{i + 1:03}" for i in range(hosts)]
        self.rate_bps = rate_bps
        self.management = [f"mgmt{i}" for i in range(management)]
        self.sent: dict[str, float] = {}
        self.received: dict[str, float] = {}
        self.counted: dict[tuple[str, str], float] = {}
        self.down: set[str] = set()
        self._host_metrics = (*METRICS, *metrics)
        self._leaf_metrics = (*METRICS, *leaf_metrics)
        self._spine_metrics = (*METRICS, *spine_metrics)
        self._speeds = speeds or {}
        self._counts: dict[tuple[str, str], float] = {}
        self._peer: dict[str, str] = {}
        for number, spine in enumerate(self.spines, start=1):
            self._cable(f"leaf1/up{number}", f"{spine}/swp1")
        for number, server in enumerate(self.servers, start=1):
            self._cable(f"leaf1/down{number}", f"{server}/eth0")
        self.seq = 0
        self.clock_off_ns = self._clock_was_off_ns = 0

    def _cable(self, port: str, other: str) -> None:
        self._peer[port], self._peer[other] = other, port

    @property
    def hosts(self) -> list[Host]:
        switches = [self._host(name, SWITCH) for name in ["leaf1", *self.spines]]
        return [*(self._host(name, HOST) for name in self.servers), *switches]

    def _host(self, name: str, role: str) -> Host:
        own = [
            (port.partition("/")[2], bps)
            for port, bps in self._speeds.items()
            if port.startswith(f"{name}/")
        ]
        return Host(name=name, role=role, speeds=(("*", self.rate_bps), *own))

    def send(self, bps: float, *ports: str) -> None:
        """Add a flow: it leaves by each of these ports, and enters the port at its other end."""
        for each in ports:
            self.sent[each] = self.sent.get(each, 0.0) + bps
            other = self._peer[each]
            self.received[other] = self.received.get(other, 0.0) + bps

    def silence(self) -> None:
        """End all flows."""
        self.sent.clear()
        self.received.clear()

    def hellos(self) -> dict[str, Hello]:
        uplinks = [f"up{i + 1}" for i in range(len(self.spines))]
        downs = [f"down{i + 1}" for i in range(len(self.servers))]
        names = (*uplinks, *downs, *self.management)
        leaf = [port(name, f"leaf1-{name}", self._leaf_metrics) for name in names]
        leaf.append(ecmp(*uplinks))
        leaf += [neighbour(u, f"{s}-swp1") for u, s in zip(uplinks, self.spines, strict=True)]
        leaf += [neighbour(d, f"{h}-eth0") for d, h in zip(downs, self.servers, strict=True)]
        said = {"leaf1": hello(*leaf)}
        for uplink, spine in zip(uplinks, self.spines, strict=True):
            seen = neighbour("swp1", f"leaf1-{uplink}")
            said[spine] = hello(port("swp1", f"{spine}-swp1", self._spine_metrics), seen)
        for down, server in zip(downs, self.servers, strict=True):
            seen = neighbour("eth0", f"leaf1-{down}")
            said[server] = hello(port("eth0", f"{server}-eth0", self._host_metrics), seen)
        return said

    def step(self) -> Tick:
        """One second of traffic."""
        hellos = self.hellos()
        frames = {}
        for node, said in hellos.items():
            values: list[int | None] = []
            for item in said.blocks[0].objects:
                if item.port is not None:
                    values += self._port_values(f"{node}/{item.port}", item.metrics)
            frames[node] = frame(self.seq, *values)
        first = self.seq == 0
        self.seq += 1
        made = tick(self.seq - 1, frames, hellos if first else {}, up(*hellos) if first else ())
        off_ns, before_ns = self.clock_off_ns, self._clock_was_off_ns
        self._clock_was_off_ns = off_ns
        return msgspec.structs.replace(
            made, time_ns=made.time_ns + off_ns, clock_jumped_ns=off_ns - before_ns
        )

    def _port_values(self, name: str, metrics: Sequence[str]) -> list[int]:
        """The counters of a port after one more second."""
        per_s = {
            "netdev_tx_bytes": self.sent.get(name, 0.0) / 8,
            "netdev_rx_bytes": self.received.get(name, 0.0) / 8,
        }
        values = []
        for metric in metrics:
            key = (name, metric)
            more = per_s.get(metric, self.counted.get(key, 0.0))
            self._counts[key] = self._counts.get(key, 0.0) + more
            is_state = metric == "netdev_up"
            values.append(int(name not in self.down) if is_state else int(self._counts[key]))
        return values


class Watched:
    """A fabric that is watched second by second; `changes` are those of findings, with the tick."""

    def __init__(self, fabric: LeafSpine, seen: Collection[str] = ("",)) -> None:
        """`seen` are beginnings of the names of the nodes that are watched."""
        self.fabric = fabric
        self._seen = tuple(seen)
        watched = [each for each in fabric.hosts if self._sees(each.name)]
        self.pipeline = new_pipeline(watched)
        self.changes: list[tuple[int, Change, Finding]] = []

    def _sees(self, node: str) -> bool:
        return node.startswith(self._seen)

    def seconds(self, count: int, traffic: Callable[[int], None] | None = None) -> Scene:
        """The scene after some seconds; `traffic` sets the rates of each."""
        for second in range(count):
            if traffic is not None:
                traffic(second)
            made = self.fabric.step()
            heard = msgspec.structs.replace(
                made,
                hellos=tuple(each for each in made.hellos if self._sees(each[0])),
                frames=tuple(each for each in made.frames if self._sees(each[0])),
                statuses=tuple(each for each in made.statuses if self._sees(each.node)),
            )
            scene = self.pipeline.accept(heard)
            for change, finding in scene.changes:
                self.changes.append((scene.snapshot.seq, change, finding))
        return scene

    def opened(self) -> list[str]:
        """Cause and subject of the findings that opened."""
        return [f"{each.cause} {each.subject}" for _, c, each in self.changes if c is Change.OPEN]


def builtins(value: Any) -> Any:
    """A struct as plain values, for goldens."""
    return msgspec.to_builtins(value)
