"""Traced flows: whose address it is, which ports are crossed, how flows spread over equal links."""

from __future__ import annotations

import math
from typing import Any

import pytest

from collectors.wire import Object
from fabmon.analysis.traced_paths import NamedPath, name_path, parallel, spreads
from fabmon.fabric.flows.addresses import Addresses, parse_address
from fabmon.fabric.flows.endpoints import Endpoint, NoEndpoint, endpoints
from fabmon.fabric.model import SWITCH, Fabric, Host
from fabmon.fabric.wire.messages import Hello, TracedPath
from fabmon.history.history import History
from fabmon.report.trace import flows_to_see_all
from tests import work
from tests.builders import hello, port, tick, up

SPORT = 49152


def addresses_of(dev: str, *texts: str, over: tuple[str, ...] | None = None) -> Object:
    info: dict[str, object] = {"dev": dev, "addresses": list(texts)}
    if over is not None:
        info["over"] = list(over)
    return Object(f"addresses/{dev}", "addresses", None, info, ())


def cabled(name: str, node: str = "", far: str = "", **info: Any) -> Object:
    """A port, and what is at its other end."""
    return port(name, peer={"node": node, "port": far} if node else None, **info)


def ways(*members: tuple[str, str]) -> Object:
    info = {"members": [{"dev": d, "via": v} for d, v in members], "destinations_count": 1}
    return Object("ecmp/1", "ecmp", None, info, ())


class Net:
    """Two hosts, two leaves, two spines: leaf1 has two parallel cables to spine1, one to spine2."""

    def __init__(
        self, *, watched: tuple[str, ...] = ("leaf1", "leaf2", "spine1", "spine2")
    ) -> None:
        said = {
            "gpu1": hello(
                cabled("mlx5_0", "leaf1", "down1", netdev="eth0", rdma="mlx5_0"),
                cabled("mgmt0"),
                addresses_of("eth0", "10.1.1.1/31", "fe80::1/64"),
                addresses_of("mgmt0", "192.168.0.1/24"),
            ),
            "gpu2": hello(
                cabled("mlx5_0", "leaf2", "down1", netdev="eth0", rdma="mlx5_0"),
                addresses_of("eth0", "10.1.2.1/31"),
            ),
            "leaf1": hello(
                cabled("down1", "gpu1", "mlx5_0"),
                cabled("up1", "spine1", "swp1"),
                cabled("up2", "spine1", "swp2"),
                cabled("up3", "spine2", "swp1"),
                addresses_of("down1", "10.1.1.0/31"),
                addresses_of("lo", "10.0.0.1/32", over=()),
                ways(("up1", "10.2.1.1"), ("up2", "10.2.2.1"), ("up3", "10.2.3.1")),
            ),
            "spine1": hello(
                cabled("swp1", "leaf1", "up1"),
                cabled("swp2", "leaf1", "up2"),
                cabled("swp3", "leaf2", "up1"),
                addresses_of("swp1", "10.2.1.1/31"),
                addresses_of("swp2", "10.2.2.1/31"),
                addresses_of("lo", "10.0.1.1/32", over=()),
            ),
            "spine2": hello(
                cabled("swp1", "leaf1", "up3"),
                cabled("swp2", "leaf2", "up2"),
                addresses_of("swp1", "10.2.3.1/31"),
            ),
            "leaf2": hello(
                cabled("down1", "gpu2", "mlx5_0"),
                cabled("up1", "spine1", "swp3"),
                cabled("up2", "spine2", "swp2"),
                addresses_of("up1", "10.3.1.0/31"),
                addresses_of("up2", "10.3.2.0/31"),
            ),
        }
        self.hellos: dict[str, Hello] = {
            name: each for name, each in said.items() if name in (*watched, "gpu1", "gpu2")
        }
        hosts = [Host(name=name) for name in ("gpu1", "gpu2")]
        hosts += [Host(name=name, role=SWITCH) for name in watched]
        snapshot = History(hosts).accept(tick(0, hellos=self.hellos, statuses=up(*self.hellos)))
        self.fabric: Fabric = snapshot.fabric
        self.addresses = Addresses(self.fabric, self.hellos)
        self.src = Endpoint("gpu1", "mlx5_0", "eth0", "10.1.1.1")
        self.dst = Endpoint("gpu2", "mlx5_0", "eth0", "10.1.2.1")

    def path(
        self, *answers: str | tuple[str, ...], end: str = "reached", sport: int = SPORT
    ) -> NamedPath:
        """The named path of these answers; an empty one did not come."""
        hops = []
        for who in answers:
            several = (who,) if isinstance(who, str) else who
            hops.append(tuple((address, 120) for address in several if address))
        traced = TracedPath(sport, end, hops=tuple(hops))
        return name_path(self.fabric, self.addresses, self.src, self.dst, traced)


def crossed(path: NamedPath) -> list[str]:
    return [f"{hop.node} {hop.in_port}>{hop.out_port}" for hop in path.hops]


def test_every_hop_has_its_node_and_the_ports_that_the_flow_crosses() -> None:
    path = Net().path("10.1.1.0", "10.2.3.1", "10.3.2.0", "10.1.2.1")
    assert crossed(path) == [
        "leaf1 down1>up3",
        "spine2 swp1>swp2",
        "leaf2 up2>down1",
        "gpu2 mlx5_0>",
    ]
    assert path.hops[0].rtt_ms == pytest.approx(0.12)


def test_of_parallel_cables_it_is_the_one_whose_far_end_has_the_address() -> None:
    net = Net()
    assert crossed(net.path("10.1.1.0", "10.2.2.1", "10.3.1.0"))[:2] == [
        "leaf1 down1>up2",
        "spine1 swp2>swp3",
    ]
    assert parallel(net.fabric, [net.path("10.1.1.0", "10.2.2.1")]) == [("leaf1", "spine1")]
    assert parallel(net.fabric, [net.path("10.1.1.0", "10.2.3.1")]) == []
    # From its loopback the node is known, and not the cable.
    assert crossed(net.path("10.1.1.0", "10.0.1.1", "10.3.1.0"))[:2] == [
        "leaf1 down1>",
        "spine1 >swp3",
    ]


def test_an_answer_from_the_port_that_sends_it_tells_the_node_and_no_wrong_port() -> None:
    """A Linux leaf answers by an uplink that its own hash chose: not by which the flow came."""
    path = Net().path("10.1.1.0", "10.2.3.1", "10.3.1.0", "10.1.2.1")
    assert crossed(path)[2] == "leaf2 up2>down1"


def test_a_hop_that_does_not_answer_is_nobody_and_what_is_around_it_is_left_open() -> None:
    path = Net().path("10.1.1.0", "", "10.3.1.0", "10.1.2.1")
    assert path.hops[1].addresses == ()
    assert crossed(path) == ["leaf1 down1>", " >", "leaf2 >down1", "gpu2 mlx5_0>"]


def test_switches_that_are_not_watched_are_named_by_the_cables_of_those_that_are() -> None:
    net = Net(watched=("leaf1",))
    assert crossed(net.path("10.1.1.0", "10.2.3.1", "10.9.9.9")) == [
        "leaf1 down1>up3",
        "spine2 swp1>",
        " >",
    ]
    nobody = Net(watched=())
    assert crossed(nobody.path("10.1.1.0")) == [" >"]


def test_a_flow_whose_packets_go_several_ways_is_no_single_node() -> None:
    path = Net().path("10.1.1.0", ("10.2.1.1", "10.2.3.1"))
    assert path.hops[1].addresses == ("10.2.1.1", "10.2.3.1")
    assert crossed(path) == ["leaf1 down1>", " >"]


def test_a_destination_that_is_silent_is_reported_with_the_port_that_it_is_behind() -> None:
    net = Net()
    silent = net.path("10.1.1.0", "10.2.3.1", "10.3.2.0", "", "", "", end="silent")
    assert len(silent.hops) == 3
    assert silent.text == "gpu2/mlx5_0 is behind leaf2/down1 and does not answer"
    assert net.path("10.1.1.0", "", "", "", end="silent").text == "no answer after hop 1"
    assert net.path("", "", "", end="silent").text.startswith("no hop answers: no router")


def test_what_is_no_address_is_left_out() -> None:
    path = Net().path("10.1.1.0", "\x1b[31m", "10.2.3.1")
    assert [len(each.addresses) for each in path.hops] == [1, 0, 1]


def test_an_address_that_several_nodes_have_is_nobodys() -> None:
    net = Net()
    hellos = {**net.hellos, "gpu2": hello(port("eth0"), addresses_of("eth0", "10.0.0.1/32"))}
    twice = Addresses(net.fabric, hellos)
    address = parse_address("10.0.0.1")
    assert address is not None
    assert twice.owner(address) is None
    assert net.addresses.owner(address) == "leaf1"


def test_flows_are_counted_by_the_equal_links_that_they_take() -> None:
    net = Net()
    paths = [
        net.path("10.1.1.0", via, "10.3.1.0", sport=sport)
        for sport, via in enumerate(("10.2.1.1", "10.2.3.1", "10.2.1.1"), SPORT)
    ]
    (spread,) = spreads(net.fabric, paths)
    assert (spread.node, spread.used) == ("leaf1", 2)
    assert spread.links == {"up1": (SPORT, SPORT + 2), "up2": (), "up3": (SPORT + 1,)}


def test_the_ends_are_the_same_rail_of_both() -> None:
    net = Net()
    gpu1, gpu2 = net.fabric.node("gpu1"), net.fabric.node("gpu2")
    assert endpoints(net.addresses, gpu1, gpu2) == (net.src, net.dst)
    for name in ("mlx5_0", "eth0", "r0", "gpu1/mlx5_0"):
        assert endpoints(net.addresses, gpu1, gpu2, from_port=name)[0] == net.src


def test_an_address_on_a_vlan_is_that_of_the_port_below_it() -> None:
    net = Net()
    vlan = hello(
        cabled("mlx5_0", netdev="eth0", rdma="mlx5_0"),
        addresses_of("eth0.100", "10.100.0.1/24", over=("eth0",)),
    )
    tagged = Addresses(net.fabric, {**net.hellos, "gpu1": vlan})
    src, _ = endpoints(tagged, net.fabric.node("gpu1"), net.fabric.node("gpu2"))
    assert src == Endpoint("gpu1", "mlx5_0", "eth0.100", "10.100.0.1")


@pytest.mark.parametrize(
    ("theirs", "from_port", "said"),
    [
        (
            [addresses_of("eth0", "fd00::2/64")],
            None,
            "no address family in common: gpu1 has 10.1.1.1 on mlx5_0, gpu2 has fd00::2 on mlx5_0",
        ),
        (
            [addresses_of("eth0", "fe80::2/64")],
            None,
            r"gpu2: none of its rails \(mlx5_0\) has a routable IP address; --to-port",
        ),
        ([], "mlx5_9", "--from-port: gpu1 has no port mlx5_9; it has: mgmt0, mlx5_0"),
    ],
)
def test_ends_that_do_not_exist_are_refused_with_what_there_is(
    theirs: list[Object], from_port: str | None, said: str
) -> None:
    net = Net()
    gpu2 = hello(cabled("mlx5_0", netdev="eth0", rdma="mlx5_0"), *theirs)
    addresses = Addresses(net.fabric, {**net.hellos, "gpu2": gpu2})
    with pytest.raises(NoEndpoint, match=said):
        endpoints(addresses, net.fabric.node("gpu1"), net.fabric.node("gpu2"), from_port)


@pytest.mark.parametrize(
    ("links", "chance", "flows"),
    [
        *((4, 0.9, 13), (4, 0.99, 21), (8, 0.9, 33), (8, 0.99, 51), (16, 0.9, 79), (16, 0.99, 115)),
        *((32, 0.9, 181), (32, 0.99, 255), (64, 0.9, 408), (64, 0.99, 557), (1, 0.99, 1)),
    ],
)
def test_flows_to_see_all_links_are_those_of_the_coupon_collector(
    links: int, chance: float, flows: int
) -> None:
    assert flows_to_see_all(links, chance) == pytest.approx(flows, abs=1)


def test_flows_to_see_all_of_a_thousand_links_are_computed_at_once() -> None:
    with work.counted() as done:
        assert flows_to_see_all(1024, 0.99) == pytest.approx(1024 * math.log(1024 / 0.01), rel=0.01)
    assert done.lines < 50_000
