"""Cables that are not where the plan has them. The texts are goldens."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collectors.wire import Object
from fabmon.analysis.audit import audit
from fabmon.analysis.audit.survey import Surveyor
from fabmon.analysis.detectors.miscabled import miscabled_links
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import build_structure
from fabmon.analysis.finding import Condition
from fabmon.fabric.topology.plan_files import parse
from fabmon.history.history import History
from tests.builders import tick
from tests.fixtures.in_namespace import can_have_one, namespace
from tests.goldens import check_golden
from tests.requirements import need, need_command, need_root
from tests.unit.topology.making import Plant, leaf_spine

GOLDENS = Path(__file__).parent / "goldens"


def found(hardware: Plant, plan: str, name: str = "pod7.csv") -> tuple[Condition, ...]:
    history = History(hardware.hosts, topology=parse(plan, name))
    snapshot = history.accept(tick(0, {}, hardware.hellos()))
    inputs = DetectorInput(snapshot, build_structure(snapshot.fabric))
    conditions = miscabled_links(inputs)
    assert miscabled_links(inputs) is conditions
    return conditions


def check(name: str, conditions: tuple[Condition, ...]) -> None:
    text = msgspec.json.format(msgspec.json.encode(conditions), indent=2).decode() + "\n"
    check_golden(GOLDENS / f"{name}.json", text)


def plan(*cables: tuple[str, str]) -> str:
    return "".join(
        f"{one.replace('/', ',', 1)},{other.replace('/', ',', 1)}\n" for one, other in cables
    )


def test_a_cable_at_another_spine_than_planned() -> None:
    hardware = Plant(leaf_spine(leaves=1, spines=4))
    hardware.port("spine4/swp9")
    conditions = found(hardware, plan(("leaf1/swp52", "spine4/swp9")))
    assert [each.subject for each in conditions] == ["leaf1/swp52"]
    check("miscabled_one", conditions)


def test_two_cables_that_are_swapped_are_one_finding() -> None:
    hardware = Plant(leaf_spine(leaves=1, spines=2))
    conditions = found(
        hardware, plan(("leaf1/swp50", "spine2/swp1"), ("leaf1/swp51", "spine1/swp1"))
    )
    (condition,) = conditions
    assert len(condition.rows) == 4
    check("miscabled_swapped", conditions)


def test_one_switch_where_another_was_planned_is_one_finding() -> None:
    hardware = Plant(leaf_spine(leaves=16, spines=2))
    planned = [(f"leaf{n}/swp50", f"spine2/swp{n}") for n in range(1, 17)]
    (condition,) = found(hardware, plan(*planned))
    assert len(condition.evidence) == 16
    assert condition.text.endswith("; and 31 more")


def test_rails_at_each_others_leaves() -> None:
    hardware = Plant(leaf_spine(leaves=1, hosts=2))
    plan_ = plan(("gpu1/mlx5_0", "leaf1/swp1"), ("gpu2/mlx5_0", "leaf1/swp0"))
    check("miscabled_hosts", found(hardware, plan_))


def test_contradictions_that_have_nothing_in_common_are_findings_of_their_own() -> None:
    hardware = Plant(leaf_spine(leaves=2, spines=1, hosts=2))
    for end in ("leaf1/swp9", "leaf2/swp9"):
        hardware.port(end)
    conditions = found(hardware, plan(("gpu1/mlx5_0", "leaf1/swp9"), ("gpu3/mlx5_0", "leaf2/swp9")))
    assert [each.subject for each in conditions] == ["gpu1/mlx5_0", "gpu3/mlx5_0"]


def test_a_fabric_as_planned_is_silent() -> None:
    cables = leaf_spine(leaves=2, spines=2, hosts=2, rails=2)
    assert found(Plant(cables), plan(*cables)) == ()


def test_a_real_lldpd_against_a_plan_with_two_cables_swapped() -> None:
    need_root()
    need_command("lldpd", "lldpd")
    need("network namespaces", can_have_one(), "run in a privileged container")
    heard = namespace("lldp")["with"]
    hardware = Plant()
    hardware.said["leaf1"] = {
        "lldp": [Object(name, kind, None, info, ()) for name, kind, info in heard]
    }
    for n in (1, 2):
        hardware.port(f"leaf1/swp{n}")
        hardware.port(f"gpu001/eth{n - 1}")
    right = "leaf1,swp1,gpu001,eth0\nleaf1,swp2,gpu001,eth1\n"
    assert found(hardware, right) == ()
    (condition,) = found(hardware, "leaf1,swp1,gpu001,eth1\nleaf1,swp2,gpu001,eth0\n")
    assert condition.text == (
        "2 cables differ from config: leaf1/swp1 is cabled to gpu001/eth0 (LLDP of"
        " leaf1), not to gpu001/eth1 (config pod7.csv:1); and 1 more"
    )


def test_doctor_tells_it_before_a_run() -> None:
    hardware = Plant(leaf_spine(leaves=1, spines=1, hosts=2))
    plan_ = plan(("gpu1/mlx5_0", "leaf1/swp1"), ("gpu2/mlx5_0", "leaf1/swp0"))
    history = History(hardware.hosts, topology=parse(plan_, "pod7.csv"))
    snapshot = history.accept(tick(0, {}, hardware.hellos()))
    faults = audit(Surveyor(hardware.hosts).survey(snapshot))
    (fault,) = [each for each in faults if each.check == "miscabled"]
    assert fault.ports == ("gpu1/mlx5_0", "leaf1/swp0", "leaf1/swp1", "gpu2/mlx5_0")
