"""What is told of the rhythm of one job."""

from __future__ import annotations

import msgspec

from fabmon.analysis.rhythm.arithmetic import Expected


class Moved(msgspec.Struct, frozen=True):
    """A number that changed: it `was` another until `at_ns` (console's wall clock)."""

    was: float
    at_ns: int


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """Iterations of a job, as its hosts' byte counters show them.

    `hosts` move together; `hosts_sure` is False where another group moves so alike that some may be
    in the wrong one. `step_s` may be wrong by `error_s`; `resolved` is False where iterations
    shorter than two sampling intervals could look the same. `comm_low` to `comm_high` is the share
    of time (0 to 1) in communication. `rail_bytes` are sent by each rail in an iteration (median
    over the hosts, by rail index; None for a rail that is not heard of), `line_share` is what the
    rails reach while they communicate, of line rate (None: unknown). `bound` is `compute-bound`,
    `balanced`, `network-bound` or empty where it cannot be said; `best_step_s` the step if the
    network delivered 80 % of line rate. `step_was`, `comm_was` and `bytes_was` tell the last
    change. `expected` is what the hints lead to expect of a rail.
    """

    hosts: tuple[str, ...]
    hosts_sure: bool
    step_s: float
    error_s: float
    resolved: bool
    strength: float
    iterations: int
    comm_low: float
    comm_high: float
    rail_bytes: tuple[float | None, ...]
    line_rate_bps: float | None
    line_share: float | None
    bound: str
    best_step_s: float | None
    step_was: Moved | None = None
    comm_was: Moved | None = None
    bytes_was: Moved | None = None
    expected: Expected | None = None

    @property
    def name(self) -> str:
        """The job, by its hosts: nobody has told its name."""
        first, count = self.hosts[0], len(self.hosts)
        return first if count == 1 else f"{first} +{count - 1}"

    @property
    def mean_rail_bytes(self) -> float:
        """What a rail sends in an iteration, the mean of all that are heard of."""
        known = [count for count in self.rail_bytes if count is not None]
        return sum(known) / len(known) if known else 0.0


class Beats(msgspec.Struct, frozen=True):
    """All rhythms now, the largest job first. Only periods over `shortest_s` can be told.

    `hosts_watched` have rails; `watching_s` is how much of the past was looked at.
    """

    shortest_s: float
    hosts_watched: int = 0
    watching_s: float = 0.0
    rhythms: tuple[Rhythm, ...] = ()


NO_BEATS = Beats(0.0)
"""Before anything was looked at."""
