"""The types of thresholds, numbers with their unit and range, and the table that many causes read.

A detector with a table of config/thresholds.toml of its own declares it with these types;
fabmon/analysis/causes.py puts the tables together.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0, le=86_400, description="0 to 86400 seconds")]
Share = Annotated[float, Meta(ge=0, le=1, description="0 to 1, a share")]
Ticks = Annotated[int, Meta(ge=1, le=1000, description="1 to 1000 ticks")]


class ModelThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every number that decides about queues and pauses; config/thresholds.toml has the reasons.

    Signs are events per gigabit (10^9 bits), or shares of time; evidence is in log-odds a tick.
    """

    marks_per_gbit: float
    rare_per_gbit: float
    waiting: Share
    rise: float
    cap: float
    slope: float
    clip: float
    busy: Share
    some: Share
    window: Ticks
    full_util: Share
    of_ratio: float
    base: float
    of_place: float
    veto: float
    apart: Share
    half: Share
    quiet: Share
    accounts: Share
    nearly: Share
    takes_part: Share
    one_of_several: Share
    flags: float
    ends: float
    critical_lost: Share
    several: int
    chance: Share
    nothing: Share
    ticks: Ticks
    storm: Share
    no_credits: Share
    scatter: float
