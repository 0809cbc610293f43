"""How SONiC spells what a switch chip counts (SAI), and what the catalog calls it.

A metric has one or more spellings, the best first; a spelling is a sum of fields. Sources: SAI's
saiport.h and saiqueue.h, sonic-swss' portsorch and pfcwd, and a real COUNTERS_DB.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.readers.sonic_db import (
    APPL,
    CONFIG,
    COUNTERS,
    STATE,
    CounterHash,
    Databases,
    HashQuery,
    HashRow,
    Spellings,
    append_value,
    counters_key,
    hash_of,
    open_databases,
    parse_count,
    sum_of_fields,
)
from collectors.source import Faults, NoData, NoNews, Source
from collectors.wire import Object

PRIORITIES = range(8)
QUEUES = range(8)

_PORT = "SAI_PORT_STAT_"
_QUEUE = "SAI_QUEUE_STAT_"
_WATCHDOG = "PFC_WD_QUEUE_STATS_"


def _packets(way: str) -> Spellings:
    stem = f"{_PORT}IF_{way}_"
    return (
        (f"{stem}UCAST_PKTS", f"{stem}NON_UCAST_PKTS"),
        (f"{stem}UCAST_PKTS", f"{stem}MULTICAST_PKTS", f"{stem}BROADCAST_PKTS"),
        (f"{stem}UCAST_PKTS",),
    )


def _port() -> Dict[str, Spellings]:
    found: Dict[str, Spellings] = {}
    for way, sai in (("rx", "IN"), ("tx", "OUT")):
        found[f"phy_{way}_bytes"] = ((f"{_PORT}IF_{sai}_OCTETS",),)
        found[f"phy_{way}_packets"] = _packets(sai)
        found[f"phy_{way}_errors"] = ((f"{_PORT}IF_{sai}_ERRORS",),)
        found[f"phy_{way}_discards"] = ((f"{_PORT}IF_{sai}_DISCARDS",),)
        found[f"pause_{way}_frames"] = ((f"{_PORT}PAUSE_{way.upper()}_PKTS",),)
    found["phy_rx_fec_corrected_blocks"] = ((f"{_PORT}IF_IN_FEC_CORRECTABLE_FRAMES",),)
    found["phy_rx_fec_uncorrectable_blocks"] = ((f"{_PORT}IF_IN_FEC_NOT_CORRECTABLE_FRAMES",),)
    found["phy_rx_fec_corrected_symbols"] = ((f"{_PORT}IF_IN_FEC_SYMBOL_ERRORS",),)
    found["phy_tx_ecn_marked"] = ((f"{_PORT}ECN_MARKED_PACKETS",),)
    found["phy_tx_wred_drops"] = ((f"{_PORT}WRED_DROPPED_PACKETS",),)
    for prio in PRIORITIES:
        for way in ("RX", "TX"):
            stem = f"pfc_{way.lower()}"
            pfc = f"PFC_{prio}_"
            found[f"{stem}_frames_prio{prio}"] = ((f"{_PORT}{pfc}{way}_PKTS",),)
            # EST: estimated by SONiC where the chip does not measure it.
            found[f"{stem}_pause_us_prio{prio}"] = (
                (f"{_PORT}{pfc}{way}_PAUSE_DURATION_US",),
                (f"EST_PORT_STAT_{pfc}{way}_PAUSE_DURATION_US",),
            )
        found[f"pfc_rx_transitions_prio{prio}"] = (
            (f"{_PORT}PFC_{prio}_ON2OFF_RX_PKTS",),
            (f"EST_PORT_STAT_PFC_{prio}_ON2OFF_RX_PKTS",),
        )
    return found


PORT: Dict[str, Spellings] = _port()
"""Of `COUNTERS:<port>`."""

QUEUE: Dict[str, Spellings] = {
    "tx_bytes": ((f"{_QUEUE}BYTES",),),
    "tx_packets": ((f"{_QUEUE}PACKETS",),),
    "tx_drops": ((f"{_QUEUE}DROPPED_PACKETS",),),
    "tx_wred_drops": ((f"{_QUEUE}WRED_DROPPED_PACKETS",),),
    "tx_ecn_marked": ((f"{_QUEUE}WRED_ECN_MARKED_PACKETS",),),
    "occupancy_bytes": ((f"{_QUEUE}CURR_OCCUPANCY_BYTES",),),
    "watermark_bytes": ((f"{_QUEUE}SHARED_WATERMARK_BYTES",),),
}
"""Of `COUNTERS:<queue>`; the metric is `queue<N>_` and this."""

WATCHDOG: Dict[str, Spellings] = {
    "pfc_watchdog_storms": ((f"{_WATCHDOG}DEADLOCK_DETECTED",),),
    "pfc_watchdog_restores": ((f"{_WATCHDOG}DEADLOCK_RESTORED",),),
    "pfc_watchdog_drops": ((f"{_WATCHDOG}TX_DROPPED_PACKETS", f"{_WATCHDOG}RX_DROPPED_PACKETS"),),
}
"""Of `COUNTERS:<queue>` too, for the lossless ones; a port's is the sum over its queues."""

WATCHDOG_STATUS = "PFC_WD_STATUS"
STORMED = "stormed"

UNICAST = ("SAI_QUEUE_TYPE_UNICAST", "SAI_QUEUE_TYPE_ALL")
"""Types of the queues that are told of: a chip has multicast queues beside, or queues for all."""


# SONiC switches: what syncd reads from the switch chip, out of Redis' COUNTERS_DB.
#
# Ports are called as their interfaces are (`Ethernet0`), so that what the kernel says of the same
# port joins in. SONiC itself reads the chip every second for ports and every ten for queues (or as
# FLEX_COUNTER_TABLE says), and so do we: a read that finds every counter as it was has come before
# SONiC's, and hands out nothing, once. A hash's fields are looked at in `discover`; what is not
# there, or says `N/A`, is no metric.


_PORT_MAP = HashQuery(COUNTERS, "COUNTERS_PORT_NAME_MAP")
_BPS_OF_MEGABIT = 1_000_000
_STATE_FIELDS = ("oper_status", "speed")


class SonicSource(Source):
    """Asks for hashes of COUNTERS_DB, all in one round trip."""

    deadline_s = 0.5
    counter_group = ""
    usual_period_s = 1.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._databases: Optional[Databases] = None
        self._last: List[Optional[int]] = []
        self._was_same = False

    def signature(self) -> object:
        """Changes when ports come or go, or their neighbours or configuration change."""
        names = self._ports()
        order = sorted(names)
        facts = self.databases.rows(_facts_queries(order))
        return [
            (name, names[name], _facts(name, *facts[place * _FACTS : (place + 1) * _FACTS]))
            for place, name in enumerate(order)
        ]

    def close(self) -> None:
        """Hang up."""
        if self._databases is not None:
            self._databases.close()
            self._databases = None
        self._last = []

    @property
    def databases(self) -> Databases:
        """The switch's databases, opened when first asked for. Raises SourceError."""
        if self._databases is None:
            self._databases = open_databases(self.host)
        return self._databases

    def _ports(self) -> Dict[str, str]:
        """Name -> object id, of the front panel."""
        return {
            name: oid
            for name, oid in self.databases.rows([_PORT_MAP])[0].items()
            if ports.is_front_panel(name)
        }

    def _pace(self) -> None:
        """Learn how often SONiC reads this group from the chip."""
        told = self.databases.rows([HashQuery(CONFIG, f"FLEX_COUNTER_TABLE|{self.counter_group}")])[
            0
        ]
        period_ms = parse_count(told.get("POLL_INTERVAL"))
        self.min_period_s = period_ms / 1000 if period_ms else self.usual_period_s

    def _only_news(self, values: List[Optional[int]]) -> List[Optional[int]]:
        """The values, unless they are SONiC's last snapshot once more. Raises NoNews."""
        same = values == self._last and not self._was_same
        self._last, self._was_same = values, same
        if same:
            raise NoNews
        return values


class Sonic(SonicSource):
    """State, bytes, packets, errors, PFC and pause of every port, each tick."""

    name = "sonic"
    counter_group = "PORT"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._hashes: List[Tuple[str, CounterHash]] = []

    def discover(self) -> List[Object]:
        """One object a port. Raises NoData on what is no SONiC, or has no counters yet."""
        names = self._ports()
        if not names:
            raise NoData("COUNTERS_DB has no ports yet")
        self._pace()
        order = sorted(names, key=ports.natural)
        hashes = self.databases.rows(
            [HashQuery(COUNTERS, counters_key(names[name])) for name in order]
        )
        facts = self.databases.rows(_facts_queries(order))
        self._hashes = []
        objects = []
        for place, name in enumerate(order):
            each = hash_of(counters_key(names[name]), hashes[place], PORT)
            self._hashes.append((name, each))
            info = _facts(name, *facts[place * _FACTS : (place + 1) * _FACTS])
            metrics = ("phy_up", "phy_speed_bps", *each.metrics)
            objects.append(Object(name, "ethernet", name, info, metrics))
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The ports' values in one round trip. Raises NoNews for SONiC's last snapshot."""
        asked = [HashQuery(COUNTERS, each.key, each.fields) for _, each in self._hashes]
        asked += [HashQuery(APPL, f"PORT_TABLE:{name}", _STATE_FIELDS) for name, _ in self._hashes]
        asked += [HashQuery(STATE, f"PORT_TABLE|{name}", ("speed",)) for name, _ in self._hashes]
        answers = self.databases.ask(asked)
        count = len(self._hashes)
        values: List[Optional[int]] = []
        for place, (_, each) in enumerate(self._hashes):
            status, configured = answers[count + place]
            speed = parse_count(answers[2 * count + place][0]) or parse_count(configured)
            append_value(values, faults, None if status is None else int(status == "up"), status)
            append_value(values, faults, speed * _BPS_OF_MEGABIT if speed else None, configured)
            found = dict(zip(each.fields, answers[place]))
            for fields in each.metrics.values():
                append_value(
                    values,
                    faults,
                    sum_of_fields(found, fields),
                    *(found[field] for field in fields),
                )
        return self._only_news(values)


_FACTS = 3


def _facts_queries(names: Sequence[str]) -> List[HashQuery]:
    """What to ask about each port's configuration and neighbour, `_FACTS` hashes a port."""
    queries: List[HashQuery] = []
    for name in names:
        queries.append(HashQuery(APPL, f"PORT_TABLE:{name}"))
        queries.append(HashQuery(CONFIG, f"PORT_QOS_MAP|{name}"))
        queries.append(HashQuery(APPL, f"LLDP_ENTRY_TABLE:{name}"))
    return queries


def _facts(name: str, port: HashRow, qos: HashRow, lldp: HashRow) -> Dict[str, Any]:
    """A port's `info`: its interface, how it is configured, and who is at the other end."""
    facts: Dict[str, Any] = {"netdev": name, "switch_os": "SONiC"}
    for fact in ("alias", "lanes", "fec", "admin_status"):
        if port.get(fact) not in (None, "", "N/A"):
            facts[fact] = port[fact]
    if qos:
        priorities = [
            int(prio) for prio in qos.get("pfc_enable", "").split(",") if prio.strip().isdigit()
        ]
        facts["pfc"] = "on" if priorities else "off"
        facts["pfc_priorities"] = priorities
    if lldp.get("lldp_rem_sys_name") and lldp.get("lldp_rem_port_id"):
        facts["peer"] = {"node": lldp["lldp_rem_sys_name"], "port": lldp["lldp_rem_port_id"]}
        if lldp.get("lldp_rem_port_desc"):
            facts["peer"]["port_name"] = lldp["lldp_rem_port_desc"]
    return facts


# Queues of a SONiC switch's ports, and the watchdog that breaks up PFC storms.
#
# Both are read from the chip far less often than ports are, and are many: they are a source apart.


_QUEUE_MAP = HashQuery(COUNTERS, "COUNTERS_QUEUE_NAME_MAP")
_QUEUE_TYPES = HashQuery(COUNTERS, "COUNTERS_QUEUE_TYPE_MAP")


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
            queue = parse_count(index)
            is_unicast = types.get(oid, UNICAST[0]) in UNICAST
            if port in names and queue is not None and queue in QUEUES and is_unicast:
                found.setdefault(port, []).append((queue, counters_key(oid)))
        order = sorted(found, key=ports.natural)
        keys = [(port, *each) for port in order for each in sorted(found[port])]
        rows = dict(
            zip(keys, self.databases.rows([HashQuery(COUNTERS, key) for _, _, key in keys]))
        )
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

    def __init__(self, port: str, queues: Sequence[Tuple[int, str, HashRow]]) -> None:
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
            HashQuery(COUNTERS, each.key, each.fields + _watchdog_fields(watchdog))
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
                append_value(
                    values,
                    faults,
                    sum_of_fields(found, fields),
                    *(found[field] for field in fields),
                )
            if watchdog is not None:
                stormed.append(found.get(WATCHDOG_STATUS) == STORMED)
                for name, fields in watchdog.metrics.items():
                    sums[name].append(sum_of_fields(found, fields))
        for name in self._watchdog:
            known = [value for value in sums[name] if value is not None]
            append_value(values, faults, sum(known) if known else None)
        if stormed:
            values.append(sum(stormed))


def _watchdog_fields(watchdog: Optional[CounterHash]) -> Tuple[str, ...]:
    return () if watchdog is None else (*watchdog.fields, WATCHDOG_STATUS)
