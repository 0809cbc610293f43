"""When a condition becomes a finding: the keys of config/thresholds.toml, typed."""

from __future__ import annotations

import msgspec


class Findings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The life of any finding; both in seconds."""

    close_after_s: float
    update_every_s: float


class EcmpCollision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares are 0 to 1 of line rate; see the comments in config/thresholds.toml."""

    hot_util: float
    hot_ticks: int
    of_ticks: int
    room_util: float
    above_median: float
    lost_min: float


class LinkDown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ticks that a port must be down."""

    after_ticks: int


class NodeLost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that a node must be lost."""

    after_s: float


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them, one table a kind of finding."""

    findings: Findings
    ecmp_collision: EcmpCollision
    link_down: LinkDown
    node_lost: NodeLost
