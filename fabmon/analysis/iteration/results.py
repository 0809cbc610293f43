"""Results of iteration analysis: what is shown of a job, and what limits it."""

from __future__ import annotations

import msgspec

from fabmon.analysis.iteration.model_arithmetic import DELIVERED, ExpectedTraffic
from fabmon.analysis.iteration.signal_analysis import SHORTEST_INTERVALS
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.time_wording import measured

COMPUTE, MIXED, NETWORK = "compute-bound", "balanced", "network-bound"

_COMPUTE_BELOW = 0.2
_NETWORK_ABOVE = 0.5
"""Shares of time that divide compute-bound, balanced and network-bound."""

_SURE = 0.05
"""Width of the bounds of the share of communication from which on no mean rate is derived."""

_AT_ITS_LIMIT = 0.9 * DELIVERED
"""Share of line rate from which on a rail is as busy as healthy networks let it be."""


def bound_by(
    share_low: float, share_high: float, line_share: float | None, mfu: float | None = None
) -> str:
    """What limits the iteration; "" where uncertain.

    Less than a fifth of the time in communication is COMPUTE, up to a half MIXED. More than half is
    NETWORK only where the rails are at their limit meanwhile (`line_share` of line rate) and where
    computing leaves so much time to wait (`mfu`, None: unknown): communication that overlaps with
    computing takes most of the time at a lower rate, since computing paces it.
    """
    verdicts = {_verdict(share_low), _verdict(share_high)}
    if len(verdicts) > 1:
        return ""
    verdict = verdicts.pop()
    if verdict != NETWORK:
        return verdict
    is_at_limit = line_share is not None and line_share >= _AT_ITS_LIMIT
    return NETWORK if is_at_limit and exposed_at_most(share_high, mfu) > _NETWORK_ABOVE else ""


def exposed_at_most(share_high: float, mfu: float | None) -> float:
    """The greatest share of the step, 0 to 1, in which computing may wait for communication.

    It is in communication then, and not computing: computing takes at least the time that it would
    take at the GPU's peak, which is `mfu` of the step. More than 1 is a mistake in the hints.
    """
    return share_high if mfu is None or mfu > 1 else min(share_high, 1 - mfu)


def best_step_s(step_s: float, share: float, rail_bytes: float, line_rate_bps: float) -> float:
    """The step time with the same bytes sent at 80 % of line rate; never more than it is.

    This is for communication that does not overlap with computing; else the step is longer.
    """
    ideal_s = rail_bytes * 8 / (DELIVERED * line_rate_bps)
    return min(step_s, step_s * (1 - share) + ideal_s)


def _verdict(share: float) -> str:
    if share < _COMPUTE_BELOW:
        return COMPUTE
    return NETWORK if share > _NETWORK_ABOVE else MIXED


class PreviousValue(msgspec.Struct, frozen=True):
    """A number before its last change, which was at `at_ns` (console's wall clock)."""

    was: float
    at_ns: int


class JobIteration(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations of a job, as its hosts' byte counters show them.

    `hosts` move together; `hosts_sure` is False where another group is so similar that some hosts
    may be in the wrong one. `step_s` is the step time, ± `error_s`; `resolved` is False where
    iterations shorter than two sampling intervals could look the same. `comm_low` to `comm_high` is
    the share of time (0 to 1) in communication. `rail_bytes` are sent by each rail in an iteration
    (median over the hosts, by rail index; None where unknown). `line_share` is the share of line
    rate that the rails reach while they communicate (None: unknown). `best_step_s` is the step time
    if the network delivered 80 % of line rate. `step_was`, `comm_was` and `bytes_was` are the
    values before the last change. `expected` is what a rail should send, by the hints.
    `job` is the scheduler's job on these hosts, None where none is known.
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
    best_step_s: float | None
    step_was: PreviousValue | None = None
    comm_was: PreviousValue | None = None
    bytes_was: PreviousValue | None = None
    expected: ExpectedTraffic | None = None
    job: Job | None = None

    @property
    def name(self) -> str:
        """`job 8801 llama-70b (anna)`; without a known job, its hosts: `gpu001 +3`."""
        if self.job is not None:
            return self.job.label
        first, count = self.hosts[0], len(self.hosts)
        return first if count == 1 else f"{first} +{count - 1}"

    @property
    def step_text(self) -> str:
        """`4.00 s`; `4.00 s?` where shorter iterations could look the same."""
        return f"{measured(self.step_s)}{'' if self.resolved else '?'}"

    @property
    def step_words(self) -> str:
        """`4.00 s`; `4.00 s or less` where shorter iterations could look the same."""
        return f"{measured(self.step_s)}{'' if self.resolved else ' or less'}"

    @property
    def mean_rail_bytes(self) -> float:
        """Bytes that a rail sends in an iteration, the mean of all known rails."""
        known = [count for count in self.rail_bytes if count is not None]
        return sum(known) / len(known) if known else 0.0

    @property
    def mean_line_share(self) -> float | None:
        """The share of line rate that the bytes of an iteration take over all of its communication,
        slowed exchanges included; None where `line_share` or the share of time is uncertain."""
        if self.line_share is None or not self.line_rate_bps:
            return None
        if self.comm_low <= 0 or self.comm_high - self.comm_low > _SURE:
            return None
        comm_s = (self.comm_low + self.comm_high) / 2 * self.step_s
        return self.mean_rail_bytes * 8 / (comm_s * self.line_rate_bps)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, 0 to 1; None where the hints do not say enough."""
        return None if self.expected is None else self.expected.mfu(self.step_s)

    @property
    def bound(self) -> str:
        """`compute-bound`, `balanced`, `network-bound`, or empty where uncertain."""
        return bound_by(self.comm_low, self.comm_high, self.line_share, self.mfu)

    @property
    def needed_bps(self) -> tuple[float, float | None]:
        """The rate, at least and at most, at which a rail's bytes are hidden behind computing.

        Computing takes between the whole step and the part of it in which nothing waits for
        communication. None where communication may take all of the time.
        """
        mean_bps = self.mean_rail_bytes * 8 / self.step_s
        computing = 1 - exposed_at_most(self.comm_high, self.mfu)
        return mean_bps, mean_bps / computing if computing > 0 else None


class IterationReport(msgspec.Struct, frozen=True):
    """The iterations of all jobs now, the largest job first; only those longer than `shortest_s`.
    `hosts_watched` is the number of hosts with rails."""

    shortest_s: float
    hosts_watched: int = 0
    jobs: tuple[JobIteration, ...] = ()

    @property
    def interval_s(self) -> float:
        """The time between two samples."""
        return self.shortest_s / SHORTEST_INTERVALS

    @property
    def fast_s(self) -> float:
        """Steps under this, of less than two samples, may look like longer ones."""
        return 2 * self.interval_s


NO_ITERATIONS = IterationReport(0.0)
"""The report before anything was analysed."""
