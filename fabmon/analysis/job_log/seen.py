"""What the logs of a job have said of its processes and hosts, and of one failure or timeout."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fabmon.analysis.job_log.events import Failure, Process, Timeout
from fabmon.analysis.job_log.log_times import LogTime
from fabmon.analysis.job_log.status_codes import order_of


class ProcessFacts(msgspec.Struct):
    """The rank of a process in its largest communicator (-1: unknown), and its GPU."""

    rank: int = -1
    ranks: int = 0
    gpu: int = -1
    pci: str = ""
    inferred_rank: int = -1
    """From the connections of the process, where the log has no communicators."""


class HostFacts(msgspec.Struct):
    """The HCAs of a host by NCCL's index, its addresses for connection setup, and the number of
    NICs where only that is known."""

    hcas: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    addresses: set[str] = msgspec.field(default_factory=set)
    nics: int = 0


class SeenFailure(msgspec.Struct):
    """A failure, by which process (None: not given), global rank (-1) or host (empty), how often,
    and when first and last."""

    event: Failure
    process: Process | None
    rank: int
    host: str
    order: int
    source: str
    text: str
    count: int = 1
    first: LogTime | None = None
    last: LogTime | None = None


class SeenTimeout(msgspec.Struct):
    """A timeout of PyTorch's watchdog, the global rank (-1: unknown) and its time."""

    event: Timeout
    rank: int
    time: LogTime | None
    process: Process | None


def merged_timeouts(seen: SeenTimeout, new: SeenTimeout) -> Timeout | None:
    """What two lines say of one timeout; None where they are of two."""
    if -1 not in (seen.rank, new.rank) and seen.rank != new.rank:
        return None
    one, other = seen.event, new.event
    fields: dict[str, str | float | None] = {}
    for name in ("group", "operation", "limit_s", "ran_s"):
        value, another = getattr(one, name), getattr(other, name)
        if value and another and value != another:
            return None
        fields[name] = value or another
    return msgspec.structs.replace(one, **fields)


def order_of_cause(failures: Iterable[SeenFailure]) -> list[SeenFailure]:
    """Failures, those that may be the cause first; each kind in the log's order."""
    return sorted(failures, key=lambda seen: (order_of(seen.event), seen.order))
