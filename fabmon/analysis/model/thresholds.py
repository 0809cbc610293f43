"""The numbers of the bottleneck model: the table [model] of config/thresholds.toml."""

from __future__ import annotations

import msgspec

from fabmon.analysis.thresholds import Share, Ticks


class ModelThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every number that decides about queues between NICs; config/thresholds.toml has the reasons.

    Signs are events per gigabit (10^9 bits), or shares of time; evidence is in log-odds a tick.
    """

    marks_per_gbit: float
    drops_per_gbit: float
    cnps_per_gbit: float
    waiting: Share
    vanished: Share
    rise: float
    cap: float
    slope: float
    clip: float
    busy: Share
    loaded: Share
    window: Ticks
    full_util: Share
    no_room: Share
    of_ratio: float
    ratio_most: float
    of_full: float
    of_partial: float
    of_group: float
    of_queue: float
    of_ends: float
    waits_for: Share
    base: float
    last_hop: float
    veto: float
    alone: Share
    one_of_several: Share
    same: Share
    takes_part: Share
    accounts: Share
    held: Share
    shared: float
    as_busy: Share
    similar: Share
    whole_group: Share
    flags: float
    ends: float
    forgets: float
    marks_of_all: float
    held_up: Share
    min_senders: int
    stalled: Share
    lost_min: Share
    incast_lost_min: Share
