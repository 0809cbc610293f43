"""What a step ought to cost on the network: the arithmetic of data-parallel training.

An all-reduce among n GPUs sends and receives 2(n-1)/n of its payload at each of them (ring and tree
alike; NVIDIA nccl-tests, doc/PERFORMANCE.md, "bus bandwidth"). The payload is a gradient for every
parameter that the GPU holds: parameters / (tp x pp) x bytes of the dtype. A network delivers about
80 % of its line rate.
"""

from __future__ import annotations

import msgspec

DELIVERED = 0.8
"""Share of line rate that a healthy network delivers to collectives."""

COMPUTE, MIXED, NETWORK = "compute-bound", "balanced", "network-bound"

DTYPE_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}

_COMPUTE_BELOW = 0.2
_NETWORK_ABOVE = 0.5


class JobHints(msgspec.Struct, frozen=True):
    """What a person said of the job: `params` of the model, `dp`, `tp` and `pp` ranks."""

    params: float
    dtype: str = "bf16"
    dp: int = 1
    tp: int = 1
    pp: int = 1

    @property
    def gpus(self) -> int:
        """How many GPUs the job has."""
        return self.dp * self.tp * self.pp


class ExpectedTraffic(msgspec.Struct, frozen=True):
    """What a NIC that serves one GPU ought to send in an iteration, and for how long.

    `comm_s` is at 80 % of line rate; None where no line rate is known. `gpus` is how many the job
    is said to have.
    """

    bytes: float
    comm_s: float | None
    gpus: int


def expected_traffic(hints: JobHints, line_rate_bps: float) -> ExpectedTraffic:
    """One all-reduce of all gradients, in `dtype`, an iteration."""
    payload = hints.params * DTYPE_BYTES[hints.dtype] / (hints.tp * hints.pp)
    count = payload * all_reduce_share(hints.dp)
    known = line_rate_bps > 0
    comm_s = count * 8 / (DELIVERED * line_rate_bps) if known else None
    return ExpectedTraffic(count, comm_s, hints.gpus)


def all_reduce_share(ranks: int) -> float:
    """What a rank sends, of the payload: 2(n-1)/n; nothing where it is alone."""
    return 2 * (ranks - 1) / ranks if ranks > 1 else 0.0


def bound_by(share_low: float, share_high: float) -> str:
    """What the iteration waits for, by the share of time in communication; "" where unsure.

    Less than a fifth of the time: COMPUTE. More than half: NETWORK. Communication that is hidden
    behind computing counts as well: bytes do not tell who waits for whom.
    """
    verdicts = {_verdict(share_low), _verdict(share_high)}
    return verdicts.pop() if len(verdicts) == 1 else ""


def best_step_s(step_s: float, share: float, rail_bytes: float, line_rate_bps: float) -> float:
    """The step if the same bytes went at 80 % of line rate; no longer than it is."""
    ideal_s = rail_bytes * 8 / (DELIVERED * line_rate_bps)
    return min(step_s, step_s * (1 - share) + ideal_s)


def _verdict(share: float) -> str:
    if share < _COMPUTE_BELOW:
        return COMPUTE
    return NETWORK if share > _NETWORK_ABOVE else MIXED


# What is told of the rhythm of one job.


class PreviousValue(msgspec.Struct, frozen=True):
    """A number that changed: it `was` another until `at_ns` (console's wall clock)."""

    was: float
    at_ns: int


class JobIteration(msgspec.Struct, frozen=True, kw_only=True):
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
    step_was: PreviousValue | None = None
    comm_was: PreviousValue | None = None
    bytes_was: PreviousValue | None = None
    expected: ExpectedTraffic | None = None

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


class IterationReport(msgspec.Struct, frozen=True):
    """All rhythms now, the largest job first. Only periods over `shortest_s` can be told.

    `hosts_watched` have rails; `watching_s` is how much of the past was looked at.
    """

    shortest_s: float
    hosts_watched: int = 0
    watching_s: float = 0.0
    rhythms: tuple[JobIteration, ...] = ()


NO_ITERATIONS = IterationReport(0.0)
"""Before anything was looked at."""
