"""Network interfaces, with the counters of the kernel's network stack.

RDMA bypasses the stack: on a RoCE port these bytes are a small part, and the wire is `phy_*` of the
source ethtool. The counters of all interfaces come from one read of /proc/net/dev, which shows the
network namespace of the reader; the same numbers are in 24 files an interface in sysfs.
"""

from __future__ import annotations

from typing import Container, Dict, List, Optional, Tuple

from collectors.hostfs import File, HostFS
from collectors.readers import ports
from collectors.readers.counter_files import FileSource, fault_reason
from collectors.source import Faults, NoData, Source, Unsupported, from_oserror
from collectors.wire import Object

# Catalog name -> column of /proc/net/dev after the interface's name. `drop` includes packets that
# the device missed for lack of buffers.
_COLUMNS: Tuple[Tuple[str, int], ...] = (
    ("netdev_rx_bytes", 0),
    ("netdev_tx_bytes", 8),
    ("netdev_rx_packets", 1),
    ("netdev_tx_packets", 9),
    ("netdev_rx_errors", 2),
    ("netdev_tx_errors", 10),
    ("netdev_rx_drops", 3),
    ("netdev_tx_drops", 11),
)
_STATE = ("netdev_up", "netdev_carrier_changes")
_TRAFFIC = tuple(name for name, _ in _COLUMNS)


class Netdev(Source):
    """State and traffic of every port's interface, each tick."""

    name = "netdev"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._table: Optional[File] = None
        self._rows: Dict[bytes, int] = {}
        self._states: List[_State] = []

    def discover(self) -> List[Object]:
        """One object per port that has an interface, with its facts in `info`."""
        self.close()
        try:
            found = _ports_with_netdev(self.host)
            self._table = self.host.open("proc/net/dev")
        except OSError as error:
            raise from_oserror(error) from error
        objects: List[Object] = []
        for port, netdev in found:
            try:
                state = _State(self.host, f"{ports.NET}/{netdev}")
            except OSError:
                continue  # it went away since it was listed
            self._rows[netdev.encode()] = len(objects)
            self._states.append(state)
            objects.append(Object(netdev, port.kind, port.name, port.info, _STATE + _TRAFFIC))
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """Ten values per interface; those of one that is gone are `absent`."""
        if self._table is None:
            raise NoData("nothing was discovered")
        try:
            lines = self._table.read_all().split(b"\n")
        except OSError as error:
            raise from_oserror(error) from error
        traffic: List[Optional[List[bytes]]] = [None] * len(self._states)
        for line in lines:
            name, _, cells = line.partition(b":")
            row = self._rows.get(name.strip())
            if row is not None:
                traffic[row] = cells.split()
        values: List[Optional[int]] = []
        for row, state in enumerate(self._states):
            state.read(values, faults)
            columns = traffic[row]
            if columns is None:
                faults.update((len(values) + index, "absent") for index in range(len(_COLUMNS)))
                values.extend([None] * len(_COLUMNS))
            else:
                values.extend([int(columns[column]) for _, column in _COLUMNS])
        return values

    def signature(self) -> object:
        """Changes when an interface appears, goes away or is replaced."""
        return ports.signature(self.host)

    def close(self) -> None:
        """Close every file."""
        if self._table is not None:
            self._table.close()
        for state in self._states:
            state.close()
        self._table, self._rows, self._states = None, {}, []


class NetdevLink(FileSource):
    """Line rate and MTU of every port's interface, every tenth tick.

    A rate that the kernel does not know, for example while the link is down, is `unsupported`.
    """

    name = "netdev_link"
    every = 10

    def discover(self) -> List[Object]:
        """One object per port that has an interface."""
        self.close()
        objects: List[Object] = []
        for port, netdev in _ports_with_netdev(self.host):
            metrics = tuple(
                metric
                for metric, file, parse in (
                    ("netdev_speed_bps", "speed", _speed),
                    ("netdev_mtu", "mtu", int),
                )
                if self._files.add(f"{ports.NET}/{netdev}/{file}", parse=parse)
            )
            objects.append(Object(netdev, port.kind, port.name, {}, metrics))
        return objects


class InterfaceBytes(FileSource):
    """The bytes of some ports' interfaces and nothing else: tx, rx. For bursts.

    From sysfs, where a read queries one interface; /proc/net/dev queries all of the machine.
    """

    name = "netdev"

    def __init__(self, host: HostFS, wanted: Container[str]) -> None:
        super().__init__(host)
        self._wanted = wanted

    def discover(self) -> List[Object]:
        """One object per wanted port that has an interface."""
        self.close()
        objects: List[Object] = []
        for port, netdev in _ports_with_netdev(self.host):
            if port.name in self._wanted:
                metrics = tuple(
                    f"netdev_{way}_bytes"
                    for way in ("tx", "rx")
                    if self._files.add(f"{ports.NET}/{netdev}/statistics/{way}_bytes")
                )
                objects.append(Object(netdev, port.kind, port.name, {}, metrics))
        return objects


class _State:
    """The open files with an interface's state, and how often it changed."""

    def __init__(self, fs: HostFS, directory: str) -> None:
        self._files = [fs.open(directory, "operstate")]
        try:
            for name in ("carrier", "carrier_changes"):
                self._files.append(fs.open(directory, name))
        except OSError:
            self.close()
            raise
        self._operstate, self._carrier, self._changes = self._files

    def read(self, values: List[Optional[int]], faults: Faults) -> None:
        """Append the two values of `_STATE`."""
        for value in (self._up, self._changed):
            try:
                values.append(value())
            except (OSError, ValueError) as error:
                faults[len(values)] = fault_reason(error)
                values.append(None)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _up(self) -> int:
        state = self._operstate.read()
        if state.startswith(b"unknown"):
            # Drivers without an operational state still have a carrier, which cannot be read while
            # the interface is administratively down.
            try:
                return int(self._carrier.read())
            except OSError:
                return 0
        return int(state.startswith(b"up"))

    def _changed(self) -> int:
        return int(self._changes.read())


def _ports_with_netdev(fs: HostFS) -> List[Tuple[ports.DevicePort, str]]:
    found = [(port, port.netdev) for port in ports.find_ports(fs) if port.netdev is not None]
    if not found:
        raise NoData("no network interface is a port")
    return found


def _speed(data: bytes) -> int:
    """Mb/s -> b/s. The kernel writes -1, also as an unsigned number, for an unknown rate."""
    megabits = int(data)
    if not 0 < megabits < 0xFFFFFFFF:
        raise Unsupported("the line rate is not known")
    return megabits * 1_000_000
