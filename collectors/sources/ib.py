"""Ports of RDMA devices: state, data and error counters of `/sys/class/infiniband`.

Data counters count words of four octets (OPA ports: flits of eight); here they become bytes. Every
file of `counters/` costs the device one query, so that only counters that are drawn are read each
tick.

Widths: kernels since 4.5 read the 64-bit counters where the device has them. Older ones have those
in `counters_ext/`, and in `counters/` 32-bit ones that stick at their maximum; that maximum is
reported as `saturated`. The error counters are narrow everywhere and stick too: their kind in the
catalog gives the maximum, and they are reported unchanged.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Container, Dict, List, Tuple

from collectors.catalog.rdma import OCTETS_PER_WORD
from collectors.coverage import Coverage, CoverageCount
from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.readers.counter_files import FileSource, Parse
from collectors.source import MASK32, MASK64, NoData, Saturated
from collectors.wire import Object

_OCTETS_PER_FLIT = 8
_FLIT_DRIVERS = ("hfi1",)

_CONSTANT_STATE = ("efa",)
"""Drivers that report ACTIVE and LinkUp whatever the link does. The link's state is that of the
interface, if the port has one."""

_NEVER_COUNTED = {
    "hfi1": {
        *("ib_symbol_errors", "ib_vl15_dropped"),
        *("ib_tx_unicast_packets", "ib_rx_unicast_packets"),
        *("ib_tx_multicast_packets", "ib_rx_multicast_packets"),
    }
}
"""Driver -> metrics whose file always reads 0, since Omni-Path has no such counter."""

# Catalog name -> its spellings below the port's directory, the best first.
_DATA: Dict[str, Tuple[str, ...]] = {
    "ib_tx_bytes": ("counters_ext/port_xmit_data_64", "counters/port_xmit_data"),
    "ib_rx_bytes": ("counters_ext/port_rcv_data_64", "counters/port_rcv_data"),
}
_PACKETS: Dict[str, Tuple[str, ...]] = {
    "ib_tx_packets": ("counters_ext/port_xmit_packets_64", "counters/port_xmit_packets"),
    "ib_rx_packets": ("counters_ext/port_rcv_packets_64", "counters/port_rcv_packets"),
}
_SLOW_PACKETS: Dict[str, Tuple[str, ...]] = {
    f"ib_{direction}_{cast}_packets": (
        f"counters_ext/port_{cast}_{verb}_packets",
        f"counters/{cast}_{verb}_packets",
    )
    for cast in ("unicast", "multicast")
    for direction, verb in (("tx", "xmit"), ("rx", "rcv"))
}
_WAIT: Dict[str, Tuple[str, ...]] = {"ib_tx_wait": ("counters/port_xmit_wait",)}
_ERRORS: Dict[str, Tuple[str, ...]] = {
    "ib_symbol_errors": ("counters/symbol_error",),
    "ib_link_error_recovery": ("counters/link_error_recovery",),
    "ib_link_downed": ("counters/link_downed",),
    "ib_rx_errors": ("counters/port_rcv_errors",),
    "ib_rx_remote_physical_errors": ("counters/port_rcv_remote_physical_errors",),
    "ib_rx_switch_relay_errors": ("counters/port_rcv_switch_relay_errors",),
    "ib_tx_discards": ("counters/port_xmit_discards",),
    "ib_tx_constraint_errors": ("counters/port_xmit_constraint_errors",),
    "ib_rx_constraint_errors": ("counters/port_rcv_constraint_errors",),
    "ib_local_link_integrity_errors": ("counters/local_link_integrity_errors",),
    "ib_excessive_buffer_overruns": ("counters/excessive_buffer_overrun_errors",),
    "ib_vl15_dropped": ("counters/VL15_dropped",),
}

_KNOWN_FILES = {
    name
    for files in (_DATA, _PACKETS, _SLOW_PACKETS, _WAIT, _ERRORS)
    for spellings in files.values()
    for name in spellings
}

_RATE = re.compile(rb"(\d+)(?:\.(\d))? Gb/sec")


class _PortSource(FileSource):
    """Files of every RDMA port, read in order; subclasses define which."""

    def discover(self) -> List[Object]:
        """One object per RDMA port, with the metrics whose files exist."""
        self.close()
        known = ports.find_ports(self.host)
        found = [port for port in known if port.rdma is not None and self._takes(port)]
        if not found:
            raise NoData("no RDMA device")
        self.coverage = self._coverage(found)
        return [self._object(port) for port in found]

    def _coverage(self, found: List[ports.DevicePort]) -> List[Coverage]:
        """What the ports' files are; one source reports those of all."""
        return []

    def _takes(self, port: ports.DevicePort) -> bool:
        return True

    @abstractmethod
    def _object(self, port: ports.DevicePort) -> Object:
        """The object of one port, its files opened in the order of its metrics."""

    def _open(
        self, port: ports.DevicePort, files: Dict[str, Tuple[str, ...]], parse: Parse = int
    ) -> List[str]:
        """Open the best spelling of each metric; the names of those that exist."""
        found = []
        never = _NEVER_COUNTED.get(port.info.get("driver", ""), set())
        for metric, spellings in files.items():
            if metric in never:
                continue
            # Where the 64-bit file exists but has no number, the narrow one may have one.
            there = [name for name in spellings if self.host.exists(port.rdma_path, name)]
            good = [name for name in there if self.host.number(port.rdma_path, name) is not None]
            for name in (good or there)[:1]:
                if self._files.add(f"{port.rdma_path}/{name}", parse=parse):
                    found.append(metric)
        return found

    def _open_state(self, port: ports.DevicePort, files: Dict[str, Tuple[str, ...]]) -> List[str]:
        if port.info.get("driver") in _CONSTANT_STATE:
            return []
        return self._open(port, files, _leading_number)


class Traffic(_PortSource):
    """State, bytes, packets and waiting time of every RDMA port, each tick."""

    name = "ib"

    def _coverage(self, found: List[ports.DevicePort]) -> List[Coverage]:
        count = CoverageCount()
        for port in found:
            there = {
                f"{directory}/{name}"
                for directory in ("counters", "counters_ext")
                for name in self.host.names(port.rdma_path, directory)
            }
            if there:
                count.add(port.info.get("driver"), there, _KNOWN_FILES)
        return count.result()

    def _object(self, port: ports.DevicePort) -> Object:
        octets = _octets(port)
        metrics = self._open_state(port, {"ib_state": ("state",)})
        metrics += self._open(port, _DATA, _words_of(octets))
        metrics += self._open(port, _PACKETS, _not_stuck)
        metrics += self._open(port, _WAIT)
        info = {**port.info, "data_unit_bytes": octets}
        return Object(port.name, port.kind, port.name, info, tuple(metrics))


class RdmaPortBytes(_PortSource):
    """The bytes of some RDMA ports and nothing else: tx, rx. For bursts."""

    name = "ib"

    def __init__(self, host: HostFS, wanted: Container[str]) -> None:
        super().__init__(host)
        self._wanted = wanted

    def _takes(self, port: ports.DevicePort) -> bool:
        return port.name in self._wanted

    def _object(self, port: ports.DevicePort) -> Object:
        metrics = self._open(port, _DATA, _words_of(_octets(port)))
        return Object(port.name, port.kind, port.name, {}, tuple(metrics))


class Errors(_PortSource):
    """Errors, line rate and physical state of every RDMA port, every tenth tick."""

    name = "ib_errors"
    every = 10

    def _object(self, port: ports.DevicePort) -> Object:
        metrics = self._open(port, {"ib_rate_bps": ("rate",)}, parse_rate)
        metrics += self._open_state(port, {"ib_phys_state": ("phys_state",)})
        metrics += self._open(port, _SLOW_PACKETS, _not_stuck)
        metrics += self._open(port, _ERRORS)
        return Object(port.name, port.kind, port.name, {}, tuple(metrics))


def parse_rate(data: bytes) -> int:
    """`400 Gb/sec (4X NDR)` or `2.5 Gb/sec (1X SDR)` -> bits a second. Raises ValueError."""
    match = _RATE.match(data)
    if match is None:
        raise ValueError(f"not a rate: {data!r}")
    whole, tenth = match.groups(b"0")
    return int(whole) * 1_000_000_000 + int(tenth) * 100_000_000


def _leading_number(data: bytes) -> int:
    """`4: ACTIVE` -> 4."""
    return int(data.partition(b":")[0])


def _not_stuck(data: bytes) -> int:
    """A counter of 64 bits, or one of 32 that sticks at its maximum."""
    value = int(data)
    if value == MASK32:
        raise Saturated("a 32-bit counter at its maximum")
    return value


def _octets(port: ports.DevicePort) -> int:
    """Octets that one count of the data counters stands for."""
    return _OCTETS_PER_FLIT if port.info.get("driver") in _FLIT_DRIVERS else OCTETS_PER_WORD


def _words_of(octets: int) -> Parse:
    """Words of that many octets -> bytes, wrapped at 64 bits as a byte counter would be."""

    def parse(data: bytes) -> int:
        return _not_stuck(data) * octets & MASK64

    return parse
