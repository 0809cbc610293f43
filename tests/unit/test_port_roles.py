"""The roles of hosts' NICs, from what their hellos say."""

from __future__ import annotations

from typing import Any

import pytest

from collectors.wire import Object
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.flows.addresses import Addresses
from fabmon.fabric.flows.endpoints import endpoints
from fabmon.fabric.model import SWITCH, Fabric, Host
from fabmon.fabric.roles.port_roles import PortRoles
from fabmon.fabric.roles.rules import RoleOverride, RoleRules
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import Hello
from tests.builders import GBPS, hello

IB, ETHERNET = "InfiniBand", "Ethernet"


def hca(number: int, pci: str, gbps: float = 400, layer: str = IB, **more: Any) -> Object:
    """An RDMA NIC, mlx5_<number>, at a PCI address."""
    facts = {
        "netdev": f"net{number}",
        "rdma": f"mlx5_{number}",
        "rdma_port": 1,
        "link_layer": layer,
        "driver": "mlx5_core",
        "hca_type": "MT4129",
        "line_rate_bps": int(gbps * GBPS),
        "pci": f"0000:{pci}",
        **more,
    }
    kind = "infiniband" if layer == IB else "ethernet"
    return Object(f"net{number}", kind, f"mlx5_{number}", facts, ())


def nic(name: str, pci: str, gbps: float = 100, driver: str = "ice", **more: Any) -> Object:
    """A NIC without RDMA; 0 Gb/s is an unknown line rate."""
    facts = {"netdev": name, "driver": driver, "pci": f"0000:{pci}", **more}
    if gbps:
        facts["line_rate_bps"] = int(gbps * GBPS)
    return Object(name, "ethernet", name, facts, ())


def addresses(dev: str, *there: str, default: bool = False, over: tuple[str, ...] = ()) -> Object:
    info: dict[str, Any] = {"dev": dev, "addresses": list(there)}
    if default:
        info["default_route"] = True
    if over:
        info["over"] = list(over)
    return Object(f"addresses/{dev}", "addresses", None, info, ())


def cabled(dev: str, leaf: str, port: str = "swp1") -> Object:
    facts = {"dev": dev, "peer_node": leaf, "peer_port": port, "peer_role": "switch"}
    return Object(f"lldp/{dev}", "neighbour", None, facts, ())


def gpu(number: int, **affinity: str) -> Object:
    return Object(f"gpu{number}", "gpu", f"gpu{number}", {"affinity": affinity}, ())


def fabric_of(
    hellos: dict[str, Hello],
    rules: RoleRules | None = None,
    roles: PortRoles | None = None,
    topology: Topology | None = None,
) -> Fabric:
    hosts = [
        Host(name=name, role=SWITCH if name.startswith(("leaf", "spine")) else "host")
        for name in hellos
    ]
    return build(hosts, hellos, PortRows(), 1, roles or PortRoles(rules), topology)


def labels(fabric: Fabric, node: str = "gpu1") -> dict[str, str]:
    return {port.name: port.label for port in fabric.node(node).ports}


def roles_of(*objects: Object, reached_at: str = "", rules: RoleRules | None = None) -> Fabric:
    """A fabric of one host."""
    return fabric_of({"gpu1": hello(*objects, reached_at=reached_at)}, rules)


def reasons(fabric: Fabric, node: str = "gpu1") -> dict[str, str]:
    return {port.name: f"{port.role}: {port.role_reason}" for port in fabric.node(node).ports}


RAILS = [(0, "18:00.0"), (3, "40:00.0"), (4, "4f:00.0"), (5, "5e:00.0")]


def dgx(**more: Any) -> list[Object]:
    """Four rails between a dual-port storage card and two Ethernet NICs, eno1 first on PCI."""
    return [
        nic("eno1", "0b:00.0", 10, "ixgbe"),
        *(hca(number, pci, **more) for number, pci in RAILS),
        hca(1, "29:00.0"),
        hca(2, "29:00.1"),
        nic("ens6f0", "82:00.0"),
        addresses("ens6f0", "10.20.0.11/24", default=True),
    ]


def test_rails_are_the_hcas_whatever_else_is_in_the_machine() -> None:
    fabric = roles_of(*dgx())
    assert labels(fabric) == {
        "mlx5_0": "r0",
        "mlx5_3": "r1",
        "mlx5_4": "r2",
        "mlx5_5": "r3",
        "mlx5_1": "s0",
        "mlx5_2": "s1",
        "eno1": "f0",
        "ens6f0": "f1",
    }
    assert reasons(fabric) == {
        "mlx5_0": "rail: RDMA device; 400 Gb/s",
        "mlx5_3": "rail: RDMA device; 400 Gb/s",
        "mlx5_4": "rail: RDMA device; 400 Gb/s",
        "mlx5_5": "rail: RDMA device; 400 Gb/s",
        "mlx5_1": "storage: RDMA device; its card has 2 RDMA ports, the rails' cards 1",
        "mlx5_2": "storage: RDMA device; its card has 2 RDMA ports, the rails' cards 1",
        "eno1": "frontend: no RDMA device; 10 Gb/s",
        "ens6f0": "frontend: no RDMA device; 100 Gb/s; carries the default route",
    }


def test_a_nic_that_is_added_changes_no_rail() -> None:
    before = labels(roles_of(*dgx()))
    after = labels(roles_of(nic("eno0", "01:00.0", 1), nic("ens9", "ff:00.0"), *dgx()))
    assert {name: after[name] for name in before if name.startswith("mlx5")} == {
        name: label for name, label in before.items() if name.startswith("mlx5")
    }


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (hca(1, "29:00.0", 100, ETHERNET), "Ethernet, the rails are InfiniBand"),
        (hca(1, "29:00.0", hca_type="MT41692"), "its card is MT41692, the rails are MT4129"),
        (hca(1, "29:00.0", gid_prefix="fe80:1"), "another InfiniBand subnet than the rails"),
    ],
)
def test_an_rdma_nic_unlike_the_rails_is_for_storage(odd: Object, reason: str) -> None:
    rails = [hca(number, pci, gid_prefix="fe80:0") for number, pci in RAILS]
    fabric = roles_of(*rails, odd)
    assert reasons(fabric)["mlx5_1"] == f"storage: RDMA device; {reason}"
    assert sorted(labels(fabric).values()) == ["r0", "r1", "r2", "r3", "s0"]


def test_a_fast_infiniband_port_is_the_rail_beside_more_ports_of_roce() -> None:
    fabric = roles_of(
        hca(0, "18:00.0", 400), hca(1, "29:00.0", 25, ETHERNET), hca(2, "29:00.1", 25, ETHERNET)
    )
    assert labels(fabric) == {"mlx5_0": "r0", "mlx5_1": "s0", "mlx5_2": "s1"}


def test_an_rdma_nic_with_the_default_route_that_is_no_rail_is_the_frontend() -> None:
    bond = hca(1, "29:00.0", 50, ETHERNET, bond="bond0")
    fabric = roles_of(
        *(hca(number, pci) for number, pci in RAILS),
        bond,
        addresses("bond0.17", "10.1.0.4/24", default=True, over=("bond0",)),
    )
    assert reasons(fabric)["mlx5_1"] == (
        "frontend: RDMA device; Ethernet, the rails are InfiniBand; carries the default route"
    )


def test_rails_stay_rails_with_the_default_route_on_one_of_them() -> None:
    route = addresses("net1", "10.1.0.4/24", default=True)
    fabric = roles_of(hca(0, "18:00.0"), hca(1, "29:00.0"), route)
    assert labels(fabric) == {"mlx5_0": "r0", "mlx5_1": "r1"}
    assert reasons(fabric)["mlx5_1"].endswith("; carries the default route")


def test_nics_on_other_switches_than_the_rails_are_for_storage() -> None:
    nics = [hca(number, f"{0x18 + number:02x}:00.0") for number in range(5)]
    leaves = ["leaf1", "leaf2", "leaf1", "leaf2", "store1"]
    ends = [cabled(f"net{n}", leaf, f"p{n}") for n, leaf in enumerate(leaves)]
    up = {
        leaf: hello(
            Object("up1", "ethernet", "up1", {"netdev": "up1"}, ()), cabled("up1", "spine1", leaf)
        )
        for leaf in ("leaf1", "leaf2")
    }
    fabric = fabric_of({"gpu1": hello(*nics, *ends), **up})
    assert labels(fabric)["mlx5_4"] == "s0"
    assert "do not reach the rails' leaves" in reasons(fabric)["mlx5_4"]


def test_leaves_of_a_rail_each_set_no_rail_apart() -> None:
    nics = [hca(number, f"{0x18 + number:02x}:00.0") for number in range(4)]
    ends = [cabled(f"net{n}", f"leaf{n}") for n in range(4)]
    assert set(labels(roles_of(*nics, *ends)).values()) == {"r0", "r1", "r2", "r3"}


def test_nics_without_a_gpu_are_for_storage_where_every_gpu_has_one() -> None:
    nics = [hca(number, f"{0x18 + number:02x}:00.0") for number in range(6)]
    gpus = [
        gpu(n, **{f"mlx5_{m}": "PIX" if n == m else "NODE" for m in range(6)}) for n in range(4)
    ]
    found = labels(roles_of(*nics, *gpus))
    assert [found[f"mlx5_{n}"] for n in range(6)] == ["r0", "r1", "r2", "r3", "s0", "s1"]


def test_of_many_nics_in_one_ip_network_another_network_is_for_storage() -> None:
    nics = [hca(n, f"{0x18 + n:02x}:00.0", layer=ETHERNET) for n in range(5)]
    nets = [addresses(f"net{n}", f"10.1.0.{n + 4}/16") for n in range(4)]
    fabric = roles_of(*nics, *nets, addresses("net4", "10.9.0.4/24"))
    assert reasons(fabric)["mlx5_4"] == "storage: RDMA device; another IP network than the rails"


def test_a_degraded_link_of_one_host_stays_a_rail() -> None:
    fine = hello(hca(0, "18:00.0"), hca(1, "29:00.0"))
    slow = hello(hca(0, "18:00.0"), hca(1, "29:00.0", 200))
    for hosts in ({"gpu1": slow}, {"gpu1": slow, "gpu2": fine}):
        assert labels(fabric_of(hosts)) == {"mlx5_0": "r0", "mlx5_1": "r1"}


def test_a_slower_nic_of_all_hosts_is_for_storage() -> None:
    hosts = {
        name: hello(hca(0, "18:00.0"), hca(1, "29:00.0", 200)) for name in ("gpu1", "gpu2", "gpu3")
    }
    fabric = fabric_of(hosts)
    assert reasons(fabric)["mlx5_1"] == "storage: RDMA device; 200 Gb/s, the rails have 400 Gb/s"


def test_a_miscabled_rail_of_one_host_stays_a_rail() -> None:
    def host(last: str) -> Hello:
        nics = [hca(number, f"{0x18 + number:02x}:00.0") for number in range(4)]
        ends = [cabled(f"net{n}", leaf) for n, leaf in enumerate(["leaf1"] * 3 + [last])]
        return hello(*nics, *ends)

    fabric = fabric_of({"gpu1": host("other"), "gpu2": host("leaf1"), "gpu3": host("leaf1")})
    assert labels(fabric)["mlx5_3"] == "r3"


def test_a_host_without_one_of_its_hcas_keeps_the_numbers_of_the_others() -> None:
    nics = [hca(number, pci) for number, pci in RAILS]
    full = hello(*nics)
    fabric = fabric_of({"gpu1": hello(nics[0], *nics[2:]), "gpu2": full, "gpu3": full})
    assert labels(fabric) == {"mlx5_0": "r0", "mlx5_4": "r2", "mlx5_5": "r3"}


def test_a_host_with_one_nic_has_one_rail() -> None:
    route = addresses("eno1", "10.1.0.4/24", default=True)
    assert labels(roles_of(nic("eno1", "0b:00.0"), route, reached_at="10.1.0.4")) == {"eno1": "r0"}
    assert labels(roles_of(hca(0, "18:00.0"), nic("eno1", "0b:00.0", 1))) == {
        "mlx5_0": "r0",
        "eno1": "m1",
    }


def test_without_rdma_the_nic_of_our_own_connection_is_no_rail() -> None:
    ports = [
        nic(name, f"{place}:00.0") for name, place in (("mg0", "01"), ("d0", "02"), ("d1", "03"))
    ]
    fabric = roles_of(*ports, addresses("mg0", "10.99.0.7/16"), reached_at="10.99.0.7")
    assert labels(fabric) == {"mg0": "f0", "d0": "r0", "d1": "r1"}
    assert reasons(fabric)["mg0"] == "frontend: carries this console's connection"


def test_a_trace_takes_the_rails_not_the_network_of_our_own_connection() -> None:
    hellos = {}
    for number, name in enumerate(("gpu1", "gpu2"), 1):
        hellos[name] = hello(
            *(nic("mg0", "01:00.0"), nic("d0", "02:00.0")),
            addresses("mg0", f"10.99.0.{number}/16"),
            addresses("d0", f"10.1.{number}.0/31"),
            reached_at=f"10.99.0.{number}",
        )
    fabric = fabric_of(hellos)
    ends = endpoints(Addresses(fabric, hellos), fabric.node("gpu1"), fabric.node("gpu2"))
    assert [(end.port, end.address) for end in ends] == [("d0", "10.1.1.0"), ("d0", "10.1.2.0")]


def test_a_host_that_does_not_report_its_routes_has_the_roles_of_its_peers() -> None:
    nics = [nic("eth0", "01:00.0"), nic("eth1", "02:00.0")]
    routed = hello(*nics, addresses("eth0", "10.1.0.4/24", default=True))
    fabric = fabric_of({"gpu1": hello(*nics), "gpu2": routed, "gpu3": routed})
    assert reasons(fabric)["eth0"] == "frontend: on most of its peers it carries the default route"


@pytest.mark.parametrize("reached_at", ["::ffff:10.99.0.7", "10.99.0.7%eth0"])
def test_our_connection_is_found_in_every_notation(reached_at: str) -> None:
    ports = [nic("eth0", "01:00.0"), nic("eth1", "02:00.0")]
    fabric = roles_of(*ports, addresses("eth1", "10.99.0.7/16"), reached_at=reached_at)
    assert labels(fabric) == {"eth0": "r0", "eth1": "f0"}


def test_without_rdma_the_fastest_nics_are_rails() -> None:
    fabric = roles_of(
        nic("ens5", "01:00.0", 0, "virtio_net"),
        nic("ens6", "02:00.0", 200, "gve"),
        nic("ens7", "03:00.0", 200, "gve"),
        nic("eno1", "04:00.0", 1, "igb"),
    )
    assert labels(fabric) == {"ens5": "f0", "ens6": "r0", "ens7": "r1", "eno1": "m1"}
    assert reasons(fabric)["eno1"] == "management: 1 Gb/s, the rails have 200 Gb/s"


def test_the_fastest_nic_is_the_rail_even_with_the_default_route() -> None:
    route = addresses("ens6", "10.1.0.4/24", default=True)
    fabric = roles_of(nic("ens6", "02:00.0", 100), nic("eno1", "04:00.0", 1, "igb"), route)
    assert labels(fabric) == {"ens6": "r0", "eno1": "m1"}


def test_a_cloud_host_with_the_default_route_on_one_of_equal_nics() -> None:
    nics = [nic(f"eth{n}", f"0{n}:00.0", 0, "gve") for n in range(5)]
    route = addresses("eth0", "10.1.0.4/24", default=True)
    assert labels(roles_of(*nics, route)) == {
        "eth0": "f0",
        **{f"eth{n}": f"r{n - 1}" for n in range(1, 5)},
    }


def test_equal_cost_default_routes_over_all_rails_leave_them_rails() -> None:
    nics = [nic(f"eth{n}", f"0{n}:00.0") for n in range(3)]
    routes = [addresses(f"eth{n}", f"10.{n}.0.4/31", default=True) for n in range(2)]
    assert set(labels(roles_of(*nics, *routes)).values()) == {"r0", "r1", "r2"}


def test_both_links_of_a_bond_with_the_default_route_are_frontends() -> None:
    fabric = roles_of(
        nic("eno1", "01:00.0", 25, bond="bond0"),
        nic("eno2", "01:00.1", 25, bond="bond0"),
        nic("ens1", "02:00.0", 25),
        addresses("bond0", "10.1.0.4/24", default=True),
    )
    assert labels(fabric) == {"eno1": "f0", "eno2": "f1", "ens1": "r0"}


def test_the_links_of_a_bond_that_is_one_rdma_device_are_no_rails_beside_it() -> None:
    bonded = [
        Object(
            "b",
            "ethernet",
            "mlx5_bond_0",
            {"rdma": "mlx5_bond_0", "bond": "bond0", "pci": "0000:18:00.0", "link_layer": ETHERNET},
            (),
        ),
        nic("ens1f0np0", "18:00.0", 200, bond="bond0"),
        nic("ens1f1np1", "18:00.1", 200, bond="bond0"),
    ]
    fabric = roles_of(*bonded)
    assert labels(fabric) == {"mlx5_bond_0": "r0", "ens1f0np0": "b0", "ens1f1np1": "b1"}
    assert reasons(fabric)["ens1f0np0"] == "member: a link of bond0, whose RDMA is mlx5_bond_0"


def test_slingshot_and_efa_are_rails_beside_ethernet() -> None:
    hsn = Object("cxi0", "ethernet", "hsn0", {"cxi": "cxi0", "netdev": "hsn0"}, ())
    assert labels(roles_of(hsn, nic("eno1", "01:00.0", 10))) == {"hsn0": "r0", "eno1": "f0"}
    efa = [
        Object(
            f"rdmap{n}s0",
            "ethernet",
            f"rdmap{n}s0",
            {"rdma": f"rdmap{n}s0", "link_layer": "Unspecified", "pci": f"0000:{n}:00.0"},
            (),
        )
        for n in (47, 48)
    ]
    fabric = roles_of(*efa, nic("ens32", "2e:00.0", 100, "ena"))
    assert labels(fabric) == {"ens32": "f0", "rdmap47s0": "r0", "rdmap48s0": "r1"}


def test_virtual_functions_in_a_machine_are_nics_like_others() -> None:
    vfs = [hca(n, f"0{n}:00.{n}", hca_type="MT4126") for n in range(1, 4)]
    fabric = roles_of(*vfs, nic("eth0", "09:00.0", 50, "hv_netvsc"))
    assert labels(fabric) == {"mlx5_1": "r0", "mlx5_2": "r1", "mlx5_3": "r2", "eth0": "f0"}


def test_a_usb_nic_is_for_management() -> None:
    bmc = nic("enx0a1b", "06:00.0", 0.4, "cdc_ether")
    assert reasons(roles_of(bmc, nic("eth0", "01:00.0")))["enx0a1b"] == (
        "management: a USB NIC, as the BMC's is"
    )


def test_a_host_of_which_nothing_but_names_is_known_has_rails() -> None:
    ports = [Object(name, "ethernet", name, {}, ()) for name in ("eth0", "eth1", "mgmt0")]
    assert labels(roles_of(*ports)) == {"eth0": "r0", "eth1": "r1", "mgmt0": "m1"}


def test_a_route_or_a_rate_that_vanishes_gives_no_port_another_role() -> None:
    roles = PortRoles()
    nics = [nic("eth0", "01:00.0"), nic("eth1", "02:00.0"), nic("eno1", "03:00.0", 10, "ixgbe")]
    route = addresses("eth0", "10.1.0.4/24", default=True)
    before = fabric_of({"gpu1": hello(*nics, route)}, roles=roles)
    down = [nics[0], nic("eth1", "02:00.0", 0), nics[2], addresses("eth0", "10.1.0.4/24")]
    for said in (hello(*down), hello(*down[:3])):
        assert labels(fabric_of({"gpu1": said}, roles=roles)) == labels(before)


def test_the_configuration_overrides_by_host_and_port() -> None:
    rules = RoleRules(
        overrides=(
            RoleOverride("gpu1", "mlx5_4", "storage"),
            RoleOverride("*", "ens6f0", "management"),
            RoleOverride("gpu2", "*", "frontend"),
        )
    )
    fabric = roles_of(*dgx(), rules=rules)
    assert labels(fabric) == {
        **{"mlx5_0": "r0", "mlx5_3": "r1", "mlx5_5": "r2", "mlx5_4": "s2"},
        **{"mlx5_1": "s0", "mlx5_2": "s1", "eno1": "f0", "ens6f0": "m1"},
    }
    assert reasons(fabric)["mlx5_4"] == "storage: set in the configuration"


def test_the_planned_rails_are_rails_in_their_order() -> None:
    plan = Topology(rails=("mlx5_1", "mlx5_0"))
    said = hello(hca(0, "18:00.0"), hca(1, "29:00.0", 100, ETHERNET), hca(2, "30:00.0"))
    fabric = fabric_of({"gpu1": said}, topology=plan)
    assert labels(fabric) == {"mlx5_1": "r0", "mlx5_0": "r1", "mlx5_2": "r2"}


def test_a_host_is_grouped_by_the_leaf_of_its_first_rail() -> None:
    leaf = {
        name: hello(
            Object("swp1", "ethernet", "swp1", {"netdev": "swp1"}, ()),
            Object(
                "l", "neighbour", None, {"dev": "swp1", "peer_node": "gpu1", "peer_port": port}, ()
            ),
        )
        for name, port in (("leaf1", "mlx5_0"), ("leaf9", "eno1"))
    }
    said = hello(
        nic("eno1", "0b:00.0", 10),
        hca(0, "18:00.0"),
        cabled("eno1", "leaf9"),
        cabled("net0", "leaf1"),
    )
    assert fabric_of({"gpu1": said, **leaf}).node("gpu1").group == "leaf1"
