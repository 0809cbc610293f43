"""Recognises what PyTorch's ProcessGroupNCCL says of collectives, by the fields of a line."""

from __future__ import annotations

import re

from fabmon.analysis.job_log.events import Event, Progress, Signalled, Timeout

_OPERATION = re.compile(r"\bOpType=(\w+)|[Tt]imeout at collective: (\w+)")
_SEQ = re.compile(
    r"\bSeqNum=(\d{1,15})|\bat (?:NCCL )?work(?: sequence id)?: ?(\d{1,15})"
    r"|[Tt]imeout at collective: \w+, #(\d{1,15})"
)
_LIMIT = re.compile(r"Timeout\(ms\)=(\d{1,15})")
_RAN = re.compile(r"ran for (\d{1,15}) milliseconds")
_GROUP_RANK = re.compile(r"\[(?:PG (?:ID )?([^\[\]]*?) )?Rank (\d{1,9})\]")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: ?(-?\d{1,15})")
_COMPLETED = re.compile(r"[Ll]ast completed (?:NCCL )?work: ?(-?\d{1,15})")
_TIMED_OUT = re.compile(r"tim(?:ed?|ing)[ -]?out(?!\(ms\))|detected by watchdog", re.I)
_OTHER = re.compile(r"async exception|NCCL error|eartbeat|got stuck|without making progress")
_SIGNAL = re.compile(
    r"(?:signal|collective timeout)\b.{0,60}?\b(?:from|rank)\s+(?:rank (\d{1,9})|\w)"
    r"|[Rr]eceived a (?:dump|global timeout)|collective timeout from"
)
_WORLD = "default_pg"


def is_world(group: str) -> bool:
    """Whether a process group is that of all ranks, so that ranks in it are global ranks."""
    return group == "0" or _WORLD in group or group.startswith("0(")


def torch_events(body: str) -> tuple[Event, ...]:
    """The timeout, the progress and the signal that a line has; empty without any of them."""
    ranked = _GROUP_RANK.search(body)
    rank = int(ranked[2]) if ranked else -1
    group = ((ranked[1] or "") if ranked else "").rpartition("PG GUID ")[2].strip()
    events: list[Event] = []
    enqueued, completed = _ENQUEUED.search(body), _COMPLETED.search(body)
    signal = _SIGNAL.search(body)
    operation, seq, ran = _OPERATION.search(body), _SEQ.search(body), _RAN.search(body)
    has_work = seq or ran or enqueued or (operation and "atchdog" in body)
    if has_work and not signal and _TIMED_OUT.search(body) and not _OTHER.search(body):
        limit = _LIMIT.search(body)
        events.append(
            Timeout(
                rank=rank,
                group=group,
                seq=int(next(filter(None, seq.groups()))) if seq else -1,
                operation=(operation[1] or operation[2]) if operation else "",
                limit_s=int(limit[1]) / 1000 if limit else None,
                ran_s=int(ran[1]) / 1000 if ran else None,
            )
        )
    if enqueued is not None:
        done = int(completed[1]) if completed else None
        events.append(Progress(rank=rank, group=group, enqueued=int(enqueued[1]), completed=done))
    if signal is not None:
        events.append(Signalled(rank, -1 if signal[1] is None else int(signal[1])))
    return tuple(events)
