"""Scenes with a finding of each cause: simulated, or reported by nodes made for the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.topology.plan_files import parse
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.history.history import History
from fabmon.session.config import load
from tests.builders import new_pipeline, tick
from tests.fixtures import nvml
from tests.scenario.test_scenarios import HERE, read
from tests.unit.test_gpus import Node, host_with_gpus
from tests.unit.test_job_stalled import stalled_scene
from tests.unit.test_kernel_log import Node as LoggingNode
from tests.unit.test_kernel_log import logged
from tests.unit.test_nvlink_fabric import GOOD, SPEED, scene_of_gpus
from tests.unit.topology.making import Plant, leaf_spine

LATER = 4
"""A finding is shown this many seconds after it opened."""

_OTHER_SCENARIOS = {
    "ecmp_collision": "collision",
    "host_pcie_limit": "pcie_limit",
    "link_down": "flapping_link",
    "congested_path": "collision_from_hosts",
    "packet_loss": "degraded_link_from_hosts",
}
"""Causes whose scenario has another name."""


def analyst() -> Analyst:
    return Analyst(load(Path("/dev/null")).thresholds)


def finding_of(scene: Scene, cause: str) -> Finding | None:
    return next((each for each in scene.findings if each.cause == cause), None)


@cache
def played(cause: str, scenario_name: str = "") -> Scene:
    """The scene some seconds after a finding of this cause opened, in its scenario or another."""
    name = scenario_name or _OTHER_SCENARIOS.get(cause, cause)
    scenario, expected = read(HERE / f"{name}.toml")
    feed = DemoFeed(scenario)
    pipeline = new_pipeline(feed.hosts)
    since = 0
    for _ in range(expected.seconds):
        scene = pipeline.accept(feed.step())
        since = since + 1 if finding_of(scene, cause) else 0
        if since > LATER:
            return scene
    raise AssertionError(f"{cause} was not open for {LATER} s")


def miscabled(_: Path, __: pytest.MonkeyPatch) -> Scene:
    """Two cables that LLDP has the other way round than the plan."""
    hardware = Plant(leaf_spine(leaves=1, spines=2))
    plan = "leaf1,swp50,spine2,swp1\nleaf1,swp51,spine1,swp1\n"
    history = History(hardware.hosts, topology=parse(plan, "pod7.csv"))
    return analyst().accept(history.accept(tick(0, {}, hardware.hellos())))


def far_gpus(path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A host whose second CPU has GPUs and no NIC."""
    tree = host_with_gpus(path, monkeypatch)
    for number in range(4, 8):
        tree.remove(f"sys/class/infiniband/mlx5_{number}")
        tree.remove(f"sys/class/net/ib{number}")
    return analyst().accept(Node(tree).frames(2))


def missing_nvlinks(path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A host one of whose GPUs came up with 17 of its 18 NVLinks."""
    tree = host_with_gpus(path, monkeypatch)
    tree.nvml((*nvml.HGX_H100, "inactive 3 7"))
    return analyst().accept(Node(tree).frames(12))


def job_stalled(path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A job whose queue pairs stay open while it exchanges nothing."""
    return stalled_scene()


def driver_failed(_: Path, __: pytest.MonkeyPatch) -> Scene:
    """A node whose kernel says that the firmware of a NIC does not answer any more."""
    node = LoggingNode()
    node.steps(3)
    node.step(logged("mlx5_health"))
    node.steps(LATER)
    return node.scene


def nvlink_fabric(_: Path, __: pytest.MonkeyPatch) -> Scene:
    """A node one of whose GPUs joined the NVLink fabric with an error."""
    return scene_of_gpus([GOOD] * 7 + [(3, 999, 0, 0, SPEED)])


MADE: dict[str, Callable[[Path, pytest.MonkeyPatch], Scene]] = {
    "gpu_nic_numa": far_gpus,
    "miscabled": miscabled,
    "missing_nvlinks": missing_nvlinks,
    "driver_failed": driver_failed,
    "nvlink_fabric": nvlink_fabric,
    "job_stalled": job_stalled,
}


def scene_of(cause: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene with a finding of this cause."""
    return MADE[cause](path, monkeypatch) if cause in MADE else played(cause)
