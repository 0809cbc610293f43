"""Tiers, planes, pods, rails, uplinks and groups, from the cables."""

from __future__ import annotations

from fabmon.fabric.model import DOWNLINK, GPU, UPLINK, Fabric
from fabmon.fabric.topology.plan_files import parse
from tests.unit.topology.making import Plant, leaf_spine


def groups(fabric: Fabric) -> dict[str, list[str]]:
    return {group.name: [fabric.ports[row].name for row in group.rows] for group in fabric.groups}


def roles(fabric: Fabric, node: str) -> dict[str, str]:
    return {port.name: port.role for port in fabric.node(node).ports}


def test_leaves_have_hosts_and_spines_have_leaves() -> None:
    fabric = Plant(leaf_spine()).fabric()
    assert fabric.shape.tiers == {
        **{"gpu1": 0, "gpu2": 0, "leaf1": 1, "leaf2": 1, "spine1": 2, "spine2": 2}
    }
    assert roles(fabric, "leaf1") == {"swp0": DOWNLINK, "swp50": UPLINK, "swp51": UPLINK}
    assert set(roles(fabric, "spine1").values()) == {DOWNLINK}
    assert [node.name for node in fabric.nodes] == [
        *("leaf1", "gpu1", "leaf2", "gpu2", "spine1", "spine2")
    ]


def test_without_routes_a_leaf_balances_over_its_uplinks() -> None:
    fabric = Plant(leaf_spine(spines=4)).fabric()
    assert groups(fabric)["leaf1 uplinks"] == ["swp50", "swp51", "swp52", "swp53"]
    assert {group.node for group in fabric.groups} == {"leaf1", "leaf2"}


def test_parallel_links_down_are_a_group_and_no_uplinks() -> None:
    hardware = Plant(leaf_spine(leaves=1, spines=1))
    hardware.lldp("leaf1/swp60", "spine1/swp9")
    hardware.routes("spine1", "swp1", "swp9")
    hardware.routes("leaf1", "swp50", "swp60")
    fabric = hardware.fabric()
    assert set(roles(fabric, "spine1").values()) == {DOWNLINK}
    assert groups(fabric) == {
        "leaf1 uplinks": ["swp50", "swp60"],
        "spine1 to leaf1": ["swp1", "swp9"],
    }


def test_what_no_path_leads_to_has_no_place() -> None:
    hardware = Plant(leaf_spine())
    hardware.lldp("other1/swp1", "other2/swp1")
    shape = hardware.fabric().shape
    assert "other1" not in shape.tiers
    assert "leaf1" in shape.tiers


def test_spines_that_are_not_watched_are_known_by_the_routes() -> None:
    hardware = Plant(leaf_spine(), unwatched=["spine1", "spine2"])
    hardware.lldp("leaf1/swp60", "backup9/eth0")
    hardware.unwatched.add("backup9")
    hardware.ports.pop("backup9", None)
    assert "spine1" not in hardware.fabric().shape.tiers
    hardware.routes("leaf1", "swp50", "swp51")
    fabric = hardware.fabric()
    assert fabric.shape.tiers["spine1"] == 2
    assert "backup9" not in fabric.shape.tiers
    assert roles(fabric, "leaf1")["swp60"] == DOWNLINK


def test_tiers_that_are_given_come_first() -> None:
    hardware = Plant(leaf_spine(), unwatched=["spine1", "spine2"])
    fabric = hardware.fabric('[topology.tiers]\nspine = "spine[1-2]"\n', "pod7.toml")
    assert fabric.shape.tiers["spine2"] == 2
    assert roles(fabric, "leaf1")["swp50"] == UPLINK


def test_two_planes_share_hosts_and_no_switch() -> None:
    cables = []
    for plane in ("a", "b"):
        for leaf in (1, 2):
            cables.append((f"gpu{leaf}/nic{plane}", f"leaf{leaf}{plane}/swp1"))
            cables += [(f"leaf{leaf}{plane}/up{s}", f"spine{s}{plane}/swp{leaf}") for s in (1, 2)]
    shape = Plant(cables).fabric().shape
    assert shape.planes["leaf1a"] == shape.planes["spine2a"] == "plane1"
    assert shape.planes["leaf2b"] == shape.planes["spine1b"] == "plane2"
    assert shape.pods == {}


def test_a_leaf_in_two_planes_has_a_group_in_each() -> None:
    hardware = Plant(leaf_spine(spines=4))
    planes = '[topology.planes]\na = "spine[1-2]"\nb = "spine[3-4]"\n'
    fabric = hardware.fabric(planes, "pod7.toml")
    members = [group.rows for group in fabric.groups if group.node == "leaf1"]
    assert [[fabric.ports[row].name for row in rows] for rows in members] == [
        ["swp50", "swp51"],
        ["swp52", "swp53"],
    ]


def test_pods_are_what_the_highest_of_three_tiers_joins() -> None:
    cables = []
    for pod in (1, 2):
        for spine in (1, 2):
            cables.append((f"leaf{pod}/up{spine}", f"spine{pod}-{spine}/swp1"))
            cables.append((f"spine{pod}-{spine}/up1", f"core{spine}/swp{pod}"))
        cables.append((f"gpu{pod}/eth0", f"leaf{pod}/swp1"))
    shape = Plant(cables).fabric().shape
    assert shape.tiers["core1"] == 3
    assert shape.pods == {
        **{"leaf1": "pod1", "spine1-1": "pod1", "spine1-2": "pod1"},
        **{"leaf2": "pod2", "spine2-1": "pod2", "spine2-2": "pod2"},
    }


def test_slurm_knows_the_tiers_and_under_which_leaf_a_host_is() -> None:
    hardware = Plant()
    for end in ("gpu1/eth0", "gpu2/eth0", "leaf1/swp1", "spine1/swp1"):
        hardware.port(end)
    text = "SwitchName=leaf1 Nodes=gpu[1-2]\nSwitchName=spine1 Switches=leaf1 # the one\n"
    fabric = hardware.fabric(text, "topology.conf")
    assert fabric.shape.tiers == {"leaf1": 1, "spine1": 2}
    assert fabric.node("gpu2").group == "leaf1"


def test_rails_that_are_given_keep_their_place_when_a_nic_is_missing() -> None:
    hardware = Plant()
    for name, pci in (("mlx5_3", "0000:3a:00.0"), ("mlx5_0", "0000:9a:00.0")):
        hardware.port(f"gpu1/{name}", pci=pci)
    hardware.port("gpu1/eth9", pci="0000:01:00.0")
    fabric = hardware.fabric('rails = ["mlx5_0", "mlx5_1", "mlx5_3"]\n', "pod7.toml")
    assert {port.name: port.label for port in fabric.node("gpu1").ports} == {
        "mlx5_0": "r0",
        "mlx5_3": "r2",
        "eth9": "r3",
    }


NCCL = """
<system version="1">
  <cpu numaid="0">
    <pci busid="ffff:ff:01.0" class="0x060400">
      <pci busid="0001:00:00.0" class="0x030200"><gpu dev="0" rank="0"/></pci>
      <pci busid="0101:00:00.0" class="0x020700">
        <nic><net name="mlx5_5" dev="1" speed="400000"/></nic>
      </pci>
    </pci>
    <pci busid="ffff:ff:02.0" class="0x060400">
      <pci busid="0102:00:00.0" class="0x020700"><nic><net name="mlx5_2" dev="0"/></nic></pci>
    </pci>
  </cpu>
  <cpu numaid="1"><pci busid="0103:00:00.0" class="0x020000"/></cpu>
</system>
"""


def test_nccl_knows_a_gpus_own_nic_where_a_virtual_machine_hides_it() -> None:
    given = parse(NCCL, "topo.xml")
    assert given.rails == ("mlx5_2", "mlx5_5", "0103:00:00.0")
    hardware = Plant()
    hardware.port("gpu1/mlx5_5", pci="0101:00:00.0")
    hardware.port("gpu1/mlx5_2", pci="0102:00:00.0")
    hardware.port("gpu1/eth0", pci="0103:00:00.0")
    fabric = hardware.fabric(given)
    assert [port.label for port in fabric.node("gpu1").ports] == ["r1", "r0", "r2"]
    ports = {name: {"kind": "ethernet", **info} for name, info in hardware.ports["gpu1"].items()}
    from fabmon.fabric.topology.cabling import Rails

    gpu = {"kind": GPU, "pci": "0001:00:00.0", "affinity": {"mlx5_5": "SYS"}}
    near = Rails(given).nearest(gpu, ports)["affinity"]
    assert near == {"mlx5_5": "PIX", "mlx5_2": "NODE", "eth0": "SYS"}
