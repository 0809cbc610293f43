"""The status of a job as NCCL's RAS reports it."""

from __future__ import annotations

import enum

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


class MissingProcess(msgspec.Struct, frozen=True):
    """A process that RAS did not hear from, and its GPUs: of the text, JSON has its ranks."""

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


class Movement(enum.Enum):
    """Whether operations were launched between two answers."""

    MOVING = "moving"
    FROZEN = "frozen"
    UNKNOWN = "unknown"
