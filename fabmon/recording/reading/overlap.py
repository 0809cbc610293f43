"""Which ticks two recordings have in common: of a cut beside its original, or of two cuts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from fabmon.fabric.time_wording import LATEST_NS
from fabmon.recording.reading.reader import Recording


def parts_of_others(files: Iterable[Recording]) -> list[Recording]:
    """The complete files of which another one has the time and the nodes, without loss, and a tick
    at the very ns of their second and of their last: another recorder has its own times. The first
    tick of a cut has a time of its own: it is made for the rates of the second.

    Their ticks would be read twice: no time is between two equal ticks, so that rates are absent,
    and shares of time are wrong.
    """
    wholes: list[Recording] = []
    parts: list[Recording] = []
    for file in sorted(files, key=lambda each: (each.start_ns or LATEST_NS, -each.until_ns)):
        wholes = [each for each in wholes if each.until_ns >= file.start_ns]
        if any(_is_part(file, each) for each in wholes):
            parts.append(file)
        else:
            wholes.append(file)
    return parts


def read_from(files: Iterable[Recording]) -> dict[Recording, int]:
    """From when on files are read of which a complete file before has the beginning: the first ns
    after its last tick. It has their nodes, no loss, and a last tick at the very ns of one of
    theirs."""
    begins_ns: dict[Recording, int] = {}
    before: list[Recording] = []
    for file in sorted(files, key=lambda each: each.start_ns or LATEST_NS):
        before = [each for each in before if each.until_ns >= file.start_ns]
        for other in before:
            if file.start_ns and _continues(file, other):
                begins_ns[file] = max(begins_ns.get(file, 0), other.until_ns + 1)
        if file.is_closed and not file.losses:
            before.append(file)
    return begins_ns


def _continues(file: Recording, other: Recording) -> bool:
    return (
        other.until_ns < file.until_ns
        and file.interval_s == other.interval_s
        and {host.name for host in file.hosts} == {host.name for host in other.hosts}
        and any(file.ticks(other.until_ns, other.until_ns))
    )


def _is_part(file: Recording, other: Recording) -> bool:
    is_possible = (
        file.start_ns
        and file.is_closed
        and not other.losses
        and file.until_ns <= other.until_ns
        and file.interval_s == other.interval_s
        and {host.name for host in file.hosts} <= {host.name for host in other.hosts}
    )
    if not is_possible:
        return False
    second_ns, _ = next(islice(file.times(), 1, 2), (file.start_ns, 0))
    return all(any(other.ticks(at_ns, at_ns)) for at_ns in (second_ns, file.until_ns))
