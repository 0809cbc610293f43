"""Whom to believe about a cable, and when two sources contradict each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.model import CableReport, Fabric
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.claims import TRUST, Claim, Wiring, located, merge
from fabmon.fabric.topology.plan import End
from fabmon.fabric.topology.port_lookup import PortLookup
from tests.unit.topology.making import Plant, cabled, leaf_spine


def words(fabric: Fabric) -> list[tuple[str, str, str]]:
    """(port, believed, doubted) of every contradiction."""

    def said(each: CableReport) -> str:
        return f"{each.source} {each.by}: {each.node}/{each.port}"

    return [
        (fabric.ports[each.row].id, said(each.believed), said(each.doubted))
        for each in fabric.contradictions
    ]


def merged(claims: list[Claim], facts: dict[str, NodeFacts]) -> Wiring:
    places = PortLookup(facts)
    return merge(located(claims, places), {}, places, set(), {})


def test_lldp_alone_tells_the_cables_with_no_mac_known() -> None:
    fabric = Plant(leaf_spine()).fabric()
    assert cabled(fabric)["leaf1/swp50"] == "spine1/swp1 (LLDP)"
    assert cabled(fabric)["gpu1/mlx5_0"] == "leaf1/swp0 (LLDP)"
    peers = {p.id: fabric.ports[p.peer].id for p in fabric.ports if p.peer is not None}
    assert peers["spine2/swp1"] == "leaf1/swp51"
    assert fabric.contradictions == ()


def test_a_node_that_copies_addresses_takes_no_cable_from_others() -> None:
    def hardware() -> Plant:
        made = Plant()
        for one, other in leaf_spine():
            made.sees(one, other)
        made.hears("leaf1/swp50", "spine1/swp1", mac="spine1/swp1")
        made.said["leaf1"]["lldp"][-1].info["peer_port"] = "Ethernet1"
        return made

    honest = cabled(hardware().fabric())
    assert honest["leaf1/swp50"].startswith("spine1/swp1 (LLDP")
    assert honest["gpu1/mlx5_0"] == "leaf1/swp0 (neighbour MAC)"
    lied_to = hardware()
    for number, copied in enumerate(("leaf1/swp0", "leaf1/swp50", "leaf1/swp51", "spine1/swp1")):
        lied_to.port(f"evil/e{number}", mac=copied)
    assert cabled(lied_to.fabric()) == honest


def test_a_node_takes_no_cable_from_ports_that_see_each_others_mac_addresses() -> None:
    hardware = Plant()
    for one, other in leaf_spine():
        hardware.sees(one, other)
    hardware.hears("leaf1/swp0", "gpu1/mlx5_0")
    before = cabled(hardware.fabric())
    for number, end in enumerate(sorted({end for cable in leaf_spine() for end in cable})):
        hardware.hears(f"gpu9/e{number}", end)
    fabric = hardware.fabric()
    assert cabled(fabric) == before
    assert {port: doubted.split(":")[0] for port, _, doubted in words(fabric)} == dict.fromkeys(
        before, "LLDP gpu9"
    )


@pytest.mark.parametrize("ends", [("gpu1/eth0", "leaf1/swp0"), ("leaf1/swp0", "gpu1/eth0")])
def test_a_host_takes_no_cable_from_a_port_that_alone_sees_its_far_end(
    ends: tuple[str, str],
) -> None:
    """What it claims of the far end, which reports nothing, cannot be decided, but is shown."""
    sees, silent = ends

    def hardware() -> Plant:
        made = Plant()
        made.sees(sees, silent)
        made.said[silent.partition("/")[0]]["routes"].clear()
        return made

    before = cabled(hardware().fabric())
    assert before[sees] == f"{silent} (neighbour MAC)"
    for claimed, still in ((sees, before), (silent, None)):
        plant = hardware()
        plant.hears("gpu9/e0", claimed)
        fabric = plant.fabric()
        assert still is None or cabled(fabric) == still
        ((port, *reports),) = words(fabric)
        assert port == claimed
        assert any("LLDP gpu9" in each for each in reports)
    # A switch between the two knows better than a MAC address that comes through it.
    plant = hardware()
    plant.hears("leaf9/swp3", sees)
    assert cabled(plant.fabric())[sees] == "leaf9/swp3 (LLDP)"


def test_a_node_that_sees_a_port_takes_no_cable_from_the_node_that_reports_it() -> None:
    hardware = Plant()
    hardware.hears("gpu1/mlx5_0", "leaf1/swp0")
    hardware.sees("gpu9/e0", "leaf1/swp0")
    del hardware.said["leaf1"]
    assert cabled(hardware.fabric())["leaf1/swp0"] == "gpu1/mlx5_0 (LLDP)"


def test_hosts_that_see_each_other_through_a_switch_are_cabled_as_that_reports() -> None:
    hardware = Plant()
    hardware.sees("gpu1/eth0", "gpu2/eth0")
    hardware.sees("gpu3/eth0", "spine1/swp1")
    hardware.lldp("leaf1/swp50", "spine1/swp1")
    for number in (1, 2, 3):
        hardware.hears(f"leaf1/swp{number}", f"gpu{number}/eth0")
    fabric = hardware.fabric()
    found = cabled(fabric)
    assert [found[f"gpu{number}/eth0"] for number in (1, 2, 3)] == [
        f"leaf1/swp{number} (LLDP)" for number in (1, 2, 3)
    ]
    assert fabric.contradictions == ()


def test_every_source_that_says_the_same_is_kept() -> None:
    hardware = Plant(leaf_spine())
    hardware.sees("leaf1/swp50", "spine1/swp1")
    fabric = hardware.fabric("leaf1,swp50,spine1,swp1\n")
    assert cabled(fabric)["leaf1/swp50"] == "spine1/swp1 (config, LLDP, neighbour MAC)"
    assert cabled(fabric)["spine1/swp1"] == "leaf1/swp50 (config, LLDP, neighbour MAC)"
    assert fabric.contradictions == ()


def test_the_plan_holds_against_lldp_and_the_contradiction_is_kept() -> None:
    hardware = Plant(leaf_spine(leaves=1, spines=4, hosts=1))
    fabric = hardware.fabric("leaf1,swp50,spine3,swp1\n")
    assert cabled(fabric)["leaf1/swp50"] == "spine3/swp1 (config)"
    assert "spine1/swp1" not in cabled(fabric)
    assert words(fabric)[0] == (
        "leaf1/swp50",
        "config pod7.csv:1: spine3/swp1",
        "LLDP leaf1 and spine1: spine1/swp1",
    )


def test_a_plan_without_ports_is_made_exact_by_lldp() -> None:
    fabric = Plant(leaf_spine()).fabric("leaf1,swp50,spine1,\n")
    assert cabled(fabric)["leaf1/swp50"] == "spine1/swp1 (config, LLDP)"
    assert fabric.contradictions == ()


def test_what_is_not_watched_is_still_named() -> None:
    fabric = Plant(leaf_spine(), unwatched=["spine1", "spine2"]).fabric()
    leaf = fabric.node("leaf1")
    assert [port.peer for port in leaf.ports if port.name == "swp50"] == [None]
    assert cabled(fabric)["leaf1/swp50"] == "spine1/swp1 (LLDP)"


def test_a_switch_that_is_not_watched_may_have_two_names() -> None:
    hardware = Plant(leaf_spine(), unwatched=["spine1", "spine2"])
    plan = "leaf1,swp50,rack9-spine-a,swp1\nleaf1,swp51,rack9-spine-b,swp1\n"
    assert hardware.fabric(plan).contradictions == ()
    swapped = "leaf1,swp50,spine2,swp1\nleaf1,swp51,spine1,swp1\n"
    assert len(hardware.fabric(swapped).contradictions) == 2


def test_nodes_are_known_by_hostname_and_with_their_domain_and_ports_by_their_other_names() -> None:
    hardware = Plant()
    hardware.port("10.0.0.7/mlx5_0", netdev="ens1np0", mac="b8:59:9f:00:00:01")
    hardware.hostnames["10.0.0.7"] = "gpu7.pod7.example"
    hardware.unwatched = {"GPU7.pod7.example", "gpu7"}
    for called in ("GPU7.pod7.example/ENS1NP0", "gpu7/mlx5_0", "gpu7/b8:59:9f:00:00:01"):
        hardware.said["leaf1"] = {}
        hardware.hears("leaf1/swp1", called)
        assert cabled(hardware.fabric())["leaf1/swp1"] == "10.0.0.7/mlx5_0 (LLDP)"


def test_addresses_are_not_cut_at_their_dots() -> None:
    hardware = Plant([("leaf1/swp1", "10.0.0.7/eth0"), ("leaf1/swp2", "10.0.0.8/eth0")])
    assert cabled(hardware.fabric())["10.0.0.8/eth0"] == "leaf1/swp2 (LLDP)"


def test_a_port_with_several_neighbours_is_cabled_to_none_of_them() -> None:
    hardware = Plant([("gpu1/eth0", "leaf1/swp1"), ("gpu2/eth0", "leaf1/swp1")])
    cables = cabled(hardware.fabric())
    assert "leaf1/swp1" not in cables
    assert "gpu1/eth0" not in cables


def test_a_node_that_claims_ports_of_others_takes_no_cable_from_them() -> None:
    honest = Plant(leaf_spine())
    before = cabled(honest.fabric())
    for number, end in enumerate(("leaf1/swp0", "gpu1/mlx5_0", "spine1/swp1")):
        honest.hears(f"gpu9/e{number}", end)
    fabric = honest.fabric()
    assert cabled(fabric) == before
    assert sorted(words(fabric)) == [
        ("gpu1/mlx5_0", "LLDP gpu1 and leaf1: leaf1/swp0", "LLDP gpu9: gpu9/e1"),
        ("leaf1/swp0", "LLDP gpu1 and leaf1: gpu1/mlx5_0", "LLDP gpu9: gpu9/e0"),
        ("spine1/swp1", "LLDP leaf1 and spine1: leaf1/swp50", "LLDP gpu9: gpu9/e2"),
    ]


@pytest.mark.parametrize("claimed", ["lldp", "ib_fabric", "ufm"])
@pytest.mark.parametrize("source", ["ib_fabric", "ufm"])
def test_a_node_takes_no_cable_from_ports_that_another_source_knows(
    source: str, claimed: str
) -> None:
    plant = Plant()
    for one, other in leaf_spine():
        plant.hears(one, other, source)
        plant.hears(other, one, source)
    before = cabled(plant.fabric())
    assert before
    for number, end in enumerate(sorted({end for cable in leaf_spine() for end in cable})):
        plant.hears(f"gpu9/e{number}", end, claimed)
    fabric = plant.fabric()
    assert cabled(fabric) == before
    assert any(" gpu9: " in each for found in words(fabric) for each in found)


def test_a_host_that_knows_its_leaf_by_another_name_keeps_the_cable_that_the_leaf_reports() -> None:
    plant = Plant()
    plant.hears("leaf1/swp1", "gpu1/mlx5_0")
    plant.hears("gpu1/mlx5_0", "switch-x/swp1")
    plant.unwatched.add("switch-x")
    del plant.ports["switch-x"]
    fabric = plant.fabric()
    assert cabled(fabric)
    assert words(fabric) == []


def test_thousands_of_claims_about_one_port_are_a_few_contradictions() -> None:
    hardware = Plant([("gpu1/mlx5_0", "leaf1/swp1")])
    for number in range(2000):
        hardware.hears(f"gpu{2 + number % 10}/e{number}", "leaf1/swp1")
    fabric = hardware.fabric()
    assert cabled(fabric)["leaf1/swp1"] == "gpu1/mlx5_0 (LLDP)"
    assert len(fabric.contradictions) == 4


def test_what_nobody_can_decide_is_shown() -> None:
    hardware = Plant()
    hardware.hears("gpu1/mlx5_0", "leaf1/swp1")
    hardware.hears("gpu2/mlx5_0", "leaf1/swp1")
    fabric = hardware.fabric()
    assert "leaf1/swp1" not in cabled(fabric)
    assert words(fabric) == [
        ("leaf1/swp1", "LLDP gpu1: gpu1/mlx5_0", "LLDP gpu2: gpu2/mlx5_0"),
    ]


def test_the_end_that_a_port_reports_itself_counts_before_what_others_report() -> None:
    hardware = Plant()
    hardware.hears("leaf1/swp1", "gpu1/mlx5_0")
    hardware.hears("gpu2/mlx5_0", "leaf1/swp1")
    fabric = hardware.fabric()
    assert cabled(fabric)["leaf1/swp1"] == "gpu1/mlx5_0 (LLDP)"
    assert words(fabric) == [
        ("leaf1/swp1", "LLDP leaf1: gpu1/mlx5_0", "LLDP gpu2: gpu2/mlx5_0"),
    ]


@pytest.mark.parametrize(
    ("listed", "named"), [("10.1.1.1", "leaf1"), ("leaf1", "leaf1.pod7"), ("leaf1.pod7", "leaf1")]
)
def test_another_nodes_hostname_takes_no_name_from_it(listed: str, named: str) -> None:
    hardware = Plant()
    hardware.port(f"{listed}/swp1")
    hardware.hostnames[listed] = "leaf1"
    hardware.unwatched = {"leaf1", "leaf1.pod7"} - {listed}
    hardware.hears("gpu1/mlx5_0", f"{named}/swp1")
    before = cabled(hardware.fabric())
    assert before["gpu1/mlx5_0"] == f"{listed}/swp1 (LLDP)"
    hardware.port("gpu9/swp1")
    for copied in ("leaf1", "leaf1.pod7", "gpu1"):
        hardware.hostnames["gpu9"] = copied
        assert cabled(hardware.fabric()) == before


def test_the_firmware_of_a_nic_that_speaks_for_itself_disturbs_nobody() -> None:
    hardware = Plant([("gpu1/eth0", "leaf1/swp1")], unwatched=["ConnectX-7"])
    hardware.hears("leaf1/swp1", "ConnectX-7/b8:59:9f:00:00:02")
    assert cabled(hardware.fabric())["leaf1/swp1"] == "gpu1/eth0 (LLDP)"


def test_two_hosts_behind_a_switch_that_is_not_watched_contradict_no_plan() -> None:
    hardware = Plant()
    hardware.sees("gpu1/eth0", "gpu2/eth0")
    fabric = hardware.fabric("gpu1,eth0,leaf1,swp1\ngpu2,eth0,leaf1,swp2\n")
    assert cabled(fabric)["gpu1/eth0"] == "leaf1/swp1 (config)"
    assert fabric.contradictions == ()


def test_two_switches_that_see_only_each_other_contradict_a_plan() -> None:
    hardware = Plant()
    hardware.sees("leaf1/swp50", "spine2/swp1")
    hardware.port("spine1/swp1")
    fabric = hardware.fabric("leaf1,swp50,spine1,swp1\n")
    assert words(fabric) == [
        ("leaf1/swp50", "config pod7.csv:1: spine1/swp1", "neighbour MAC leaf1: spine2/swp1")
    ]


def test_a_port_tells_its_peer_itself_where_the_fabric_names_it() -> None:
    hardware = Plant()
    peer = {"node": "leaf1", "port": "Ethernet8", "port_name": "etp3", "guid": None}
    hardware.port("gpu1/mlx5_0", peer=peer)
    hardware.port("leaf1/Ethernet9", alias="etp3")
    assert cabled(hardware.fabric())["gpu1/mlx5_0"] == "leaf1/Ethernet9 (LLDP)"


def test_a_guid_finds_a_port_whatever_it_is_called() -> None:
    hardware = Plant()
    hardware.port("gpu7/mlx5_3", guid="ec0d:9a03:007d:7d0b")
    hardware.port("ib1/p24")
    text = """
Switch	41 "S-b8599f0300fc6de4"		# "ib1" enhanced port 0 lid 13 lmc 0
[24]	"H-ec0d9a03007d7d0b"[1](ec0d9a03007d7d0b) 		# "nobody HCA-2" lid 28 4xEDR
"""
    cables = cabled(hardware.fabric(text, "net.txt"))
    assert cables["gpu7/mlx5_3"] == "ib1/p24 (InfiniBand discovery)"


ENDS = st.tuples(st.sampled_from("abcx"), st.sampled_from(["p1", "p2", ""])).map(
    lambda pair: End(*pair)
)


@given(st.lists(st.tuples(ENDS, ENDS, st.sampled_from(TRUST[:-1])), max_size=8))
def test_every_peer_has_this_end_as_its_peer_whatever_is_claimed(
    claimed: list[tuple[End, End, str]],
) -> None:
    facts = {node: NodeFacts() for node in "abc"}
    for fact in facts.values():
        fact.ports = {"p1": {}, "p2": {}}
    claims = [Claim(one, other, source, "x:1") for one, other, source in claimed]
    wiring = merged(claims, facts)
    assert all(wiring.peers[other] == end for end, other in wiring.peers.items())
    assert all(end in wiring.cables for end in wiring.peers)
    assert all(end != other for end, other in wiring.peers.items())


@pytest.mark.parametrize("source", TRUST[:-1])
def test_one_source_alone_contradicts_nobody(source: str) -> None:
    facts = {"a": NodeFacts(), "b": NodeFacts()}
    for fact in facts.values():
        fact.ports = {"p1": {}}
    claims = [
        Claim(End("a", "p1"), End("b", "p1"), source, "x:1"),
        Claim(End("a", "p1"), End("c", "p1"), source, "x:2"),
    ]
    assert merged(claims, facts).disputes == {}
