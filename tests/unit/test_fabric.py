"""Ports, roles, cables and groups, from what the nodes say."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wire import Object
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.model import SWITCH, Fabric, Host
from fabmon.fabric.names import natural
from fabmon.fabric.topology.address_cables import cables_by_mac
from tests.builders import LeafSpine, ecmp, hello, port


def fabric_of(made: LeafSpine) -> Fabric:
    return build(made.hosts, made.hellos(), PortRows(), 1)


def test_a_leaf_leads_its_hosts_and_the_spines_come_last() -> None:
    fabric = fabric_of(LeafSpine(uplinks=2, hosts=2))
    assert [(node.name, node.group) for node in fabric.nodes] == [
        ("leaf1", "leaf1"),
        ("gpu001", "leaf1"),
        ("gpu002", "leaf1"),
        ("spine1", "spines"),
        ("spine2", "spines"),
    ]


def test_members_of_an_ecmp_group_are_uplinks_and_the_rest_goes_down() -> None:
    leaf = fabric_of(LeafSpine(uplinks=2, hosts=1)).node("leaf1")
    assert [(p.name, p.role, p.label) for p in leaf.ports] == [
        ("down1", "downlink", "dn1"),
        ("up1", "uplink", "up1"),
        ("up2", "uplink", "up2"),
    ]


def test_neighbours_tell_the_cables() -> None:
    fabric = fabric_of(LeafSpine(uplinks=2, hosts=1))
    peers = {p.id: fabric.ports[p.peer].id for p in fabric.ports if p.peer is not None}
    assert peers["leaf1/up2"] == "spine2/swp1"
    assert peers["gpu001/eth0"] == "leaf1/down1"
    assert all(peers[other] == one for one, other in peers.items())


def test_on_a_shared_segment_nothing_is_claimed() -> None:
    ports = {name: {"eth0": {"mac": name}} for name in "abc"}
    seen = {name: [{"dev": "eth0", "mac": m} for m in "abc" if m != name] for name in "abc"}
    assert cables_by_mac({name: (ports[name], seen[name]) for name in "abc"}) == {}


@pytest.mark.parametrize("gateway_sees", ["abc", ""])
def test_hosts_that_all_see_one_gateway_are_not_cabled_to_it(gateway_sees: str) -> None:
    seen = [{"dev": "swp1", "mac": each} for each in gateway_sees]
    hosts = {each: ({"eth0": {"mac": each}}, [{"dev": "eth0", "mac": "g"}]) for each in "abc"}
    assert cables_by_mac({"gw": ({"swp1": {"mac": "g"}}, seen), **hosts}) == {}


def test_one_end_is_enough_when_the_other_sees_nobody() -> None:
    leaf: tuple[dict[str, Any], list[Any]] = ({"swp1": {"mac": "s"}}, [])
    cables = cables_by_mac(
        {"leaf": leaf, "a": ({"eth0": {"mac": "a"}}, [{"dev": "eth0", "mac": "s"}])}
    )
    assert cables == {("a", "eth0"): ("leaf", "swp1")}


MACS = st.sampled_from("abcdef")


@given(
    st.dictionaries(
        st.sampled_from(["n1", "n2", "n3", "n4"]),
        st.dictionaries(st.sampled_from(["p1", "p2"]), st.tuples(MACS, st.sets(MACS, max_size=3))),
    )
)
def test_every_cable_has_two_ends_whatever_is_reported(
    reported: dict[str, dict[str, tuple[str, set[str]]]],
) -> None:
    facts = {
        node: (
            {name: {"mac": mac} for name, (mac, _) in ports.items()},
            [{"dev": name, "mac": mac} for name, (_, seen) in ports.items() for mac in seen],
        )
        for node, ports in reported.items()
    }
    found = cables_by_mac(facts)
    assert all(found.get(other, end) == end and other[0] != end[0] for end, other in found.items())
    assert len(set(found.values())) == len(found)


def test_a_switch_with_one_mac_for_all_ports_is_distinguished_by_the_other_side() -> None:
    switch = {"p1": {"mac": "s"}, "p2": {"mac": "s"}}
    cables = cables_by_mac(
        {
            "switch": (switch, [{"dev": "p1", "mac": "a"}, {"dev": "p2", "mac": "b"}]),
            "a": ({"eth0": {"mac": "a"}}, [{"dev": "eth0", "mac": "s"}]),
            "b": ({"eth0": {"mac": "b"}}, [{"dev": "eth0", "mac": "s"}]),
        }
    )
    assert cables["a", "eth0"] == ("switch", "p1")
    assert cables["b", "eth0"] == ("switch", "p2")


def test_rails_follow_the_pci_address_and_management_is_apart() -> None:
    said = hello(
        port("mlx5_9", pci="0000:19:00.0"),
        port("mlx5_0", pci="0000:9a:00.0"),
        port("mgmt0", pci="0000:01:00.0"),
    )
    (node,) = build([Host(name="gpu001")], {"gpu001": said}, PortRows(), 1).nodes
    assert [(p.name, p.label) for p in node.ports] == [
        ("mgmt0", "m1"),
        ("mlx5_9", "r0"),
        ("mlx5_0", "r1"),
    ]


def test_the_hosts_file_decides_the_group() -> None:
    made = LeafSpine(uplinks=2, hosts=1)
    hosts = [
        host if host.name != "gpu001" else Host(name="gpu001", group="rack7") for host in made.hosts
    ]
    assert build(hosts, made.hellos(), PortRows(), 1).node("gpu001").group == "rack7"


def test_groups_with_the_same_members_are_one_and_a_single_link_is_none() -> None:
    said = hello(port("a"), port("b"), port("c"), ecmp("a", "b"), ecmp("b", "a"), ecmp("c"))
    (group,) = build([Host(name="leaf1", role=SWITCH)], {"leaf1": said}, PortRows(), 1).groups
    assert len(group.rows) == 2
    assert group.destinations == 2


def test_names_sort_as_people_count() -> None:
    assert sorted(["gpu10", "gpu9", "gpu", "10", "9a"], key=natural) == [
        "gpu",
        "gpu9",
        "gpu10",
        "9a",
        "10",
    ]


@pytest.mark.parametrize("name", ["\u00b2", "9" * 5000, "eth\u0663" + "\u0663" * 5000, ""])
def test_any_name_can_be_sorted(name: str) -> None:
    assert sorted([name, "eth1"], key=natural)


def test_the_kind_of_an_object_is_its_own_not_a_fact_of_it() -> None:
    said = hello(port("eth0", kind=["gpu"]))
    (node,) = build([Host(name="a")], {"a": said}, PortRows(), 1).nodes
    assert node.ports[0].kind == "ethernet"


@pytest.mark.parametrize("info", [{"members": 5}, {"members": [{}], "destinations_count": "x"}])
def test_facts_that_cannot_be_used_cost_the_node_that_tells_them(
    info: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    bad = hello(port("eth0"), Object("ecmp/1", "ecmp", None, info, ()))
    hellos = {"bad": bad, "good": hello(port("eth0"))}
    fabric = build([Host(name="bad"), Host(name="good")], hellos, PortRows(), 1)
    assert [len(node.ports) for node in fabric.nodes] == [0, 1]
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.getMessage() == "bad: the facts about its ports cannot be used"
