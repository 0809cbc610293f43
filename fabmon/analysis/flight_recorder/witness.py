"""What the dumps of several ranks say together: who differs, who is missing, who came late.

Per process group, by the first of these that is so; what comes after it follows from it:

1. *differs*: ranks enqueued different collectives, or different sizes, under one number.
2. *behind*: a rank has not enqueued the collective that others wait for.
3. *late*: a rank enqueued it later than the others by its timeout (a second, where none is
   recorded), so that these had waited in vain. Clocks of hosts differ: a rank's lag is that beyond
   its median over all collectives, and nothing is known of a clock from fewer than three.
4. *not_started*: a rank has enqueued it, and others run it: its GPU is busy with what came before.
5. *runs*: all ranks run it and none has completed it.
6. *no_dump*: members of the group left none, and what the others enqueued last may not have
   ended.

Where no group has any of these, *transfer*: what is sent between two ranks and has not completed.
It is not compared: the two ends count differently.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.flight_recorder.dumps import Dump, Entry

DIFFERS, BEHIND, LATE = "differs", "behind", "late"
NOT_STARTED, RUNS, NO_DUMP, TRANSFER = "not_started", "runs", "no_dump", "transfer"

_LATE_S = 1.0
"""Longer than clocks step, and than ranks of a healthy job wait for each other."""
_CLOCK_KNOWN = 3
"""Collectives from which on the clock of a rank is known: of fewer a late one moves the median."""
_SAME_SIZE = frozenset(
    ("all_reduce", "reduce_scatter", "_reduce_scatter_base", "all_gather", "_all_gather_base")
)
"""Collectives in which all ranks give as much."""

_OfGroup = Mapping[int, Mapping[int, Entry]]
"""[rank][number]: the collectives of a process group."""


@dataclass(frozen=True, slots=True)
class Witness:
    """What is wrong with one collective of a process `group`.

    `seq` is its number, `ranks` are those that it is about, `others` those that they are compared
    with; `entry` is the collective as the others have it, `own` as the first of the ranks has it,
    or, if it is behind, the last one that it has (None where it has none). `late_s` is by how much
    they came late, 0 where this is not what is wrong. `no_dump` are members without a dump.
    """

    kind: str
    group: str
    seq: int
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    entry: Entry
    own: Entry | None
    late_s: float
    no_dump: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """A process group: names may be those of several, as of all tensor-parallel ones of a job; then
    its `members` tell them apart. These are empty where no dump has them."""

    name: str
    description: str
    members: tuple[int, ...]

    @property
    def label(self) -> str:
        """What it is called."""
        return self.name if self.description in ("", "undefined") else self.description


def witnesses(dumps: Sequence[Dump]) -> list[Witness]:
    """What is wrong in each process group, those with the most ranks first. Ranks that have several
    dumps are not compared: these may be of two runs."""
    count = Counter(each.rank for each in dumps)
    dumps = [each for each in dumps if not each.error and count[each.rank] == 1]
    groups = _groups(dumps)
    have = {dump.rank for dump in dumps}
    found = []
    for group, of_group in groups.items():
        known = set(group.members or of_group)
        # A rank that enqueued nothing in the group yet is behind, too.
        of_all = {rank: of_group.get(rank, {}) for rank in sorted(known & have | set(of_group))}
        one = next(_in_order(group.label, of_all, tuple(sorted(known - have))), None)
        if one is not None:
            found.append(one)
    if not found:
        found += _transfers(dumps)
    return sorted(found, key=lambda each: -len(each.ranks) - len(each.others))


def _groups(dumps: Sequence[Dump]) -> dict[_Group, dict[int, dict[int, Entry]]]:
    found: defaultdict[_Group, dict[int, dict[int, Entry]]] = defaultdict(dict)
    for dump in dumps:
        for entry in dump.entries:
            if not entry.is_p2p:
                name, description = entry.process_group
                members = dump.members.get(name) or dump.members.get("", ())
                key = _Group(name, description, members)
                found[key].setdefault(dump.rank, {})[entry.collective_seq_id] = entry
    return found


def _transfers(dumps: Sequence[Dump]) -> Iterator[Witness]:
    """The last transfers, of ranks whose last one has not completed; the first of them stands for
    all."""
    last = {
        dump.rank: entry
        for dump in dumps
        if (entry := next((e for e in reversed(dump.entries) if e.is_p2p), None)) is not None
    }
    open_ones = {rank: entry for rank, entry in last.items() if not entry.is_completed}
    if open_ones:
        first = next(iter(open_ones.values()))
        ranks = tuple(sorted(open_ones))
        yield Witness(
            TRANSFER, "", first.collective_seq_id, ranks, (), first, first, late_s=0.0, no_dump=()
        )


def _in_order(name: str, of_all: _OfGroup, no_dump: tuple[int, ...]) -> Iterator[Witness]:
    every = sorted({seq for own in of_all.values() for seq in own})
    lags_s = _lags_s(of_all, every)
    last = {rank: max(own, default=-1) for rank, own in of_all.items()}
    for seq in every:
        at = {rank: own[seq] for rank, own in of_all.items() if seq in own}
        # What a rank has no longer was overwritten by later ones.
        lacking = tuple(rank for rank, number in last.items() if number < seq)
        odd = _odd(at)
        if odd:
            others = tuple(rank for rank in at if rank not in odd)
            yield Witness(DIFFERS, name, seq, odd, others, at[others[0]], at[odd[0]], 0.0, no_dump)
        waiting = {rank: entry for rank, entry in at.items() if not entry.is_completed}
        if len(waiting) < len(at):
            continue  # It completed: all took part.
        entry = next(iter(waiting.values()))
        if lacking:
            own = of_all[lacking[0]].get(last[lacking[0]])
            yield Witness(BEHIND, name, seq, lacking, tuple(at), entry, own, 0.0, no_dump)
        yield from _late(name, lags_s, seq, at, no_dump)
        started = {rank for rank, each in at.items() if each.is_started}
        if started and seq == every[-1]:
            idle = tuple(rank for rank in at if rank not in started)
            kind, ranks = (NOT_STARTED, idle) if idle else (RUNS, tuple(at))
            others = tuple(sorted(started)) if idle else ()
            yield Witness(kind, name, seq, ranks, others, entry, at[ranks[0]], 0.0, no_dump)
        elif no_dump and seq == every[-1]:
            yield Witness(NO_DUMP, name, seq, no_dump, tuple(at), entry, None, 0.0, ())


def _odd(at: Mapping[int, Entry]) -> tuple[int, ...]:
    """The ranks whose collective is not that of most."""
    kinds = {rank: _signature(entry) for rank, entry in at.items()}
    common = Counter(kinds.values()).most_common(1)
    return tuple(rank for rank, kind in kinds.items() if kind != common[0][0]) if common else ()


def _signature(entry: Entry) -> tuple[object, ...]:
    if entry.operation not in _SAME_SIZE:
        return (entry.operation,)
    sizes = tuple(map(tuple, entry.input_sizes))
    return (entry.operation, sizes, tuple(entry.input_dtypes))


def _late(
    name: str,
    lags_s: Mapping[int, Mapping[int, float]],
    seq: int,
    at: Mapping[int, Entry],
    no_dump: tuple[int, ...],
) -> Iterator[Witness]:
    """Ranks that enqueued a collective after the others had waited in vain."""
    timeouts_ms = [each.timeout_ms for each in at.values() if each.timeout_ms]
    limit_s = min(timeouts_ms) / 1e3 if timeouts_ms else _LATE_S
    lags = {rank: lags_s.get(rank, {}).get(seq, 0.0) for rank in at}
    late = tuple(rank for rank, lag_s in lags.items() if lag_s >= max(limit_s, _LATE_S))
    if late:
        late_s = min(lags[rank] for rank in late)
        others = tuple(rank for rank in at if rank not in late)
        yield Witness(LATE, name, seq, late, others, at[others[0]], at[late[0]], late_s, no_dump)


def _lags_s(of_all: _OfGroup, every: Sequence[int]) -> dict[int, dict[int, float]]:
    """[rank][number]: by how many seconds a rank enqueued a collective later than most; empty where
    its clock is not known. Its clock is ahead of the first rank's by the median over all."""
    if len(every) < _CLOCK_KNOWN:
        return {}
    place = {seq: number for number, seq in enumerate(every)}
    created = np.full((len(of_all), len(every)), np.nan)
    known = [
        e.time_created_ns for own in of_all.values() for e in own.values() if e.time_created_ns
    ]
    first_ns = min(known, default=0)
    for row, own in enumerate(of_all.values()):
        for seq, entry in own.items():
            if entry.time_created_ns:
                created[row, place[seq]] = (entry.time_created_ns - first_ns) / 1e9
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # Nothing but NaN.
        created -= np.nanmedian(created - created[0], axis=1, keepdims=True)
        lags = created - np.nanquantile(created, 0.5, axis=0, method="lower")
    return {
        rank: {seq: float(lag_s) for seq, lag_s in zip(every, row, strict=True) if lag_s == lag_s}
        for rank, row in zip(of_all, lags, strict=True)
    }
