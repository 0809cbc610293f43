"""When a condition becomes a finding: the keys of config/thresholds.toml, typed."""

from __future__ import annotations

import msgspec


class Findings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The life of any finding; both in seconds."""

    close_after_s: float
    wait_at_most_s: float
    update_every_s: float


class EcmpGroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares are 0 to 1 of line rate; see the comments in config/thresholds.toml."""

    hot_util: float
    hot_ticks: int
    of_ticks: int
    full_util: float
    full_ticks: int
    used_util: float
    held: float
    lost_min: float


class FromHosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares: of line rate, of time, of what the most touched port has; see the comments there."""

    ticks: int
    of_ticks: int
    marks_per_s: float
    inside: float
    full: float
    full_ticks: int
    held: float
    held_named: float
    bus: float
    named: float
    busy_util: float
    most_senders: float
    one_receiver: float
    few_senders: int


class Incast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares are 0 to 1 of line rate; marks and CNPs are packets a second."""

    hot_util: float
    hot_ticks: int
    of_ticks: int
    marks_per_s: float
    cnps_per_s: float
    others_below: float


class LinkHealth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Errors a second; changes of carrier in two minutes; shares of line rate."""

    flaps: int
    slower_than_peers: float
    errors_per_s: float
    lasting_ticks: int
    burst_per_s: float
    lossy: float


class UnevenRails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares: of line rate, of the busiest rail, of the bandwidth lost."""

    busy_util: float
    low: float
    of_ticks: int
    lost_min: float


class Straggler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of line rate and of the others' median; a correlation."""

    busy_util: float
    below: float
    ticks: int
    alike: float


class Bus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares: of time, of the usual PCIe, of line rate."""

    stalled: float
    narrow: float
    busy_util: float
    ticks: int
    of_ticks: int


class LinkDown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ticks that a port must be down."""

    after_ticks: int


class NodeLost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that a node must be lost."""

    after_s: float


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
    link_down: LinkDown
    node_lost: NodeLost
