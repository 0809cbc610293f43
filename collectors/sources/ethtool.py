"""Wire, pause, drop and error counters of Ethernet NICs: what `ethtool -S` prints.

No privilege is needed. A tree at another root carries the output of `ethtool -S <interface>` as
`<root>/ethtool/<interface>.txt`; the names are handled alike.
"""

from __future__ import annotations

import contextlib
from typing import Dict, List, NamedTuple, Optional

from collectors import ports
from collectors.catalog import CATALOG
from collectors.gstats import EthtoolSocket, SocketStats, Stats, TextStats
from collectors.hostfs import HostFS
from collectors.source import Faults, NoData, Source, SourceError, from_oserror
from collectors.sources.ethtool_names import RULES, SWITCHD, catalog_name
from collectors.wire import Object


class _Wanted(NamedTuple):
    """An interface, the driver's names when they were last looked at, and the metrics chosen."""

    stats: Stats
    names: List[str]
    metrics: int


class Ethtool(Source):
    """The counters of every port whose driver is known, each tick."""

    name = "ethtool"
    deadline_s = 0.5  # a firmware behind mailbox commands takes a few ms a port, more when busy

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._socket: Optional[EthtoolSocket] = None
        self._wanted: List[_Wanted] = []
        self._moved = 0

    def discover(self) -> List[Object]:
        """One object an interface with at least one counter that the catalog knows."""
        self.close()
        try:
            found = ports.find_ports(self.host)
            self._socket = EthtoolSocket() if self.host.is_live else None
        except OSError as error:
            raise from_oserror(error) from error
        objects = []
        for port in found:
            driver = _driver(port)
            if port.netdev is None or driver is None:
                continue
            # One interface that went away, or refuses, costs only itself.
            with contextlib.suppress(OSError, SourceError):
                item = self._object(port, port.netdev, driver)
                if item.metrics:
                    objects.append(item)
        if not objects:
            raise NoData("no interface whose driver's counters are known")
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The chosen values; an interface that cannot be read has none."""
        values: List[Optional[int]] = []
        for item in self._wanted:
            reason = ""
            try:
                numbers = item.stats.read()
                if numbers is not None:
                    values.extend(numbers)
                    continue
                # The driver's list has another length: its positions mean nothing now.
                self._moved += 1
                reason = "absent"
            except OSError as error:
                reason = from_oserror(error).reason
            except SourceError as error:
                reason = error.reason
            start = len(values)
            faults.update((start + place, reason) for place in range(item.metrics))
            values.extend([None] * item.metrics)
        return values

    def signature(self) -> object:
        """Changes when an interface does, or when a driver lists other counters than before.

        The names are compared, not counted: turning global pause off and PFC on for one priority
        leaves the length of mlx5's list as it was.
        """
        for item in self._wanted:
            with contextlib.suppress(OSError, SourceError):
                if item.stats.names() != item.names:
                    self._moved += 1
        return ports.signature(self.host), self._moved

    def close(self) -> None:
        """Close the socket and the files."""
        for item in self._wanted:
            item.stats.close()
        self._wanted = []
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _object(self, port: ports.Port, interface: str, driver: str) -> Object:
        stats: Stats
        if self._socket is not None:
            stats = SocketStats(self._socket, interface)
        else:
            stats = TextStats(self.host, "ethtool", f"{interface}.txt")
        names = stats.names()
        chosen: Dict[str, int] = {}
        for position, name in enumerate(names):
            metric = catalog_name(driver, name)
            if metric in CATALOG:
                chosen.setdefault(metric, position)
        metrics = sorted(chosen, key=chosen.__getitem__)
        stats.choose([chosen[metric] for metric in metrics], len(names))
        self._wanted.append(_Wanted(stats, names, len(metrics)))
        return Object(interface, port.kind, port.name, {}, tuple(metrics))


def _driver(port: ports.Port) -> Optional[str]:
    """Whose names the port's counters have; None when that is not known."""
    driver = port.info.get("driver")
    if driver in RULES:
        return str(driver)
    return SWITCHD if ports.is_front_panel(port.name) else None
