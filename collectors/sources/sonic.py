"""SONiC switches: the counters that syncd reads from the switch chip, from Redis' COUNTERS_DB.

Ports have the names of their interfaces (`Ethernet0`), so that the kernel's facts about the same
port are joined with these. SONiC itself reads the chip every second for ports and every ten for
queues (or as FLEX_COUNTER_TABLE says), and these sources read at the same pace: a read that finds
every counter unchanged was earlier than SONiC's own, and returns nothing, once. The fields of a
hash are examined in `discover`; a field that does not exist, or is `N/A`, is no metric.

A metric has one or more spellings, the best first; a spelling is a sum of fields. Sources: SAI's
saiport.h and saiqueue.h, sonic-swss' portsorch and pfcwd, and a real COUNTERS_DB.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from collectors.catalog.ethernet import FEC_BINS, PRIORITIES
from collectors.coverage import CoverageCount
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
    count_fields,
    counters_key,
    hash_of,
    open_databases,
    parse_count,
    sum_of_fields,
)
from collectors.source import Faults, NoData, NoNews, Source
from collectors.wire import Object

_PORT = "SAI_PORT_STAT_"


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
    for errors in FEC_BINS:
        found[f"phy_rx_fec_codewords_s{errors}"] = (
            (f"{_PORT}IF_IN_FEC_CODEWORD_ERRORS_S{errors}",),
        )
    found["phy_tx_trimmed_packets"] = ((f"{_PORT}TRIM_PACKETS",),)
    found["phy_tx_trimmed_sent"] = ((f"{_PORT}TX_TRIM_PACKETS",),)
    found["phy_tx_trimmed_drops"] = ((f"{_PORT}DROPPED_TRIM_PACKETS",),)
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
"""Metrics of `COUNTERS:<port>`."""

_PORT_MAP = HashQuery(COUNTERS, "COUNTERS_PORT_NAME_MAP")
_BPS_OF_MEGABIT = 1_000_000
_LONGEST_PERIOD_S = 3600.0
"""A longer interval of SONiC's is none: the console refuses a hello with one of months."""
_PRIORITY_TEXTS = {str(prio): prio for prio in PRIORITIES}
_STATE_FIELDS = ("oper_status", "speed")


class SonicSource(Source):
    """Base of the two sources: reads hashes of COUNTERS_DB, all in one round trip."""

    deadline_s = 0.5
    counter_group = ""
    default_period_s = 1.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._databases: Optional[Databases] = None
        self._last: List[Optional[int]] = []
        self._was_same = False

    def signature(self) -> object:
        """Changes when ports appear or go away, or their neighbours or configuration change."""
        names = self._ports()
        order = sorted(names)
        return [(name, names[name], facts) for name, facts in zip(order, self._facts_of(order))]

    def close(self) -> None:
        """Close the connections."""
        if self._databases is not None:
            self._databases.close()
            self._databases = None
        self._last = []

    @property
    def databases(self) -> Databases:
        """The switch's databases, opened at the first use. Raises SourceError."""
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

    def _facts_of(self, names: Sequence[str]) -> List[Dict[str, Any]]:
        """The facts of each port, in one round trip."""
        queries = [
            query
            for name in names
            for query in (
                HashQuery(APPL, f"PORT_TABLE:{name}"),
                HashQuery(CONFIG, f"PORT_QOS_MAP|{name}"),
                HashQuery(APPL, f"LLDP_ENTRY_TABLE:{name}"),
            )
        ]
        rows = iter(self.databases.rows(queries))
        return [_facts(name, *hashes) for name, hashes in zip(names, zip(rows, rows, rows))]

    def _set_period(self) -> None:
        """Read how often SONiC reads this group of counters from the chip."""
        query = HashQuery(CONFIG, f"FLEX_COUNTER_TABLE|{self.counter_group}")
        period_ms = parse_count(self.databases.rows([query])[0].get("POLL_INTERVAL"))
        period_s = (period_ms or 0) / 1000
        is_period = 0 < period_s <= _LONGEST_PERIOD_S
        self.min_period_s = period_s if is_period else self.default_period_s

    def _only_news(self, values: List[Optional[int]]) -> List[Optional[int]]:
        """The values. Raises NoNews for the first time that they equal the previous ones."""
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
        """One object per port. Raises NoData on other systems and before the first counters."""
        names = self._ports()
        if not names:
            raise NoData("COUNTERS_DB has no ports yet")
        self._set_period()
        order = sorted(names, key=ports.natural)
        keys = [counters_key(names[name]) for name in order]
        rows = self.databases.rows([HashQuery(COUNTERS, key) for key in keys])
        self._hashes = [
            (name, hash_of(key, row, PORT)) for name, key, row in zip(order, keys, rows)
        ]
        count = CoverageCount()
        for row in rows:
            count_fields(count, "SAI port", row, PORT)
        self.coverage = count.result()
        return [
            Object(name, "ethernet", name, info, ("phy_up", "phy_speed_bps", *each.metrics))
            for (name, each), info in zip(self._hashes, self._facts_of(order))
        ]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The ports' values in one round trip. Raises NoNews for SONiC's previous snapshot."""
        queries = [HashQuery(COUNTERS, each.key, each.fields) for _, each in self._hashes]
        queries += [
            HashQuery(APPL, f"PORT_TABLE:{name}", _STATE_FIELDS) for name, _ in self._hashes
        ]
        queries += [HashQuery(STATE, f"PORT_TABLE|{name}", ("speed",)) for name, _ in self._hashes]
        answers = self.databases.ask(queries)
        count = len(self._hashes)
        values: List[Optional[int]] = []
        for place, (_, each) in enumerate(self._hashes):
            status, configured = answers[count + place]
            speed = parse_count(answers[2 * count + place][0]) or parse_count(configured)
            append_value(values, faults, None if status is None else int(status == "up"), status)
            append_value(values, faults, speed * _BPS_OF_MEGABIT if speed else None, configured)
            append_hash(values, faults, each, dict(zip(each.fields, answers[place])))
        return self._only_news(values)


def append_hash(
    values: List[Optional[int]],
    faults: Faults,
    each: CounterHash,
    found: Dict[str, Optional[str]],
) -> None:
    """Append the values of a hash's metrics, given its fields."""
    for fields in each.metrics.values():
        total = sum_of_fields(found, fields)
        append_value(values, faults, total, *(found[field] for field in fields))


def _facts(name: str, port: HashRow, qos: HashRow, lldp: HashRow) -> Dict[str, Any]:
    """A port's `info`: its interface, its configuration, and its LLDP neighbour."""
    facts: Dict[str, Any] = {"netdev": name, "switch_os": "SONiC"}
    for fact in ("alias", "lanes", "fec", "admin_status"):
        if port.get(fact) not in (None, "", "N/A"):
            facts[fact] = port[fact]
    if qos:
        words = {word.strip() for word in qos.get("pfc_enable", "").split(",")}
        facts["pfc_priorities"] = [prio for text, prio in _PRIORITY_TEXTS.items() if text in words]
        facts["pfc"] = "on" if facts["pfc_priorities"] else "off"
    if lldp.get("lldp_rem_sys_name") and lldp.get("lldp_rem_port_id"):
        facts["peer"] = {"node": lldp["lldp_rem_sys_name"], "port": lldp["lldp_rem_port_id"]}
        if lldp.get("lldp_rem_port_desc"):
            facts["peer"]["port_name"] = lldp["lldp_rem_port_desc"]
    return facts
