"""What a scenario means on a lab: which sockets send how much when, and what is done to links."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from tests.lab import netns
from tests.lab.fabric import Lab
from tests.lab.hashing import FlowPath
from tests.lab.netns import LabError
from tests.lab.scenario import SOURCE_PORT, Fault, Flow, Job, Scenario
from tests.lab.senders import Collective, Stream, Traffic

Rates = list[tuple[float, float, float]]
"""(from, to, share of line rate), in seconds after the beginning."""

Nic = tuple[str, int]
"""(host, rail)."""

_EXCHANGED = 0.1
"""What the others of a job send, of what they are fed with, while they wait for a straggler."""
_SPORTS = range(40_000, 40_128)
_FIRST_DPORT = 5201
_PORTS_OF_ATTEMPT = 500
"""So many ports later each attempt begins: another hash of every connection."""
_FIELDS_OF_5_TUPLE = 0x37
_FIELDS_OF_SOURCE_PORT = 0x14


@dataclass(frozen=True, slots=True)
class Deed:
    """Something done to the lab so many seconds after the beginning."""

    at_s: float
    do: Callable[[], None]


@dataclass
class Plan:
    """The traffic of a scenario until `end_s`, and the deeds, in order of time."""

    end_s: float
    streams: list[Stream] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)

    @property
    def traffic(self) -> Traffic:
        """What the senders are given."""
        return Traffic(
            streams=tuple(self.streams), collectives=tuple(self.collectives), end_s=self.end_s
        )


def plan(scenario: Scenario, lab: Lab, longer_s: float, attempt: int) -> Plan:
    """Work it out, for so much longer than the scenario is meant to last. Each `attempt`, from 1,
    has other ports and random numbers.

    Sets what the switches hash on, which decides the way of every stream.
    """
    by_source_port = scenario.topology.hash == SOURCE_PORT
    fields = _FIELDS_OF_SOURCE_PORT if by_source_port else _FIELDS_OF_5_TUPLE
    for leaf in lab.layout.leaves:
        netns.write_sysctls(lab.ns(leaf), {"net/ipv4/fib_multipath_hash_fields": str(fields)})
    return _Planner(scenario, lab, scenario.expect.seconds + longer_s, attempt).work()


class _Planner:
    def __init__(self, scenario: Scenario, lab: Lab, end_s: float, attempt: int) -> None:
        self._scenario = scenario
        self._lab = lab
        self._end_s = end_s
        self._attempt = attempt
        later = _PORTS_OF_ATTEMPT * (attempt - 1)
        self._dports = itertools.count(_FIRST_DPORT + later)
        self._sports = range(_SPORTS.start + later, _SPORTS.stop + later)
        self._turns = {
            leaf: itertools.cycle(lab.layout.uplinks(leaf)) for leaf in lab.layout.leaves
        }
        self._plan = Plan(end_s)

    def work(self) -> Plan:
        for job in self._scenario.job:
            if job.step_mb:
                self._collective(job)
            else:
                self._ring(job)
        for flow in self._scenario.flow:
            self._flow(flow)
        for fault in self._scenario.fault:
            self._fault(fault)
        self._plan.deeds.sort(key=lambda deed: deed.at_s)
        return self._plan

    def _until(self, fault: Fault) -> float:
        return self._end_s if fault.duration is None else fault.at + fault.duration

    # -- jobs ------------------------------------------------------------------------------

    def _ring(self, job: Job) -> None:
        for (host, rail), (far, _) in self._pairs("ring"):
            rates = self._rates(job, (host, far), rail)
            made = self._stream((host, rail), (far, rail), job.protocol, job.source_port)
            self._send(made, rates)

    def _pairs(self, pattern: str) -> Iterator[tuple[Nic, Nic]]:
        """(from, to), rail by rail, of every connection of a job; of a ring, each to the next under
        another leaf.
        """
        layout = self._lab.layout
        by_leaf = zip(*(layout.hosts_of(leaf) for leaf in layout.leaves), strict=True)
        ring = [host for hosts in by_leaf for host in hosts]
        for place, host in enumerate(ring):
            fars = ring[place + 1 :] + ring[:place]
            for rail in range(layout.rails):
                for far in fars[:1] if pattern == "ring" else fars:
                    yield (host, rail), (far, rail)

    def _collective(self, job: Job) -> None:
        lab = self._lab
        pairs = list(self._pairs(job.pattern))
        crowds = {fault.where: fault.flows for fault in self._faults("collision")}
        streams = []
        for src, dst in pairs:
            leaf, uplink = lab.layout.leaf_of(src[0]), ""
            for where in crowds:
                crowded, _, port = where.partition("/")
                if crowded == leaf and leaf != lab.layout.leaf_of(dst[0]) and crowds[where]:
                    crowds[where] -= 1
                    uplink = port
                    break
            streams.append(self._stream(src, dst, "tcp", uplink=uplink, congestion="cubic"))
        each_nic = len(pairs) // (len(lab.layout.hosts) * lab.layout.rails)
        late = [(lab.ns(f.where), f.at, f.extra_s) for f in self._faults("straggler")]
        self._plan.collectives.append(
            Collective(
                streams=tuple(streams),
                stream_bytes=round(job.step_mb * 1e6 / each_nic),
                compute_s=job.compute_s,
                start_s=job.start,
                late=tuple(late),
                seed=self._attempt,
            )
        )

    def _flow(self, flow: Flow) -> None:
        fars = flow.dst * len(flow.src) if len(flow.dst) == 1 else flow.dst
        spans = [(flow.start, self._end_s)]
        if flow.every_s:
            begins = range(math.ceil((self._end_s - flow.start) / flow.every_s))
            starts = [flow.start + number * flow.every_s for number in begins]
            spans = [(begin, begin + flow.on_s) for begin in starts]
        for host, far in zip(flow.src, fars, strict=True):
            src, dst = (host, flow.rail), (far, flow.rail)
            made = self._stream(src, dst, flow.protocol, uplink=flow.uplink, congestion="cubic")
            self._send(made, [(*span, flow.share) for span in spans])

    def _rates(self, job: Job, ends_at: tuple[str, str], rail: int) -> Rates:
        """What a job has a connection between two hosts send; who is late takes nothing either."""
        rates: Rates = []
        for begins, waits_until, ends in self._iterations(job):
            late = {f.where for f in self._faults("straggler") if f.at <= begins}
            if waits_until > begins and not late & set(ends_at):
                rates.append((begins, waits_until, _EXCHANGED * job.demand))
            rates.append((waits_until, ends, job.demand))
        for fault in self._scenario.fault:
            rates = self._struck(rates, fault, ends_at[0], rail)
        return rates

    def _iterations(self, job: Job) -> Iterator[tuple[float, float, float]]:
        """When the fast begin to send, when the last one does, and when all have sent."""
        if not job.send_s:
            yield job.start, job.start, self._end_s
            return
        begins = job.start
        while begins < self._end_s:
            extra = [f.extra_s for f in self._faults("straggler") if f.at <= begins]
            waits_until = begins + max(extra, default=0.0)
            yield begins, waits_until, waits_until + job.send_s
            begins = waits_until + job.send_s + job.compute_s

    def _struck(self, rates: Rates, fault: Fault, host: str, rail: int) -> Rates:
        """What a fault leaves of the rates that a job has a NIC send at."""
        span = fault.at, self._until(fault)
        if fault.kind == "oversubscription":
            return _changed(rates, span, lambda _: fault.share)
        if fault.kind == "uneven_rails":
            return _changed(rates, span, lambda share: share * fault.shares[rail])
        if fault.kind == "collision" and host in self._crowd(fault):
            return _changed(rates, span, lambda _: 0.0)
        return rates

    # -- faults ----------------------------------------------------------------------------

    def _faults(self, kind: str) -> list[Fault]:
        return [fault for fault in self._scenario.fault if fault.kind == kind]

    def _crowd(self, fault: Fault) -> tuple[str, ...]:
        leaf, _, _ = fault.where.partition("/")
        return self._lab.layout.hosts_of(leaf)[: fault.flows]

    def _fault(self, fault: Fault) -> None:
        layout, span = self._lab.layout, (fault.at, self._until(fault))
        node, _, port = fault.where.partition("/")
        rates = [(*span, fault.share)]
        synchronous = any(job.step_mb for job in self._scenario.job)
        if fault.kind == "collision" and not synchronous:
            other = next(leaf for leaf in layout.leaves if leaf != node)
            for src, dst in zip(self._crowd(fault), layout.hosts_of(other), strict=False):
                self._send(self._stream((src, 0), (dst, 0), fault.protocol, uplink=port), rates)
        elif fault.kind == "incast":
            other = next(leaf for leaf in layout.leaves if leaf != layout.leaf_of(node))
            for src in layout.hosts_of(other)[: fault.flows]:
                self._send(self._stream((src, 0), (node, 0), fault.protocol), rates)
        elif fault.kind == "degraded_link":
            slow, usual = self._lab.rate_mbps * fault.share, self._lab.rate_mbps
            self._do(span[0], lambda: self._lab.degrade(node, port, slow))
            self._do(span[1], lambda: self._lab.degrade(node, port, usual))
        elif fault.kind == "flap":
            at_s = fault.at
            while at_s < span[1]:
                self._do(at_s, lambda: self._lab.link_down(node, port))
                self._do(at_s + fault.down_s, lambda: self._lab.link_up(node, port))
                at_s += fault.period_s

    def _do(self, at_s: float, deed: Callable[[], None]) -> None:
        self._plan.deeds.append(Deed(at_s, deed))

    # -- streams ---------------------------------------------------------------------------

    def _send(self, stream: Stream, rates: Rates) -> None:
        mbps = self._lab.rate_mbps
        sent = tuple((a, b, share * mbps) for a, b, share in rates if share > 0)
        self._plan.streams.append(msgspec.structs.replace(stream, rates=sent))

    def _stream(
        self,
        src: Nic,
        dst: Nic,
        protocol: str,
        sport: int = 0,
        uplink: str = "",
        congestion: str = "reno",
    ) -> Stream:
        """A stream from NIC to NIC; over an uplink where one is wanted."""
        layout, lab, dport = self._lab.layout, self._lab, next(self._dports)
        leaf = layout.leaf_of(src[0])
        addresses = layout.fabric_address(*src), layout.fabric_address(*dst)
        spray = self._scenario.topology.routing == "spray"
        if spray and not uplink and not sport and leaf != layout.leaf_of(dst[0]):
            uplink = next(self._turns[leaf])
        if uplink:
            entry = layout.port_to(leaf, *src)
            path = FlowPath(lab.ns(leaf), entry, *addresses, dport, protocol)
            ways = dict(zip(path.query(self._sports), self._sports, strict=True))
            if uplink not in ways:
                raise LabError(f"no client port leads from {src[0]} over {uplink}")
            sport = ways[uplink]
        return Stream(
            src_ns=lab.ns(src[0]),
            src=addresses[0],
            nic=layout.ends(src[0])[src[1]][0].port,
            sport=sport or dport,
            dst_ns=lab.ns(dst[0]),
            dst=addresses[1],
            dport=dport,
            protocol=protocol,
            congestion=congestion,
        )


def _changed(rates: Rates, span: tuple[float, float], change: Callable[[float], float]) -> Rates:
    """Rates of which those between two moments are changed."""
    found: Rates = []
    for begins, ends, share in rates:
        a, b = max(begins, span[0]), min(ends, span[1])
        if a >= b:
            found.append((begins, ends, share))
            continue
        parts = [(begins, a, share), (a, b, change(share)), (b, ends, share)]
        found += [part for part in parts if part[0] < part[1]]
    return found
