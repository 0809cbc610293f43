"""The last minute of each collective operation, from wherever its records come."""

from __future__ import annotations

import time
from collections.abc import Iterable

from collectors.inspector_records import Measured, Operation
from fabmon.fabric.jobs.collectives import Collective
from fabmon.fabric.time_wording import SECOND_NS

_WINDOW_NS = 60 * SECOND_NS
_MOST_KEPT = 1024
_MOST_HOSTS = 8
MOST_REPORTED = 64
"""Operations of a report: those with most time."""


class CollectiveMeans:
    """The records of operations in the last minute of each."""

    def __init__(self) -> None:
        self._means: dict[Operation, _Means] = {}

    def add_records(self, records: Iterable[Measured]) -> None:
        """Add records. One without a time, or of a clock that is ahead, is of now: the time of the
        last record would else hide those that follow it."""
        now_ns = time.time_ns()
        self.forget_later(now_ns)
        for each in records:
            written_ns = each.written_ns if 0 < each.written_ns <= now_ns else now_ns
            bus_bytes = each.time_s * each.busbw
            self.add(each.operation, each.host, written_ns, (1.0, each.time_s, bus_bytes))

    def add(
        self, operation: Operation, host: str, written_ns: int, sums: tuple[float, float, float]
    ) -> None:
        """Add calls of one host: their number, seconds, and seconds times bus bandwidth."""
        self._means.setdefault(operation, _Means()).add(host, written_ns, sums)

    def forget_later(self, now_ns: int) -> None:
        """Forget the minutes that are in the future: the clock was set back, and they would hide
        all that follow."""
        latest_ns = now_ns + _WINDOW_NS
        self._means = {op: each for op, each in self._means.items() if each.latest_ns <= latest_ns}

    def collectives(self) -> tuple[Collective, ...]:
        """The means of each operation, that with most time first."""
        if len(self._means) > _MOST_KEPT:
            newest = sorted(self._means, key=lambda each: -self._means[each].latest_ns)
            self._means = {each: self._means[each] for each in newest[:_MOST_KEPT]}
        found = [means.collective(operation) for operation, means in self._means.items()]
        return most_time_first(found)


def most_time_first(found: Iterable[Collective]) -> tuple[Collective, ...]:
    """Operations by the time that they took, at most as many as are reported."""
    ordered = sorted(found, key=lambda each: -each.time_s * max(each.calls, 1))
    return tuple(ordered[:MOST_REPORTED])


class _Means:
    """The records of an operation in its last minute, summed by second and host."""

    def __init__(self) -> None:
        self.latest_ns = 0
        self._sums: dict[tuple[int, str], list[float]] = {}

    def add(self, host: str, written_ns: int, added: tuple[float, float, float]) -> None:
        self.latest_ns = max(self.latest_ns, written_ns)
        sums = self._sums.setdefault((written_ns // SECOND_NS, host), [0.0, 0.0, 0.0])
        for place, value in enumerate(added):
            sums[place] += value

    def collective(self, operation: Operation) -> Collective:
        """The means, weighted by time: bytes over seconds."""
        oldest_s = (self.latest_ns - _WINDOW_NS) // SECOND_NS
        self._sums = {key: sums for key, sums in self._sums.items() if key[0] > oldest_s}
        by_host: dict[str, list[float]] = {}
        for (_, host), (calls, time_s, weighted) in self._sums.items():
            own = by_host.setdefault(host, [0.0, 0.0, 0.0])
            own[0] += calls
            own[1] += time_s
            own[2] += weighted
        calls, time_s, weighted = (sum(each) for each in zip(*by_host.values(), strict=True))
        bandwidth = {host: sums[2] / sums[1] for host, sums in by_host.items() if sums[1] > 0}
        lowest = min(bandwidth, key=lambda host: bandwidth[host], default="")
        return Collective(
            job=operation.job,
            communicator=operation.communicator or operation.communicator_id,
            operation=operation.name,
            size=operation.size,
            ranks=operation.ranks,
            nodes=operation.nodes,
            calls=int(calls),
            time_s=time_s / calls,
            busbw=weighted / time_s if time_s > 0 else 0.0,
            lowest=bandwidth.get(lowest, 0.0),
            lowest_host=lowest,
            hosts=tuple(sorted(by_host)[:_MOST_HOSTS]),
            latest_ns=self.latest_ns,
        )
