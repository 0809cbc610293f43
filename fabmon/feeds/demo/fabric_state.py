"""The state of the simulated fabric: the hardware as built, changed by the active faults."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.demo.flows import Flows
from fabmon.feeds.demo.hardware import Hardware
from fabmon.feeds.demo.routing import ForwardingState

Floats = NDArray[np.float64]


@dataclass(slots=True)
class FabricState:
    """Written by faults, read by routing, traffic and counters.

    [ports]: `speed` is the reported line rate and `capacity` the real one (both bytes/s); `errors`
    are received errors per second. [nics]: `accept` is the share of line rate that the NIC can
    receive and `send` the share that it can send; `storm` is the share of time in which it sends
    pause regardless of traffic; `pcie` marks NICs whose limit is the PCIe link. `stuck` are the
    ports of a pause deadlock. `extra` are the flows of faults, with the rate that each demands. By
    job number: `late` is (host, seconds) of a straggler, `rail_shares` the load of its rails,
    `demand` the share of line rate that it demands. `silent` hosts send no frames; the links of
    `crashed` hosts are down too. `pegged` are ports whose symbol error counter is saturated.
    """

    rules: ForwardingState
    speed: Floats
    capacity: Floats
    errors: Floats
    accept: Floats
    send: Floats
    storm: Floats
    pcie: NDArray[np.bool_]
    stuck: list[int] = field(default_factory=list)
    extra: list[tuple[Flows, Floats]] = field(default_factory=list)
    late: dict[int, tuple[int, float]] = field(default_factory=dict)
    rail_shares: dict[int, Floats] = field(default_factory=dict)
    demand: dict[int, float] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    crashed: set[int] = field(default_factory=set)
    pegged: list[int] = field(default_factory=list)

    @classmethod
    def healthy(cls, hardware: Hardware) -> FabricState:
        """The state without faults."""
        return cls(
            rules=ForwardingState(hardware.cabling.copy(), np.ones(hardware.ports, np.bool_)),
            speed=hardware.speed.copy(),
            capacity=hardware.speed.copy(),
            errors=np.zeros(hardware.ports),
            accept=np.ones(hardware.nics),
            send=np.ones(hardware.nics),
            storm=np.zeros(hardware.nics),
            pcie=np.zeros(hardware.nics, np.bool_),
        )

    def cut(self, port: int) -> None:
        """Take the link of a port down, at both ends."""
        self.rules.up[[port, int(self.rules.peer[port])]] = False
