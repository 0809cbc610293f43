"""The whole InfiniBand fabric from this one node: every switch, every other HCA, every cable.

Read only where it is asked for, with `sources=+ib_fabric` on the line of one node, which then
speaks for the switches. iblinkinfo and perfquery of infiniband-diags ask in the background, at a
pace of their own (see ibsweep); a read takes their last round, with the clock of that round. Every
port keeps its place in the rounds, so that the time between two of its values is that between the
rounds. No counter is ever cleared.

It needs access to /dev/infiniband/umad*, which is mostly root's. The fabric is that of the first
active port; node descriptions name the nodes, or the node-name-map of infiniband-diags.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from collectors import ibtopology
from collectors.hostfs import HostFS
from collectors.ibsweep import Round, Seen, Sweep
from collectors.ibtools import tools
from collectors.source import Faults, NoData, NoNews, Source
from collectors.wire import Object

_INFINIBAND = "sys/class/infiniband"
_STATES = ("ib_state", "ib_phys_state", "ib_rate_bps")
_FIRST_LOOK_S = 0.25
"""How long a discovery waits for a small fabric; a large one is announced later."""


class IbFabric(Source):
    """States and counters of all ports that are or were cabled, as they come in."""

    name = "ib_fabric"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._seen = Seen()
        self._sweep: Optional[Sweep] = None
        self._told = 0
        self._handed: Optional[Round] = None

    def discover(self) -> List[Object]:
        """One object a port: of the switches first. Raises NoData while it is looked at first."""
        if self._sweep is None:
            self._sweep = Sweep(tools(self.host), _own_guids(self.host), self._seen)
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


def _object(port: ibtopology.Port, counters: Tuple[str, ...]) -> Object:
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
