"""Wire, pause, drop and error counters of Ethernet NICs: the counters of `ethtool -S`.

No privilege is needed. A tree at another root carries the output of `ethtool -S <interface>` in
`<root>/ethtool/<interface>.txt`; the names are handled the same way.

Names that match no rule of `ethtool_names` are not read, which is most of them (per-queue
counters); they are counted and named in the coverage. A driver without rules is read by the usual
names of all drivers, and marked so.

A missing counter is not zero: mlx5 lists a priority's pause counters only while PFC is on for it,
ice and i40e count pause frames but not their duration.
"""

from __future__ import annotations

import contextlib
from typing import Dict, List, NamedTuple, Optional

from collectors.catalog import CATALOG
from collectors.coverage import CoverageCount
from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.readers.ethtool_names import NOT_WITH_RDMA, RULES, SWITCHD, USUAL, metric_of
from collectors.readers.ethtool_stats import EthtoolSocket, EthtoolStats, SocketStats, TextStats
from collectors.source import Faults, NoData, Source, SourceError, Unsupported, from_oserror
from collectors.wire import Object


class _Wanted(NamedTuple):
    """An interface, the driver's names at the discovery, and the number of metrics chosen.

    `sums` has the places of each metric's parts among the values read; None where each metric is
    one value.
    """

    stats: EthtoolStats
    names: List[str]
    metrics: int
    sums: Optional[List[List[int]]]


class Ethtool(Source):
    """The counters of every port that has a driver, each tick."""

    name = "ethtool"
    deadline_s = 0.5  # a firmware behind mailbox commands takes a few ms a port, more when busy

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._socket: Optional[EthtoolSocket] = None
        self._wanted: List[_Wanted] = []
        self._moved = 0

    def discover(self) -> List[Object]:
        """One object per interface with at least one counter that the catalog knows."""
        self.close()
        try:
            found = ports.find_ports(self.host)
            self._socket = EthtoolSocket() if self.host.is_live else None
        except OSError as error:
            raise from_oserror(error) from error
        objects = []
        count = CoverageCount()
        for port in found:
            rules = _rules_of(port)
            if port.netdev is None or rules is None:
                continue
            # An interface that went away, or cannot be read, loses its own counters only.
            with contextlib.suppress(OSError, SourceError):
                item = self._object(port, port.netdev, rules, count)
                if item.metrics:
                    objects.append(item)
        self.coverage = count.result()
        if not objects:
            if self.coverage:
                raise Unsupported(", ".join(map(str, self.coverage)))
            raise NoData("no interface whose driver lists counters")
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The chosen values; an interface that cannot be read has none."""
        values: List[Optional[int]] = []
        for item in self._wanted:
            reason = ""
            try:
                numbers = item.stats.read()
                if numbers is not None:
                    if item.sums is None:
                        values.extend(numbers)
                    else:
                        values.extend(sum(numbers[place] for place in sum_) for sum_ in item.sums)
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

    def _object(
        self, port: ports.DevicePort, interface: str, rules: str, count: CoverageCount
    ) -> Object:
        stats: EthtoolStats
        if self._socket is not None:
            stats = SocketStats(self._socket, interface)
        else:
            stats = TextStats(self.host, "ethtool", f"{interface}.txt")
        names = stats.names()
        chosen: Dict[str, List[int]] = {}
        read = []
        for position, name in enumerate(names):
            metric, is_sum = metric_of(rules, name)
            if metric in CATALOG and not (
                rules == USUAL and port.rdma is not None and NOT_WITH_RDMA.fullmatch(metric)
            ):
                read.append(name)
                if metric not in chosen:
                    chosen[metric] = [position]
                elif is_sum:
                    chosen[metric].append(position)
        count.add(port.info.get("driver", rules), names, read, guessed=rules == USUAL)
        metrics = sorted(chosen, key=lambda metric: chosen[metric][0])
        positions = sorted(position for each in chosen.values() for position in each)
        stats.choose(positions, len(names))
        places = {position: place for place, position in enumerate(positions)}
        sums = [[places[position] for position in chosen[metric]] for metric in metrics]
        has_sums = len(positions) > len(metrics)
        self._wanted.append(_Wanted(stats, names, len(metrics), sums if has_sums else None))
        info = {"ethtool": "counters by pattern"} if rules == USUAL and metrics else {}
        return Object(interface, port.kind, port.name, info, tuple(metrics))


def _rules_of(port: ports.DevicePort) -> Optional[str]:
    """Whose names the port's counters have; None for a virtual interface, which has no driver."""
    driver = port.info.get("driver")
    if driver in RULES:
        return str(driver)
    if ports.is_front_panel(port.name):
        return SWITCHD
    return None if driver is None else USUAL
