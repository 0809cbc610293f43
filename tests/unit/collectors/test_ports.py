from __future__ import annotations

import os
from pathlib import Path

from collectors.hostfs import HostFS
from collectors.readers.ports import DevicePort, find_ports, natural, signature
from tests.fixtures import hosts, parts
from tests.fixtures.tree import Tree


def ports_of(tree: Tree) -> dict[str, DevicePort]:
    return {port.name: port for port in find_ports(HostFS(str(tree.root)))}


def test_an_ipoib_interface_and_its_hca_are_one_port(tmp_path: Path) -> None:
    ports = ports_of(hosts.ib_host(tmp_path))
    assert sorted(ports) == ["eno1", *(f"mlx5_{index}" for index in range(8))]
    port = ports["mlx5_3"]
    assert (port.kind, port.netdev, port.rdma, port.rdma_port) == (
        "infiniband",
        "ib3",
        "mlx5_3",
        1,
    )
    assert port.rdma_path == "sys/class/infiniband/mlx5_3/ports/1"


def test_the_gid_table_says_which_interface_a_roce_port_has(tmp_path: Path) -> None:
    ports = ports_of(hosts.roce_host(tmp_path))
    assert {name: port.netdev for name, port in ports.items()} == {
        f"mlx5_{index}": f"ens{index + 1}np0" for index in range(8)
    }
    assert {port.kind for port in ports.values()} == {"ethernet"}


def test_an_interface_of_that_name_elsewhere_is_not_believed(tmp_path: Path) -> None:
    """GIDs of a device shared with other network namespaces name interfaces of those."""
    tree = Tree(tmp_path)
    for index in range(2):
        device = parts.pci(tree, f"0000:1{index}:00.0", "mlx5_core")
        parts.netdev(tree, f"eth{index}", 2 + index, device)
        rdma = parts.rdma(tree, f"mlx5_{index}", device)
        parts.rdma_port(tree, rdma, 1, "Ethernet", "400 Gb/sec (4X NDR)", ndevs=["eth1"])
    ports = ports_of(tree)
    assert {name: port.netdev for name, port in ports.items()} == {
        "mlx5_0": "eth0",
        "mlx5_1": "eth1",
    }


def test_ports_of_one_function_differ_by_number(tmp_path: Path) -> None:
    ports = ports_of(hosts.old_kernel_host(tmp_path))
    assert {name: port.netdev for name, port in ports.items()} == {
        "mlx4_0/1": "ib0",
        "mlx4_0/2": "ib1",
    }


def test_the_facts_of_a_port(tmp_path: Path) -> None:
    info = ports_of(hosts.roce_host(tmp_path))["mlx5_7"].info
    assert info == {
        "netdev": "ens8np0",
        "ifindex": 17,
        "mac": "02:00:00:00:00:11",
        "virtual": False,
        "rdma": "mlx5_7",
        "rdma_port": 1,
        "link_layer": "Ethernet",
        "fw_ver": "28.41.1000",
        "board_id": "MT_0000000838",
        "hca_type": "MT4129",
        "line_rate_bps": 400_000_000_000,
        "guid": "fc6a:1c03:001c:0001",
        "driver": "mlx5_core",
        "pci": "0000:88:00.0",
        "pcie_speed_gtps": 32.0,
        "pcie_width": 8,
        "pcie_max_speed_gtps": 32.0,
        "pcie_max_width": 16,
        "numa_node": 0,
    }


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    device = parts.pci(tree, "0000:00:03.0", "virtio-pci", speed="Unknown", numa_node=-1)
    parts.netdev(tree, "eth0", 2, device)
    info = ports_of(tree)["eth0"].info
    assert info["pci"] == "0000:00:03.0"
    assert not {"numa_node", "pcie_speed_gtps", "iflink", "master", "guid"} & set(info)


def test_the_iommu_group_of_a_function(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    device = parts.pci(tree, "0000:17:00.0", "mlx5_core")
    parts.netdev(tree, "eth0", 2, device)
    tree.write("sys/kernel/iommu_groups/42/type", "DMA-FQ\n")
    tree.link(f"{device}/iommu_group", "sys/kernel/iommu_groups/42")
    info = ports_of(tree)["eth0"].info
    assert (info["iommu"], info["iommu_group"]) == ("DMA-FQ", "42")


def test_a_bonds_members_are_the_ports_and_nothing_above_them(tmp_path: Path) -> None:
    ports = ports_of(hosts.bond_host(tmp_path))
    assert sorted(ports) == ["ens1f0np0", "ens1f1np1", "mlx5_bond_0"]
    assert {port.info["bond"] for port in ports.values()} == {"bond0"}
    assert ports["mlx5_bond_0"].netdev is None
    assert ports["ens1f1np1"].info["master"] == "bond0"


def test_a_virtual_function_is_a_port_where_its_parent_is_not_seen(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    parent = parts.pci(tree, "0000:18:00.0", "mlx5_core")
    function = parts.pci(tree, "0000:18:00.2", "mlx5_core")
    tree.link(f"{function}/physfn", parent)
    parts.netdev(tree, "net1", 5, function)
    assert list(ports_of(tree)) == ["net1"]
    parts.netdev(tree, "ens1", 2, parent)
    assert list(ports_of(tree)) == ["ens1"]


def test_virtual_interfaces_count_only_without_hardware(tmp_path: Path) -> None:
    tree = hosts.container_host(tmp_path)
    ports = ports_of(tree)
    assert list(ports) == ["eth0"]
    assert ports["eth0"].info["virtual"] is True
    assert ports["eth0"].info["iflink"] == 17
    device = parts.pci(tree, "0000:18:00.0", "mlx5_core")
    parts.netdev(tree, "ens1", 30, device)
    assert list(ports_of(tree)) == ["ens1"]


def test_a_veth_is_a_port_even_when_both_ends_have_the_same_index(tmp_path: Path) -> None:
    """Indices are counted in each network namespace: then sysfs shows a link to itself."""
    tree = Tree(tmp_path)
    for index, name in enumerate(("dummy0", "ifb1", "tap0", "eth0"), 2):
        parts.netdev(tree, name, index, extra={"tun_flags": "0x1002"} if name == "tap0" else None)
    assert list(ports_of(tree)) == ["eth0"]


def test_an_empty_machine_has_no_ports(tmp_path: Path) -> None:
    assert find_ports(HostFS(str(tmp_path))) == []


def test_the_signature_changes_with_the_hardware_and_not_with_the_counters(
    tmp_path: Path,
) -> None:
    tree = hosts.ib_host(tmp_path, hcas=2)
    fs = HostFS(str(tmp_path))
    before = signature(fs)
    tree.grow(5)
    assert signature(fs) == before
    link = tmp_path / "sys/class/infiniband/mlx5_1"
    target = os.readlink(link)
    link.unlink()
    without = signature(fs)
    assert without != before
    link.symlink_to(target)
    assert signature(fs) != without


def test_names_sort_as_people_count() -> None:
    names = ["mlx5_10", "eth2", "mlx5_2", "eth10", "eth9", "mlx5_2/1"]
    assert sorted(names, key=natural) == [
        "eth2",
        "eth9",
        "eth10",
        "mlx5_2",
        "mlx5_2/1",
        "mlx5_10",
    ]


def test_an_iwarp_port_is_found_by_its_mac(tmp_path: Path) -> None:
    """erdma is a function of its own; the interface that it speaks for is virtio's."""
    ports = ports_of(hosts.HOSTS["erdma"](tmp_path))
    assert {name: port.netdev for name, port in ports.items()} == {
        "erdma_0": "eth1",
        "eth0": "eth0",
    }
    assert ports["erdma_0"].info["pci"] == "0000:07:00.0"


def test_ports_of_mana_differ_by_number(tmp_path: Path) -> None:
    ports = ports_of(hosts.HOSTS["mana"](tmp_path))
    assert {name: port.netdev for name, port in ports.items()} == {
        "mana_0/1": "enP30832s1",
        "mana_0/2": "enP30832s2",
    }


def test_soft_roce_is_one_port_with_the_nic_below(tmp_path: Path) -> None:
    ports = ports_of(hosts.HOSTS["rxe"](tmp_path))
    assert {name: port.netdev for name, port in ports.items()} == {"rxe0": "eno1"}
    assert ports["rxe0"].info["virtual"] is False
    assert ports["rxe0"].info["pci"] == "0000:02:00.0"


def test_soft_roce_leaves_an_interface_to_the_hardware_that_has_it(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    soft = parts.rdma(tree, "a_rxe", None)
    parts.rdma_port(tree, soft, 1, "Ethernet", "400 Gb/sec (4X NDR)", ndevs=["ens1np0"])
    ports = ports_of(tree)
    assert {name: port.netdev for name, port in ports.items()} == {
        "a_rxe": None,
        "mlx5_0": "ens1np0",
    }


def test_soft_roce_in_a_container_has_the_veth(tmp_path: Path) -> None:
    tree = hosts.container_host(tmp_path)
    soft = parts.rdma(tree, "rxe0", None)
    parts.rdma_port(tree, soft, 1, "Ethernet", "10 Gb/sec (1X QDR)", ndevs=["eth0"])
    assert {name: port.netdev for name, port in ports_of(tree).items()} == {"rxe0": "eth0"}


def test_veths_that_are_called_as_a_front_panel_are_no_hardware(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for index, name in enumerate(("mgmt0", "swp1", "swp2"), 2):
        parts.netdev(tree, name, index, extra={"iflink": 90 + index})
    assert list(ports_of(tree)) == ["mgmt0", "swp1", "swp2"]
