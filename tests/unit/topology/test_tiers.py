"""Tiers and pods where depth alone misleads, and groups and dimensions of fabrics without tiers."""

from __future__ import annotations

import random
import time
from itertools import combinations, product

import pytest

from fabmon.fabric.model import HOST, SWITCH, UPLINK, Fabric, Shape
from fabmon.fabric.topology.flat import places_of_flat
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.topology.tier_matrix import tables
from fabmon.fabric.topology.tiers import shape
from tests.unit.topology.making import Cable, Plant, leaf_spine

Links = list[tuple[str, str]]


def placed(links: Links, hosts: str = "gpu", **given: dict[str, str]) -> Shape:
    """The shape of cables between nodes; those whose names begin with `hosts` are hosts."""
    names = {name for link in links for name in link}
    roles = {name: HOST if name.startswith(hosts) else SWITCH for name in names}
    return shape(roles, links, Topology(**given))  # type: ignore[arg-type]


def pod(number: int, leaves: int = 4, spines: int = 4, hosts: int = 2) -> Links:
    """A pod without its cores."""
    links: Links = []
    for leaf in range(1, leaves + 1):
        name = f"p{number}-leaf{leaf}"
        links += [(name, f"p{number}-spine{spine}") for spine in range(1, spines + 1)]
        links += [(f"gpu{number}-{leaf}-{host}", name) for host in range(hosts)]
    return links


def cores(pods: int, spines: int = 4, each: int = 2) -> Links:
    """`each` cores above every spine of the same number, in all pods."""
    return [
        (f"p{number}-spine{spine}", f"core{spine}-{core}")
        for number in range(1, pods + 1)
        for spine in range(1, spines + 1)
        for core in range(each)
    ]


def tiers_of(found: Shape, *names: str) -> list[int]:
    return [found.tiers[name] for name in names]


def test_a_leaf_without_cabled_hosts_is_a_leaf() -> None:
    """Its nearest host is three hops away, as a core's is."""
    links = pod(1) + [("spare-x", f"p1-spine{n}") for n in range(1, 5)]
    found = placed(links)
    assert tiers_of(found, "p1-leaf1", "p1-spine1", "spare-x") == [1, 2, 1]
    found = placed(links + pod(2) + cores(2))
    assert tiers_of(found, "spare-x", "p2-leaf1", "core1-0") == [1, 1, 3]
    assert found.pods["spare-x"] == found.pods["p1-leaf1"] != found.pods["p2-leaf1"]


def test_with_hosts_of_two_leaves_watched_all_leaves_are_leaves() -> None:
    """A hosts file has a few of the hosts; the subnet manager sees every switch."""
    links = [link for link in pod(1, leaves=20) if not link[0].startswith("gpu1-")]
    links += [("gpu1", "p1-leaf1"), ("gpu2", "p1-leaf2")]
    found = placed(links)
    assert set(tiers_of(found, *(f"p1-leaf{n}" for n in range(1, 21)))) == {1}
    assert set(tiers_of(found, *(f"p1-spine{n}" for n in range(1, 5)))) == {2}


def test_pods_whose_hosts_are_not_watched_are_pods() -> None:
    links = pod(1) + [each for n in (2, 3) for each in pod(n, hosts=0)] + cores(3)
    found = placed(links)
    assert tiers_of(found, "core1-0", "p2-spine1", "p3-leaf4") == [3, 2, 1]
    assert len(set(found.pods.values())) == 3


def test_a_superpod_with_management_switches_above_its_cores() -> None:
    """The shape of Selene: 33 pods, and two management switches behind a core, one behind the
    other. Depth gives them tiers 4 and 5; then no tier joins the pods."""
    links = [each for n in range(1, 34) for each in pod(n)] + cores(33)
    links += [("core1-0", "mgmt-a"), ("core2-1", "mgmt-a"), ("mgmt-a", "oob-sw")]
    found = placed(links)
    assert max(found.tiers.values()) == 3
    assert found.tiers["mgmt-a"] < 3
    assert found.tiers["oob-sw"] < 3
    assert len(set(found.pods.values())) == 33
    assert "mgmt-a" not in found.pods
    assert {found.tiers[name] for name in found.tiers if name.startswith("core")} == {3}


def test_a_manager_that_is_cabled_to_a_spine_makes_it_no_leaf() -> None:
    links = pod(1, leaves=8, hosts=8) + pod(2, leaves=8, hosts=8) + cores(2)
    links += [("gpu-ufm", "p1-spine1"), ("gpu-ufm", "p2-spine1")]
    found = placed(links)
    assert tiers_of(found, "p1-spine1", "p1-spine2", "p1-leaf1", "core1-0") == [2, 2, 1, 3]


def test_names_decide_between_a_core_and_a_leaf_without_hosts() -> None:
    """One pod is watched: both are switches above all of its spines."""
    links = pod(1)
    for name in ("core1", "core2", "p1-leaf90", "mystery"):
        links += [(name, f"p1-spine{n}") for n in range(1, 5)]
    found = placed(links)
    assert tiers_of(found, "core1", "core2", "p1-leaf90", "mystery") == [3, 3, 1, 1]


def test_names_that_say_nothing_move_no_switch() -> None:
    """All switches of a fabric have the same kind of name."""
    links = [
        (one.replace("p1-leaf", "ib1"), other.replace("p1-spine", "ib2")) for one, other in pod(1)
    ]
    links = [(one, other.replace("p1-leaf", "ib1")) for one, other in links]
    links += [("ib901", f"ib2{n}") for n in range(1, 5)]
    found = placed(links)
    assert tiers_of(found, "ib11", "ib21", "ib901") == [1, 2, 1]


def test_planned_tiers_come_first() -> None:
    links = pod(1) + [("spare", f"p1-spine{n}") for n in range(1, 5)]
    found = placed(links, tiers={"spare": 3})  # type: ignore[dict-item]
    assert found.tiers["spare"] == 3


def dragonfly(groups: int, size: int, links: int = 1) -> list[Cable]:
    """Groups of switches that are all cabled to each other; every switch has `links` cables to
    each group that it leads to, and every pair of groups is cabled once or more."""
    cables: list[Cable] = []
    for group in range(groups):
        names = [f"x{group}s{switch}" for switch in range(size)]
        cables += [(f"gpu{group}{n}/hsn0", f"{name}/j0") for n, name in enumerate(names)]
        cables += [(f"{a}/l{b[-1]}", f"{b}/l{a[-1]}") for a, b in combinations(names, 2)]
    for number, (one, other) in enumerate(combinations(range(groups), 2)):
        a, b = f"x{one}s{(other - 1) % size}", f"x{other}s{one % size}"
        for lane in range(links):
            cables.append((f"{a}/g{other}{lane}{number}", f"{b}/g{one}{lane}{number}"))
    return cables


def groups_of(fabric: Fabric) -> dict[str, list[str]]:
    return {group.name: [fabric.ports[row].name for row in group.rows] for group in fabric.groups}


def test_a_dragonfly_has_groups_and_its_global_links_are_grouped_by_them() -> None:
    fabric = Plant(dragonfly(groups=5, size=4, links=2)).fabric()
    pods = fabric.shape.pods
    assert {name: pods[name] for name in ("x0s0", "x0s3", "x1s0", "x4s2")} == {
        **{"x0s0": "group1", "x0s3": "group1", "x1s0": "group2", "x4s2": "group5"},
    }
    assert set(fabric.shape.tiers.values()) == {0, 1}
    assert fabric.shape.flat_links["x0s0", "x0s1"] == "local"
    assert fabric.shape.flat_links["x0s0", "x1s0"] == "group2"
    found = groups_of(fabric)
    assert found["x0s0 to group2"] == ["g100", "g110"]
    assert len(found) == 20, "both ends of ten pairs of groups"
    switch = fabric.node("x0s0")
    assert {port.name for port in switch.ports if port.role == UPLINK} == {
        *("l1", "l2", "l3", "g100", "g110"),
    }
    assert switch.group == "x0s0", "a switch with hosts is no spine"
    titles = {table.title: table for table in tables(fabric)}
    assert list(titles) == ["groups by groups", *(f"switches, group{n}" for n in range(1, 6))]
    between = titles["groups by groups"]
    assert between.lows == ("group1", "group2", "group3", "group4")
    assert {len(each) for each in between.cells.values()} == {2}
    assert sum(map(len, titles["switches, group1"].cells.values())) == 6


def test_planned_groups_of_a_dragonfly_come_first() -> None:
    cables = [tuple(end.partition("/")[0] for end in each) for each in dragonfly(3, 4)]
    names = {name for each in cables for name in each if name.startswith("x")}
    found = placed(cables, pods={name: f"row{name[1]}" for name in names})  # type: ignore[arg-type]
    assert found.flat_links["x0s0", "x1s0"] == "row1"
    assert found.flat_links["x1s0", "x1s1"] == "local"


def torus(*sizes: int, lanes: int = 1) -> list[Cable]:
    cables: list[Cable] = []
    for place in product(*map(range, sizes)):
        name = "t" + "-".join(map(str, place))
        cables.append((f"gpu{name}/ib0", f"{name}/h0"))
        for axis, size in enumerate(sizes):
            far = list(place)
            far[axis] = (place[axis] + 1) % size
            other = "t" + "-".join(map(str, far))
            cables += [(f"{name}/{axis}up{n}", f"{other}/{axis}down{n}") for n in range(lanes)]
    return cables


@pytest.mark.parametrize("sizes", [(5, 6), (3, 5, 6), (8, 8, 8)])
def test_a_torus_has_dimensions(sizes: tuple[int, ...]) -> None:
    links = [tuple(end.partition("/")[0] for end in each) for each in torus(*sizes)]
    found = placed(links)  # type: ignore[arg-type]
    by_axis: dict[int, set[str]] = {}
    for (one, other), label in found.flat_links.items():
        here, there = (list(map(int, name[1:].split("-"))) for name in (one, other))
        (axis,) = (n for n, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
        by_axis.setdefault(axis, set()).add(label)
    assert sorted(map(sorted, by_axis.values())) == [
        [f"dimension {n}"] for n in range(1, len(sizes) + 1)
    ]
    assert found.pods == {}


@pytest.mark.parametrize("degree", [1, 60])
def test_forged_cables_of_4096_switches_cost_a_second_or_two(degree: int) -> None:
    """A node can claim any neighbours: the dimensions of such a fabric are not looked for."""
    dice = random.Random(5)
    names = [f"s{number}" for number in range(4096)]
    graph: dict[str, set[str]] = {name: set() for name in names}
    hubs = names[:64] if degree == 1 else names
    for name in names:
        for other in hubs if degree == 1 else dice.sample(names, degree):
            if other != name:
                graph[name].add(other)
                graph[other].add(name)
    began_s = time.process_time()
    found = places_of_flat(graph, dict.fromkeys(names, 1), {})
    assert time.process_time() - began_s < 30, "1 to 2 s where nothing else runs"
    assert set(found.links.values()) == {"mesh"}


def test_a_large_hypercube_has_dimensions() -> None:
    names = range(2**10)
    graph = {f"s{n}": {f"s{n ^ 1 << bit}" for bit in range(10)} for n in names}
    found = places_of_flat(graph, dict.fromkeys(graph, 1), {})
    assert {label.partition(" ")[0] for label in found.links.values()} == {"dimension"}
    assert len(set(found.links.values())) == 10


def test_parallel_cables_of_a_torus_are_groups() -> None:
    fabric = Plant(torus(5, 5, lanes=2)).fabric()
    found = groups_of(fabric)
    assert len(found) == 4 * 25
    assert found["t0-0 to t1-0, dimension 2"] == ["0up0", "0up1"]
    titles = [table.title for table in tables(fabric)]
    assert titles == ["switches, dimension 1", "switches, dimension 2"]
    cables = sum(len(each) for table in tables(fabric) for each in table.cells.values())
    assert cables == 2 * 2 * 25, "each cable once"


def test_leaves_with_a_peer_link_below_spines_are_no_flat_fabric() -> None:
    fabric = Plant([*leaf_spine(), ("leaf1/peer", "leaf2/peer")]).fabric()
    assert fabric.shape.flat_links == {}
    assert fabric.shape.tiers["spine1"] == 2
