"""Jobs: programs that compute, transfer and wait, as training and serving do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tests.world.flows import Flow
from tests.world.topology import FRONTEND, STORAGE, Topology
from tests.world.world import Part, Program, Sleep, Transfer, World, outside_flow, path_flow


@dataclass
class Cluster:
    """What jobs run on. `late_s` are hosts that begin every collective so much later (stragglers);
    `left_out` are rails that hosts do not use."""

    world: World
    routing: str
    rng: np.random.Generator
    qps: int = 1
    late_s: dict[int, float] = field(default_factory=dict)
    left_out: dict[int, set[int]] = field(default_factory=dict)
    joins: dict[int, float] = field(default_factory=dict)
    """When hosts are first seen, for those that are not there from the start."""
    groups: list[int] = field(default_factory=list)
    """Groups of flows between NICs, for faults that move their paths."""

    @property
    def topology(self) -> Topology:
        """The hardware."""
        return self.world.topology

    @property
    def nic_rate(self) -> float:
        """Bytes/s that an undisturbed NIC moves."""
        topology = self.topology
        gbps = topology.shape.nic_gbps / (2 if topology.shape.slow_hosts else 1)
        return gbps * 1e9 / 8 * self.world.transport.settings.saturation

    def flow(self, src: int, dst: int, routing: str = "") -> Flow:
        """A new connection between two NICs."""
        key = int(self.rng.integers(1 << 62))
        return path_flow(self.topology, src, dst, key, routing or self.routing)

    def group(self, pairs: Sequence[tuple[int, int]], routing: str = "") -> int:
        """A group of connections between NICs, `qps` of them per pair."""
        flows = [self.flow(a, b, routing) for a, b in pairs for _ in range(self.qps)]
        group = self.world.add_group(flows)
        self.groups.append(group)
        return group

    def rings(self, hosts: Sequence[int], rails: Sequence[int] | None = None) -> list[int]:
        """A ring over these hosts on each rail: a group per rail."""
        rails = range(self.topology.shape.rails) if rails is None else rails
        found = []
        for rail in rails:
            used = [h for h in hosts if rail not in self.left_out.get(h, ())]
            nics = [self.topology.nic(h, rail) for h in used]
            if len(nics) > 1:
                found.append(self.group(list(zip(nics, nics[1:] + nics[:1], strict=True))))
        return found

    def delay(self, hosts: Sequence[int]) -> float:
        """How long a collective of these hosts waits for the latest of them."""
        return max((self.late_s.get(h, 0.0) for h in hosts), default=0.0)

    def around(self, value: float, spread: float) -> float:
        """A value with a random deviation."""
        return float(value * max(0.2, 1 + self.rng.normal(0, spread)))


def ring_all_reduce(
    c: Cluster,
    hosts: Sequence[int],
    step_s: float,
    share: float,
    apart_s: float = 0.0,
    warm_up: int = 3,
) -> Program:
    """Synchronous data parallelism: each rail's ring begins a little apart, and all meet at the
    barrier. The first steps are slow (compilation, page faults)."""
    rings = c.rings(hosts)
    rails_apart = c.rng.uniform(0, apart_s, len(rings)) if rings else np.zeros(0)
    size = step_s * share * c.nic_rate / c.qps
    for _ in range(warm_up):
        yield Sleep(c.around(step_s * 2, 0.2))
        yield Transfer([Part(ring, size * 0.2) for ring in rings])
    while True:
        yield Sleep(c.around(step_s * (1 - share), 0.03))
        late = c.delay(hosts)
        begin = np.maximum(0, rails_apart + c.rng.normal(0, apart_s / 10 + 1e-4, len(rings)))
        yield Transfer(
            [
                Part(ring, c.around(size, 0.01), late + float(b))
                for ring, b in zip(rings, begin, strict=True)
            ]
        )


def fsdp(c: Cluster, hosts: Sequence[int], step_s: float, share: float, layers: int = 8) -> Program:
    """Reduce-scatter and all-gather, layer by layer, with computing between."""
    rings = c.rings(hosts)
    size = step_s * share * c.nic_rate / layers / c.qps
    while True:
        for _ in range(layers):
            yield Sleep(c.around(step_s * (1 - share) / layers, 0.1))
            late = c.delay(hosts) / layers
            yield Transfer([Part(ring, c.around(size, 0.01), late) for ring in rings])


def hierarchical_all_reduce(
    c: Cluster, hosts: Sequence[int], step_s: float, share: float
) -> Program:
    """Reduce inside the hosts (NVLink), between pairs of leaves, then across all, and back."""
    rings = c.rings(hosts)
    c.topology.forget_plan()  # these do not send at the same time
    half = len(hosts) // 2
    local = [*c.rings(hosts[:half]), *c.rings(hosts[half:])]
    size = step_s * share * c.nic_rate / 3 / c.qps
    while True:
        yield Sleep(c.around(step_s * (1 - share) * 0.8, 0.03))
        for groups in (local, rings, local):
            late = c.delay(hosts)
            yield Transfer([Part(g, c.around(size, 0.01), late) for g in groups])
            yield Sleep(c.around(step_s * (1 - share) * 0.07, 0.1))


def tree_all_reduce(c: Cluster, hosts: Sequence[int], step_s: float, share: float) -> Program:
    """A double binary tree on each rail."""
    groups = []
    for rail in range(c.topology.shape.rails):
        pairs = []
        for order in (list(hosts), list(hosts)[::-1]):
            nics = [c.topology.nic(h, rail) for h in order]
            for place in range(1, len(nics)):
                pairs.append((nics[place], nics[(place - 1) // 2]))
        groups.append(c.group(pairs))
        # Each tree carries half of the data, at the pace of its receivers.
        c.world.table.cap[groups[-1]] = c.nic_rate / 2.1 / c.qps
    size = step_s * share * c.nic_rate / 2.1 / c.qps
    while True:
        yield Sleep(c.around(step_s * (1 - share), 0.03))
        late = c.delay(hosts)
        yield Transfer([Part(g, c.around(size, 0.01), late) for g in groups])


def all_to_all(
    c: Cluster, hosts: Sequence[int], step_s: float, share: float, skewed: float = 0.05
) -> Program:
    """Mixture of experts: every NIC to the same rail of every other host, flow by flow."""
    qps, c.qps = c.qps, 1
    pairs: list[tuple[int, int, int]] = []
    for rail in range(c.topology.shape.rails):
        for a in hosts:
            for b in hosts:
                if a != b:
                    pair = (c.topology.nic(a, rail), c.topology.nic(b, rail))
                    pairs.append((c.group([pair]), a, b))
    c.qps = qps
    size = step_s * share * c.nic_rate / (len(hosts) - 1)
    while True:
        yield Sleep(c.around(step_s * (1 - share), 0.03))
        yield Transfer([Part(g, c.around(size, skewed), c.delay((a, b))) for g, a, b in pairs])


def pipeline(c: Cluster, hosts: Sequence[int], every_s: float, share: float) -> Program:
    """Pipeline stages: activations to the next host, one direction at a time."""
    rails = c.topology.shape.rails
    ways: list[list[tuple[int, int]]] = []
    for pairs in (list(pairwise(hosts)), [(b, a) for a, b in pairwise(hosts)]):
        c.topology.forget_plan()  # the two directions do not send at the same time
        nics = [
            (c.topology.nic(a, r), c.topology.nic(b, r), a) for a, b in pairs for r in range(rails)
        ]
        ways.append([(c.group([(here, there)]), a) for here, there, a in nics])
    forward, backward = ways
    size = every_s * share * c.nic_rate / c.qps
    while True:
        for direction in (forward, forward, forward, backward, backward, backward):
            yield Transfer(
                [
                    Part(g, c.around(size, 0.05), c.delay((a,)) + c.rng.uniform(0, every_s * 0.2))
                    for g, a in direction
                ]
            )
            yield Sleep(c.around(every_s * (1 - share), 0.1))


def parameter_server(c: Cluster, hosts: Sequence[int], load: float) -> Program:
    """Workers push to one host and pull from it: many senders, a receiver far from full."""
    server, workers = hosts[0], hosts[1:]
    groups = []
    for worker in workers:
        rail = int(c.rng.integers(c.topology.shape.rails))
        a, b = c.topology.nic(worker, rail), c.topology.nic(server, rail)
        groups += [c.group([(a, b)]), c.group([(b, a)])]
    for group in groups:
        c.world.table.cap[group] = load * c.nic_rate / len(workers) / c.qps
    while True:
        yield Transfer(
            [
                Part(g, c.world.table.cap[g] * c.around(1.0, 0.3), c.rng.uniform(0, 0.3))
                for g in groups
            ]
        )
        yield Sleep(c.around(0.2, 0.3))


def inference(c: Cluster, hosts: Sequence[int], load: float) -> Program:
    """Requests between random hosts at some percent of line rate."""
    pairs = []
    for a in hosts:
        for _ in range(2):
            b = int(c.rng.choice([h for h in hosts if h != a]))
            rail = int(c.rng.integers(c.topology.shape.rails))
            pairs.append((c.topology.nic(a, rail), c.topology.nic(b, rail)))
    groups = [c.group([pair]) for pair in pairs]
    while True:
        chosen = c.rng.permutation(groups)[: max(1, len(groups) * 2 // 3)]
        for group in chosen:
            c.world.table.cap[group] = c.rng.uniform(0.3, 1.7) * load * c.nic_rate / c.qps / 2
        yield Transfer(
            [
                Part(int(g), c.world.table.cap[g] * c.rng.uniform(0.2, 0.9), c.rng.uniform(0, 0.1))
                for g in chosen
            ]
        )


def streams(c: Cluster, pairs: Sequence[tuple[int, int]], load: float = 1.0) -> Program:
    """Connections between NICs that never pause: elephants, or mice when `load` is small."""
    groups = [c.group([pair]) for pair in pairs]
    for group in groups:
        if load < 1:
            c.world.table.cap[group] = load * c.nic_rate / c.qps
    while True:
        yield Transfer([Part(g, c.nic_rate * load * 5) for g in groups])


def data_loading(c: Cluster, hosts: Sequence[int], load: float, role: int = FRONTEND) -> Program:
    """Samples arrive from outside at a port of that role, in bursts."""
    groups = []
    for host in hosts:
        for port in c.topology.hosts[host]:
            if c.topology.role[port] == role:
                group = c.world.add_group(
                    [outside_flow(c.topology, port, inwards=True)], tcp=role == FRONTEND
                )
                c.world.table.cap[group] = load * c.topology.speed[port]
                groups.append(group)
    while True:
        yield Transfer(
            [
                Part(g, c.world.table.cap[g] * c.rng.uniform(0.5, 4.0), c.rng.uniform(0, 1.0))
                for g in groups
            ]
        )
        yield Sleep(c.around(0.5, 0.5))


def checkpoints(c: Cluster, hosts: Sequence[int], every_s: float, seconds: float) -> Program:
    """Every host writes through its storage NIC (or frontend) at once, then nothing for long."""
    groups = []
    for host in hosts:
        ports = [p for p in c.topology.hosts[host] if c.topology.role[p] == STORAGE]
        ports = ports or [p for p in c.topology.hosts[host] if c.topology.role[p] == FRONTEND]
        for port in ports:
            flow = outside_flow(c.topology, port, inwards=False)
            tcp = bool(c.topology.role[port] == FRONTEND)
            groups.append((c.world.add_group([flow], tcp=tcp), c.topology.speed[port]))
    while True:
        yield Sleep(c.around(every_s, 0.1))
        yield Transfer([Part(g, c.around(seconds, 0.1) * s * 0.9) for g, s in groups])


def console_traffic(c: Cluster, hosts: Sequence[int]) -> Program:
    """SSH, metrics and logs over the frontends."""
    groups = []
    for host in hosts:
        for port in c.topology.hosts[host]:
            if c.topology.role[port] == FRONTEND:
                for inwards in (True, False):
                    flow = outside_flow(c.topology, port, inwards)
                    groups.append(c.world.add_group([flow], tcp=True))
    for group in groups:
        c.world.table.cap[group] = 2e5
    while groups:
        yield Transfer([Part(g, c.rng.uniform(1e5, 1e6)) for g in groups])
        yield Sleep(1.0)


def interleaved(c: Cluster, hosts: Sequence[int]) -> list[int]:
    """An order in which neighbours are below different leaves: every flow crosses the spines."""
    per_leaf: dict[int, list[int]] = {}
    for host in hosts:
        per_leaf.setdefault(c.topology.leaf_of[c.topology.nic(host, 0)], []).append(host)
    order: list[int] = []
    while any(per_leaf.values()):
        for mine in per_leaf.values():
            if mine:
                order.append(mine.pop(0))
    return order


@dataclass(frozen=True)
class Job:
    """A program with the hosts it runs on and when it runs."""

    name: str
    hosts: tuple[int, ...]
    program: Callable[[], Program]
    start_s: float = 0.0
    stop_s: float | None = None


def start_jobs(c: Cluster, jobs: Sequence[Job]) -> None:
    """Start the jobs of a workload, each at its time."""
    for job in jobs:
        running = c.world.start(_lazily(job), job.start_s)
        if job.stop_s is not None:
            c.world.at(job.stop_s, lambda running=running: c.world.stop(running))  # type: ignore[misc]


def _lazily(job: Job) -> Program:
    yield from job.program()
