"""Rounds of counter queries over some ports of an InfiniBand fabric, within a budget."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Deque, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from collectors import clock
from collectors.readers.ib_forwarding import SwitchTables
from collectors.readers.ib_tools import Answer, Counters, DiagTools, PortCounters, needs_classic
from collectors.readers.ib_topology import FabricPort
from collectors.source import Faults

MIN_ROUND_S = 1.0
_AT_ONCE = 4
_LINK_UP = 5

Key = Tuple[int, int]
"""GUID and number of a port."""


class Target(NamedTuple):
    """One query: the extended or the classic counters of ports of one LID."""

    extended: bool
    ports: List[FabricPort]


class Budget(NamedTuple):
    """The load that rounds may cause: queries of a port, and processes that make them."""

    queries_per_s: float
    processes_per_s: float

    def cost_s(self, ports: int) -> float:
        """The time that one process which queries some ports takes of the budget."""
        return max(ports / self.queries_per_s, 1 / self.processes_per_s)


class CounterRound(NamedTuple):
    """All ports, read once.

    `version` changes with `ports`, `metrics`, `tables` or `left_out`. `ports` and `metrics` are
    parallel; `values` has those of each port in turn, `faults` why some are None. `began_ns` is the
    monotonic clock. `tables` is None until they were read or failed; `left_out` counts the ports
    that have no room.
    """

    began_ns: int
    period_s: float
    version: int
    ports: List[FabricPort]
    metrics: List[Tuple[str, ...]]
    values: List[Optional[int]]
    faults: Faults
    tables: Optional[SwitchTables] = None
    left_out: int = 0


class CounterRounds:
    """Reads the counters of some ports again and again; `last` is the last round, `seen` are
    the names of all counters that came.

    `stopped` ends a round that is running. `has_states`: the states of all ports, from the cabling,
    are among the values of a round.
    """

    def __init__(
        self, tools: DiagTools, budget: Budget, stopped: threading.Event, has_states: bool
    ) -> None:
        self.last: Optional[CounterRound] = None
        # Another thread reads it: it is replaced, never changed.
        self.seen: FrozenSet[str] = frozenset()
        self._has_states = has_states
        self._tools = tools
        self._budget = budget
        self._stopped = stopped
        self._metrics: Dict[Key, Tuple[str, ...]] = {}
        self._classic: Set[Key] = set()

    def read(
        self,
        ports: List[FabricPort],
        queried: List[FabricPort],
        tables: Optional[SwitchTables] = None,
        left_out: int = 0,
    ) -> float:
        """Make the next round, of the states of `ports` and the counters of those `queried`. Spread
        over the time of the budget; returns the seconds until the next one."""
        began_ns = clock.monotonic_ns()
        answers, spent_s = self._answers(queried)
        if self._stopped.is_set():
            return 0.0
        duration_s = (clock.monotonic_ns() - began_ns) / 1e9
        period_s = max(MIN_ROUND_S, spent_s, duration_s)
        self.last = self._result(ports, began_ns, period_s, answers, tables, left_out)
        return self.last.period_s - (clock.monotonic_ns() - began_ns) / 1e9

    def _answers(self, ports: List[FabricPort]) -> Tuple[Dict[Key, PortCounters], float]:
        """Query every port, LID by LID; the answers, and the seconds of the budget that it took."""
        targets = deque(self._targets(ports))
        queried = {key_of(port) for _, of in targets for port in of}
        running: Deque[Tuple[Target, Answer]] = deque()
        found: Dict[bool, Dict[Key, Counters]] = {True: {}, False: {}}
        due_s = time.monotonic()
        spent_s = 0.0
        while targets or running:
            if running and (len(running) == _AT_ONCE or not targets):
                target, answer = running.popleft()
                found[target.extended].update(_of_ports(target.ports, answer()))
                if target.extended:
                    targets.extend(self._also_classic(target.ports, found[True]))
                continue
            if self._stopped.wait(max(0.0, due_s - time.monotonic())):
                break
            target = targets.popleft()
            running.append((target, self._start(target)))
            cost_s = self._budget.cost_s(len(target.ports))
            due_s += cost_s
            spent_s += cost_s
        for _, answer in running:
            answer()
        wide, narrow = found[True], found[False]
        answers = {
            key: PortCounters(wide.get(key, {}), narrow.get(key, {})) for key in sorted(queried)
        }
        self.seen = self.seen.union(*wide.values(), *narrow.values())
        return answers, spent_s

    def _start(self, target: Target) -> Answer:
        lid, numbers = target.ports[0].line.end.lid, [p.line.end.number for p in target.ports]
        return self._tools.counters(lid, numbers, extended=target.extended)

    def _also_classic(self, ports: List[FabricPort], wide: Dict[Key, Counters]) -> List[Target]:
        """A query of the classic counters of those ports whose errors turn out to be only there;
        from now on both sets are queried."""
        new = []
        for port in ports:
            key = key_of(port)
            answered = key in wide or key not in self._metrics
            if key not in self._classic and answered and needs_classic(wide.get(key, {})):
                new.append(port)
        self._classic.update(map(key_of, new))
        return [Target(False, new)] if new else []

    def _result(
        self,
        ports: List[FabricPort],
        began_ns: int,
        period_s: float,
        answers: Dict[Key, PortCounters],
        tables: Optional[SwitchTables],
        left_out: int,
    ) -> CounterRound:
        """The round as a read returns it, computed in this thread to keep reads short."""
        for key, answer in answers.items():
            if len(answer.metrics()) > len(self._metrics.get(key, ())):
                self._metrics[key] = answer.metrics()
        metrics = [self._metrics.get(key_of(port), ()) for port in ports]
        values: List[Optional[int]] = []
        faults: Faults = {}
        no_answer = PortCounters({}, {})
        for port, counters in zip(ports, metrics):
            line = port.line
            for state in (line.state, line.phys_state, line.rate_bps) if self._has_states else ():
                if state is None:
                    faults[len(values)] = "unsupported"
                values.append(state)
            answer = answers.get(key_of(port), no_answer)
            for metric in counters:
                values.append(answer.value(metric, faults, len(values)))
        last = self.last
        version = 0
        if last is not None:
            # Every change is a new hello: a period that was long once stays so.
            if period_s < last.period_s * 1.5:
                period_s = last.period_s
            before = (_layout(last.ports), last.metrics, last.period_s, last.tables, last.left_out)
            after = (_layout(ports), metrics, period_s, tables, left_out)
            version = last.version + (before != after)
        return CounterRound(
            began_ns, period_s, version, ports, metrics, values, faults, tables, left_out
        )

    def _targets(self, of: List[FabricPort]) -> List[Target]:
        """The queries: for each LID its ports, extended and where needed also classic."""
        by_lid: Dict[int, List[FabricPort]] = {}
        for port in of:
            if port.line.end.lid:
                by_lid.setdefault(port.line.end.lid, []).append(port)
        targets: List[Target] = []
        for ports in by_lid.values():
            if all(port.line.phys_state != _LINK_UP for port in ports):
                continue  # unreachable, and a query takes seconds
            targets.append(Target(True, ports))
            old = [port for port in ports if key_of(port) in self._classic]
            if old:
                targets.append(Target(False, old))
        return targets


def key_of(port: FabricPort) -> Key:
    """GUID and number of a port."""
    return port.line.end.guid, port.line.end.number


def _of_ports(ports: List[FabricPort], counters: Dict[int, Counters]) -> Dict[Key, Counters]:
    numbers = [port.line.end.number for port in ports]
    return {
        key_of(port): counters[number] for port, number in zip(ports, numbers) if number in counters
    }


def _layout(ports: List[FabricPort]) -> object:
    """The part of the ports that the hello contains: all but their states."""
    return [(port.node, port.name, port.role, port.peer) for port in ports]
