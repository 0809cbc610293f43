"""Traffic of many ticks at once: what is made of stretches, five minutes at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.build import MANAGEMENT_PORTS, Rows, build
from fabmon.fabric.messages import Hello
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.moment import Floats
from fabmon.fabric.stretch import NodeRun, Stretch
from fabmon.fabric.subject import subject
from fabmon.fabric.topology.given import Topology
from fabmon.history.counts import Counts, Layout, Place
from fabmon.history.derive import RATES, WIRE, overrides

PASSAGE_S = 300
"""Seconds of a passage: many iterations of a job, few enough bytes to hold."""

_WAYS = ("tx", "rx")
_RATE = 2


@dataclass(frozen=True, slots=True)
class Passage:
    """Bits/s of every port, [ticks, ports] each way; NaN where it is not known.

    Ticks are `interval_s` apart from `start_ns` on. `line_rate_bps` is [ports]. Rows are those of
    the fabric.
    """

    start_ns: int
    interval_s: float
    fabric: Fabric
    tx_bps: Floats
    rx_bps: Floats
    line_rate_bps: Floats


class _Open:
    """A passage that is being filled: [ways, ticks, ports]."""

    def __init__(self, start_ns: int, interval_s: float, ports: int) -> None:
        self.start_ns = start_ns
        self.interval_s = interval_s
        self.ticks = max(1, round(PASSAGE_S / interval_s))
        self.bps = np.full((len(_WAYS), self.ticks, ports), np.nan, np.float32)

    def put(self, way: int, at: NDArray[np.intp], rows: NDArray[np.intp], values: Floats) -> None:
        most = int(rows.max(initial=-1)) + 1
        if most > self.bps.shape[2]:
            wider = ((0, 0), (0, 0), (0, most - self.bps.shape[2]))
            self.bps = np.pad(self.bps, wider, constant_values=np.nan)
        self.bps[way, at[:, None], rows[None, :]] = values


class Passages:
    """Makes passages of stretches; `fabric` is what has been told of it so far."""

    def __init__(
        self, management: Sequence[str] = MANAGEMENT_PORTS, topology: Topology | None = None
    ) -> None:
        """`management` and `topology` are as for a History."""
        self._management = management
        self._topology = topology
        self._rows = Rows()
        self._hosts: dict[str, Host] = {}
        self._told: dict[str, Hello] = {}
        self._counts: dict[str, tuple[Hello, Counts]] = {}
        self._open: dict[tuple[int, float], _Open] = {}
        self._line_rate: dict[int, float] = {}
        self.fabric: Fabric = build([], {}, self._rows, 0, management, topology)

    def of(
        self, stretches: Iterable[Stretch], from_ns: int = 0, until_ns: int = (1 << 63) - 1
    ) -> Iterator[Passage]:
        """Every passage between two times, by time; stretches have to come by time too."""
        for stretch in stretches:
            yield from self._done(stretch.start_ns)
            self._learn(stretch)
            for run in stretch.runs:
                times, found = self._of_layout(run).accept(run, stretch.interval_s)
                inside = (times >= from_ns) & (times <= until_ns)
                self._put(stretch.interval_s, times[inside], inside, found)
        yield from self._done((1 << 63) - 1)

    def _learn(self, stretch: Stretch) -> None:
        """Build the fabric anew when somebody has told something new."""
        hosts = {host.name: host for host in stretch.hosts}
        changed = [n for n, hello in stretch.hellos.items() if self._told.get(n) is not hello]
        if not changed and hosts.keys() <= self._hosts.keys():
            return
        self._hosts |= hosts
        self._told |= {node: stretch.hellos[node] for node in changed}
        version = self.fabric.version + 1
        hosts_now = list(self._hosts.values())
        self.fabric = build(
            hosts_now, self._told, self._rows, version, self._management, self._topology
        )

    def _of_layout(self, run: NodeRun) -> Counts:
        """What turns a run's counters into rates: the same as before, unless its layout changed."""
        known = self._counts.get(run.node)
        if known is None or (known[0] is not run.hello and not run.hello.counts_like(known[0])):
            places = _places(self._hosts[run.node], self._hosts, run.hello, self._rows)
            known = self._counts[run.node] = (run.hello, Counts(Layout(run.hello, places)))
        return known[1]

    def _put(
        self,
        interval_s: float,
        times: NDArray[np.int64],
        inside: NDArray[np.bool_],
        found: Mapping[int, tuple[NDArray[np.intp], Floats]],
    ) -> None:
        length_ns = int(max(1, round(PASSAGE_S / interval_s)) * interval_s * 1e9)
        number = times // length_ns
        for each in np.unique(number).tolist():
            start_ns = each * length_ns
            key = (start_ns, interval_s)
            opened = self._open.get(key)
            if opened is None:
                opened = self._open[key] = _Open(start_ns, interval_s, len(self._rows))
            here = number == each
            at = ((times[here] - start_ns) / (interval_s * 1e9)).astype(np.intp)
            at = np.minimum(at, opened.ticks - 1)
            for way in range(len(_WAYS)):
                if way in found:
                    rows, values = found[way]
                    opened.put(way, at, rows, values[inside][here])
        if _RATE in found and len(times):
            rows, values = found[_RATE]
            last = values[-1]
            told = np.isfinite(last) & (last > 0)
            rates = zip(rows[told].tolist(), last[told].tolist(), strict=True)
            self._line_rate |= dict(rates)

    def _done(self, before_ns: int) -> Iterator[Passage]:
        for key in sorted(self._open):
            opened = self._open[key]
            if opened.start_ns + opened.ticks * opened.interval_s * 1e9 <= before_ns:
                del self._open[key]
                yield self._closed(opened)

    def _closed(self, opened: _Open) -> Passage:
        ports = len(self.fabric.ports)
        missing = ports - opened.bps.shape[2]
        bps = np.pad(opened.bps, ((0, 0), (0, 0), (0, missing)), constant_values=np.nan)
        rate = overrides(self.fabric.ports, self._hosts)
        for row, told in self._line_rate.items():
            if np.isnan(rate[row]):
                rate[row] = told
        return Passage(opened.start_ns, opened.interval_s, self.fabric, bps[0], bps[1], rate)


def _places(speaker: Host, given: Mapping[str, Host], hello: Hello, rows: Rows) -> list[Place]:
    """Where a node's frame has what its ports send and receive, and their line rates."""
    wanted = {
        template.format(way): (number, rank, float(bits))
        for number, way in enumerate(_WAYS)
        for rank, (template, bits) in enumerate(WIRE)
    }
    wanted |= {name: (_RATE, rank, 1.0) for rank, name in enumerate(RATES)}
    places = []
    position = 0
    for number, block in enumerate(hello.blocks):
        clock = position
        position += 1
        for item in block.objects:
            node = subject(item, speaker, given)
            for place, name in enumerate(item.metrics):
                if name in wanted and item.port is not None and node is not None:
                    what, rank, bits = wanted[name]
                    row = rows.of(node, item.port)
                    where = position + place
                    places.append(Place(what, row, rank, bits, where, clock, number, name))
            position += len(item.metrics)
    return places
