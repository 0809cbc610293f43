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
from fabmon.analysis.job.observation import DUMP, Kind, Location, Observation, Weight, rank_list
from fabmon.analysis.job_log.torch_fields import is_world
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wire.messages import clean
from fabmon.fabric.wording import plural

_LATE_S = 1.0
"""Longer than clocks step, and than ranks of a healthy job wait for each other."""
_CLOCK_KNOWN = 3
"""Collectives from which on the clock of a rank is known: of fewer a late one moves the median."""
_SAME_SIZE = frozenset(
    ("all_reduce", "reduce_scatter", "_reduce_scatter_base", "all_gather", "_all_gather_base")
)
"""Collectives in which all ranks give as much."""
_MOST_TEXT = 80

_OfGroup = Mapping[int, Mapping[int, Entry]]
"""[rank][number]: the collectives of a process group."""


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


def dump_observations(dumps: Sequence[Dump]) -> list[Observation]:
    """What is wrong in each process group, those with the most ranks first; else what was compared.
    Then members without a dump, dumps that could not be read, and ranks that have several: these
    may be of two runs, and are not compared."""
    count = Counter(each.rank for each in dumps)
    read = [each for each in dumps if not each.error and count[each.rank] == 1]
    have = {dump.rank for dump in read}
    found, missing = list[Observation](), set[int]()
    for group, of_group in _groups(read).items():
        known = set(group.members or of_group)
        # A rank that enqueued nothing in the group yet is behind, too.
        of_all = {rank: of_group.get(rank, {}) for rank in sorted(known & have | set(of_group))}
        no_dump = tuple(sorted(known - have))
        one = next(_in_order(group.label, of_all, no_dump), None)
        if one is not None:
            found.append(one)
            missing.update(() if one.kind == Kind.NO_DUMP else no_dump)
    found = found or list(_transfers(read))
    found.sort(key=lambda each: -sum(len(end.ranks) for end in (*each.at, *each.others)))
    if not found and have:
        compared = plural(
            sum(not each.is_p2p for dump in read for each in dump.entries), "collective"
        )
        text = (
            f"Flight Recorder of {rank_list(sorted(have)).lower()}, {compared}: no rank is behind,"
            " late, or enqueued another collective than the others."
        )
        found.append(_plain(Kind.COMPARED, Weight.USUAL, text, sorted(have)))
        missing = {rank for dump in read for own in dump.members.values() for rank in own} - have
    missing -= set(count)
    if missing:
        text = f"No dump of {rank_list(sorted(missing)).lower()} was read."
        found.append(_plain(Kind.NO_DUMP, Weight.USUAL, text, sorted(missing)))
    several = sorted(rank for rank, number in count.items() if number > 1)
    if several:
        text = f"{rank_list(several)}: several dumps, which may be of two runs: not compared."
        found.append(_plain(Kind.UNREAD, Weight.UNCLEAR, text, several))
    for dump in dumps:
        if dump.error:
            text = f"{clean(dump.source)}: a dump that cannot be read: {_text(dump.error)}."
            found.append(
                _plain(Kind.UNREAD, Weight.UNCLEAR, text, [dump.rank] if dump.rank >= 0 else [])
            )
    return found


def _plain(kind: Kind, weight: Weight, text: str, ranks: Sequence[int]) -> Observation:
    at = (Location(ranks=tuple(ranks)),)
    return Observation(witness=DUMP, kind=kind, weight=weight, text=text, at=at)


def _seen(
    kind: Kind,
    group: str,
    ranks: Sequence[int],
    others: Sequence[int],
    entry: Entry,
    own: Entry | None = None,
    late_s: float = 0.0,
    last: int | None = None,
) -> Observation:
    """What is wrong with one collective of a process group. `entry` is as the `others` have it,
    `own` as the first of the ranks has it, or, if it is behind, the `last` one that it has."""
    who, work, at = rank_list(ranks), _work(entry, group), _at(own)
    has, process = ("has", "that process") if len(ranks) == 1 else ("have", "these processes")
    waited = rank_list(others).lower() if others else "the others"
    if kind == Kind.DIFFERS:
        mine = "" if own is None else f"{_text(own.operation)}{_sizes(own)}"
        text = f"{who} {has} enqueued {mine} as number {entry.collective_seq_id}{at}, where"
        text += f" {waited} enqueued {work}{_sizes(entry)}."
        check = "The program takes different ways; the network has no part in it."
    elif kind == Kind.BEHIND:
        done = f": the last one was {_work(own, '')}{at}" if own else ""
        text = f"{who} {has} not enqueued {work}, for which {waited} waited{done}."
        check = f"Look at what {process} did, not at the network."
    elif kind == Kind.LATE:
        text = f"{who} came {duration(late_s)} late to {work}{at}: {waited} waited."
        check = f"Look at what {process} did meanwhile, not at the network."
    elif kind == Kind.NOT_STARTED:
        text = f"{who} {has} enqueued {work} and not begun it, while {waited} run it."
        check = "The GPU was busy with what came before, in the same or another process group."
    elif kind == Kind.TRANSFER:
        text = f"{who} {has} enqueued a transfer last that is not known to have completed"
        text += f" ({_text(entry.operation)})."
        check = "Transfers are not compared: look at the other end."
    elif kind == Kind.NO_DUMP:
        text = f"No dump of {who.lower()} was read, and nothing says that {work}, the last of"
        text += f" {waited}, completed."
        check = f"Give it, or see whether {process} still ran."
    else:
        text = f"{who} began {work}, and none is known to have completed it."
        check = "Where these dumps were written at its timeout, a NIC, a link, a GPU or a rank"
        check += " without a dump holds it."
    return Observation(
        witness=DUMP,
        kind=kind,
        weight=Weight.UNCLEAR if kind in (Kind.NO_DUMP, Kind.TRANSFER) else Weight.WRONG,
        text=text,
        check=check,
        what=f"{kind.replace('_', ' ')}: {_work(entry, '')}",
        at=(Location(ranks=tuple(ranks)),),
        others=(Location(ranks=tuple(others)),) if others else (),
        group=_text(group),
        operation=_text(entry.operation),
        seq=entry.collective_seq_id,
        launched=last,
        expected=None if last is None else entry.collective_seq_id,
        late_s=late_s or None,
        program="" if own is None else _text(own.place),
    )


def _work(entry: Entry, group: str) -> str:
    """`all_reduce 6`; `all_reduce 6 of process group dp`."""
    of = f" of process group {_text(group)}" if group and not is_world(group) else ""
    return f"{_text(entry.operation) or 'a collective'} {entry.collective_seq_id}{of}"


def _sizes(entry: Entry) -> str:
    sizes = ["x".join(map(str, size)) for size in entry.input_sizes[:2]]
    return _text(f" of {', '.join(sizes)}") if sizes else ""


def _at(entry: Entry | None) -> str:
    return f" ({_text(entry.place)})" if entry is not None and entry.place else ""


def _text(text: str) -> str:
    return clean(text)[:_MOST_TEXT]


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


def _transfers(dumps: Sequence[Dump]) -> Iterator[Observation]:
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
        yield _seen(Kind.TRANSFER, "", ranks, (), first, first)


def _in_order(name: str, of_all: _OfGroup, no_dump: tuple[int, ...]) -> Iterator[Observation]:
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
            yield _seen(Kind.DIFFERS, name, odd, others, at[others[0]], at[odd[0]])
        waiting = {rank: entry for rank, entry in at.items() if not entry.is_completed}
        if len(waiting) < len(at):
            continue  # It completed: all took part.
        entry = next(iter(waiting.values()))
        if lacking:
            done = last[lacking[0]]
            own = of_all[lacking[0]].get(done)
            yield _seen(Kind.BEHIND, name, lacking, tuple(at), entry, own, last=max(done, 0))
        yield from _late(name, lags_s, seq, at)
        started = {rank for rank, each in at.items() if each.is_started}
        if started and seq == every[-1]:
            idle = tuple(rank for rank in at if rank not in started)
            kind, ranks = (Kind.NOT_STARTED, idle) if idle else (Kind.RUNS, tuple(at))
            others = tuple(sorted(started)) if idle else ()
            yield _seen(kind, name, ranks, others, entry, at[ranks[0]])
        elif no_dump and seq == every[-1]:
            yield _seen(Kind.NO_DUMP, name, no_dump, tuple(at), entry)


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
) -> Iterator[Observation]:
    """Ranks that enqueued a collective after the others had waited in vain."""
    timeouts_ms = [each.timeout_ms for each in at.values() if each.timeout_ms]
    limit_s = min(timeouts_ms) / 1e3 if timeouts_ms else _LATE_S
    lags = {rank: lags_s.get(rank, {}).get(seq, 0.0) for rank in at}
    late = tuple(rank for rank, lag_s in lags.items() if lag_s >= max(limit_s, _LATE_S))
    if late:
        late_s = min(lags[rank] for rank in late)
        others = tuple(rank for rank in at if rank not in late)
        yield _seen(Kind.LATE, name, late, others, at[others[0]], at[late[0]], late_s)


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
