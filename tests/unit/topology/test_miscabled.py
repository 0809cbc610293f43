"""Cables that are not where the plan has them. The texts are goldens."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fabmon.analysis.condition import Condition
from fabmon.analysis.miscabled import Miscabled
from fabmon.analysis.sight import Sight
from fabmon.analysis.structure import structure
from fabmon.fabric.topology.read import parse
from fabmon.history.history import History
from tests.goldens import check_golden
from tests.making import tick
from tests.unit.topology.making import Plant, leaf_spine

GOLDENS = Path(__file__).parent / "goldens"


def found(plant: Plant, plan: str, name: str = "pod7.csv") -> tuple[Condition, ...]:
    history = History(plant.hosts, topology=parse(plan, name))
    moment = history.accept(tick(0, {}, plant.hellos()))
    sight = Sight(moment, structure(moment.fabric))
    detect = Miscabled()
    conditions = detect(sight)
    assert detect(sight) is conditions
    return conditions


def check(name: str, conditions: tuple[Condition, ...]) -> None:
    text = msgspec.json.format(msgspec.json.encode(conditions), indent=2).decode() + "\n"
    check_golden(GOLDENS / f"{name}.json", text)


def plan(*cables: tuple[str, str]) -> str:
    return "".join(
        f"{one.replace('/', ',', 1)},{other.replace('/', ',', 1)}\n" for one, other in cables
    )


def test_a_cable_at_another_spine_than_planned() -> None:
    plant = Plant(leaf_spine(leaves=1, spines=4))
    plant.port("spine4/swp9")
    conditions = found(plant, plan(("leaf1/swp52", "spine4/swp9")))
    assert [each.subject for each in conditions] == ["leaf1/swp52"]
    check("miscabled_one", conditions)


def test_two_cables_that_are_swapped_are_one_finding() -> None:
    plant = Plant(leaf_spine(leaves=1, spines=2))
    conditions = found(plant, plan(("leaf1/swp50", "spine2/swp1"), ("leaf1/swp51", "spine1/swp1")))
    (condition,) = conditions
    assert len(condition.rows) == 4
    check("miscabled_swapped", conditions)


def test_one_switch_where_another_was_planned_is_one_finding() -> None:
    plant = Plant(leaf_spine(leaves=16, spines=2))
    planned = [(f"leaf{n}/swp50", f"spine2/swp{n}") for n in range(1, 17)]
    (condition,) = found(plant, plan(*planned))
    assert len(condition.evidence) == 16
    assert condition.text.endswith("; and 31 more")


def test_rails_at_each_others_leaves() -> None:
    plant = Plant(leaf_spine(leaves=1, hosts=2))
    plan_ = plan(("gpu1/mlx5_0", "leaf1/swp1"), ("gpu2/mlx5_0", "leaf1/swp0"))
    check("miscabled_hosts", found(plant, plan_))


def test_contradictions_that_have_nothing_in_common_are_findings_of_their_own() -> None:
    plant = Plant(leaf_spine(leaves=2, spines=1, hosts=2))
    for end in ("leaf1/swp9", "leaf2/swp9"):
        plant.port(end)
    conditions = found(plant, plan(("gpu1/mlx5_0", "leaf1/swp9"), ("gpu3/mlx5_0", "leaf2/swp9")))
    assert [each.subject for each in conditions] == ["gpu1/mlx5_0", "gpu3/mlx5_0"]


def test_a_fabric_as_planned_is_silent() -> None:
    cables = leaf_spine(leaves=2, spines=2, hosts=2, rails=2)
    assert found(Plant(cables), plan(*cables)) == ()
