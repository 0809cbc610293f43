"""The fabric in the background: who is cabled to whom, and all ports' counters, round after round.

What it costs is bounded: at most 500 counter queries and 10 processes a second, four at once, and
20 management queries a second for the cabling. So 1,000 switch ports on 25 switches are read once
in 2.5 s, or in 5 s where devices have their errors in the classic set only, and their cabling is
looked at every 50 s. An HCA costs a process of its own: beyond 16 none of them is asked, and what
crosses their cables is known from the switches.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from collectors.hostfs import HostFS
from collectors.readers import ib_topology
from collectors.readers.ib_tools import (
    Counters,
    DiagTools,
    PortCounters,
    PortQuery,
    find_tools,
    needs_classic,
)
from collectors.readers.ib_topology import HOST, FabricPort, LinkLine
from collectors.source import Failed, Faults, NoData, NoNews, Source, SourceError
from collectors.wire import Object

QUERIES_A_SECOND = 500
PROCESSES_A_SECOND = 10
SWEEPS_A_SECOND = 20
_AT_ONCE = 4
_END_S = 5.0
_LISTEN_S = 0.5
_MOST_HCAS = 16
_LINK_UP = 5
MOST_PORTS = 6000
"""What a hello has room for (it has 8 MiB, a port takes 1 KB); switches come first."""
SHORTEST_S = 1.0
SHORTEST_SWEEP_S = 5.0
RETRY_S = 5.0

Key = Tuple[int, int]
"""GUID and number of a port."""


_NO_ANSWER = PortCounters({}, {})


class SweepRound(NamedTuple):
    """All ports once. `version` changes with `ports` or `metrics`, which are parallel; `values` has
    those of each port in turn, `faults` why some are None. `began_ns` is the monotonic clock."""

    began_ns: int
    period_s: float
    version: int
    ports: List[FabricPort]
    metrics: List[Tuple[str, ...]]
    values: List[Optional[int]]
    faults: Faults


class SweepResults:
    """What one thread finds out and another tells; every field is replaced as a whole."""

    def __init__(self) -> None:
        self.round: Optional[SweepRound] = None
        self.error: Optional[SourceError] = None
        self.ready = threading.Event()


class Sweep:
    """Looks at the fabric with `tools`; `own` are the GUIDs of the HCAs that others read."""

    def __init__(self, tools: DiagTools, own: Set[int], seen: SweepResults) -> None:
        self.seen = seen
        self._tools = tools
        self._own = own
        self._known: Dict[Key, LinkLine] = {}
        self._ports: List[FabricPort] = []
        self._metrics: Dict[Key, Tuple[str, ...]] = {}
        self._switches: Set[int] = set()
        self._classic: Set[Key] = set()
        self._errors: Dict[str, Optional[SourceError]] = {}
        self._swept = threading.Event()
        self._stopped = threading.Event()
        # Looking at a large fabric takes long: the counters do not wait for it.
        self._threads = [
            threading.Thread(target=self._keep, args=(what,), name=what.__name__, daemon=True)
            for what in (self._cabling, self._counters)
        ]

    def start(self) -> None:
        """Look, again and again, in threads of its own."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, and what it has running."""
        self._stopped.set()
        self._tools.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_END_S)

    def once(self) -> None:
        """The cabling, then one round of counters. Raises SourceError."""
        self._cabling()
        self._counters()

    def _keep(self, what: Callable[[], float]) -> None:
        """Do `what` and wait as long as it says, until the end."""
        while not self._stopped.is_set():
            error: Optional[SourceError] = None
            pause_s = RETRY_S
            try:
                pause_s = what()
            except SourceError as failure:
                error = failure
            except Exception as failure:
                error = Failed(f"{type(failure).__name__}: {failure}")
            if self._stopped.is_set():
                return
            self._errors = {**self._errors, what.__name__: error}
            troubles = [each for each in self._errors.values() if each is not None]
            self.seen.error = troubles[0] if troubles else None
            if troubles:
                self.seen.ready.set()
            self._stopped.wait(max(0.0, pause_s))

    def _cabling(self) -> float:
        """Look who is cabled to whom; how long to leave it at that."""
        began_s = time.monotonic()
        lines = ib_topology.parse_links(self._tools.links())
        if not any(line.peer is not None for line in lines):
            raise Failed("iblinkinfo sees no other port: is this node's own link up?")
        self._switches |= ib_topology.switches(lines)
        ib_topology.update_known_links(self._known, lines)
        ports = ib_topology.named_ports(list(self._known.values()), self._switches, self._own)
        self._ports = ports[:MOST_PORTS]
        self._swept.set()
        pause_s = max(SHORTEST_SWEEP_S, len(self._ports) / SWEEPS_A_SECOND)
        return began_s + pause_s - time.monotonic()

    def _counters(self) -> float:
        """Read all counters once; how long to wait before the next round."""
        began_s = time.monotonic()
        while not self._swept.wait(_LISTEN_S):
            if self._stopped.is_set():
                return 0.0
        found = self._round(self._ports)
        if found is None:
            return 0.0
        self.seen.round = found
        self.seen.ready.set()
        return began_s + found.period_s - time.monotonic()

    def _round(self, of: List[FabricPort]) -> Optional[SweepRound]:
        """Ask every port, a LID after the other, spread over the time that the budget takes; None
        when it was ended."""
        began_ns = time.monotonic_ns()
        targets = self._targets(of)
        due_s = time.monotonic()
        running: List[Tuple[List[FabricPort], bool, PortQuery]] = []
        extended: Dict[Key, Counters] = {}
        classic: Dict[Key, Counters] = {}
        spent_s = 0.0
        for which, ports in targets:
            if self._stopped.wait(max(0.0, due_s - time.monotonic())):
                break
            if len(running) == _AT_ONCE:
                _collect(running.pop(0), extended, classic)
            numbers = [port.line.end.number for port in ports]
            query = self._tools.counters(ports[0].line.end.lid, numbers, extended=which)
            running.append((ports, which, query))
            cost_s = max(len(ports) / QUERIES_A_SECOND, 1 / PROCESSES_A_SECOND)
            due_s += cost_s
            spent_s += cost_s
        for item in running:
            _collect(item, extended, classic)
        if self._stopped.is_set():
            return None
        asked = {_key(port) for _, ports in targets for port in ports}
        news = {
            key
            for key in asked - self._classic
            if needs_classic(extended.get(key, {}))
            and (key in extended or key not in self._metrics)
        }
        if news:
            # Their errors are not in the extended set: from now on both are asked for.
            self._classic |= news
            return self._round(of)
        answers = {
            key: PortCounters(extended.get(key, {}), classic.get(key, {})) for key in sorted(asked)
        }
        return self._digest(of, began_ns, spent_s, answers)

    def _digest(
        self,
        ports: List[FabricPort],
        began_ns: int,
        spent_s: float,
        answers: Dict[Key, PortCounters],
    ) -> SweepRound:
        """The answers as a read hands them out: here, where nobody waits for it."""
        for key, answer in answers.items():
            if len(answer.metrics()) > len(self._metrics.get(key, ())):
                self._metrics[key] = answer.metrics()
        metrics = [self._metrics.get(_key(port), ()) for port in ports]
        values: List[Optional[int]] = []
        faults: Faults = {}
        for port, counters in zip(ports, metrics):
            line = port.line
            for state in (line.state, line.phys_state, line.rate_bps):
                if state is None:
                    faults[len(values)] = "unsupported"
                values.append(state)
            answer = answers.get(_key(port), _NO_ANSWER)
            for metric in counters:
                values.append(answer.value(metric, faults, len(values)))
        took_s = (time.monotonic_ns() - began_ns) / 1e9
        period_s = max(SHORTEST_S, spent_s, took_s)
        last = self.seen.round
        version = 0
        if last is not None:
            # Every change is a new hello: a pace that was slow once stays so.
            if period_s < last.period_s * 1.5:
                period_s = last.period_s
            told = (_layout(last.ports), last.metrics, last.period_s)
            is_same = told == (_layout(ports), metrics, period_s)
            version = last.version if is_same else last.version + 1
        return SweepRound(began_ns, period_s, version, ports, metrics, values, faults)

    def _targets(self, of: List[FabricPort]) -> List[Tuple[bool, List[FabricPort]]]:
        """For each LID its ports: the extended set, and the classic one where that is needed."""
        by_lid: Dict[int, List[FabricPort]] = {}
        hcas = sum(port.role == HOST for port in of)
        for port in of:
            if port.line.end.lid and (port.role != HOST or hcas <= _MOST_HCAS):
                by_lid.setdefault(port.line.end.lid, []).append(port)
        targets: List[Tuple[bool, List[FabricPort]]] = []
        for ports in by_lid.values():
            if all(port.line.phys_state != _LINK_UP for port in ports):
                continue  # no way leads there, and to ask takes seconds
            targets.append((True, ports))
            old = [port for port in ports if _key(port) in self._classic]
            if old:
                targets.append((False, old))
        return targets


def _collect(
    item: Tuple[List[FabricPort], bool, PortQuery],
    extended: Dict[Key, Counters],
    classic: Dict[Key, Counters],
) -> None:
    ports, which, query = item
    found = query.answer()
    for port in ports:
        if port.line.end.number in found:
            (extended if which else classic)[_key(port)] = found[port.line.end.number]


def _key(port: FabricPort) -> Key:
    return port.line.end.guid, port.line.end.number


def _layout(ports: List[FabricPort]) -> object:
    """What a hello says of the ports: all but their states."""
    return [(port.node, port.name, port.role, port.peer) for port in ports]


# The whole InfiniBand fabric from this one node: every switch, every other HCA, every cable.
#
# Read only where it is asked for, with `sources=+ib_fabric` on the line of one node, which then
# speaks for the switches. iblinkinfo and perfquery of infiniband-diags ask in the background, at a
# pace of their own (see ibsweep); a read takes their last round, with the clock of that round.
# Every port keeps its place in the rounds, so that the time between two of its values is that
# between the rounds. No counter is ever cleared.
#
# It needs access to /dev/infiniband/umad*, which is mostly root's. The fabric is that of the first
# active port; node descriptions name the nodes, or the node-name-map of infiniband-diags.


_INFINIBAND = "sys/class/infiniband"
_STATES = ("ib_state", "ib_phys_state", "ib_rate_bps")
_FIRST_LOOK_S = 0.25
"""How long a discovery waits for a small fabric; a large one is announced later."""


class IbFabric(Source):
    """States and counters of all ports that are or were cabled, as they come in."""

    name = "ib_fabric"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._seen = SweepResults()
        self._sweep: Optional[Sweep] = None
        self._told = 0
        self._handed: Optional[SweepRound] = None

    def discover(self) -> List[Object]:
        """One object a port: of the switches first. Raises NoData while it is looked at first."""
        if self._sweep is None:
            self._sweep = Sweep(find_tools(self.host), _own_guids(self.host), self._seen)
            if self.host.is_live:
                self._sweep.start()
        if not self.host.is_live:
            self._sweep.once()
        self._seen.ready.wait(_FIRST_LOOK_S)
        first = self._seen.round
        if first is None:
            raise self._seen.error or NoData("the fabric is being looked at")
        self.min_period_s = first.period_s
        self._told = first.version
        self._handed = None
        return [_object(port, counters) for port, counters in zip(first.ports, first.metrics)]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The last round's values. Raises NoNews when it was handed out, SourceError when the
        fabric cannot be looked at any more."""
        last, error = self._seen.round, self._seen.error
        if error is not None:
            raise error
        if last is None or last is self._handed or last.version != self._told:
            raise NoNews
        self._handed = last
        self.values_ns = last.began_ns
        faults.update(last.faults)
        return list(last.values)

    def signature(self) -> object:
        """Changes with the ports, the cables and what is counted; at first, with the trouble."""
        last = self._seen.round
        return str(self._seen.error) if last is None else last.version

    def close(self) -> None:
        """Nothing: the thread goes on, and a discovery takes what it has found."""

    def stop(self) -> None:
        """End the thread."""
        if self._sweep is not None:
            self._sweep.stop()
            self._sweep = None


def _object(port: ib_topology.FabricPort, counters: Tuple[str, ...]) -> Object:
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


def _own_guids(fs: HostFS) -> Set[int]:
    """GUIDs of this node's HCAs, as both node and port: one function has one port today."""
    found: Set[int] = set()
    for device in fs.names(_INFINIBAND):
        text = fs.text(_INFINIBAND, device, "node_guid") or ""
        try:
            found.add(int(text.replace(":", ""), 16))
        except ValueError:
            continue
    return found
