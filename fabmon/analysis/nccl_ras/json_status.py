"""The JSON of NCCL's RAS (2.28.7 and later): all ranks of all communicators."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import msgspec

from fabmon.analysis.job_log.log_times import find_time
from fabmon.analysis.nccl_ras.job_status import (
    Communicator,
    CountGroup,
    JobStatus,
    Member,
    MissingMember,
    RasError,
    StateGroup,
)
from fabmon.fabric.wire.messages import clean
from fabmon.malformed_json import MALFORMED, values_in

_MOST_OBJECTS = 500_000
_MOST_VALUES = 4_000_000
_MOST_OPERATIONS = 256
"""Of an answer, and of a rank: 100,000 entries of ranks have three objects each. Small ones take
a hundred times their bytes."""
_DONE, _IN_PROGRESS = 0, 7
_RESULTS = {
    1: "unhandled CUDA error",
    2: "unhandled system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error",
}
"""ncclResult_t (nccl.h)."""


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    cuda_dev: int = -1
    nvml_dev: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: Annotated[dict[str, int], msgspec.Meta(max_length=_MOST_OPERATIONS)] = (
        msgspec.field(default_factory=dict)
    )

    @property
    def member(self) -> Member:
        gpu = self.nvml_dev if self.nvml_dev >= 0 else self.cuda_dev
        return Member(self.rank, clean(self.host), self.pid, gpu)


class _Communicator(msgspec.Struct):
    hash: str = ""
    size: int = 0
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _Ras(msgspec.Struct):
    collection_time_sec: float | None = None
    timeouts_count: int = 0


class _Answer(msgspec.Struct):
    communicators: list[_Communicator]
    nccl_version: str = ""
    timestamp: str = ""
    ras: _Ras = msgspec.field(default_factory=_Ras)


def parse_json(content: bytes) -> JobStatus:
    """The status in a JSON answer; fields that are unknown are passed over. Raises RasError."""
    if content.count(b"{") > _MOST_OBJECTS or values_in(content) > _MOST_VALUES:
        raise RasError(
            f"an answer of more than {_MOST_OBJECTS:,} objects, or {_MOST_VALUES:,} values"
        )
    try:
        answer = msgspec.json.decode(content, type=_Answer)
    except msgspec.ValidationError as error:
        raise RasError(f"the JSON is not that of a RAS status: {error}") from None
    except MALFORMED as error:
        raise RasError(f"the JSON is cut off or damaged: {error}") from None
    everyone = [
        rank for each in answer.communicators for rank in (*each.ranks, *each.missing_ranks)
    ]
    gpus = {(rank.host, rank.member.gpu) for rank in everyone}
    return JobStatus(
        version=clean(answer.nccl_version),
        time=find_time(answer.timestamp),
        collection_s=answer.ras.collection_time_sec,
        timeouts=answer.ras.timeouts_count,
        nodes=len({rank.host for rank in everyone}),
        processes=len({(rank.host, rank.pid) for rank in everyone}),
        gpus=len(gpus),
        communicator_count=len(answer.communicators),
        communicators=tuple(map(_communicator, answer.communicators)),
    )


def _communicator(found: _Communicator) -> Communicator:
    counts: defaultdict[tuple[str, int], list[Member]] = defaultdict(list)
    states: defaultdict[tuple[str, bool], list[Member]] = defaultdict(list)
    for rank in found.ranks:
        member = rank.member
        for operation, launched in rank.collective_counts.items():
            counts[clean(operation), launched].append(member)
        states[_state(rank.status), False].append(member)
        for what, code in (
            ("initialization", rank.status.init_state),
            ("asynchronous", rank.status.async_error),
        ):
            if code not in (_DONE, _IN_PROGRESS):
                states[f"{what} error: {_RESULTS.get(code, code)}", True].append(member)
    name = clean(found.hash)
    return Communicator(
        name=name,
        hash=name.removeprefix("0x"),
        size=found.size,
        counts=tuple(
            CountGroup(operation, launched, len(members), tuple(members))
            for (operation, launched), members in counts.items()
        ),
        states=tuple(
            StateGroup(state, len(members), tuple(members), is_error)
            for (state, is_error), members in states.items()
        ),
        missing=tuple(MissingMember(rank.member, _lack(rank)) for rank in found.missing_ranks),
    )


def _lack(rank: _Rank) -> str:
    if rank.status.considered_dead:
        return "dead"
    return "unresponsive" if rank.status.unresponsive else "no communicator"


def _state(status: _Status) -> str:
    """The state as the text has it."""
    if status.abort_flag:
        return "ABORT"
    if status.finalize_called or status.destroy_flag:
        return "FINALIZE"
    return "RUNNING" if status.init_state == _DONE else "INIT"
