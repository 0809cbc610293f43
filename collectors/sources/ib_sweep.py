"""Reads an InfiniBand fabric in band, in threads: its cabling, counters and forwarding tables."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from collectors.readers import ib_topology
from collectors.readers.ib_forwarding import ForwardingTables, SwitchTables
from collectors.readers.ib_tools import Answer, Counters, DiagTools, PortCounters, needs_classic
from collectors.readers.ib_topology import HOST, FabricPort, LinkLine, PortAddress
from collectors.source import Failed, Faults, SourceError

QUERIES_PER_SECOND = 500
PROCESSES_PER_SECOND = 10
SWEEPS_PER_SECOND = 20
MAX_PORTS = 6000
"""What a hello has room for (it has 8 MiB, a port takes 1 KB); switches come first."""
MIN_ROUND_S = 1.0
MIN_SWEEP_S = 5.0
RETRY_S = 5.0

_AT_ONCE = 4
_STOP_S = 5.0
_POLL_S = 0.5
_MAX_HCAS = 16
_LINK_UP = 5

Key = Tuple[int, int]
"""GUID and number of a port."""

Cabling = Dict[Key, Tuple[int, int, Optional[Key]]]
"""LID, state and other end of each port: what forwarding tables depend on."""


class SweepRound(NamedTuple):
    """All ports, read once.

    `version` changes with `ports` or `metrics`, which are parallel; `values` has those of each port
    in turn, `faults` why some are None. `began_ns` is the monotonic clock. `version` changes with
    `tables` too; None until they were read or failed.
    """

    began_ns: int
    period_s: float
    version: int
    ports: List[FabricPort]
    metrics: List[Tuple[str, ...]]
    values: List[Optional[int]]
    faults: Faults
    tables: Optional[SwitchTables] = None


class Sweep:
    """Reads the fabric with `tools`; `own` are the GUIDs of HCAs that other sources read.

    `engine` returns the routing engine of the subnet manager, as in SwitchTables. Its threads
    replace `round` and `error` as a whole; `ready` is set when there is one of them.
    """

    def __init__(
        self, tools: DiagTools, own: Set[int], engine: Callable[[], str] = lambda: ""
    ) -> None:
        self.round: Optional[SweepRound] = None
        self.error: Optional[SourceError] = None
        self.ready = threading.Event()
        self._tools = tools
        self._own = own
        self._known: Dict[Key, LinkLine] = {}
        self._ports: List[FabricPort] = []
        self._metrics: Dict[Key, Tuple[str, ...]] = {}
        self._switches: Set[int] = set()
        self._classic: Set[Key] = set()
        self._tables = ForwardingTables(tools.forwarding_tables, engine)
        self._cables: Cabling = {}
        self._errors: Dict[str, Optional[SourceError]] = {}
        self._swept = threading.Event()
        self._stopped = threading.Event()
        # The cabling of a large fabric takes long: the counters do not wait for it.
        self._threads = [
            threading.Thread(target=self._repeat, args=(step,), name=step.__name__, daemon=True)
            for step in (self._cabling, self._counters, self._forwarding)
        ]

    def start(self) -> None:
        """Read again and again, in three threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads and the processes that are running."""
        self._stopped.set()
        self._tools.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_STOP_S)

    def once(self) -> None:
        """Read the cabling and the tables, then one round of counters. Raises SourceError."""
        self._cabling()
        self._forwarding()
        self._counters()

    def _repeat(self, step: Callable[[], float]) -> None:
        """Run `step` and wait for the seconds that it returns, until stopped."""
        while not self._stopped.is_set():
            error: Optional[SourceError] = None
            pause_s = RETRY_S
            try:
                pause_s = step()
            except SourceError as failure:
                error = failure
            except Exception as failure:
                error = Failed(f"{type(failure).__name__}: {failure}")
            if self._stopped.is_set():
                return
            self._errors = {**self._errors, step.__name__: error}
            errors = [each for each in self._errors.values() if each is not None]
            self.error = errors[0] if errors else None
            if errors:
                self.ready.set()
            self._stopped.wait(max(0.0, pause_s))

    def _cabling(self) -> float:
        """Read the cabling; the seconds until it is read again."""
        began_s = time.monotonic()
        lines = ib_topology.parse_links(self._tools.links())
        if not any(line.peer is not None for line in lines):
            raise Failed("iblinkinfo sees no other port: is this node's own link up?")
        self._switches |= ib_topology.switches(lines)
        ib_topology.update_known_links(self._known, lines)
        known = list(self._known.values())
        self._ports = ib_topology.named_ports(known, self._switches, self._own)[:MAX_PORTS]
        cables = {_end_key(line.end): _cable(line) for line in lines}
        if cables != self._cables and self._cables:
            self._tables.read_soon()
        self._cables = cables
        self._swept.set()
        pause_s = max(MIN_SWEEP_S, len(self._ports) / SWEEPS_PER_SECOND)
        return began_s + pause_s - time.monotonic()

    def _forwarding(self) -> float:
        """Read the forwarding tables when they are due; the seconds until the next look."""
        if self._swept.is_set():
            self._tables.read_if_due()
        return _POLL_S

    def _counters(self) -> float:
        """Read all counters once; the seconds until the next round."""
        began_s = time.monotonic()
        while not self._swept.wait(_POLL_S):
            if self._stopped.is_set():
                return 0.0
        found = self._round(self._ports)
        if found is None:
            return 0.0
        self.round = found
        self.ready.set()
        return began_s + found.period_s - time.monotonic()

    def _round(self, of: List[FabricPort]) -> Optional[SweepRound]:
        """Query every port, LID by LID, spread over the time of the budget; None when stopped."""
        began_ns = time.monotonic_ns()
        targets = self._targets(of)
        due_s = time.monotonic()
        running: List[Tuple[List[FabricPort], bool, Answer]] = []
        found: Dict[bool, Dict[Key, Counters]] = {True: {}, False: {}}

        def collect(ports: List[FabricPort], extended: bool, answer: Answer) -> None:
            counters = answer()
            for port in ports:
                if port.line.end.number in counters:
                    found[extended][_key(port)] = counters[port.line.end.number]

        spent_s = 0.0
        for extended, ports in targets:
            if self._stopped.wait(max(0.0, due_s - time.monotonic())):
                break
            if len(running) == _AT_ONCE:
                collect(*running.pop(0))
            numbers = [port.line.end.number for port in ports]
            answer = self._tools.counters(ports[0].line.end.lid, numbers, extended=extended)
            running.append((ports, extended, answer))
            cost_s = max(len(ports) / QUERIES_PER_SECOND, 1 / PROCESSES_PER_SECOND)
            due_s += cost_s
            spent_s += cost_s
        for item in running:
            collect(*item)
        if self._stopped.is_set():
            return None
        wide, narrow = found[True], found[False]
        asked = {_key(port) for _, ports in targets for port in ports}
        new = {
            key
            for key in asked - self._classic
            if needs_classic(wide.get(key, {})) and (key in wide or key not in self._metrics)
        }
        if new:
            # Their errors are not in the extended set: from now on both sets are queried.
            self._classic |= new
            return self._round(of)
        answers = {
            key: PortCounters(wide.get(key, {}), narrow.get(key, {})) for key in sorted(asked)
        }
        return self._result(of, began_ns, spent_s, answers)

    def _result(
        self,
        ports: List[FabricPort],
        began_ns: int,
        spent_s: float,
        answers: Dict[Key, PortCounters],
    ) -> SweepRound:
        """The round as a read returns it, computed in this thread to keep reads short."""
        for key, answer in answers.items():
            if len(answer.metrics()) > len(self._metrics.get(key, ())):
                self._metrics[key] = answer.metrics()
        metrics = [self._metrics.get(_key(port), ()) for port in ports]
        values: List[Optional[int]] = []
        faults: Faults = {}
        no_answer = PortCounters({}, {})
        for port, counters in zip(ports, metrics):
            line = port.line
            for state in (line.state, line.phys_state, line.rate_bps):
                if state is None:
                    faults[len(values)] = "unsupported"
                values.append(state)
            answer = answers.get(_key(port), no_answer)
            for metric in counters:
                values.append(answer.value(metric, faults, len(values)))
        duration_s = (time.monotonic_ns() - began_ns) / 1e9
        period_s = max(MIN_ROUND_S, spent_s, duration_s)
        last = self.round
        version = 0
        tables = self._tables.last
        if last is not None:
            # Every change is a new hello: a period that was long once stays so.
            if period_s < last.period_s * 1.5:
                period_s = last.period_s
            before = (_layout(last.ports), last.metrics, last.period_s, last.tables)
            is_same = before == (_layout(ports), metrics, period_s, tables)
            version = last.version if is_same else last.version + 1
        return SweepRound(began_ns, period_s, version, ports, metrics, values, faults, tables)

    def _targets(self, of: List[FabricPort]) -> List[Tuple[bool, List[FabricPort]]]:
        """The queries: for each LID its ports, extended and where needed also classic."""
        by_lid: Dict[int, List[FabricPort]] = {}
        hcas = sum(port.role == HOST for port in of)
        for port in of:
            if port.line.end.lid and (port.role != HOST or hcas <= _MAX_HCAS):
                by_lid.setdefault(port.line.end.lid, []).append(port)
        targets: List[Tuple[bool, List[FabricPort]]] = []
        for ports in by_lid.values():
            if all(port.line.phys_state != _LINK_UP for port in ports):
                continue  # unreachable, and a query takes seconds
            targets.append((True, ports))
            old = [port for port in ports if _key(port) in self._classic]
            if old:
                targets.append((False, old))
        return targets


def _key(port: FabricPort) -> Key:
    return _end_key(port.line.end)


def _end_key(end: PortAddress) -> Key:
    return end.guid, end.number


def _cable(line: LinkLine) -> Tuple[int, int, Optional[Key]]:
    return line.end.lid, line.state, None if line.peer is None else _end_key(line.peer)


def _layout(ports: List[FabricPort]) -> object:
    """The part of the ports that the hello contains: all but their states."""
    return [(port.node, port.name, port.role, port.peer) for port in ports]
