"""The description inside a packet-level scene: its nodes, ports, counters and what was wrong."""

from __future__ import annotations

import msgspec

ECMP_COLLISION = "ecmp_collision"


class SceneNode(msgspec.Struct, frozen=True):
    """A host or a switch; its counters are read `read_before_tick_s` before each tick."""

    name: str
    role: str
    watched: bool
    read_before_tick_s: float = 0.0


class ScenePort(msgspec.Struct, frozen=True):
    """A column of the counters: `kind` is `nic` or `switch`, `peer` the `node/port` at the other
    end of the cable."""

    node: str
    port: str
    kind: str
    speed_bps: float
    peer: str

    @property
    def id(self) -> str:
        """`node/port`."""
        return f"{self.node}/{self.port}"


class SpeedChange(msgspec.Struct, frozen=True):
    """From `from_s` on the port (`node/port`) reports another speed."""

    from_s: float
    port: str
    speed_bps: float


class SceneCounter(msgspec.Struct, frozen=True):
    """A counter: its values are increments in units of `scale`."""

    scale: int = 1


class Wanted(msgspec.Struct, frozen=True):
    """What must be found: `need` of the subjects (`*`: any) under this cause."""

    cause: str
    subjects: tuple[str, ...]
    need: int = 1


class CongestedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A full link with a queue, as the simulator measured it.

    `port` is the `node/port` that sends into it; `group` names its parallel links, empty at a last
    hop. `slowed_by` is the share of their rate that its senders lose, 0 to 1.
    """

    port: str
    group: str = ""
    util: float = 0.0
    marked_share: float = 0.0
    senders: int = 0
    slowed_by: float = 0.0


class SharedLink(msgspec.Struct, frozen=True):
    """A link that several senders share and that marks packets at times, but that is not full."""

    port: str
    senders: int = 0
    util: float = 0.0


class SceneTruth(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong, from `onset_s` on (None: nothing, from beginning to end)."""

    healthy: bool
    onset_s: float | None = None
    want: tuple[Wanted, ...] = ()
    allowed: tuple[Wanted, ...] = ()
    congested: tuple[CongestedLink, ...] = ()
    shared: tuple[SharedLink, ...] = ()


class SceneMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The `meta` of an archive, as far as it is used here.

    `routes` is whether switches report their equal-cost routes, `cabling_known` whether nodes
    report their neighbours. `absent` maps a role to the counters that its nodes do not report.
    """

    name: str
    title: str = ""
    congestion_control: str
    routes: bool = False
    cabling_known: bool = True
    nodes: tuple[SceneNode, ...]
    ports: tuple[ScenePort, ...]
    counters: dict[str, SceneCounter]
    absent: dict[str, tuple[str, ...]] = {}
    speed_changes: tuple[SpeedChange, ...] = ()
    truth: SceneTruth

    @property
    def has_ecn(self) -> bool:
        """Whether switches mark packets; without, marks and CNPs are 0 and not reported."""
        return "no ECN" not in self.congestion_control
