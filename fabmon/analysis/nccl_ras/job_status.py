"""The status of a job as NCCL's RAS reports it, and what follows from its counts."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.job_log.log_times import LogTime


class RasError(Exception):
    """An answer of RAS that cannot be read; the message says why."""


class Member(msgspec.Struct, frozen=True, order=True):
    """A rank of a communicator. `host` is a name or the address that NCCL uses for setup, `gpu` the
    index of NVML where that is reported; -1 and empty where unknown."""

    rank: int
    host: str = ""
    pid: int = -1
    gpu: int = -1


class MissingMember(msgspec.Struct, frozen=True):
    """A rank without data. `state` is `dead` (RAS gave its process up after 60 s), `unresponsive`,
    or `no communicator` (the process answered and is not a member)."""

    member: Member
    state: str


class CountGroup(msgspec.Struct, frozen=True):
    """Ranks that have launched the same number of an operation (`AllReduce`; `collective` where
    operations are not distinguished, before 2.26).

    The number counts what was launched, not what has finished. RAS names `members` of small groups
    only: there may be fewer than `size`.
    """

    operation: str
    launched: int
    size: int
    members: tuple[Member, ...] = ()


class StateGroup(msgspec.Struct, frozen=True):
    """Ranks in the same state (`RUNNING`, `INIT`, `FINALIZE`, `ABORT`, `NOCOMM`), or with the same
    error; `members` as in CountGroup."""

    state: str
    size: int
    members: tuple[Member, ...] = ()
    is_error: bool = False


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator. `name` is `#0-0` in the text, the hash in JSON; `size` is 0 where unknown.

    The text has only what differs between ranks: `counts` are empty where all are equal.
    """

    name: str
    hash: str
    size: int = 0
    counts: tuple[CountGroup, ...] = ()
    states: tuple[StateGroup, ...] = ()
    missing: tuple[MissingMember, ...] = ()
    missing_count: int = 0


class MissingProcess(msgspec.Struct, frozen=True):
    """A process that RAS did not hear from, and its GPUs."""

    host: str
    pid: int
    gpus: tuple[int, ...]
    is_dead: bool


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of RAS. Numbers are 0 and `version` is empty where the answer does not have them.

    `time` is that of the answering process, in its local time. `is_complete` is False for a text
    that ends early; `timeouts` count the processes and links that RAS waited for in vain.
    """

    version: str = ""
    time: LogTime | None = None
    collection_s: float | None = None
    timeouts: int = 0
    nodes: int = 0
    processes: int = 0
    gpus: int = 0
    communicator_count: int = 0
    communicators: tuple[Communicator, ...] = ()
    missing: tuple[MissingProcess, ...] = ()
    is_complete: bool = True


class LateGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of a communicator that have launched fewer operations than others. `members` are all of
    them, or none where RAS does not name them; those that were found by elimination have no host.
    """

    communicator: str
    operation: str
    launched: int
    expected: int
    size: int
    members: tuple[Member, ...]

    @property
    def behind(self) -> int:
        """Operations that are missing, at least 1."""
        return self.expected - self.launched


def late_groups(status: JobStatus) -> list[LateGroup]:
    """The groups that are late, those that are most behind first, then the smallest."""
    found = [group for each in status.communicators for group in _late_in(each)]
    return sorted(found, key=lambda group: (-group.behind, group.size))


def _late_in(communicator: Communicator) -> Iterator[LateGroup]:
    by_operation: defaultdict[str, list[CountGroup]] = defaultdict(list)
    for group in communicator.counts:
        by_operation[group.operation].append(group)
    for operation, groups in by_operation.items():
        expected = max(group.launched for group in groups)
        for group in groups:
            if group.launched < expected:
                yield LateGroup(
                    communicator=communicator.name,
                    operation=operation,
                    launched=group.launched,
                    expected=expected,
                    size=group.size,
                    members=_members(group, groups, communicator),
                )


def _members(
    group: CountGroup, groups: Sequence[CountGroup], communicator: Communicator
) -> tuple[Member, ...]:
    """The members of a group: as named, or all ranks that are in no other group."""
    if len(group.members) == group.size:
        return group.members
    others = [each for each in groups if each is not group]
    if any(len(each.members) != each.size for each in others):
        return ()
    taken = {member.rank for each in others for member in each.members}
    taken |= {each.member.rank for each in communicator.missing}
    # A size is what another program claims: of more than the group's, none is listed.
    if communicator.size - len(taken) != group.size:
        return ()
    return tuple(Member(rank) for rank in range(communicator.size) if rank not in taken)


class Movement(enum.Enum):
    """Whether operations were launched between two answers."""

    MOVING = "moving"
    FROZEN = "frozen"
    UNKNOWN = "unknown"


def movement(before: JobStatus | None, now: JobStatus) -> Movement:
    """Compare the counts of an earlier answer; unknown without it, or where no communicator has
    counts in both (the text has none of communicators whose ranks are equal)."""
    if before is None:
        return Movement.UNKNOWN
    earlier = {each.hash: _counts(each) for each in before.communicators}
    pairs = [
        (earlier[each.hash], _counts(each)) for each in now.communicators if each.hash in earlier
    ]
    compared = [(old, new) for old, new in pairs if old and new]
    if any(old != new for old, new in compared):
        return Movement.MOVING
    return Movement.FROZEN if compared else Movement.UNKNOWN


def _counts(communicator: Communicator) -> Counter[tuple[str, int]]:
    """How many ranks have launched how many of each operation."""
    found: Counter[tuple[str, int]] = Counter()
    for group in communicator.counts:
        found[group.operation, group.launched] += group.size
    return found
