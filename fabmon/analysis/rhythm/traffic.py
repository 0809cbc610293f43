"""The last minutes of what hosts sent, as the rhythm needs them: a row a tick."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import HOST, RAIL, Fabric
from fabmon.fabric.moment import Floats, Moment

TICKS = 240
"""What is looked back at: four minutes at one tick a second."""

_RAIL_TICKS = 60


class Traffic:
    """Bits/s that each host sent, tick by tick, and what each rail sent lately.

    `hosts` are names, `rails` the port rows of all of them, a host's next to each other; `host_of`
    and `index_of` say which host a rail is of, and its number there.
    """

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] = ()
        self.rails: NDArray[np.intp] = np.empty(0, np.intp)
        self.host_of: NDArray[np.intp] = np.empty(0, np.intp)
        self.index_of: NDArray[np.intp] = np.empty(0, np.intp)
        self._version = -1
        self._seq = -1
        self._kept = 0
        self._hosts_sent: Floats = np.empty((TICKS, 0), np.float32)
        self._rails_sent: Floats = np.empty((_RAIL_TICKS, 0), np.float32)

    @property
    def ticks(self) -> int:
        """How many ticks are known, those that were missed included."""
        return self._kept

    def accept(self, moment: Moment) -> None:
        """Take what was sent at this tick."""
        if moment.fabric.version != self._version:
            self._lay_out(moment.fabric)
        passed = moment.seq - self._seq
        if self._seq < 0 or passed < 1 or passed >= TICKS:
            self._kept, passed = 0, 1
        for missed in range(moment.seq - passed + 1, moment.seq):
            self._hosts_sent[missed % TICKS] = np.nan
            self._rails_sent[missed % _RAIL_TICKS] = 0.0
        self._seq = moment.seq
        self._kept = min(TICKS, self._kept + passed)
        sent = moment.column("tx_bps")[self.rails]
        known = np.isfinite(sent)
        sent = np.where(known, sent, np.float32(0.0))
        count = len(self.hosts)
        total = np.bincount(self.host_of, sent, count).astype(np.float32)
        total[np.bincount(self.host_of, known, count) == 0] = np.nan
        self._hosts_sent[moment.seq % TICKS] = total
        self._rails_sent[moment.seq % _RAIL_TICKS] = sent

    def of_hosts(self, ticks: int) -> Floats:
        """[ticks, hosts] bits/s, oldest first; NaN where a host was not heard of."""
        return self._hosts_sent[self._places(min(ticks, self._kept), TICKS)]

    def of_rails(self) -> Floats:
        """[rails] mean bits/s over the last minute of ticks."""
        places = self._places(min(_RAIL_TICKS, self._kept), _RAIL_TICKS)
        mean: Floats = self._rails_sent[places].mean(axis=0)
        return mean

    def _places(self, ticks: int, of: int) -> NDArray[np.intp]:
        return np.arange(self._seq - ticks + 1, self._seq + 1) % of

    def _lay_out(self, fabric: Fabric) -> None:
        """Where everything is in a fabric that has changed; what is known of a port stays."""
        self._version = fabric.version
        nodes = [
            (node.name, [port for port in node.ports if port.role == RAIL])
            for node in fabric.nodes
            if node.role == HOST
        ]
        nodes = [(name, rails) for name, rails in nodes if rails]
        hosts = tuple(name for name, _ in nodes)
        rails = np.array([port.row for _, ports in nodes for port in ports], np.intp)
        self._hosts_sent = _moved(self._hosts_sent, self.hosts, hosts, np.nan)
        self._rails_sent = _moved(
            self._rails_sent, tuple(self.rails.tolist()), tuple(rails.tolist()), 0.0
        )
        self.hosts, self.rails = hosts, rails
        self.host_of = np.repeat(np.arange(len(nodes)), [len(ports) for _, ports in nodes])
        self.index_of = np.array([port.index for _, ports in nodes for port in ports], np.intp)


def _moved(
    values: Floats, before: tuple[object, ...], after: tuple[object, ...], empty: float
) -> Floats:
    """The columns of `before` at their places in `after`."""
    moved = np.full((len(values), len(after)), empty, np.float32)
    place = {name: number for number, name in enumerate(before)}
    pairs = [(number, place[name]) for number, name in enumerate(after) if name in place]
    if pairs:
        new, old = (list(side) for side in zip(*pairs, strict=True))
        moved[:, new] = values[:, old]
    return moved
