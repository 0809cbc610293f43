"""When a condition becomes a finding: the keys of config/thresholds.toml, typed."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0, le=86_400, description="0 to 86400 seconds")]
Share = Annotated[float, Meta(ge=0, le=1, description="0 to 1, a share")]
Ticks = Annotated[int, Meta(ge=1, le=1000, description="1 to 1000 ticks")]
Times = Annotated[float, Meta(ge=0, le=1000, description="0 to 1000 times")]


class Findings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The life of any finding; both in seconds."""

    close_after_s: Seconds
    update_every_s: Seconds


class EcmpCollision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares are 0 to 1 of line rate; see the comments in config/thresholds.toml."""

    hot_util: Share
    hot_ticks: Ticks
    of_ticks: Ticks
    room_util: Share
    above_median: Times
    lost_min: Share


class LinkDown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ticks that a port must be down."""

    after_ticks: Ticks


class NodeLost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that a node must be lost."""

    after_s: Seconds


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them, one table a kind of finding."""

    findings: Findings
    ecmp_collision: EcmpCollision
    link_down: LinkDown
    node_lost: NodeLost
