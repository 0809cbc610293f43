"""Results of iteration analysis, and the arithmetic of data-parallel training that they use.

An all-reduce among n GPUs sends and receives 2(n-1)/n of its payload at each of them, for ring and
tree algorithms (NVIDIA nccl-tests, doc/PERFORMANCE.md, "bus bandwidth"). The payload is a gradient
for every parameter that the GPU holds: parameters / (tp x pp) x bytes of the dtype. A network
delivers about 80 % of its line rate.
"""

from __future__ import annotations

import msgspec

DELIVERED = 0.8
"""Share of line rate that a healthy network delivers to collectives."""

COMPUTE, MIXED, NETWORK = "compute-bound", "balanced", "network-bound"

DTYPE_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}

_COMPUTE_BELOW = 0.2
_NETWORK_ABOVE = 0.5
"""Shares of time in communication that divide compute-bound, balanced and network-bound."""


class JobHints(msgspec.Struct, frozen=True):
    """What the user gave on the command line: `params` of the model, `dp`, `tp` and `pp` ranks."""

    params: float
    dtype: str = "bf16"
    dp: int = 1
    tp: int = 1
    pp: int = 1

    @property
    def gpus(self) -> int:
        """The number of GPUs of the job."""
        return self.dp * self.tp * self.pp


class ExpectedTraffic(msgspec.Struct, frozen=True):
    """The bytes that a NIC which serves one GPU should send in an iteration, by the hints.

    `comm_s` is the time for them at 80 % of line rate; None where the line rate is unknown. `gpus`
    is the number of GPUs of the job.
    """

    bytes: float
    comm_s: float | None
    gpus: int


def expected_traffic(hints: JobHints, line_rate_bps: float) -> ExpectedTraffic:
    """One all-reduce of all gradients, in `dtype`, an iteration. A line rate of 0 is unknown."""
    payload = hints.params * DTYPE_BYTES[hints.dtype] / (hints.tp * hints.pp)
    count = payload * all_reduce_share(hints.dp)
    comm_s = count * 8 / (DELIVERED * line_rate_bps) if line_rate_bps > 0 else None
    return ExpectedTraffic(count, comm_s, hints.gpus)


def all_reduce_share(ranks: int) -> float:
    """The share of the payload that each of n ranks sends: 2(n-1)/n, 0 for a single one."""
    return 2 * (ranks - 1) / ranks if ranks > 1 else 0.0


def bound_by(share_low: float, share_high: float) -> str:
    """What limits the iteration, by the share of time in communication; "" where uncertain.

    Less than a fifth of the time is COMPUTE, more than half NETWORK, else MIXED. Communication that
    overlaps with computing counts as well: bytes do not show whether computing waits for it.
    """
    verdicts = {_verdict(share_low), _verdict(share_high)}
    return verdicts.pop() if len(verdicts) == 1 else ""


def best_step_s(step_s: float, share: float, rail_bytes: float, line_rate_bps: float) -> float:
    """The step time with the same bytes sent at 80 % of line rate; never more than it is."""
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
    rate that the rails reach while they communicate (None: unknown). `bound` is `compute-bound`,
    `balanced`, `network-bound`, or empty where uncertain. `best_step_s` is the step time if the
    network delivered 80 % of line rate. `step_was`, `comm_was` and `bytes_was` are the values
    before the last change. `expected` is what a rail should send, by the hints.
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
    step_was: PreviousValue | None = None
    comm_was: PreviousValue | None = None
    bytes_was: PreviousValue | None = None
    expected: ExpectedTraffic | None = None

    @property
    def name(self) -> str:
        """The job, named after its hosts: `gpu001 +3`."""
        first, count = self.hosts[0], len(self.hosts)
        return first if count == 1 else f"{first} +{count - 1}"

    @property
    def mean_rail_bytes(self) -> float:
        """Bytes that a rail sends in an iteration, the mean of all known rails."""
        known = [count for count in self.rail_bytes if count is not None]
        return sum(known) / len(known) if known else 0.0


class IterationReport(msgspec.Struct, frozen=True):
    """The iterations of all jobs now, the largest job first; only those longer than `shortest_s`.

    `hosts_watched` is the number of hosts with rails, `watching_s` the time that was analysed.
    """

    shortest_s: float
    hosts_watched: int = 0
    watching_s: float = 0.0
    jobs: tuple[JobIteration, ...] = ()


NO_ITERATIONS = IterationReport(0.0)
"""The report before anything was analysed."""
