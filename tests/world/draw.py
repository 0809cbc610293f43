"""Draws a run from its seed: a fabric, its clocks and marks, a workload, and perhaps a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tests.world import workloads as jobs
from tests.world.faults import BEFORE_JOBS, FAULTS, NotPossibleError, Scene
from tests.world.sampling import Sampler, View
from tests.world.topology import (
    CLOS,
    FAT_TREE,
    HASH,
    PINNED,
    RAIL_KIND,
    SPRAY,
    STATIC,
    STORAGE,
    Shape,
    Topology,
)
from tests.world.transport import INFINIBAND, ROCE, TCP, Settings, Transport
from tests.world.truth import Judge, Truth
from tests.world.workloads import Cluster, Job
from tests.world.world import Program, World

MARKS = (0.0, 0.001, 0.01, 0.05)
SKEWS_S = (0.0, 0.2, 0.5)
HOSTS_ONLY = "hosts only"
TOPOLOGIES = (RAIL_KIND, CLOS, FAT_TREE, HOSTS_ONLY)
TRANSPORTS = (ROCE, ROCE, ROCE, INFINIBAND, INFINIBAND, TCP)
FAULT_AT_S = 45.0
DAY, DAY_S = "training day", 3600
"""The workload of a run of an hour."""

NEEDS = {
    "slow_receiver": (ROCE, INFINIBAND),
    "host_pcie_limit": (ROCE, INFINIBAND),
    "pause_storm": (ROCE,),
    "pause_deadlock": (ROCE,),
    "saturated_counter": (INFINIBAND,),
    "ecmp_collision": (ROCE, TCP),
    "polarization": (ROCE, TCP),
}
"""Transports that can have a fault, where not all can."""

NEEDS_SWITCHES = frozenset({"pause_deadlock", "error_burst"})
"""Faults that are not played where only hosts are watched."""


@dataclass(frozen=True)
class Plan:
    """All that a run is made from."""

    seed: int
    topology: str
    transport: str
    marks: float
    skew_s: float
    workload: str
    fault: str = ""
    seconds: int = 120


@dataclass
class Run:
    """A world ready to be advanced, with its judge."""

    plan: Plan
    world: World
    sampler: Sampler
    judge: Judge
    routing: str
    job_hosts: list[int] = field(default_factory=list)


def plan(seed: int, kind: str, workload: str = "", fault: str = "") -> Plan:
    """The plan of a seed; `kind` is `healthy` or `fault`."""
    rng = np.random.default_rng([seed, 1 if kind == "healthy" else 2])
    if kind == "fault":
        fault = fault or str(rng.choice(list(FAULTS)))
    while True:
        topology, transport = str(rng.choice(TOPOLOGIES)), str(rng.choice(TRANSPORTS))
        if transport in NEEDS.get(fault, TRANSPORTS) and not (
            topology == HOSTS_ONLY and fault in NEEDS_SWITCHES
        ):
            break
    marks, skew = float(rng.choice(MARKS)), float(rng.choice(SKEWS_S))
    names = [
        name for name, each in WORKLOADS.items() if name != DAY and (not fault or each.suits(fault))
    ]
    workload = workload or str(rng.choice(names))
    seconds = DAY_S if workload == DAY else 300 if kind == "healthy" else 120
    return Plan(seed, topology, transport, marks, skew, workload, fault, seconds)


def build(given: Plan) -> Run:
    """The world of a plan. A fault that the fabric cannot have is tried on other fabrics."""
    for attempt in range(40):
        try:
            return _build(given, attempt)
        except NotPossibleError:
            continue
    raise NotPossibleError(f"{given}")


def _build(given: Plan, attempt: int) -> Run:
    rng = np.random.default_rng([given.seed, 3, attempt])
    workload = WORKLOADS[given.workload]
    if given.fault and attempt and not workload.suits(given.fault):
        names = [name for name, each in WORKLOADS.items() if each.suits(given.fault)]
        workload = WORKLOADS[str(rng.choice(names))]
    elif given.fault and not workload.suits(given.fault):
        raise NotPossibleError
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
    run = Run(given, world, sampler, judge, routing, job_hosts)
    start, end = FAULT_AT_S + float(rng.uniform(0, 8)), float(rng.uniform(85, 105))
    scene = Scene(cluster, judge, sampler, job_hosts, start, end)
    if given.fault in BEFORE_JOBS:
        FAULTS[given.fault](scene)
    found.append(Job("console", tuple(hosts), lambda: jobs.console_traffic(cluster, hosts)))
    jobs.run(cluster, found)
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
    return Settings(
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


@dataclass(frozen=True)
class Workload:
    """A workload of the zoo. `fills`: flows cross the spines at full rate, so that a fabric needs
    the uplinks for them; `heavy`: thousands of flows."""

    make: Callable[[Cluster, list[int]], list[Job]]
    fills: bool = False
    heavy: bool = False
    faults: tuple[str, ...] = ()

    def suits(self, fault: str) -> bool:
        """Whether a fault shows under this workload."""
        return fault in self.faults


def _ring(c: Cluster, hosts: list[int]) -> list[Job]:
    rng = c.rng
    order = jobs.interleaved(c, hosts) if rng.random() < 0.7 else hosts
    step, share = float(np.exp(rng.uniform(np.log(0.3), np.log(20)))), float(rng.uniform(0.3, 0.9))
    apart = float(rng.uniform(0, 0.3)) * step * (1 - share)
    return [Job("job", tuple(hosts), lambda: jobs.ring_all_reduce(c, order, step, share, apart))]


def _fsdp(c: Cluster, hosts: list[int]) -> list[Job]:
    order = jobs.interleaved(c, hosts)
    step, share = float(c.rng.uniform(2, 10)), float(c.rng.uniform(0.4, 0.9))
    return [Job("job", tuple(hosts), lambda: jobs.fsdp(c, order, step, share))]


def _tree(c: Cluster, hosts: list[int]) -> list[Job]:
    c.routing = SPRAY if c.routing == PINNED else c.routing
    step, share = float(c.rng.uniform(1, 8)), float(c.rng.uniform(0.3, 0.8))
    return [Job("job", tuple(hosts), lambda: jobs.tree_all_reduce(c, hosts, step, share))]


def _moe(c: Cluster, hosts: list[int]) -> list[Job]:
    c.routing = SPRAY if c.routing == PINNED else c.routing
    hosts = hosts[:4] + hosts[-4:] if c.rng.random() < 0.5 else hosts[::2]
    step, share = float(c.rng.uniform(1, 8)), float(c.rng.uniform(0.3, 0.7))
    return [Job("job", tuple(hosts), lambda: jobs.all_to_all(c, hosts, step, share))]


def _pipeline(c: Cluster, hosts: list[int]) -> list[Job]:
    every, share = float(c.rng.uniform(0.2, 2)), float(c.rng.uniform(0.2, 0.7))
    return [Job("job", tuple(hosts), lambda: jobs.pipeline(c, hosts, every, share))]


def _server(c: Cluster, hosts: list[int]) -> list[Job]:
    load = float(c.rng.uniform(0.05, 0.3))
    return [Job("job", tuple(hosts), lambda: jobs.parameter_server(c, hosts, load))]


def _inference(c: Cluster, hosts: list[int]) -> list[Job]:
    c.routing = HASH
    load = float(c.rng.uniform(0.05, 0.1))
    return [Job("job", tuple(hosts), lambda: jobs.inference(c, hosts, load))]


def _several(c: Cluster, hosts: list[int]) -> list[Job]:
    """Three jobs on uneven parts of the fabric; one stops, one starts; checkpoints and loading."""
    rng = c.rng
    order = [int(h) for h in rng.permutation(hosts)]
    cuts = sorted(int(n) for n in rng.choice(range(3, len(hosts) - 2), 2, replace=False))
    parts = [order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] :]]
    found = []
    for number, part in enumerate(parts):
        step, share = float(rng.uniform(0.5, 8)), float(rng.uniform(0.3, 0.8))
        start = 0.0 if number < 2 else float(rng.uniform(20, 35))
        stop = float(rng.uniform(100, 200)) if number == 1 else None
        found.append(
            Job(
                "job" if number == 0 else "other",
                tuple(part),
                lambda part=part, step=step, share=share: jobs.ring_all_reduce(
                    c, part, step, share
                ),  # type: ignore[misc]
                start,
                stop,
            )
        )
    storing = float(rng.uniform(20, 60))
    found.append(Job("store", tuple(hosts), lambda: jobs.checkpoints(c, hosts, storing, 4.0)))
    found.append(Job("load", tuple(hosts), lambda: jobs.data_loading(c, hosts, 0.3, STORAGE)))
    return found


def _elephants(c: Cluster, hosts: list[int]) -> list[Job]:
    """One or two flows at line rate beside mice."""
    rng, topology = c.rng, c.topology
    big = []
    order = jobs.interleaved(c, hosts)
    for number in range(int(rng.integers(1, 3))):
        a, b = order[2 * number], order[2 * number + 1]
        rail = int(rng.integers(topology.shape.rails))
        big.append((topology.nic(a, rail), topology.nic(b, rail)))
    found = [Job("job", tuple(hosts), lambda: jobs.streams(c, big))]
    if rng.random() < 0.6:
        found.append(Job("mice", tuple(hosts), lambda: jobs.inference(c, hosts, 0.01)))
    return found


def _full_leaf(c: Cluster, hosts: list[int]) -> list[Job]:
    """Every NIC sends to one below another leaf at full rate: a leaf at 1:1 is full, and fine."""
    c.qps = 1
    order = jobs.interleaved(c, hosts)
    pairs = [
        (c.topology.nic(a, rail), c.topology.nic(b, rail))
        for a, b in zip(order, order[1:] + order[:1], strict=True)
        for rail in range(c.topology.shape.rails)
    ]
    return [Job("job", tuple(hosts), lambda: jobs.streams(c, pairs))]


def _idle(c: Cluster, hosts: list[int]) -> list[Job]:
    return [Job("job", tuple(hosts), lambda: jobs.console_traffic(c, hosts))]


def _hierarchical(c: Cluster, hosts: list[int]) -> list[Job]:
    order = jobs.interleaved(c, hosts)
    step, share = float(c.rng.uniform(1, 10)), float(c.rng.uniform(0.4, 0.9))
    return [Job("job", tuple(hosts), lambda: jobs.hierarchical_all_reduce(c, order, step, share))]


def _changing(c: Cluster, hosts: list[int]) -> list[Job]:
    """A job stops; hosts join the fabric; another job starts on more hosts."""
    rng = c.rng
    few = hosts[:-2]
    c.joins = {h: float(rng.uniform(30, 80)) for h in hosts[-2:]}
    step, share = float(rng.uniform(0.5, 5)), float(rng.uniform(0.3, 0.8))
    stop, start = float(rng.uniform(90, 130)), float(rng.uniform(140, 170))
    first, second = jobs.interleaved(c, few), jobs.interleaved(c, hosts)
    return [
        Job("job", tuple(few), lambda: jobs.ring_all_reduce(c, first, step, share), 0.0, stop),
        Job(
            "next",
            tuple(hosts),
            partial(_alone, c, partial(jobs.fsdp, c, second, step * 2, share)),
            start,
        ),
        Job("store", tuple(few), lambda: jobs.checkpoints(c, few, 40.0, 5.0)),
    ]


def _day(c: Cluster, hosts: list[int]) -> list[Job]:
    """Hours of training: jobs of other shapes follow each other, with checkpoints, evaluations,
    loading of data, idle time and restarts."""
    rng = c.rng
    # Plans and fixed tables collide when jobs are placed anywhere.
    c.routing = SPRAY
    found = [
        Job("load", tuple(hosts), lambda: jobs.data_loading(c, hosts, 0.2, STORAGE)),
        Job("store", tuple(hosts), lambda: jobs.checkpoints(c, hosts, 300.0, 15.0)),
    ]
    now = float(rng.uniform(5, 60))
    while now < DAY_S:
        size = int(rng.choice([len(hosts), len(hosts) - 2, len(hosts) // 2]))
        part = [int(h) for h in rng.permutation(hosts)[:size]]
        order = jobs.interleaved(c, sorted(part))
        length = float(np.exp(rng.uniform(np.log(120), np.log(1500))))
        step, share = float(np.exp(rng.uniform(np.log(0.5), np.log(25)))), rng.uniform(0.2, 0.9)
        programs: tuple[Callable[[], Program], ...] = (
            partial(jobs.ring_all_reduce, c, order, step, share, step * 0.1),
            partial(jobs.fsdp, c, order, step * 3, share),
            partial(jobs.hierarchical_all_reduce, c, order, step, share),
            partial(jobs.pipeline, c, order[:8], min(step, 2.0), share),
            partial(jobs.inference, c, order, 0.08),
        )
        pick = int(rng.choice(len(programs), p=[0.4, 0.25, 0.15, 0.1, 0.1]))
        chosen = partial(_alone, c, programs[pick])
        found.append(Job("job", tuple(part), chosen, now, now + length))
        now += length + float(rng.exponential(40)) + 2
    return found


def _alone(c: Cluster, program: Callable[[], Program]) -> Program:
    """A job whose paths are planned when no other job runs."""
    c.topology.forget_plan()
    yield from program()


_OF_LINK = ("link_down", "flapping_link", "degraded_link", "error_burst", "node_lost")
_OF_RECEIVER = ("incast", "slow_receiver", "pause_storm", "host_pcie_limit")
_OF_PATHS = (
    "ecmp_collision",
    "polarization",
    "oversubscription",
    "pause_deadlock",
    "saturated_counter",
)
_COLLECTIVE = (*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS, "uneven_rails")

WORKLOADS: dict[str, Workload] = {
    "ring": Workload(_ring, fills=True, faults=(*_COLLECTIVE, "straggler")),
    "fsdp": Workload(_fsdp, fills=True, faults=_COLLECTIVE),
    "hierarchical": Workload(_hierarchical, fills=True, faults=_COLLECTIVE),
    "tree": Workload(_tree, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER)),
    "moe": Workload(
        _moe, fills=True, heavy=True, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS, "straggler")
    ),
    "pipeline": Workload(_pipeline, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS)),
    "parameter server": Workload(_server, faults=(*_OF_LINK, "incast")),
    "inference": Workload(_inference, faults=(*_OF_LINK, "incast", "pause_storm")),
    "several jobs": Workload(_several, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS)),
    "changing jobs": Workload(_changing, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER)),
    "elephants": Workload(_elephants, faults=(*_OF_LINK, "incast", "oversubscription")),
    "full leaf": Workload(_full_leaf, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS)),
    DAY: Workload(_day, fills=True),
    "idle": Workload(_idle, faults=("incast", "oversubscription", "node_lost", "pause_storm")),
}


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


def shorter(given: Plan, seconds: int) -> Plan:
    """The same plan for fewer seconds."""
    return replace(given, seconds=seconds)
