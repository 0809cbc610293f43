"""The doctor's audit: fabrics with one thing wrong, and fabrics with nothing wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from collectors.wire import Object
from fabmon.analysis.audit import audit
from fabmon.analysis.audit.rails import roce_mtu
from fabmon.analysis.audit.survey import FIX, NOTE, Problem, Survey, Surveyor
from fabmon.fabric.model import Host
from fabmon.fabric.pcie import pcie_link_bps
from fabmon.fabric.roles.rules import RoleOverride, RoleRules
from fabmon.history.history import History
from tests.builders import GBPS, LeafSpine, frame, hello, neighbour, tick, up

METRICS = ("netdev_up", "netdev_speed_bps", "netdev_mtu", "netdev_carrier_changes")
FINE: dict[str, int] = dict(zip(METRICS, (1, 400 * GBPS, 9000, 1), strict=True))


def nic(rail: int, levels: dict[str, int] | None = None, **info: Any) -> tuple[Object, list[int]]:
    """A NIC in good order, but for what is said otherwise."""
    facts = {
        "netdev": f"eth{rail}",
        "rdma": f"mlx5_{rail}",
        "pci": f"0000:{rail:02x}:00.0",
        "pcie_speed_gtps": 32.0,
        "pcie_width": 16,
        "pcie_max_speed_gtps": 32.0,
        "pcie_max_width": 16,
        "pfc": "on",
        "pfc_priorities": [3],
        **info,
    }
    values = {**FINE, **(levels or {})}
    return Object(f"eth{rail}", "ethernet", f"mlx5_{rail}", facts, tuple(values)), [
        *values.values()
    ]


def survey(
    nodes: dict[str, list[tuple[Object, list[int]]]],
    facts: dict[str, list[Object]] | None = None,
    roles: dict[str, str] | None = None,
    reached_at: str = "",
    rules: RoleRules | None = None,
) -> Survey:
    """What is heard of such nodes; `facts` are objects without values."""
    hosts = [Host(name=name, role=(roles or {}).get(name, "host")) for name in nodes]
    history, surveyor = History(hosts, roles=rules), Surveyor(hosts)
    hellos = {
        name: hello(
            *(item for item, _ in ports), *(facts or {}).get(name, []), reached_at=reached_at
        )
        for name, ports in nodes.items()
    }
    frames = {
        name: frame(0, *(value for _, values in ports for value in values))
        for name, ports in nodes.items()
    }
    heard = tick(0, hellos=hellos, frames=frames, statuses=up(*nodes))
    surveyor.accept(heard)
    return surveyor.survey(history.accept(heard))


def rack(**odd: tuple[Object, list[int]]) -> dict[str, list[tuple[Object, list[int]]]]:
    """Four hosts of two rails; `odd` replaces rail 1 of a host."""
    names = ("gpu1", "gpu2", "gpu3", "gpu4")
    return {name: [nic(0), odd.get(name, nic(1))] for name in names}


def listed(problems: Iterable[Problem]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(problem.check, problem.severity, problem.ports) for problem in problems]


def test_a_rack_in_good_order_has_no_fault() -> None:
    assert audit(survey(rack())) == []


@pytest.mark.parametrize(
    ("check", "odd", "text"),
    [
        (
            "link_speed",
            nic(1, {"netdev_speed_bps": 200 * GBPS}),
            "200 Gb/s, its rail r1 runs at 400 Gb/s",
        ),
        (
            "pcie_downtrained",
            nic(1, pcie_width=8),
            "PCIe 32 GT/s x8, supports 32 GT/s x16: at most 252 Gb/s",
        ),
        (
            "mtu",
            nic(1, {"netdev_mtu": 1500}),
            "MTU 1500 on gpu3/mlx5_1; MTU 9000 on the rest of rail r1",
        ),
        (
            "pfc",
            nic(1, pfc="off", pfc_priorities=[]),
            "PFC off on gpu3/mlx5_1; PFC on for priority 3 on the rest of rail r1",
        ),
        ("rail_down", nic(1, {"netdev_up": 0}), "down, 3 of the 4 ports of rail r1 are up"),
        (
            "carrier_flaps",
            nic(1, {"netdev_carrier_changes": 57}),
            "57 changes of carrier since boot, 1 on most ports",
        ),
    ],
)
def test_one_port_is_not_as_the_others(
    check: str, odd: tuple[Object, list[int]], text: str
) -> None:
    problems = audit(survey(rack(gpu3=odd)))
    assert listed(problems) == [(check, FIX, ("gpu3/mlx5_1",))]
    assert problems[0].text == text


def test_ports_without_a_line_rate_are_a_note() -> None:
    virtual = nic(1, {"netdev_speed_bps": 0})
    problems = audit(survey(rack(gpu2=virtual, gpu3=virtual)))
    assert listed(problems) == [("line_rate", NOTE, ("gpu2/mlx5_1", "gpu3/mlx5_1"))]
    assert "speed.eth0=25G" in problems[0].advice
    down = nic(1, {"netdev_speed_bps": 0, "netdev_up": 0})
    assert listed(audit(survey(rack(gpu2=down)))) == [("rail_down", FIX, ("gpu2/mlx5_1",))]


def test_the_only_port_of_a_rail_that_is_down_is_a_note() -> None:
    problems = audit(survey({"gpu1": [nic(0), nic(1, {"netdev_up": 0})]}))
    assert listed(problems) == [("rail_down", NOTE, ("gpu1/mlx5_1",))]


@pytest.mark.parametrize(
    ("gtps", "gbytes_per_s"),
    [
        pytest.param(5.0, 8.0, id="PCIe 2, 8b/10b"),
        pytest.param(32.0, 63.0, id="PCIe 5, 128b/130b"),
        pytest.param(64.0, 121.0, id="PCIe 6, flits"),
        pytest.param(128.0, 242.0, id="PCIe 7, flits"),
    ],
)
def test_what_sixteen_lanes_carry(gtps: float, gbytes_per_s: float) -> None:
    assert pcie_link_bps(gtps, 16) == pytest.approx(gbytes_per_s * 8e9, rel=0.002)


@pytest.mark.parametrize(
    ("mtu", "rdma_mtu"), [(1500, 1024), (2200, 2048), (4200, 4096), (9000, 4096), (300, None)]
)
def test_the_mtu_of_rdma_packets_as_the_kernel_derives_it(mtu: int, rdma_mtu: int | None) -> None:
    assert roce_mtu(mtu) == rdma_mtu


def test_a_rail_all_of_whose_ports_have_mtu_1500() -> None:
    nodes = {name: [nic(0), nic(1, {"netdev_mtu": 1500})] for name in ("gpu1", "gpu2")}
    (problem,) = audit(survey(nodes))
    assert listed([problem]) == [("roce_mtu", FIX, ("gpu1/mlx5_1", "gpu2/mlx5_1"))]
    assert problem.text == (
        "MTU 1500 on rail r1: RDMA packets carry 1024 bytes (derived from the MTU) instead of 4096"
    )
    soft = {name: [nic(0, {"netdev_mtu": 1500}, virtual=True)] for name in ("gpu1", "gpu2")}
    assert audit(survey(soft)) == []


def gpu(number: int, affinity: dict[str, str], **info: Any) -> tuple[Object, list[int]]:
    """A GPU with its relation to each NIC."""
    facts = {"affinity": affinity, **info}
    return Object(f"gpu{number}", "gpu", f"gpu{number}", facts, ()), []


def test_some_gpus_without_a_nic_below_their_switch() -> None:
    near = gpu(0, {"mlx5_0": "PIX", "mlx5_1": "SYS"})
    far = gpu(1, {"mlx5_0": "NODE", "mlx5_1": "SYS"})
    (problem,) = audit(survey({"n1": [nic(0), nic(1), near, far]}))
    assert listed([problem]) == [("gpu_without_nic", NOTE, ("n1/gpu1",))]
    assert "(NODE), 1 of 2 GPUs of the node have one" in problem.text
    shared = [gpu(number, {"mlx5_0": "PXB"}) for number in range(4)]
    assert audit(survey({"n1": [nic(0), *shared]})) == []
    none_near = [gpu(number, {"mlx5_0": "NODE"}) for number in range(4)]
    assert audit(survey({"n1": [nic(0), *none_near]})) == []


@pytest.mark.parametrize(
    ("facts", "nic_facts", "checks"),
    [
        ({"gpudirect": "none"}, {}, [("gpudirect", FIX, ("n1",))]),
        ({"gpudirect": "nvidia_peermem"}, {}, []),
        ({"gpudirect": "dma-buf"}, {}, []),
        (
            {"iommu": "DMA-FQ", "iommu_group": "7"},
            {"iommu": "DMA", "iommu_group": "7"},
            [("iommu", NOTE, ("n1/gpu0", "n1/mlx5_0"))],
        ),
        (
            {"iommu": "identity", "iommu_group": "7"},
            {"iommu": "identity", "iommu_group": "8"},
            [("acs", NOTE, ("n1/gpu0",))],
        ),
        (
            {"iommu": "identity", "iommu_group": "7"},
            {"iommu": "identity", "iommu_group": "7"},
            [],
        ),
    ],
)
def test_what_gpudirect_rdma_needs(
    facts: dict[str, Any], nic_facts: dict[str, Any], checks: list[object]
) -> None:
    ports = [nic(0, **nic_facts), gpu(0, {"mlx5_0": "PIX"}, **facts)]
    assert listed(audit(survey({"n1": ports}))) == checks


def test_a_process_bound_to_the_cpus_of_the_other_node() -> None:
    processes = [
        {"comm": "python", "pid": 71, "numa_node": 1},
        {"comm": "python", "pid": 72, "numa_node": 0},
        {"comm": "free", "pid": 73},
        "junk",
    ]
    info = {"port": "mlx5_0", "count": 2, "processes": processes}
    facts = {"n1": [Object("qps/mlx5_0", "queue_pairs", None, info, ())]}
    (problem,) = audit(survey({"n1": [nic(0, numa_node=0)]}, facts))
    assert listed([problem]) == [("process_numa", FIX, ("n1/mlx5_0",))]
    assert problem.text == "used by python 71 (node 1), the NIC is on NUMA node 0"


@pytest.mark.parametrize(
    ("uplinks", "hosts", "text"),
    [(2, 4, "down:up 2:1 (400 Gb/s to hosts, 200 Gb/s up), of links that are up"), (4, 4, "")],
)
def test_leaves_with_less_capacity_up_than_down(uplinks: int, hosts: int, text: str) -> None:
    fabric = LeafSpine(uplinks=uplinks, hosts=hosts, rate_bps=100e9)
    history, surveyor = History(fabric.hosts), Surveyor(fabric.hosts)
    heard = fabric.step()
    surveyor.accept(heard)
    problems = audit(surveyor.survey(history.accept(heard)))
    found = [(p.severity, p.ports, p.text) for p in problems if p.check == "down_up"]
    assert found == ([(NOTE, ("leaf1",), text)] if text else [])


def test_a_card_that_is_not_there() -> None:
    nodes = {name: [nic(rail) for rail in range(4)] for name in ("gpu1", "gpu2", "gpu3")}
    del nodes["gpu2"][2:]
    (problem,) = audit(survey(nodes))
    assert (problem.check, problem.severity, problem.ports) == ("rail_missing", FIX, ("gpu2",))
    assert (
        problem.text == "2 rails, most of its peers have 4; nothing at 0000:02:00.0, 0000:03:00.0"
    )


def test_a_node_that_reports_the_hostname_of_another_one_is_named() -> None:
    known = survey(rack())
    named = {
        node: msgspec.structs.replace(each, hostname="gpu1" if node in ("gpu1", "gpu3") else node)
        for node, each in known.hellos.items()
    }
    (problem,) = audit(replace(known, hellos=named))
    assert listed([problem]) == [("hostname_shared", NOTE, ("gpu1", "gpu3"))]
    assert problem.text == "2 nodes have the name gpu1, by the hosts file or as hostname"


def test_other_kinds_of_hosts_may_have_fewer_rails() -> None:
    assert audit(survey({**rack(), "storage1": [nic(0)], "login": [nic(0)]})) == []


def test_a_rail_that_nobody_uses_is_no_fault() -> None:
    idle = {name: [nic(0), nic(1, {"netdev_up": 0})] for name in ("gpu1", "gpu2", "gpu3")}
    assert audit(survey(idle)) == []


def test_ecn_that_is_on_for_some_only() -> None:
    on: dict[str, Any] = {"roce_ecn_np": [3], "roce_ecn_rp": [3]}
    nodes = {name: [nic(0, **on)] for name in ("gpu1", "gpu2")}
    nodes["gpu3"] = [nic(0, roce_ecn_np=[3], roce_ecn_rp=[])]
    (problem,) = audit(survey(nodes))
    assert (problem.check, problem.ports) == ("ecn", ("gpu3/mlx5_0",))
    assert "receiving 3, sending none on gpu3/mlx5_0" in problem.text


def test_of_two_hosts_that_disagree_the_lesser_is_reported() -> None:
    nodes = {"gpu1": [nic(0)], "gpu2": [nic(0, {"netdev_mtu": 1500})]}
    assert listed(audit(survey(nodes))) == [("mtu", FIX, ("gpu2/mlx5_0",))]


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ([1000, 2], "1000 changes of carrier since boot, 2 on most ports"),
        ([1000, 2, 4], "1000 changes of carrier since boot, 3 on most ports"),
        ([1000], "1000 changes of carrier since boot"),
    ],
)
def test_flaps_are_held_against_the_other_ports_however_few(counts: list[int], text: str) -> None:
    nodes = {f"gpu{n}": [nic(0, {"netdev_carrier_changes": c})] for n, c in enumerate(counts)}
    (problem,) = audit(survey(nodes))
    assert (problem.check, problem.ports, problem.text) == ("carrier_flaps", ("gpu0/mlx5_0",), text)


def test_ports_that_flap_equally_often_are_no_problem() -> None:
    nodes = {f"gpu{n}": [nic(0, {"netdev_carrier_changes": 500 + n})] for n in range(4)}
    assert audit(survey(nodes)) == []


@pytest.mark.parametrize(
    ("speed", "gbps"), [(2.5, "32.0"), (5.0, "64.0"), (8.0, "126"), (16.0, "252")]
)
def test_what_a_slow_pcie_link_carries(speed: float, gbps: str) -> None:
    (problem,) = audit(survey(rack(gpu2=nic(1, pcie_speed_gtps=speed))))
    assert problem.text.endswith(f"supports 32 GT/s x16: at most {gbps} Gb/s")


def test_a_gpu_is_judged_by_its_lanes_since_it_slows_down_while_idle() -> None:
    pcie = {"pcie_max_speed_gtps": 32.0, "pcie_max_width": 16}
    idle = Object("gpu0", "gpu", "gpu0", {**pcie, "pcie_speed_gtps": 2.5, "pcie_width": 16}, ())
    bad = Object("gpu1", "gpu", "gpu1", {**pcie, "pcie_speed_gtps": 2.5, "pcie_width": 4}, ())
    (problem,) = audit(survey({"n1": [nic(0), (idle, []), (bad, [])]}))
    assert (problem.check, problem.ports) == ("pcie_downtrained", ("n1/gpu1",))
    assert problem.text == "PCIe 32 GT/s x4, supports 32 GT/s x16: at most 126 Gb/s"


def test_errors_that_have_added_up_are_to_know() -> None:
    bad = nic(1, {"ib_symbol_errors": 12, "ib_ext_link_downed": 2})
    (problem,) = audit(survey(rack(gpu2=bad)))
    assert (problem.check, problem.severity, problem.ports) == ("errors", NOTE, ("gpu2/mlx5_1",))
    assert problem.text == "2 times down, 12 symbol errors since the counters started"


def addresses(dev: str, *there: str, **more: Any) -> Object:
    return Object(
        f"addresses/{dev}", "addresses", None, {"dev": dev, "addresses": [*there], **more}, ()
    )


def test_a_rail_with_the_default_route_carries_management_too() -> None:
    facts = {"gpu2": [addresses("eth1", "10.1.0.2/24", default_route=True)]}
    (problem,) = audit(survey(rack(), facts))
    assert (problem.check, problem.ports) == ("management_shared", ("gpu2/mlx5_1",))
    assert problem.text == "carries the default route beside the training traffic"


def test_a_bond_shares_its_members_with_management() -> None:
    nodes = rack(gpu2=nic(1, bond="bond0"))
    facts = {"gpu2": [addresses("bond0", "10.1.0.2/24", default_route=True)]}
    (problem,) = audit(survey(nodes, facts))
    assert (problem.check, problem.ports) == ("management_shared", ("gpu2/mlx5_1",))


def test_a_rail_that_the_console_came_in_by_is_shared_too() -> None:
    facts = {"gpu4": [addresses("eth0", "fd00::7/64", "10.0.0.7/24")]}
    (problem,) = audit(survey(rack(), facts, reached_at="10.0.0.7"))
    assert problem.ports == ("gpu4/mlx5_0",)
    assert "this console's connection (10.0.0.7)" in problem.text


def test_a_rail_below_the_vlan_of_the_default_route_is_shared_too() -> None:
    facts = {"gpu2": [addresses("eth1.17", "10.1.0.2/24", default_route=True, over=["eth1"])]}
    (problem,) = audit(survey(rack(), facts))
    assert (problem.check, problem.ports) == ("management_shared", ("gpu2/mlx5_1",))


def test_a_host_with_more_rails_than_its_peers_is_to_know() -> None:
    nodes = rack()
    nodes["gpu2"] = [*nodes["gpu2"], nic(2)]
    (problem,) = audit(survey(nodes))
    assert (problem.check, problem.severity) == ("rail_extra", NOTE)
    assert (problem.ports, problem.text) == (("gpu2/mlx5_2",), "3 rails, most of its peers have 2")


def test_a_job_on_the_storage_nics_is_to_know() -> None:
    pairs = {"lqpn": [1], "rqpn": [2], "type": ["RC"], "sq_psn": [0], "rq_psn": [0]}
    owner = {"process": [0], "processes": [{"comm": "python3", "pid": 7, "job": "8812"}]}
    info = {"port": "mlx5_1", "count": 1, **pairs, **owner}
    facts = {"gpu1": [Object("qps/mlx5_1", "queue_pairs", None, info, ())]}
    rules = RoleRules(overrides=(RoleOverride("*", "mlx5_1", "storage"),))
    (problem,) = audit(survey(rack(), facts, rules=rules))
    assert (problem.check, problem.severity) == ("role_in_use", NOTE)
    assert problem.ports == ("gpu1/mlx5_1",)
    assert problem.text == "no rails (s0), but they have queue pairs of job 8812"


def test_without_rdma_a_rail_made_by_the_configuration_shares_our_connection() -> None:
    plain = {"rdma": None, "pfc": None, "pfc_priorities": None}
    ports = [nic(0, **plain), nic(1, **plain)]
    facts = {"gpu1": [addresses("eth1", "10.0.0.7/24")]}
    rules = RoleRules(overrides=(RoleOverride("*", "eth1", "rail"),))
    (problem,) = audit(survey({"gpu1": ports}, facts, reached_at="10.0.0.7", rules=rules))
    assert (problem.check, problem.ports) == ("management_shared", ("gpu1/mlx5_1",))


Cabling = dict[str, tuple[str, ...]]
"""Host -> the leaf of each of its rails."""


def cabled(cabling: Cabling) -> Survey:
    """Hosts and leaves whose neighbours report such cables."""
    nodes: dict[str, list[tuple[Object, list[int]]]] = {name: [] for name in cabling}
    facts: dict[str, list[Object]] = {}
    leaves: dict[str, list[tuple[Object, list[int]]]] = {}
    for host, its in cabling.items():
        for rail, leaf in enumerate(its):
            down = leaves.setdefault(leaf, [])
            swp = f"swp{len(down) + 1}"
            mine, theirs = f"{host}-{rail}", f"{leaf}-{swp}"
            nodes[host].append(nic(rail, mac=mine))
            info = {"netdev": swp, "mac": theirs}
            down.append((Object(swp, "ethernet", swp, info, METRICS), [*FINE.values()]))
            facts.setdefault(host, []).append(neighbour(f"eth{rail}", theirs))
            facts.setdefault(leaf, []).append(neighbour(swp, mine))
    return survey({**nodes, **leaves}, facts, dict.fromkeys(leaves, "switch"))


def test_two_cables_that_are_swapped() -> None:
    straight = ("leaf0", "leaf1")
    problems = audit(cabled({"gpu1": straight, "gpu2": straight, "gpu3": ("leaf1", "leaf0")}))
    assert listed(problems) == [
        ("rail_leaf", FIX, ("gpu3/mlx5_0",)),
        ("rail_leaf", FIX, ("gpu3/mlx5_1",)),
    ]
    assert problems[0].text == "cabled to leaf1; rail r0 of the other hosts is cabled to leaf0"


def units(**odd: tuple[str, ...]) -> Cabling:
    """Two scalable units of unequal size, each with leaves of its own; `odd` recables a host."""
    cabling = {f"a{n}": ("leafa0", "leafa1") for n in range(5)}
    cabling |= {f"b{n}": ("leafb0", "leafb1") for n in range(3)}
    return {**cabling, **odd}


def test_scalable_units_with_leaves_of_their_own_are_no_fault() -> None:
    assert audit(cabled(units())) == []


def test_a_swap_is_reported_in_the_smaller_unit_too() -> None:
    problems = audit(cabled(units(b2=("leafb1", "leafb0"))))
    assert listed(problems) == [
        ("rail_leaf", FIX, ("b2/mlx5_0",)),
        ("rail_leaf", FIX, ("b2/mlx5_1",)),
    ]
    assert problems[0].text == "cabled to leafb1; rail r0 of the other hosts is cabled to leafb0"


def test_leaves_that_take_all_rails_are_no_problem() -> None:
    cabling: Cabling = {f"gpu{n}": (f"leaf{n // 4}",) * 2 for n in range(8)}
    assert audit(cabled(cabling)) == []
