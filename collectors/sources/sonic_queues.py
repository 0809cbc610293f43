"""SONiC switches: the counters of queues and of the PFC watchdog, from Redis' COUNTERS_DB.

SONiC reads queues and the watchdog that breaks up PFC storms from the chip far less often than
ports, and there are many of them: they are a source of their own. See `sonic` for both.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from collectors.catalog.ethernet import QUEUES
from collectors.coverage import CoverageCount
from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.readers.sonic_db import (
    COUNTERS,
    CounterHash,
    HashQuery,
    HashRow,
    Spellings,
    append_value,
    count_fields,
    counters_key,
    hash_of,
    parse_count,
    sum_of_fields,
)
from collectors.source import Faults, NoData
from collectors.sources.sonic import SonicSource, append_hash
from collectors.wire import Object

_QUEUE = "SAI_QUEUE_STAT_"
_WATCHDOG = "PFC_WD_QUEUE_STATS_"

QUEUE: Dict[str, Spellings] = {
    "tx_bytes": ((f"{_QUEUE}BYTES",),),
    "tx_packets": ((f"{_QUEUE}PACKETS",),),
    "tx_drops": ((f"{_QUEUE}DROPPED_PACKETS",),),
    "tx_wred_drops": ((f"{_QUEUE}WRED_DROPPED_PACKETS",),),
    "tx_ecn_marked": ((f"{_QUEUE}WRED_ECN_MARKED_PACKETS",),),
    "occupancy_bytes": ((f"{_QUEUE}CURR_OCCUPANCY_BYTES",),),
    "watermark_bytes": ((f"{_QUEUE}SHARED_WATERMARK_BYTES",),),
}
"""Metrics of `COUNTERS:<queue>`; the name is `queue<N>_` and this."""

_GROUP_DROPS = ("SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS",)
"""The field of `COUNTERS:<priority group>` that is read: losses on ingress."""

WATCHDOG: Dict[str, Spellings] = {
    "pfc_watchdog_storms": ((f"{_WATCHDOG}DEADLOCK_DETECTED",),),
    "pfc_watchdog_restores": ((f"{_WATCHDOG}DEADLOCK_RESTORED",),),
    "pfc_watchdog_drops": ((f"{_WATCHDOG}TX_DROPPED_PACKETS", f"{_WATCHDOG}RX_DROPPED_PACKETS"),),
}
"""More metrics of `COUNTERS:<queue>`, of lossless queues; a port's is the sum over its queues."""

WATCHDOG_STATUS = "PFC_WD_STATUS"
STORMED = "stormed"

UNICAST = ("SAI_QUEUE_TYPE_UNICAST", "SAI_QUEUE_TYPE_ALL")
"""Types of the queues that are reported; a chip also has multicast queues, or queues for all."""

_QUEUE_MAP = HashQuery(COUNTERS, "COUNTERS_QUEUE_NAME_MAP")
_GROUP_MAP = HashQuery(COUNTERS, "COUNTERS_PG_NAME_MAP")
_QUEUE_TYPES = HashQuery(COUNTERS, "COUNTERS_QUEUE_TYPE_MAP")


class SonicQueues(SonicSource):
    """Queues of every port, and the PFC watchdog, as often as SONiC reads them."""

    name = "sonic_queues"
    counter_group = "QUEUE"
    default_period_s = 10.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._port_queues: List[_PortQueues] = []

    def discover(self) -> List[Object]:
        """One object per port with at least one unicast queue."""
        names = self._ports()
        queues, types, groups = self.databases.rows([_QUEUE_MAP, _QUEUE_TYPES, _GROUP_MAP])
        if not names or not queues:
            raise NoData("COUNTERS_DB has no queues yet")
        self._set_period()
        found: Dict[str, List[Tuple[int, str]]] = {}
        for name, oid in queues.items():
            port, _, index = name.partition(":")
            queue = parse_count(index)
            is_unicast = types.get(oid, UNICAST[0]) in UNICAST
            if port in names and queue is not None and queue in QUEUES and is_unicast:
                found.setdefault(port, []).append((queue, counters_key(oid)))
        ingress: Dict[str, List[Tuple[int, str]]] = {port: [] for port in found}
        for name, oid in groups.items():
            port, _, index = name.partition(":")
            group = parse_count(index)
            if port in found and group is not None and group in QUEUES:
                ingress[port].append((group, counters_key(oid)))
        order = sorted(found, key=ports.natural)
        listed = [sorted(each[port]) for port in order for each in (found, ingress)]
        keys = [key for each in listed for _, key in each]
        rows = iter(self.databases.rows([HashQuery(COUNTERS, key) for key in keys]))
        hashes = [[(number, key, next(rows)) for number, key in each] for each in listed]
        count = CoverageCount()
        for place, each in enumerate(hashes):
            for _, _, row in each:
                if place % 2:
                    count_fields(count, "SAI priority group", row, {"pg_drops": (_GROUP_DROPS,)})
                else:
                    count_fields(count, "SAI queue", row, QUEUE, WATCHDOG)
        self.coverage = count.result()
        read = iter(hashes)
        self._port_queues = [_PortQueues(port, next(read), next(read)) for port in order]
        return [
            Object(each.port, "ethernet", each.port, {}, each.metrics) for each in self._port_queues
        ]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The queues' values in one round trip. Raises NoNews for SONiC's previous snapshot."""
        queries = [query for each in self._port_queues for query in each.queries]
        answers = iter(self.databases.ask(queries))
        values: List[Optional[int]] = []
        for each in self._port_queues:
            each.read([next(answers) for _ in each.queries], values, faults)
        return self._only_news(values)


class _PortQueues:
    """The queues of one port, and its ingress priority groups; the counts of the watchdogs of its
    queues are added up for the port."""

    def __init__(
        self,
        port: str,
        queues: Sequence[Tuple[int, str, HashRow]],
        groups: Sequence[Tuple[int, str, HashRow]],
    ) -> None:
        self.port = port
        hashes: List[Tuple[CounterHash, Optional[CounterHash]]] = [
            (
                hash_of(key, row, {f"queue{queue}_{what}": each for what, each in QUEUE.items()}),
                hash_of(key, row, WATCHDOG) if WATCHDOG_STATUS in row else None,
            )
            for queue, key, row in queues
        ]
        hashes += [
            (hash_of(key, row, {f"pg{group}_rx_drops": (_GROUP_DROPS,)}), None)
            for group, key, row in groups
        ]
        watched = [watchdog for _, watchdog in hashes if watchdog is not None]
        self._watchdog = [
            name for name in WATCHDOG if any(name in each.metrics for each in watched)
        ]
        own = [name for each, _ in hashes for name in each.metrics]
        level = ["pfc_watchdog_stormed"] if watched else []
        self.metrics = (*own, *self._watchdog, *level)
        self._queried = [item for item in hashes if item[0].fields or item[1] is not None]
        self.queries = [
            HashQuery(
                COUNTERS,
                each.key,
                each.fields
                if watchdog is None
                else (*each.fields, *watchdog.fields, WATCHDOG_STATUS),
            )
            for each, watchdog in self._queried
        ]

    def read(
        self,
        answers: Sequence[List[Optional[str]]],
        values: List[Optional[int]],
        faults: Faults,
    ) -> None:
        """Append the values of `metrics`, from the answers to `queries`."""
        sums: Dict[str, List[Optional[int]]] = {name: [] for name in self._watchdog}
        stormed: List[bool] = []
        for (each, watchdog), answer, query in zip(self._queried, answers, self.queries):
            found = dict(zip(query.fields, answer))
            append_hash(values, faults, each, found)
            if watchdog is not None:
                stormed.append(found.get(WATCHDOG_STATUS) == STORMED)
                for name, fields in watchdog.metrics.items():
                    sums[name].append(sum_of_fields(found, fields))
        for name in self._watchdog:
            known = [value for value in sums[name] if value is not None]
            append_value(values, faults, sum(known) if known else None)
        if stormed:
            values.append(sum(stormed))
