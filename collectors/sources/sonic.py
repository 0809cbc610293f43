"""SONiC switches: what syncd reads from the switch chip, out of Redis' COUNTERS_DB.

Ports are called as their interfaces are (`Ethernet0`), so that what the kernel says of the same
port joins in. SONiC itself reads the chip every second for ports and every ten for queues (or as
FLEX_COUNTER_TABLE says), and so do we: a read that finds every counter as it was has come before
SONiC's, and hands out nothing, once. A hash's fields are looked at in `discover`; what is not
there, or says `N/A`, is no metric.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from collectors import ports
from collectors.hostfs import HostFS
from collectors.sonicdb import (
    APPL,
    CONFIG,
    COUNTERS,
    STATE,
    Databases,
    Query,
    Row,
    open_databases,
)
from collectors.sonichash import Hash, counters_key, hash_of, number, put, total
from collectors.source import Faults, NoData, NoNews, Source
from collectors.sources.sonic_names import PORT
from collectors.wire import Object

_PORT_MAP = Query(COUNTERS, "COUNTERS_PORT_NAME_MAP")
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
        told = self.databases.rows([Query(CONFIG, f"FLEX_COUNTER_TABLE|{self.counter_group}")])[0]
        period_ms = number(told.get("POLL_INTERVAL"))
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
        self._hashes: List[Tuple[str, Hash]] = []

    def discover(self) -> List[Object]:
        """One object a port. Raises NoData on what is no SONiC, or has no counters yet."""
        names = self._ports()
        if not names:
            raise NoData("COUNTERS_DB has no ports yet")
        self._pace()
        order = sorted(names, key=ports.natural)
        hashes = self.databases.rows([Query(COUNTERS, counters_key(names[name])) for name in order])
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
        asked = [Query(COUNTERS, each.key, each.fields) for _, each in self._hashes]
        asked += [Query(APPL, f"PORT_TABLE:{name}", _STATE_FIELDS) for name, _ in self._hashes]
        asked += [Query(STATE, f"PORT_TABLE|{name}", ("speed",)) for name, _ in self._hashes]
        answers = self.databases.ask(asked)
        count = len(self._hashes)
        values: List[Optional[int]] = []
        for place, (_, each) in enumerate(self._hashes):
            status, configured = answers[count + place]
            speed = number(answers[2 * count + place][0]) or number(configured)
            put(values, faults, None if status is None else int(status == "up"), status)
            put(values, faults, speed * _BPS_OF_MEGABIT if speed else None, configured)
            found = dict(zip(each.fields, answers[place]))
            for fields in each.metrics.values():
                put(values, faults, total(found, fields), *(found[field] for field in fields))
        return self._only_news(values)


_FACTS = 3


def _facts_queries(names: Sequence[str]) -> List[Query]:
    """What to ask about each port's configuration and neighbour, `_FACTS` hashes a port."""
    queries: List[Query] = []
    for name in names:
        queries.append(Query(APPL, f"PORT_TABLE:{name}"))
        queries.append(Query(CONFIG, f"PORT_QOS_MAP|{name}"))
        queries.append(Query(APPL, f"LLDP_ENTRY_TABLE:{name}"))
    return queries


def _facts(name: str, port: Row, qos: Row, lldp: Row) -> Dict[str, Any]:
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
