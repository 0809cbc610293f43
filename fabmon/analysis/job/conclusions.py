"""What follows from all that is known of a job: who is missing or differs, and what the network did
at that time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from fabmon.analysis.job.log_failures import shared_end
from fabmon.analysis.job.observation import RAS, Kind, Observation, Weight
from fabmon.analysis.job.status_observations import LATE_CHECK, merged_missing, merged_states
from fabmon.analysis.job.wire import PortLoad, Wire, WireState, load_clause, wire_state
from fabmon.analysis.job_log.events import CONNECTION, PROCESS, STALL, TAKEN_DOWN
from fabmon.fabric.wording import name_list

_MOST_SAID = 4
_MOST_ENDED = 8
_MISSING = (Kind.DEAD, Kind.UNRESPONSIVE, Kind.GONE)
_VERDICTS = {
    WireState.IDLE: "the job hangs outside the network: look at the GPUs (Xid, ECC, NVLink) and at"
    " the processes",
    WireState.ACTIVE: "a transfer goes on, slowly; no link is full, paused or down",
}
"""Where all wait in the same operation; else a link is the place to look at."""
_NO_WIRE = (PROCESS, STALL, CONNECTION)
"""Failures of which the state of a link is no reason that is worth a sentence."""


def conclusions(observations: Sequence[Observation], wire: Wire | None) -> Iterator[str]:
    """Sentences, the most important first. `wire` is None where no recording is looked at."""
    failures = [each for each in observations if each.is_failure]
    shared = shared_end(failures)
    if shared is not None:
        yield (
            f"{shared.count} of {shared.total} failed connections have {shared.what} as an end:"
            " look there first."
        )
    # PyTorch takes a process down after a timeout: that is what the reader looks for.
    is_timeout = any(each.kind == Kind.TIMEOUT for each in observations) and all(
        each.what == TAKEN_DOWN for each in failures
    )
    first = [] if is_timeout else failures[:1]
    said: Counter[tuple[str, str]] = Counter()
    for each in _chosen(observations, first):
        key = (each.witness, each.kind)
        said[key] += 1
        if said[key] <= _MOST_SAID:
            yield _sentence(each, wire, is_repeated=said[key] > 1 or bool(first))
            own = _stopped(wire, each) if each.kind not in (Kind.BEHIND, *_NO_WIRE) else []
            if own:
                yield f"At that time {load_clause(own)}: look at that link too."
        if each in first:
            yield from _ended(failures[1:])
    for left in (count - _MOST_SAID for count in said.values()):
        if left > 0:
            yield f"And {left} more of this kind: --format json."
    if wire is not None and wire.start is not None:
        hits = dict.fromkeys(each.text for each in wire.findings if each.is_on_path)
        for text in list(hits)[:3]:
            yield f"The recording has a finding on it at that time: {text}."
        if failures and not hits:
            yield "The recording has no finding on these ports at that time."


def _chosen(
    observations: Sequence[Observation], first: Sequence[Observation]
) -> Iterator[Observation]:
    """Those that are said: of failures the first, of a collective that timed out who was missing,
    of RAS' groups that are behind the worst; what several communicators report of ranks once."""
    behind = {_work(each) for each in observations if each.kind == Kind.BEHIND}
    missing = behind | {_work(each) for each in observations if each.kind == Kind.SILENT}
    for (witness, kind), run in groupby(observations, lambda each: (each.witness, each.kind)):
        same = list(run)
        if witness == RAS and kind in _MISSING:
            yield merged_missing(same)
        elif witness == RAS and kind == Kind.STATE:
            yield merged_states(same)
        elif witness == RAS and kind == Kind.BEHIND:
            yield same[0]
        else:
            yield from (
                each
                for each in same
                if not (kind == Kind.TIMEOUT and _work(each) in missing)
                and not (kind == Kind.SILENT and _work(each) in behind)
                and (not each.is_failure or each in first)
            )


def _work(each: Observation) -> tuple[str, ...]:
    return each.witness, each.group, each.operation, str(each.seq)


def _sentence(each: Observation, wire: Wire | None, *, is_repeated: bool) -> str:
    """What an observation says, with what the network did where that decides what it means."""
    if each.kind == Kind.TIMEOUT and is_repeated:
        return each.text
    if each.witness != RAS or wire is None or wire.state is WireState.UNKNOWN:
        return each.said
    load = load_clause(wire.ports)
    if each.kind == Kind.EQUAL:
        verdict = _VERDICTS.get(wire.state, "that link is the place to look")
        if each.weight == Weight.WRONG:
            return f"{each.text[:-1]}, and {load}: {verdict}."
        if wire.state is not WireState.ACTIVE:
            return (
                f"{each.text[:-1]}, and {load}: if a second answer has the same counts, {verdict}."
            )
    is_late = each.weight == Weight.WRONG or (wire.state is WireState.IDLE and each.check)
    if each.kind != Kind.BEHIND or not is_late:
        return each.said
    own = _stopped(wire, each)
    if own:
        return f"{each.text[:-1]}, and {load_clause(own)}: look at that link first."
    network = ": the network is not the reason" if wire.state is WireState.IDLE else ""
    return f"{each.text[:-1]}, and {load}{network}. {LATE_CHECK}"


def _stopped(wire: Wire | None, each: Observation) -> list[PortLoad]:
    """The ports of an observation that were down or paused."""
    ports = {port.port for end in (*each.at, *each.others) for port in end.ports}
    loads = [] if wire is None else [load for load in wire.ports if load.port in ports]
    state, stopped = wire_state(loads)
    return stopped if state in (WireState.DOWN, WireState.PAUSED) else []


def _ended(failures: Sequence[Observation]) -> Iterator[str]:
    """Other processes that ended, as launchers report them."""
    names = [f"{each.at[0].name} ({each.what})" for each in failures if each.kind == PROCESS]
    if names:
        yield f"Processes that ended: {name_list(names, _MOST_ENDED)}."
