"""Reads an InfiniBand fabric in band, in threads: its cabling, counters and forwarding tables."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, FrozenSet, List, Optional, Set, Tuple

from collectors.readers import ib_topology
from collectors.readers.ib_forwarding import ForwardingTables
from collectors.readers.ib_tools import DiagTools
from collectors.readers.ib_topology import HOST, FabricPort, LinkLine, PortAddress
from collectors.source import Failed, SourceError
from collectors.sources.ib_rounds import Budget, CounterRound, CounterRounds, Key

SWITCHES = Budget(queries_per_s=500, processes_per_s=10)
HCAS = Budget(queries_per_s=500, processes_per_s=40)
"""An HCA's port takes a process: 2,000 take 50 s, and a quarter of a core."""
SWEEPS_PER_SECOND = 20
MAX_PORTS = 6000
"""What a hello has room for (it has 8 MiB, a port takes 1 KB); switches come first."""
MIN_SWEEP_S = 5.0
RETRY_S = 5.0

_STOP_S = 5.0
_POLL_S = 0.5

Cabling = Dict[Key, Tuple[int, int, Optional[Key]]]
"""LID, state and other end of each port: what forwarding tables depend on."""


class Sweep:
    """Reads the fabric with `tools`; `own` are the GUIDs of HCAs that other sources read.

    `engine` returns the routing engine of the subnet manager, as in SwitchTables. Its threads
    replace `round`, `hca_round` and `error` as a whole; `ready` is set when there is a round or an
    error. A round has the states of all ports and the counters of switches; `hca_round`, of which
    each takes longer, the counters of HCAs.
    """

    def __init__(
        self, tools: DiagTools, own: Set[int], engine: Callable[[], str] = lambda: ""
    ) -> None:
        self.error: Optional[SourceError] = None
        self.ready = threading.Event()
        self._tools = tools
        self._own = own
        self._known: Dict[Key, LinkLine] = {}
        self._ports: List[FabricPort] = []
        self._left_out = 0
        self._switches: Set[int] = set()
        self._tables = ForwardingTables(tools.forwarding_tables, engine)
        self._cables: Cabling = {}
        self._errors: Dict[str, Optional[SourceError]] = {}
        self._swept = threading.Event()
        self._stopped = threading.Event()
        self._rounds = CounterRounds(tools, SWITCHES, self._stopped, has_states=True)
        self._hca_rounds = CounterRounds(tools, HCAS, self._stopped, has_states=False)
        # The cabling of a large fabric takes long: the counters do not wait for it.
        self._threads = [
            threading.Thread(target=self._repeat, args=(step,), name=step.__name__, daemon=True)
            for step in (self._cabling, self._counters, self._hca_counters, self._forwarding)
        ]

    @property
    def round(self) -> Optional[CounterRound]:
        """The last round."""
        return self._rounds.last

    @property
    def hca_round(self) -> Optional[CounterRound]:
        """The last round of HCAs."""
        return self._hca_rounds.last

    @property
    def seen(self) -> FrozenSet[str]:
        """perfquery's names of all counters that came."""
        return self._rounds.seen | self._hca_rounds.seen

    def start(self) -> None:
        """Read again and again, in four threads."""
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
        self._hca_counters()

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
        ports = ib_topology.named_ports(known, self._switches, self._own)
        self._ports, self._left_out = ports[:MAX_PORTS], max(0, len(ports) - MAX_PORTS)
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
        """Read the states of all ports and the counters of switches once; the seconds until the
        next round."""
        if not self._wait_for_cabling():
            return 0.0
        ports = self._ports
        switches = [port for port in ports if port.role != HOST]
        pause_s = self._rounds.read(ports, switches, self._tables.last, self._left_out)
        self.ready.set()
        return pause_s

    def _hca_counters(self) -> float:
        """Read the counters of HCAs once; the seconds until the next round."""
        if not self._wait_for_cabling():
            return 0.0
        hcas = [port for port in self._ports if port.role == HOST]
        return self._hca_rounds.read(hcas, hcas)

    def _wait_for_cabling(self) -> bool:
        """Wait until the cabling is known; False when stopped."""
        while not self._swept.wait(_POLL_S):
            if self._stopped.is_set():
                return False
        return True


def _end_key(end: PortAddress) -> Key:
    return end.guid, end.number


def _cable(line: LinkLine) -> Tuple[int, int, Optional[Key]]:
    return line.end.lid, line.state, None if line.peer is None else _end_key(line.peer)
