"""What dumps of PyTorch's Flight Recorder say, as records and sentences of `fabmon explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fabmon.analysis.flight_recorder.dumps import Dump, Entry
from fabmon.analysis.flight_recorder.witness import (
    BEHIND,
    DIFFERS,
    LATE,
    NO_DUMP,
    NOT_STARTED,
    TRANSFER,
    Witness,
)
from fabmon.analysis.job_log.torch_fields import is_world
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wire.messages import clean
from fabmon.fabric.wording import plural
from fabmon.report.explain_records import CollectiveRecord, DumpRecord, rank_list

_MOST_SAID = 4
_MOST_TEXT = 80


def dump_records(dumps: Sequence[Dump]) -> list[DumpRecord]:
    """The dumps, by rank."""
    ordered = sorted(dumps, key=lambda each: each.rank)
    return [
        DumpRecord(each.rank, clean(each.source), len(each.entries), _text(each.error) or None)
        for each in ordered
    ]


def collective_records(found: Sequence[Witness]) -> list[CollectiveRecord]:
    """What is wrong, as records."""
    return [
        CollectiveRecord(
            kind=each.kind,
            group=_text(each.group),
            seq=each.seq,
            operation=_text(each.entry.operation),
            ranks=list(each.ranks),
            others=list(each.others),
            late_s=each.late_s if each.kind == LATE else None,
            place=None if each.own is None else _text(each.own.place) or None,
            no_dump=list(each.no_dump),
        )
        for each in found
    ]


def sentences(dumps: Sequence[Dump], found: Sequence[Witness]) -> Iterator[str]:
    """What is wrong, the group with the most ranks first; else what was compared. Then dumps that
    could not be read, and ranks that have several."""
    for each in found[:_MOST_SAID]:
        yield f"{_sentence(each)}{_without_dump(each.no_dump)}"
    if len(found) > _MOST_SAID:
        yield f"{plural(len(found) - _MOST_SAID, 'other process group')}: --format json"
    ranks = Counter(each.rank for each in dumps if not each.error)
    if ranks and not found:
        compared = sum(not entry.is_p2p for each in dumps for entry in each.entries)
        count = plural(compared, "collective")
        missing = {rank for dump in dumps for own in dump.members.values() for rank in own}
        yield (
            f"Flight Recorder of {rank_list(sorted(ranks)).lower()}, {count}: no rank is behind,"
            " late, or enqueued another collective than the"
            f" others.{_without_dump(sorted(missing - set(ranks)))}"
        )
    several = sorted(rank for rank, count in ranks.items() if count > 1)
    if several:
        yield f"{rank_list(several)}: several dumps, which may be of two runs: not compared."
    for dump in [each for each in dumps if each.error][:_MOST_SAID]:
        yield f"{clean(dump.source)}: a dump that cannot be read: {_text(dump.error)}."


def _sentence(each: Witness) -> str:
    who, work = rank_list(each.ranks), _work(each.entry, each.group)
    verb = "has" if len(each.ranks) == 1 else "have"
    others = rank_list(each.others).lower() if each.others else "the others"
    process = "that process" if len(each.ranks) == 1 else "these processes"
    if each.kind == DIFFERS:
        own = "" if each.own is None else f"{_text(each.own.operation)}{_sizes(each.own)}"
        at = "" if each.own is None else _at(each.own)
        return (
            f"{who} {verb} enqueued {own} as number {each.seq}{at}, where {others} enqueued {work}"
            f"{_sizes(each.entry)}: the program takes different ways; the network has no part in"
            " it."
        )
    if each.kind == BEHIND:
        last = f": the last one was {_work(each.own, '')}{_at(each.own)}" if each.own else ""
        return (
            f"{who} {verb} not enqueued {work}, for which {others} waited{last}. Look at what"
            f" {process} did, not at the network."
        )
    if each.kind == LATE:
        at = "" if each.own is None else _at(each.own)
        return (
            f"{who} came {duration(each.late_s)} late to {work}{at}: {others} waited. Look at what"
            f" {process} did meanwhile, not at the network."
        )
    if each.kind == NOT_STARTED:
        return (
            f"{who} {verb} enqueued {work} and not begun it, while {others} run it: the GPU was"
            " busy with what came before, in the same or another process group."
        )
    if each.kind == TRANSFER:
        return (
            f"{who} {verb} enqueued a transfer last that is not known to have completed"
            f" ({_text(each.entry.operation)}). Transfers are not compared: look at the other end."
        )
    if each.kind == NO_DUMP:
        return (
            f"No dump of {who.lower()} was read, and nothing says that {work}, the last of"
            f" {others}, completed: give it, or see whether {process} still ran."
        )
    return (
        f"{who} began {work}, and none is known to have completed it: where these dumps were"
        " written at its timeout, a NIC, a link, a GPU or a rank without a dump holds it."
    )


def _work(entry: Entry, group: str) -> str:
    """`all_reduce 6`; `all_reduce 6 of dp`."""
    is_named = group and not is_world(group)
    of = f" of process group {_text(group)}" if is_named else ""
    return f"{_text(entry.operation) or 'a collective'} {entry.collective_seq_id}{of}"


def _sizes(entry: Entry) -> str:
    sizes = ["x".join(map(str, size)) for size in entry.input_sizes[:2]]
    return _text(f" of {', '.join(sizes)}") if sizes else ""


def _at(entry: Entry) -> str:
    return f" ({_text(entry.place)})" if entry.place else ""


def _without_dump(ranks: Sequence[int]) -> str:
    return f" No dump of {rank_list(ranks).lower()} was read." if ranks else ""


def _text(text: str) -> str:
    return clean(text)[:_MOST_TEXT]
