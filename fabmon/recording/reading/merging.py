"""What several files hold, by time: sorted streams of them, and the minutes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from fabmon.recording.format.minutes import MINUTE_NS, Minute
from fabmon.recording.reading.reader import Recording

T = TypeVar("T")


class _FileMinute(NamedTuple):
    """A minute of a file, which is read from `begin_ns` on, and the number of the file."""

    number: int
    file: Recording
    begin_ns: int
    minute: Minute

    @property
    def known_ns(self) -> int:
        """How much of it the file has at most."""
        start_ns = self.minute.start_ns
        return min(self.file.until_ns, start_ns + MINUTE_NS) - max(self.file.start_ns, start_ns)


def merge_begun(
    streams: Iterable[tuple[int, Iterator[T]]], key: Callable[[T], tuple[int, ...]]
) -> Iterator[T]:
    """Merge sorted streams, each given with a time that its first key is not before, by that time.

    A stream is begun when it is due: of thousands of files, only those of one time are read at
    once. `key` returns a time first, and ends with what differs between streams.
    """
    waiting = iter(streams)
    due = next(waiting, None)
    begun: list[tuple[tuple[int, ...], T, Iterator[T]]] = []

    def begin(stream: Iterator[T]) -> None:
        for item in stream:
            heapq.heappush(begun, (key(item), item, stream))
            return

    while begun or due is not None:
        while due is not None and (not begun or due[0] <= begun[0][0][0]):
            begin(due[1])
            due = next(waiting, None)
        if begun:
            _, item, stream = heapq.heappop(begun)
            yield item
            begin(stream)


def merged_minutes(
    files: Sequence[Recording], begins_ns: Callable[[Recording], int], from_ns: int, until_ns: int
) -> Iterator[Minute]:
    """The minutes of files, each read from a time on, by their begin. Of a minute in which a file
    continues another, that of the file which has more of it: a mean would count it twice."""
    streams = sorted(
        (max(each.start_ns, begins_ns(each)) // MINUTE_NS * MINUTE_NS, number)
        for number, each in enumerate(files)
    )
    due = (
        (at_ns, _minutes_of(number, files[number], begins_ns(files[number]), from_ns, until_ns))
        for at_ns, number in streams
    )
    merged = merge_begun(due, lambda each: (each.minute.start_ns, each.number))
    for _, group in groupby(merged, lambda each: each.minute.start_ns):
        same = list(group)
        less = {
            min((one, other), key=lambda each: (each.known_ns, each is one)).number
            for one in same
            for other in same
            if one.minute.start_ns < one.begin_ns == other.file.until_ns + 1
        }
        yield from (each.minute for each in same if each.number not in less)


def _minutes_of(
    number: int, file: Recording, begin_ns: int, from_ns: int, until_ns: int
) -> Iterator[_FileMinute]:
    for minute in file.minutes(max(from_ns, begin_ns), until_ns):
        yield _FileMinute(number, file, begin_ns, minute)
