"""A whole InfiniBand fabric, read in band from one node: all switches, other HCAs and cables.

It is read only where it is asked for by name (`sources=+ib_fabric`), of one node: mostly that with
the subnet manager. Needed are infiniband-diags and /dev/infiniband/umad*, which is usually for root
only. The fabric is that of the first active port; node descriptions name the nodes, or the
node-name-map of infiniband-diags.

The fabric is read in the background: its cabling, and all ports' counters, round after round. The
load is bounded. Of switches at most 500 ports and 10 processes a second are queried, and 20
management queries a second read the cabling: 1,000 switch ports on 25 switches are read once in
2.5 s, or in 5 s where devices have their errors in the classic set only, and their cabling every
50 s. An HCA costs a process of its own. HCAs have rounds of their own, at 40 processes a second:
2,000 ports take 50 s, and twice that with errors in the classic set only. They are the source
`ib_fabric_hcas`, since values have the clock of their round. A read returns the last round. Every
port keeps its position in the rounds, so that the time between two of its values is that between
the rounds. No counter is ever cleared.

The forwarding tables of the switches are read at the start, some seconds after the cabling or a LID
changed, and every ten minutes. The hello has them in one object of the kind `forwarding_tables`,
without metrics. Its info:

    switches    the names of the switches; tables are in their order
    tables      for each the number of the out port by LID: a byte each, deflated, in base64, in
                pieces of at most 400 characters
    left_out    the number of switches whose table had no room; absent for 0
    error       why there are no tables
    engine      the routing engine in the configuration of the subnet manager, if it runs on this
                node, as `ar_updn`: adaptive routing is not visible in the tables
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Dict, List, Optional, Set, Tuple

from collectors.coverage import CoverageCount
from collectors.hostfs import HostFS
from collectors.node_description import is_unnamed, unnamed_note
from collectors.readers.ib_forwarding import SwitchTables, routing_engine
from collectors.readers.ib_tools import find_tools, known_names
from collectors.readers.ib_topology import HOST, FabricPort
from collectors.source import Faults, NoData, NoNews, Source
from collectors.sources.ib_rounds import CounterRound
from collectors.sources.ib_sweep import Sweep
from collectors.wire import Object

_FIRST_ROUND_S = 0.25
"""How long a discovery waits for a small fabric; a large one changes the signature later."""
_INFINIBAND = "sys/class/infiniband"
_STATES = ("ib_state", "ib_phys_state", "ib_rate_bps")


class Rounds(Source):
    """Values of the last round of a sweep, as soon as it ends."""

    is_background = True

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._version = 0
        self._returned: Optional[CounterRound] = None

    @property
    @abstractmethod
    def sweep(self) -> Optional[Sweep]:
        """The sweep; None before the first discovery."""

    @abstractmethod
    def last_round(self, sweep: Sweep) -> Optional[CounterRound]:
        """The last of this source's rounds."""

    def announce(self, first: CounterRound) -> None:
        """Note the round that the objects are of."""
        self.min_period_s = first.period_s
        self._version = first.version
        self._returned = None

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The last round's values. Raises NoNews when they were returned before, SourceError when
        the fabric can no longer be read."""
        sweep = self.sweep
        if sweep is None:
            raise NoData("nothing was discovered")
        last, error = self.last_round(sweep), sweep.error
        if error is not None:
            raise error
        if last is None or last is self._returned or last.version != self._version:
            raise NoNews
        self._returned = last
        self.values_ns = last.began_ns
        faults.update(last.faults)
        return list(last.values)

    def signature(self) -> object:
        """Changes with the ports, the cables and the metrics; before the first round, the error."""
        sweep = self.sweep
        last = None if sweep is None else self.last_round(sweep)
        if last is None:
            return None if sweep is None else str(sweep.error)
        return last.version


class IbFabric(Rounds):
    """States of all ports that are or were cabled and counters of switches, by rounds."""

    name = "ib_fabric"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._sweep: Optional[Sweep] = None

    @property
    def sweep(self) -> Optional[Sweep]:
        """The sweep; None before the first discovery."""
        return self._sweep

    def companions(self) -> List[Source]:
        """The source of the HCAs' counters."""
        return [IbFabricHcas(self)]

    def last_round(self, sweep: Sweep) -> Optional[CounterRound]:
        """The last round of all ports."""
        return sweep.round

    def discover(self) -> List[Object]:
        """One object per port, of the switches first. Raises NoData until the first round ends."""
        if self._sweep is None:
            engine = partial(routing_engine, self.host)
            self._sweep = Sweep(find_tools(self.host), _own_guids(self.host), engine)
            if self.host.is_live:
                self._sweep.start()
        if not self.host.is_live:
            self._sweep.once()
        self._sweep.ready.wait(_FIRST_ROUND_S)
        first = self._sweep.round
        if first is None:
            raise self._sweep.error or NoData("the fabric is being read for the first time")
        self.announce(first)
        count = CoverageCount()
        count.add("perfquery", self._sweep.seen, known_names())
        self.coverage = count.result()
        room = len(first.ports)
        self.limits = []
        if first.left_out:
            total = room + first.left_out
            self.limits = [
                f"{first.left_out} of {total} ports are left out: a hello has room for {room}"
            ]
        unnamed = {port.line.end.guid for port in first.ports if is_unnamed(port.node)}
        if unnamed:
            self.limits.append(unnamed_note(len(unnamed)))
        objects = [_object(port, counters) for port, counters in zip(first.ports, first.metrics)]
        if first.tables is not None:
            objects.append(_tables_object(first.tables, first.ports))
        return objects

    def close(self) -> None:
        """Nothing: the threads continue, and a discovery uses their results."""

    def stop(self) -> None:
        """End the threads."""
        if self._sweep is not None:
            self._sweep.stop()


class IbFabricHcas(Rounds):
    """Counters of the fabric's HCAs, which take a round of their own: `fabric` reads the rest."""

    name = "ib_fabric_hcas"

    def __init__(self, fabric: IbFabric) -> None:
        super().__init__(fabric.host)
        self._fabric = fabric

    @property
    def sweep(self) -> Optional[Sweep]:
        """The sweep that the fabric's source has started."""
        return self._fabric.sweep

    def last_round(self, sweep: Sweep) -> Optional[CounterRound]:
        """The last round of HCAs."""
        return sweep.hca_round

    def discover(self) -> List[Object]:
        """One object per HCA port that has counters. Raises NoData before the first round."""
        sweep = self.sweep
        first = None if sweep is None else sweep.hca_round
        if sweep is None or first is None:
            raise NoData("the HCAs are being read for the first time")
        self.announce(first)
        silent = sum(not counters for counters in first.metrics)
        self.limits = []
        if silent:
            self.limits = [f"{silent} of {len(first.ports)} HCA ports answer no counter query"]
        return [
            Object(f"{port.node}/{port.name}", "infiniband", port.name, {}, counters, port.node)
            for port, counters in zip(first.ports, first.metrics)
        ]


def _object(port: FabricPort, counters: Tuple[str, ...]) -> Object:
    end = port.line.end
    info: Dict[str, object] = {
        "node_role": port.role,
        "link_layer": "InfiniBand",
        "guid": f"{end.guid:016x}",
        "port_number": end.number,
        "description": end.name,
    }
    if port.peer is not None:
        node, name, guid = port.peer
        info["peer"] = {"node": node, "port": name, "guid": f"{guid:016x}"}
    metrics = _STATES + counters
    return Object(f"{port.node}/{port.name}", "infiniband", port.name, info, metrics, port.node)


def _tables_object(tables: SwitchTables, ports: List[FabricPort]) -> Object:
    names = {port.line.end.guid: port.node for port in ports if port.role != HOST}
    known = [guid for guid in tables.packed if guid in names]
    info: Dict[str, object] = {
        "switches": [names[guid] for guid in known],
        "tables": [tables.packed[guid] for guid in known],
        "left_out": tables.left_out,
        "error": tables.error,
        "engine": tables.engine,
    }
    info = {key: value for key, value in info.items() if value not in ("", 0)}
    return Object("forwarding_tables", "forwarding_tables", None, info, ())


def _own_guids(fs: HostFS) -> Set[int]:
    """The node GUIDs of this node's HCAs. A port's GUID is the same where the HCA has one port."""
    found: Set[int] = set()
    for device in fs.names(_INFINIBAND):
        text = fs.text(_INFINIBAND, device, "node_guid") or ""
        try:
            found.add(int(text.replace(":", ""), 16))
        except ValueError:
            continue
    return found
