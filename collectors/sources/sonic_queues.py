"""Queues of a SONiC switch's ports, and the watchdog that breaks up PFC storms.

Both are read from the chip far less often than ports are, and are many: they are a source apart.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from collectors import ports
from collectors.hostfs import HostFS
from collectors.sonicdb import COUNTERS, Query, Row
from collectors.sonichash import Hash, counters_key, hash_of, number, put, total
from collectors.source import Faults, NoData
from collectors.sources.sonic import SonicSource
from collectors.sources.sonic_names import (
    QUEUE,
    QUEUES,
    STORMED,
    UNICAST,
    WATCHDOG,
    WATCHDOG_STATUS,
)
from collectors.wire import Object

_QUEUE_MAP = Query(COUNTERS, "COUNTERS_QUEUE_NAME_MAP")
_QUEUE_TYPES = Query(COUNTERS, "COUNTERS_QUEUE_TYPE_MAP")


class SonicQueues(SonicSource):
    """Queues of every port, and the PFC watchdog, as often as SONiC reads them."""

    name = "sonic_queues"
    counter_group = "QUEUE"
    usual_period_s = 10.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._ports_read: List[_PortQueues] = []

    def discover(self) -> List[Object]:
        """One object a port with at least one unicast queue."""
        names = self._ports()
        queues, types = self.databases.rows([_QUEUE_MAP, _QUEUE_TYPES])
        if not names or not queues:
            raise NoData("COUNTERS_DB has no queues yet")
        self._pace()
        found: Dict[str, List[Tuple[int, str]]] = {}
        for name, oid in queues.items():
            port, _, index = name.partition(":")
            queue = number(index)
            is_unicast = types.get(oid, UNICAST[0]) in UNICAST
            if port in names and queue is not None and queue in QUEUES and is_unicast:
                found.setdefault(port, []).append((queue, counters_key(oid)))
        order = sorted(found, key=ports.natural)
        keys = [(port, *each) for port in order for each in sorted(found[port])]
        rows = dict(zip(keys, self.databases.rows([Query(COUNTERS, key) for _, _, key in keys])))
        self._ports_read = [
            _PortQueues(port, [(queue, key, rows[port, queue, key]) for queue, key in sorted(each)])
            for port, each in ((port, found[port]) for port in order)
        ]
        return [
            Object(each.port, "ethernet", each.port, {}, each.metrics) for each in self._ports_read
        ]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The queues' values in one round trip. Raises NoNews for SONiC's last snapshot."""
        asked = [query for each in self._ports_read for query in each.queries]
        answers = self.databases.ask(asked)
        values: List[Optional[int]] = []
        at = 0
        for each in self._ports_read:
            each.read(answers[at : at + len(each.queries)], values, faults)
            at += len(each.queries)
        return self._only_news(values)


class _PortQueues:
    """The queues of one port; those with a watchdog count for the port's."""

    def __init__(self, port: str, queues: Sequence[Tuple[int, str, Row]]) -> None:
        self.port = port
        self._queues = [
            (
                hash_of(key, row, {f"queue{queue}_{what}": each for what, each in QUEUE.items()}),
                hash_of(key, row, WATCHDOG) if WATCHDOG_STATUS in row else None,
            )
            for queue, key, row in queues
        ]
        watched = [watchdog for _, watchdog in self._queues if watchdog is not None]
        self._watchdog = [
            name for name in WATCHDOG if any(name in each.metrics for each in watched)
        ]
        own = [name for each, _ in self._queues for name in each.metrics]
        level = ["pfc_watchdog_stormed"] if watched else []
        self.metrics = (*own, *self._watchdog, *level)
        self.queries = [
            Query(COUNTERS, each.key, each.fields + _watchdog_fields(watchdog))
            for each, watchdog in self._queues
            if each.fields or watchdog is not None
        ]
        self._asked = [item for item in self._queues if item[0].fields or item[1] is not None]

    def read(
        self,
        answers: Sequence[List[Optional[str]]],
        values: List[Optional[int]],
        faults: Faults,
    ) -> None:
        """Append the values of `metrics`, from the answers to `queries`."""
        sums: Dict[str, List[Optional[int]]] = {name: [] for name in self._watchdog}
        stormed: List[bool] = []
        for (each, watchdog), answer, query in zip(self._asked, answers, self.queries):
            found = dict(zip(query.fields, answer))
            for fields in each.metrics.values():
                put(values, faults, total(found, fields), *(found[field] for field in fields))
            if watchdog is not None:
                stormed.append(found.get(WATCHDOG_STATUS) == STORMED)
                for name, fields in watchdog.metrics.items():
                    sums[name].append(total(found, fields))
        for name in self._watchdog:
            known = [value for value in sums[name] if value is not None]
            put(values, faults, sum(known) if known else None)
        if stormed:
            values.append(sum(stormed))


def _watchdog_fields(watchdog: Optional[Hash]) -> Tuple[str, ...]:
    return () if watchdog is None else (*watchdog.fields, WATCHDOG_STATUS)
