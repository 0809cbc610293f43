"""The connected queue pairs, as the hosts of a simulated fabric report them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fabmon.fabric.flows.queue_pairs import KIND, MOST_PAIRS, SOURCE
from fabmon.fabric.wire.messages import BlockInfo, ObjectInfo
from fabmon.feeds.demo.flows import Flows
from fabmon.feeds.demo.hardware import Hardware

Owner = dict[str, Any]
"""The process of a queue pair: `comm`, `pid`, and `job` where it has one."""


class QueuePairReports:
    """The queue pairs at both ends of every flow; `parts` are the flows of each process."""

    def __init__(self, hardware: Hardware, parts: Sequence[tuple[Flows, Owner]]) -> None:
        self._hardware = hardware
        self._owners = [owner for _, owner in parts]
        flows = Flows.joined([each for each, _ in parts])
        owner = np.repeat(np.arange(len(parts)), [len(each) for each, _ in parts])
        nic = np.concatenate([flows.src, flows.dst])
        order = np.argsort(nic, kind="stable")
        self._lqpn = np.concatenate([flows.lqpn, flows.rqpn])[order]
        self._rqpn = np.concatenate([flows.rqpn, flows.lqpn])[order]
        self._owner = np.concatenate([owner, owner])[order]
        self._starts = np.searchsorted(nic[order], np.arange(hardware.nics + 1))
        self._versions: dict[int, int] = {}

    def version(self, host: int) -> int:
        """A hash of the queue pairs of a host: it changes when its report does."""
        known = self._versions.get(host)
        if known is None:
            rails = self._hardware.rails
            own = slice(self._starts[host * rails], self._starts[(host + 1) * rails])
            known = self._versions[host] = hash(
                self._lqpn[own].tobytes() + self._rqpn[own].tobytes() + self._owner[own].tobytes()
            )
        return known

    def block(self, host: int) -> BlockInfo:
        """The report of a host."""
        rails = self._hardware.rails
        items = [self._object(host * rails + rail, MOST_PAIRS // rails) for rail in range(rails)]
        return BlockInfo(SOURCE, 10, tuple(items))

    def _object(self, nic: int, most: int) -> ObjectInfo:
        start, end = int(self._starts[nic]), int(self._starts[nic + 1])
        own = slice(start, min(end, start + most))
        lqpn = self._lqpn[own].tolist()
        owners, process = np.unique(self._owner[own], return_inverse=True)
        rail = nic % self._hardware.rails
        name = self._hardware.port_name(nic)
        processes = [
            {**self._owners[each], "pid": self._owners[each]["pid"] + rail}
            for each in owners.tolist()
        ]
        info = {
            "port": name,
            "count": end - start,
            "lqpn": lqpn,
            "rqpn": self._rqpn[own].tolist(),
            "type": ["RC"] * len(lqpn),
            "sq_psn": [0] * len(lqpn),
            "rq_psn": [0] * len(lqpn),
            "process": process.tolist(),
            "processes": processes,
        }
        return ObjectInfo(f"{SOURCE}/{name}", KIND, None, info, ())
