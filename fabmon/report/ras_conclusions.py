"""The conclusions of `fabmon ras`: counts of collectives and the wire, in one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabmon.analysis.job.wire import PortLoad, Wire, WireState, load_clause
from fabmon.analysis.nccl_ras.job_status import Movement
from fabmon.fabric.wording import name_list, plural
from fabmon.report.explain_records import rank_list
from fabmon.report.ras_records import (
    LateRecord,
    MissingProcessRecord,
    MissingRankRecord,
    RankRecord,
    StateRecord,
)

_MOST_NAMED = 4
_MOST_SENTENCES = 4


def conclusions(
    processes: Sequence[MissingProcessRecord],
    missing: Sequence[MissingRankRecord],
    late: Sequence[LateRecord],
    states: Sequence[StateRecord],
    moved: Movement,
    wire: Wire | None,
    is_complete: bool = True,
    has_counts: bool = True,
) -> Iterator[str]:
    """Sentences, the most important first; counts that a cut answer lacks say nothing. Without
    `has_counts` the answer is a text, which has none where all ranks are equal."""
    yield from _missing_sentences(processes, missing)
    own = _stopped(wire, [each.rank for each in missing])
    if own:
        yield f"At that time {load_clause(own)}: look at that link too."
    for state in [each for each in states if each.is_error][:_MOST_SENTENCES]:
        yield (
            f"{_who(state.ranks, state.count)} report{'s' if state.count == 1 else ''}"
            f" {state.state} in {state.communicator}: the log of that rank has the reason."
        )
    yield from _others(sum(each.is_error for each in states), "group", "with errors")
    if late:
        yield _late_sentence(late, moved, wire)
    elif not processes and not missing and is_complete:
        yield _equal_sentence(moved, wire, has_counts)
    changing = [each for each in states if not each.is_error]
    if changing:
        kinds = ", ".join(f"{each.count} {each.state}" for each in changing[:_MOST_SENTENCES])
        yield (
            f"Not all ranks of {changing[0].communicator} are RUNNING ({kinds}): a communicator is"
            " being created or destroyed. If a second answer is the same, it is stuck there."
        )


def needs_action(
    processes: Sequence[MissingProcessRecord],
    missing: Sequence[MissingRankRecord],
    late: Sequence[LateRecord],
    states: Sequence[StateRecord],
    moved: Movement,
) -> bool:
    """Whether a rank is dead, unresponsive or failed, or nothing moves."""
    return (
        bool(processes)
        or any(each.state != "no communicator" for each in missing)
        or any(each.is_error for each in states)
        or moved is Movement.FROZEN
        or (moved is Movement.UNKNOWN and any(each.expected - each.launched > 1 for each in late))
    )


def _missing_sentences(
    processes: Sequence[MissingProcessRecord], missing: Sequence[MissingRankRecord]
) -> Iterator[str]:
    dead = _unique([each.rank for each in missing if each.state == "dead"])
    silent = _unique([each.rank for each in missing if each.state == "unresponsive"])
    gone = _unique([each.rank for each in missing if each.state == "no communicator"])
    if dead:
        yield (
            f"{_who(dead, len(dead))} {_is(dead)} dead: RAS could not reach"
            f" {'its process' if len(dead) == 1 else 'their processes'} for 60 s. The others"
            f" wait: look at {'that process and its node' if len(dead) == 1 else 'those processes'}"
            " first."
        )
    if silent:
        yield (
            f"{_who(silent, len(silent))} did not answer RAS: the process is stopped, or its node"
            " cannot be reached. After 60 s RAS calls it dead."
        )
    if gone:
        yield (
            f"{_who(gone, len(gone))} answered and {'is' if len(gone) == 1 else 'are'} not in the"
            " communicator: it is being created or destroyed, or they have left it."
        )
    if not dead and not silent:
        for each in processes[:_MOST_SENTENCES]:
            what = "is dead" if each.is_dead else "did not answer RAS"
            yield f"Process {each.pid} on {each.host} ({_gpus(each.gpus)}) {what}."
        yield from _others(len(processes), "process", "dead or without an answer")


def _others(count: int, noun: str, what: str) -> Iterator[str]:
    """That more are concerned than have a sentence."""
    left = count - _MOST_SENTENCES
    if left > 0:
        yield f"And {plural(left, noun)} more {what}: --format json."


def _unique(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """One rank of each process and GPU: a process is in many communicators."""
    found = {(each.host, each.pid, each.gpu) if each.pid else each.rank: each for each in ranks}
    return list(found.values())


def _late_sentence(
    late: Sequence[LateRecord],
    moved: Movement,
    wire: Wire | None,
) -> str:
    worst = late[0]
    verb = "has" if worst.count == 1 else "have"
    what = "collectives" if worst.operation == "collective" else f"{worst.operation} operations"
    head = (
        f"{_who(worst.ranks, worst.count)} {verb} launched {worst.launched} {what} of"
        f" {worst.expected} in {worst.communicator}"
    )
    if moved is Movement.MOVING:
        return f"{head}, and the counts move: the job runs; a small difference is usual."
    certain = moved is Movement.FROZEN
    if (
        not certain
        and worst.expected - worst.launched == 1
        and (wire is None or wire.state is not WireState.IDLE)
    ):
        return (
            f"{head}. A running job shows such a difference too: only if a second answer has the"
            f" same counts, {'that rank is' if worst.count == 1 else 'those ranks are'} late."
        )
    frozen = "; the counts are frozen" if certain else ""
    process = "that process does" if worst.count == 1 else "those processes do"
    if wire is None or wire.state is WireState.UNKNOWN:
        return (
            f"{head}{frozen}: the others wait for {'it' if worst.count == 1 else 'them'}. Look at"
            f" what {process} (data, checkpoint, an exception), and then at the NIC."
        )
    own = _stopped(wire, worst.ranks)
    if own:
        return f"{head}{frozen}, and {load_clause(own)}: look at that link first."
    network = ", and the network is not the reason" if wire.state is WireState.IDLE else ""
    return (
        f"{head}{frozen}, and {load_clause(wire.ports)}: the others wait for"
        f" {'it' if worst.count == 1 else 'them'}{network}. Look at what {process}."
    )


def _stopped(wire: Wire | None, ranks: Sequence[RankRecord]) -> list[PortLoad]:
    """The ports of some ranks that were down or paused."""
    if wire is None or wire.state not in (WireState.DOWN, WireState.PAUSED):
        return []
    ports = {nic for rank in ranks for nic in rank.nics}
    return [each for each in wire.ports if each.port in ports]


def _equal_sentence(moved: Movement, wire: Wire | None, has_counts: bool) -> str:
    state = WireState.UNKNOWN if wire is None else wire.state
    if moved is Movement.MOVING:
        return "All ranks have launched the same operations, and the counts move: the job runs."
    load = load_clause(wire.ports if wire is not None else ())
    if moved is Movement.FROZEN:
        head = "The counts are frozen and equal on all ranks"
        if state is WireState.UNKNOWN:
            return (
                f"{head}: all wait in the same operation. With a recording, fabmon says whether a"
                " link or the GPUs are the reason."
            )
        if state is WireState.IDLE:
            return (
                f"{head}, and {load}: the job hangs outside the network. Look at the GPUs (Xid,"
                " ECC, NVLink) and at the processes."
            )
        if state is WireState.ACTIVE:
            return (
                f"{head}, and {load}: a transfer goes on, slowly; no link is full, paused or down."
            )
        return f"{head}, and {load}: look at that link."
    head = "All ranks have launched the same operations"
    if state is WireState.IDLE:
        return (
            f"{head}, and {load}: if a second answer has the same counts, the job hangs outside the"
            " network."
        )
    if state in (WireState.DOWN, WireState.PAUSED, WireState.HOT):
        return (
            f"{head}, and {load}: if a second answer has the same counts, that link is the place to"
            " look."
        )
    if not has_counts:
        return (
            f"{head}. The text of RAS has no counts then, in a second answer neither: whether they"
            " move is in its JSON (ncclras -f json, NCCL 2.28.7 and later)."
        )
    return (
        f"{head}. One answer does not show whether the counts move: ask again later with the first"
        " answer given as a file."
    )


def _who(ranks: Sequence[RankRecord], count: int) -> str:
    """Ranks with their places where few are named."""
    if not ranks:
        return f"{plural(count, 'rank')} that RAS does not name"
    if len(ranks) <= _MOST_NAMED and any(each.host for each in ranks):
        text = name_list([each.name for each in ranks], _MOST_NAMED)
        return text[:1].upper() + text[1:]
    hosts = sorted({each.host for each in ranks if each.host})
    where = f" on {name_list(hosts, _MOST_NAMED)}" if hosts else ""
    return f"{rank_list(sorted({each.rank for each in ranks}))}{where}"


def _is(ranks: Sequence[RankRecord]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _gpus(gpus: Sequence[int]) -> str:
    return f"{'GPU' if len(gpus) == 1 else 'GPUs'} {', '.join(map(str, gpus)) or 'unknown'}"
