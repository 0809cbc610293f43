"""A random fabric for every seed: its shape, its jobs, and what goes wrong in it, if anything."""

from __future__ import annotations

import msgspec
import numpy as np

from fabmon.feeds.demo.scenario import FabricShape, Fault, Job, Scenario, ScenarioError
from fabmon.feeds.demo.world import World

SECONDS = 100
_FROM_S, _TO_S = 18.0, 30.0
_LASTS_S = (25.0, 45.0)

KINDS = (
    "ecmp_collision",
    "polarization",
    "oversubscription",
    "incast",
    "degraded_link",
    "flapping_link",
    "pause_storm",
    "pause_deadlock",
    "slow_receiver",
    "straggler",
    "host_pcie_limit",
    "error_burst",
    "saturated_counter",
    "uneven_rails",
    "node_lost",
)
"""Kinds that are drawn. Their order is part of the seeds: a new kind changes every draw."""

HOSTS_KINDS = (
    *("ecmp_collision",) * 6,
    "incast",
    "slow_receiver",
    "pause_storm",
    "straggler",
    "host_pcie_limit",
    "degraded_link",
    "uneven_rails",
    "node_lost",
)
"""With no switch watched: mostly what is scored there, and what it may be mistaken for."""

_HEALTHY = 0.25


def scenario(seed: int, visible: str = "all") -> Scenario:
    """The scenario of a seed; the same for ever as long as this file is."""
    rng = np.random.default_rng([seed, 11 if visible == "all" else 12])
    for _ in range(50):
        drawn = _draw(rng, seed, visible)
        if visible == "hosts" and not seed % 2:
            drawn = _with_lldp(drawn)
        try:
            World(drawn)
        except ScenarioError:
            continue  # the fault has no place in this fabric
        return drawn
    raise RuntimeError(f"seed {seed}: nothing fits")


def healthy(seed: int) -> Scenario:
    """A fabric in which nothing is wrong, with two or three jobs on it."""
    rng = np.random.default_rng([seed, 13])
    topology = _topology(rng, "leaf-spine", "all", "spray")
    return Scenario(
        seed=seed, topology=msgspec.structs.replace(topology, hosts=16, rails=4), job=_jobs(rng, 16)
    )


def _with_lldp(drawn: Scenario) -> Scenario:
    """The same, and the hosts know which leaf they are behind."""
    topology = msgspec.structs.replace(drawn.topology, lldp=True)
    return msgspec.structs.replace(drawn, topology=topology)


def _draw(rng: np.random.Generator, seed: int, visible: str) -> Scenario:
    kinds = KINDS if visible == "all" else HOSTS_KINDS
    count = 0 if rng.random() < _HEALTHY else 1 if rng.random() < 0.8 else 2
    chosen = [str(kind) for kind in rng.choice(kinds, count, replace=False)] if count else []
    shape = "fat-tree" if "saturated_counter" in chosen else _one(rng, "leaf-spine", "rail")
    if rng.random() < 0.15 and visible == "all" and not {"polarization"} & set(chosen):
        shape = "fat-tree"
    routing = "spray" if rng.random() < 0.5 else ""
    if "polarization" in chosen:
        routing = "hash"
    topology = _topology(rng, shape, visible, routing)
    jobs = _jobs(rng, topology.hosts)
    if "oversubscription" in chosen:
        topology = msgspec.structs.replace(
            topology, oversubscription=2.0, routing="spray", hosts=16
        )
        jobs = (msgspec.structs.replace(jobs[0], hosts=0, demand=0.4, placement="scattered"),)
    faults = tuple(_fault(rng, kind) for kind in chosen)
    return Scenario(title=f"seed {seed}", seed=seed, topology=topology, job=jobs, fault=faults)


def _topology(rng: np.random.Generator, shape: str, visible: str, routing: str) -> FabricShape:
    hosts = int(rng.choice([8, 16, 16, 32]))
    rails = int(rng.choice([2, 4, 8])) if hosts < 32 else 4
    return FabricShape(
        kind=shape,  # type: ignore[arg-type]
        hosts=hosts,
        rails=rails,
        speed_gbps=float(rng.choice([100, 200, 400])),
        routing=routing,  # type: ignore[arg-type]
        ecn=bool(rng.random() < 0.8),
        visible=visible,  # type: ignore[arg-type]
    )


def _jobs(rng: np.random.Generator, hosts: int) -> tuple[Job, ...]:
    """One job on all hosts, or two that share them."""
    count = 1 if hosts < 16 or rng.random() < 0.6 else 2
    sizes = [0] if count == 1 else [hosts // 2, 0]
    return tuple(
        Job(
            name=f"job{number + 1}",
            hosts=size,
            placement="scattered" if rng.random() < 0.7 else "packed",
            collective=_one(rng, "ring", "ring", "tree", "all-to-all"),  # type: ignore[arg-type]
            payload_gb=float(rng.uniform(8, 120)),
            compute_s=float(rng.uniform(0.3, 4.0)),
            qps=int(rng.choice([1, 4, 16])),
            demand=float(rng.uniform(0.55, 0.85)),
            jitter=float(rng.uniform(0.0, 0.08)),
            start=float(rng.uniform(0.0, 3.0)),
        )
        for number, size in enumerate(sizes)
    )


def _fault(rng: np.random.Generator, kind: str) -> Fault:
    at = round(float(rng.uniform(_FROM_S, _TO_S)), 1)
    lasts = round(float(rng.uniform(*_LASTS_S)), 1)
    share: float | None = None
    rate = float(rng.choice([200.0, 2000.0, 10000.0]))
    if kind == "saturated_counter":
        at, lasts = 0.0, float(SECONDS)  # it has been full for weeks, as they are
    if kind == "degraded_link":
        share = float(rng.choice([0.25, 0.5]))
        rate = max(rate, 2000.0)
    elif kind in ("slow_receiver", "host_pcie_limit"):
        share = float(rng.uniform(0.25, 0.45))
    elif kind == "pause_storm":
        share = float(rng.uniform(0.9, 1.0))
    elif kind == "incast":
        share = float(rng.uniform(0.3, 0.8))
    return Fault(
        kind=kind,
        at=at,
        duration=lasts,
        share=share,
        flows=int(rng.integers(4, 10)) if kind == "incast" else None,
        extra_s=float(rng.uniform(2.0, 6.0)),
        rate=rate,
        shown=bool(rng.random() < 0.7),
        crash=bool(rng.random() < 0.5),
        period_s=float(rng.uniform(4.0, 8.0)),
    )


def _one(rng: np.random.Generator, *of: str) -> str:
    return str(rng.choice(of))
