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
    wait_at_most_s: Seconds
    update_every_s: Seconds


class EcmpGroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares are 0 to 1 of line rate; see the comments in config/thresholds.toml."""

    hot_util: Share
    hot_ticks: Ticks
    of_ticks: Ticks
    full_util: Share
    full_ticks: Ticks
    used_util: Share
    held: Share
    lost_min: Share


class FromHosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares: of line rate, of time, of what the most touched port has; see the comments there."""

    ticks: Ticks
    of_ticks: Ticks
    marks_per_s: float
    inside: Share
    full: Share
    full_ticks: Ticks
    held: Share
    held_named: Share
    bus: Share
    named: Share
    busy_util: Share
    most_senders: Share
    one_receiver: Share
    few_senders: int


class Incast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares are 0 to 1 of line rate; marks and CNPs are packets a second."""

    hot_util: Share
    hot_ticks: Ticks
    of_ticks: Ticks
    marks_per_s: float
    cnps_per_s: float
    others_below: Share


class LinkHealth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Errors a second; changes of carrier in two minutes; shares of line rate."""

    flaps: int
    slower_than_peers: Share
    errors_per_s: float
    lasting_ticks: Ticks
    burst_per_s: float
    lossy: Share


class UnevenRails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares: of line rate, of the busiest rail, of the bandwidth lost."""

    busy_util: Share
    low: Share
    of_ticks: Ticks
    lost_min: Share


class Straggler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of line rate and of the others' median; a correlation."""

    busy_util: Share
    below: Share
    ticks: Ticks
    alike: Share


class Bus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares: of time, of the usual PCIe, of line rate."""

    stalled: Share
    narrow: Share
    busy_util: Share
    ticks: Ticks
    of_ticks: Ticks


class NodeLost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that a node must be lost."""

    after_s: Seconds


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them, one table a kind of finding."""

    findings: Findings
    ecmp_groups: EcmpGroups
    from_hosts: FromHosts
    incast: Incast
    link_health: LinkHealth
    uneven_rails: UnevenRails
    straggler: Straggler
    bus: Bus
    node_lost: NodeLost
