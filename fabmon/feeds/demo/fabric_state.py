"""What holds in the fabric now: the plant as it is meant to be, and what faults make of it."""

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
    """Faults change it; everything that moves bytes reads it.

    Of ports: `speed` that the port says it has and `capacity` it really has (both bytes/s),
    `errors` that it receives a second. Of NICs: `accept` is the share of line rate that it can
    take and `send` the share that it can be fed with; `storm` the share of time it sends pause
    whatever comes; `pcie` where the host's bus is the reason. `stuck` are links in a deadlock of
    pauses. `extra` are flows of faults, with the rate that each wants. Of jobs, by number: `late`
    is (host, seconds) of a straggler, `rail_shares` what its rails carry, `demand` the share of
    line rate that it asks for now. `silent` hosts send no frames; `crashed` ones have their links
    down too. `pegged` are ports whose symbol errors stick.
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
        """Nothing is wrong."""
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
        """The cable at a port is down, at both ends."""
        self.rules.up[[port, int(self.rules.peer[port])]] = False
