"""Transport and congestion counters of RDMA devices (`hw_counters/`).

Two places: below a port, and below the device for what all its ports share (then the object is the
device, and belongs to no port unless it has just one). The kernel refreshes a whole directory at
once and answers from that snapshot for `lifespan` ms (default 10 or 12, the administrator may say
up to 10 s). Reading sooner would show the same numbers, a rate of zero and then a double one: the
longest lifespan found becomes the source's `min_period_s`, and the probe reads no sooner.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set, Tuple

from collectors import ports
from collectors.catalog import CATALOG, WRAP32
from collectors.filesource import FileSource
from collectors.source import NoData, Unsupported, from_oserror
from collectors.sources.rdma_names import EACH_TICK, RARELY
from collectors.wire import Object

_MASK32 = 2**32 - 1
_LIFESPAN = "lifespan"


class Rdma(FileSource):
    """Congestion, loss and traffic of every RDMA port, each tick or as often as it is renewed."""

    name = "rdma"
    spellings = EACH_TICK

    def discover(self) -> List[Object]:
        """One object a directory of counters with at least one that the catalog knows."""
        self.close()
        try:
            found = [port for port in ports.find_ports(self.host) if port.rdma is not None]
            if not found:
                raise NoData("no RDMA device")
            by_device: Dict[str, List[ports.Port]] = {}
            for port in found:
                by_device.setdefault(port.rdma or "", []).append(port)
            objects: List[Object] = []
            for device, its_ports in by_device.items():
                objects += self._device_objects(device, its_ports)
        except OSError as error:
            raise from_oserror(error) from error
        if not objects:
            raise Unsupported("the RDMA drivers of this machine offer none of these hw_counters")
        return objects

    def close(self) -> None:
        """Close every file."""
        super().close()
        self.min_period_s = 0.0

    def _device_objects(self, device: str, its_ports: List[ports.Port]) -> List[Object]:
        """What each port counts, and what the device counts beside that for all of them."""
        objects: List[Object] = []
        for port in its_ports:
            directory = f"{port.rdma_path}/hw_counters"
            objects += self._object(port.name, port.kind, port.name, directory, ())
        counted = [metric for item in objects for metric in item.metrics]
        name = its_ports[0].name if len(its_ports) == 1 else None
        directory = f"{ports.INFINIBAND}/{device}/hw_counters"
        return objects + self._object(
            f"{device}/device", its_ports[0].kind, name, directory, counted
        )

    def _object(
        self, name: str, kind: str, port: Optional[str], directory: str, without: Sequence[str]
    ) -> List[Object]:
        there = set(self.host.names(directory))
        metrics = tuple(
            metric
            for metric, spellings in self.spellings.items()
            if metric not in without and self._add(metric, spellings, directory, there)
        )
        if not metrics:
            return []
        lifespan_ms = self.host.number(directory, _LIFESPAN)
        self.min_period_s = max(self.min_period_s, (lifespan_ms or 0) / 1000)
        info = {} if lifespan_ms is None else {"lifespan_ms": lifespan_ms}
        return [Object(name, kind, port, info, metrics)]

    def _add(
        self, metric: str, spellings: Tuple[str, ...], directory: str, there: Set[str]
    ) -> bool:
        parse = _low_32_bits if CATALOG[metric].kind == WRAP32 else int
        for spelling in spellings:
            parts = spelling.split("+")
            if there.issuperset(parts):
                return self._cells.add_sum(tuple(f"{directory}/{part}" for part in parts), parse)
        return False


class RdmaErrors(Rdma):
    """Requests, and completions in error, of every RDMA port; they move rarely or say little."""

    name = "rdma_errors"
    every = 10
    spellings = RARELY


def _low_32_bits(data: bytes) -> int:
    """The value as the narrowest driver would count it; its rate stays what it was."""
    return int(data) & _MASK32
