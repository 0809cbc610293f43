"""Builds the world of a plan: a fabric, its clocks and marks, its jobs, and perhaps a fault."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tests.world.faults.registry import BEFORE_JOBS, FAULTS
from tests.world.faults.scene import NotPossibleError, Scene
from tests.world.job_mixes import WORKLOADS, Workload
from tests.world.plans import HOSTS_ONLY, Plan
from tests.world.sampling import Sampler
from tests.world.topology import (
    CLOS,
    FAT_TREE,
    PINNED,
    RAIL_KIND,
    SPRAY,
    STATIC,
    Shape,
    Topology,
)
from tests.world.transport import INFINIBAND, TCP, Settings, Transport
from tests.world.truth import Judge, Truth
from tests.world.watched_nodes import View
from tests.world.workloads import Cluster, Job, console_traffic, start_jobs
from tests.world.world import World

FAULT_AT_S = 45.0

_ATTEMPTS, _OTHER_WORKLOADS = 40, 10
"""Fabrics that are tried, and from which on other workloads are."""


@dataclass
class Run:
    """A world ready to be advanced, with its judge."""

    plan: Plan
    world: World
    sampler: Sampler
    judge: Judge
    routing: str
    """How the paths of its flows are selected."""


def build(given: Plan) -> Run:
    """The world of a plan. A fault that the fabric cannot have is tried on other fabrics, and then
    with other workloads: the plan of the run says which it has."""
    for attempt in range(_ATTEMPTS):
        try:
            return _build(given, attempt)
        except NotPossibleError:
            continue
    raise NotPossibleError(f"{given}")


def _build(given: Plan, attempt: int) -> Run:
    rng = np.random.default_rng([given.seed, 3, attempt])
    workload = WORKLOADS[given.workload]
    if given.fault and (attempt >= _OTHER_WORKLOADS or not workload.suits(given.fault)):
        names = [name for name, each in WORKLOADS.items() if each.suits(given.fault)]
        given = replace(given, workload=str(rng.choice(names)))
        workload = WORKLOADS[given.workload]
    topology = Topology(_shape(given, rng, workload), int(rng.integers(1 << 40)))
    settings = _settings(given, rng)
    transport = Transport(topology, settings, int(rng.integers(1 << 40)))
    judge = Judge(topology, transport)
    world = World(topology, transport, judge.observe, int(rng.integers(1 << 40)))
    view = View(
        visible=given.topology != HOSTS_ONLY,
        lldp=bool(rng.random() < 0.7),
        skew_s=given.skew_s,
        late=float(rng.choice([0.0, 0.002, 0.01])),
        switch_marks=bool(rng.random() < 0.6),
        xmit_wait_bits=32 if given.fault == "saturated_counter" or rng.random() < 0.1 else 64,
    )
    sampler = Sampler(world, view, int(rng.integers(1 << 40)))
    routing = _routing(given, rng)
    cluster = Cluster(world, routing, rng, qps=int(rng.choice([1, 1, 1, 2, 4])))
    hosts = list(range(topology.shape.hosts))
    found = workload.make(cluster, hosts)
    job_hosts = sorted({h for j in found if j.name == "job" for h in j.hosts}) or hosts
    run = Run(given, world, sampler, judge, routing)
    start, end = FAULT_AT_S + float(rng.uniform(0, 8)), float(rng.uniform(85, 105))
    scene = Scene(cluster, judge, sampler, job_hosts, start, end)
    if given.fault in BEFORE_JOBS:
        FAULTS[given.fault](scene)
    found.append(Job("console", tuple(hosts), lambda: console_traffic(cluster, hosts)))
    start_jobs(cluster, found)
    _start_programs(world)
    if given.fault and given.fault not in BEFORE_JOBS:
        FAULTS[given.fault](scene)
    for host, at_s in cluster.joins.items():
        sampler.node(topology.node_names[host]).from_s = at_s
    return run


def _start_programs(world: World) -> None:
    """Let the programs that begin at once make their flows."""
    world.advance(0.002, np.full(world.topology.ports, 1e9), lambda *_: None)


def _shape(given: Plan, rng: np.random.Generator, workload: Workload) -> Shape:
    kind = given.topology
    if kind == HOSTS_ONLY:
        kind = str(rng.choice([RAIL_KIND, CLOS, FAT_TREE]))
    hosts = int(rng.choice([16, 24, 32]))
    rails = int(rng.choice([2, 4, 8]))
    if workload.heavy:
        hosts, rails = 16, int(rng.choice([2, 4]))
    nic = float(rng.choice([200.0, 400.0]))
    if kind == FAT_TREE:
        rails, per_leaf = 2, 4
        hosts = 16 if workload.heavy else int(rng.choice([16, 32]))
    elif kind == CLOS:
        rails = min(rails, 4)
        per_leaf = {2: 8, 4: 4}[rails]
    else:
        per_leaf = hosts // 2
    ratio = float(rng.choice([1.0, 1.0, 1.125, 0.5] if not workload.fills else [1.0, 1.125]))
    if given.fault == "oversubscription":
        ratio = 0.5
    uplink = nic if rng.random() < 0.7 else nic * 2
    if nic == 400.0 and uplink == 800.0 and rng.random() < 0.5:
        uplink = 400.0
    if kind == FAT_TREE:
        uplink = nic * 2
    slow = tuple(range(0, hosts, 4)) if rng.random() < 0.1 else ()
    return Shape(
        kind, hosts, rails, nic, uplink, ratio, per_leaf,
        frontends=int(rng.choice([0, 1, 1, 2])), storage_nics=int(rng.choice([0, 0, 1])),
        slow_hosts=slow,
    )  # fmt: skip


def _settings(given: Plan, rng: np.random.Generator) -> Settings:
    marks = float(np.exp(rng.uniform(np.log(0.06), np.log(0.4))))
    # Of its own generator: the plans of known seeds stay.
    late = np.random.default_rng([given.seed, 9])
    return Settings(
        overtaken=float(10 ** late.uniform(-4, -2.5)) if late.random() < 0.3 else 0.0,
        transport=given.transport,
        dcqcn=given.transport != INFINIBAND and bool(rng.random() < 0.9),
        marks_of_two=max(marks, 4 * given.marks),
        background=given.marks,
        background_pause=given.marks * 0.05 if rng.random() < 0.3 else 0.0,
        train_packets=float(np.exp(rng.uniform(np.log(20), np.log(200)))),
        saturation=float(rng.uniform(0.93, 0.985)),
    )


def _routing(given: Plan, rng: np.random.Generator) -> str:
    if given.transport == INFINIBAND:
        return STATIC if rng.random() < 0.7 else SPRAY
    return PINNED if rng.random() < 0.7 else SPRAY


def truths(run: Run) -> list[Truth]:
    """What was true in a run that has been advanced to its end."""
    found = run.judge.finish()
    if run.plan.transport == TCP and not run.sampler.view.visible:
        # Hosts count no retransmissions of TCP per port: a queue elsewhere leaves no trace there.
        for truth in found:
            truth.required = truth.required and not truth.inside
    stuck = run.sampler.stuck_ports()
    if stuck:
        topology = run.world.topology
        truth = Truth("saturated_counter", frozenset({"saturated_counter"}), 0.0, 1e9)
        truth.ports = {topology.port_id(p) for p in stuck}
        truth.nodes = {topology.node_of(p) for p in stuck}
        found.append(truth)
    return found
