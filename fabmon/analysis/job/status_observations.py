"""What an answer of NCCL's RAS says: ranks without data, with errors, or behind in their counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.job.observation import RAS, Kind, Location, Observation, Weight, who
from fabmon.analysis.job_log.events import PROCESS, Process
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.places import Places
from fabmon.analysis.nccl_ras.job_status import (
    Communicator,
    CountGroup,
    JobStatus,
    Member,
    Movement,
)
from fabmon.fabric.pseudonyms import without_domain

LATE_CHECK = (
    "The others wait for it: look at what that process does (data, checkpoint, an exception), and"
    " then at the NIC."
)
_RUNNING = "RUNNING"
_LEFT = (
    "A communicator is being created or destroyed. If a second answer is the same, it is stuck"
    " there."
)


class RankPlaces:
    """Finds ranks by places and by the log of the job, None without one."""

    def __init__(self, places: Places, log: JobLog | None = None) -> None:
        self._places = places
        self._log = log
        self._processes: defaultdict[int, list[Process]] = defaultdict(list)
        for process in log.processes if log is not None else ():
            self._processes[process.pid].append(process)

    def host(self, host: str) -> str:
        """The node with a name or address that RAS has; the same text where it is not known."""
        known = self._places.host_of(host)
        if not known and self._log is not None:
            known = self._log.host_of_address(host)
        return known or host

    def locate(self, member: Member) -> Location:
        """Where a rank is. Its NICs are those that its log has, else those nearest to its GPU."""
        host = self.host(member.host)
        hcas = self._hcas(member, host)
        found = [self._places.port(host, hca) for hca in hcas if host]
        ports = [each for each in found if each is not None]
        if host and not ports:
            ports = self._places.ports_of_gpu(host, member.gpu)
        return Location(
            ranks=(member.rank,) if member.rank >= 0 else (),
            host=host,
            pid=member.pid if member.pid >= 0 else None,
            gpus=(member.gpu,) if member.gpu >= 0 else (),
            hcas=tuple(hcas),
            ports=tuple(ports),
        )

    def _hcas(self, member: Member, host: str) -> list[str]:
        for process in self._processes.get(member.pid, ()):
            if self._log is not None and process.host in (without_domain(host), host, member.host):
                return self._log.hcas_of(process)
        return []


def status_observations(
    status: JobStatus, moved: Movement, places: RankPlaces
) -> list[Observation]:
    """All that an answer says; `moved` is by comparison with an earlier one."""
    locate = places.locate
    missing = [
        _missing(lack.state, (locate(lack.member),), each.name)
        for each in status.communicators
        for lack in each.missing
    ]
    # A process whose ranks are listed is no second thing.
    known = {(end.host, end.pid) for each in missing for end in each.at}
    groups = [
        _state(
            each.name, group.state, group.size, tuple(map(locate, group.members)), group.is_error
        )
        for each in status.communicators
        for group in each.states
        if group.is_error or group.state != _RUNNING
    ]
    late = sorted(
        (
            each
            for communicator in status.communicators
            for each in _late(communicator, moved, places)
        ),
        key=lambda each: ((each.launched or 0) - (each.expected or 0), each.count or 0),
    )
    found = [
        *sorted(
            missing, key=lambda each: (Kind.DEAD, Kind.UNRESPONSIVE, Kind.GONE).index(each.kind)
        ),
        *(
            each
            for each in _processes(status, places)
            if (each.at[0].host, each.at[0].pid) not in known
        ),
        *(each for each in groups if each.kind == Kind.ERROR),
        *late,
    ]
    if not late and not missing and not status.missing and status.is_complete:
        found.append(_equal(moved, has_counts=any(each.counts for each in status.communicators)))
    if not status.is_complete:
        text = "The answer has no end: it was cut, or not all of it was saved."
        found.append(Observation(witness=RAS, kind=Kind.CUT, weight=Weight.WRONG, text=text))
    return [*found, *(each for each in groups if each.kind == Kind.STATE)]


def _missing(state: str, at: tuple[Location, ...], communicator: str) -> Observation:
    is_one = len(at) == 1
    be, it = ("is", "it has") if is_one else ("are", "they have")
    if state == Kind.DEAD:
        text = (
            f"{who(at)} {be} dead: RAS could not reach"
            f" {'its process' if is_one else 'their processes'} for 60 s. The others wait."
        )
        check = f"Look at {'that process and its node' if is_one else 'those processes'} first."
    elif state == Kind.UNRESPONSIVE:
        text = (
            f"{who(at)} did not answer RAS: the process is stopped, or its node cannot be reached."
        )
        check = "After 60 s RAS calls it dead."
    else:
        text = (
            f"{who(at)} answered and {be} not in the communicator: it is being created or"
            f" destroyed, or {it} left it."
        )
        check = ""
    return Observation(
        witness=RAS,
        kind=state,
        weight=Weight.USUAL if state == Kind.GONE else Weight.WRONG,
        text=text,
        what=state,
        check=check,
        at=at,
        group=communicator,
    )


def merged_missing(same: Sequence[Observation]) -> Observation:
    """What several communicators say of ranks, as one: a process has a rank in many of them."""
    ends = [end for each in same for end in each.at]
    unique = {(end.host, end.pid, end.gpus) if end.pid else end.ranks: end for end in ends}
    return _missing(same[0].kind, tuple(unique.values()), same[0].group)


def _processes(status: JobStatus, places: RankPlaces) -> Iterator[Observation]:
    for each in status.missing:
        place = places.locate(Member(-1, each.host, each.pid, -1))
        at = msgspec.structs.replace(place, ranks=(), gpus=tuple(sorted(each.gpus)), ports=())
        gpus = (
            f"{'GPU' if len(at.gpus) == 1 else 'GPUs'} {', '.join(map(str, at.gpus)) or 'unknown'}"
        )
        what = "is dead" if each.is_dead else "did not answer RAS"
        yield Observation(
            witness=RAS,
            kind=PROCESS,
            weight=Weight.WRONG,
            text=f"Process {each.pid} on {at.host} ({gpus}) {what}.",
            what="process dead" if each.is_dead else "process unresponsive",
            at=(at,),
        )


def _state(
    communicator: str, state: str, count: int, at: tuple[Location, ...], is_error: bool
) -> Observation:
    reports = "reports" if count == 1 else "report"
    return Observation(
        witness=RAS,
        kind=Kind.ERROR if is_error else Kind.STATE,
        weight=Weight.WRONG if is_error else Weight.USUAL,
        text=f"{who(at, count)} {reports} {state} in {communicator}.",
        what=state,
        check="The log of that rank has the reason." if is_error else _LEFT,
        at=at,
        count=count,
        group=communicator,
    )


def merged_states(same: Sequence[Observation]) -> Observation:
    """The states of ranks other than RUNNING, as one."""
    kinds = ", ".join(f"{each.count} {each.what}" for each in same[:4])
    text = f"Not all ranks of {same[0].group} are {_RUNNING} ({kinds})."
    return msgspec.structs.replace(same[0], text=text)


def _late(communicator: Communicator, moved: Movement, places: RankPlaces) -> Iterator[Observation]:
    """Groups of ranks that have launched fewer operations than others."""
    by_operation: defaultdict[str, list[CountGroup]] = defaultdict(list)
    for group in communicator.counts:
        by_operation[group.operation].append(group)
    for operation, groups in by_operation.items():
        expected = max(group.launched for group in groups)
        for group in groups:
            if group.launched < expected:
                at = tuple(map(places.locate, _members(group, groups, communicator)))
                yield _behind(communicator.name, operation, group, expected, moved, at)


def _behind(
    communicator: str,
    operation: str,
    group: CountGroup,
    expected: int,
    moved: Movement,
    at: tuple[Location, ...],
) -> Observation:
    what = "collectives" if operation == "collective" else f"{operation} operations"
    text = (
        f"{who(at, group.size)} {'has' if group.size == 1 else 'have'} launched {group.launched}"
        f" {what} of {expected} in {communicator}"
    )
    weight, check = Weight.WRONG, LATE_CHECK
    if moved is Movement.MOVING:
        text += ", and the counts move: the job runs; a small difference is usual"
        weight, check = Weight.USUAL, ""
    elif moved is Movement.FROZEN:
        text += "; the counts are frozen"
    elif expected - group.launched == 1:
        weight = Weight.USUAL
        check = (
            "A running job shows such a difference too: only if a second answer has the same"
            f" counts, {'that rank is' if group.size == 1 else 'those ranks are'} late."
        )
    return Observation(
        witness=RAS,
        kind=Kind.BEHIND,
        weight=weight,
        text=f"{text}.",
        what=f"{operation} {group.launched} of {expected}",
        check=check,
        at=at,
        count=group.size,
        group=communicator,
        operation=operation,
        launched=group.launched,
        expected=expected,
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


def _equal(moved: Movement, has_counts: bool) -> Observation:
    """That no rank is behind."""
    text = "All ranks have launched the same operations."
    if moved is Movement.MOVING:
        text = f"{text[:-1]}, and the counts move: the job runs."
        return Observation(witness=RAS, kind=Kind.MOVES, weight=Weight.USUAL, text=text)
    check = (
        "One answer does not show whether the counts move: ask again later with the first answer"
        " given as a file."
    )
    if moved is Movement.FROZEN:
        text = "The counts are frozen and equal on all ranks."
        check = (
            "All wait in the same operation. With a recording, fabmon says whether a link or the"
            " GPUs are the reason."
        )
    elif not has_counts:
        check = (
            "The text of RAS has no counts then, in a second answer neither: whether they move is"
            " in its JSON (ncclras -f json, NCCL 2.28.7 and later)."
        )
    weight = Weight.WRONG if moved is Movement.FROZEN else Weight.USUAL
    return Observation(witness=RAS, kind=Kind.EQUAL, weight=weight, text=text, check=check)


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
