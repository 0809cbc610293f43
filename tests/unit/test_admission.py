"""Which hellos may become part of the fabric."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Hello, WireError, decode
from tests.builders import ecmp, hello, neighbour, port
from tests.fixtures.hosts import HOSTS
from tests.unit.feeds.wire_lines import hello_line


def admission(*sources: str) -> HelloLimits:
    return HelloLimits(Host(name="gpu1", sources=sources))


def hello_of(**body: Any) -> Hello:
    """A hello with some of its keys replaced, as it comes off the wire."""
    kind, said = json.loads(hello_line())
    message = decode(json.dumps([kind, {**said, **body}]).encode())
    assert isinstance(message, Hello)
    return message


@pytest.mark.parametrize(
    "info",
    [
        {"members": 5},
        {"members": ["eth0"]},
        {"members": [{"dev": 7}]},
        {"destinations_count": "x"},
        {"destinations_count": 10**400},
        {"pfc": "on", "pfc_priorities": 3},
        {"pfc_priorities": ["3"]},
        {"roce_ecn_np": {}},
        {"pcie_width": "x16"},
        {"pcie_speed_gtps": 10**400},
        {"addresses": "10.0.0.1/24"},
        {"mac": 1},
        {"netdev": ["eth0"]},
        {"bond": {}},
        {"affinity": {"mlx5_0": [1]}},
        {"affinity": "PIX"},
    ],
)
def test_a_fact_of_the_wrong_type_is_refused_with_its_place(info: dict[str, Any]) -> None:
    said = hello(Object("eth0", "ethernet", "eth0", info, ()))
    with pytest.raises(WireError, match=r"hello: netdev: eth0: info: .* - at `\$\."):
        admission().admit(said)


def test_facts_that_only_are_shown_may_be_anything() -> None:
    admission().admit(hello(port("eth0", kind=[], colour={"of": ["the", 1, "rack"]}, rdma=None)))


@pytest.mark.parametrize("every", [0, -1, 10**6, 10**400])
def test_a_source_that_is_read_hardly_ever_is_refused(every: int) -> None:
    with pytest.raises(WireError, match="hello: netdev: every must be 1 to 86400 ticks"):
        admission().admit(hello_of(blocks=[{"source": "netdev", "every": every, "objects": []}]))


@pytest.mark.parametrize("interval_s", [0, -1, 1e300])
def test_an_interval_that_no_probe_can_keep_is_refused(interval_s: float) -> None:
    with pytest.raises(WireError, match="interval_s must be more than 0 and at most a day"):
        admission().admit(hello_of(interval_s=interval_s))


def test_what_honest_nodes_say_is_admitted() -> None:
    admission().admit(
        hello(port("eth0", "02:00:00:00:00:01"), ecmp("eth0", "eth1"), neighbour("eth0", "m"))
    )


def ports(count: int, first: int = 0) -> Hello:
    return hello(*(port(f"eth{n}", metrics=()) for n in range(first, first + count)))


def test_a_node_has_so_many_ports_at_most_and_more_when_it_tells_of_others() -> None:
    admission().admit(ports(2048))
    with pytest.raises(WireError, match="hello: 2049 ports of one node, 2048 at most"):
        admission().admit(ports(2049))
    admission("+ib_fabric").admit(ports(16_384))


def test_a_node_has_so_many_ecmp_sets_and_neighbours_at_most() -> None:
    sets = [ecmp(f"eth{n}", "eth0") for n in range(1025)]
    admission().admit(hello(*sets[1:]))
    with pytest.raises(WireError, match="hello: 1025 ECMP sets of one node, 1024 at most"):
        admission().admit(hello(*sets))
    seen = [neighbour("eth0", f"m{n}") for n in range(16_385)]
    admission().admit(hello(*seen[1:]))
    with pytest.raises(WireError, match="hello: 16385 neighbours of one node, 16384 at most"):
        admission().admit(hello(*seen))


def test_ports_that_come_and_go_do_not_add_up_without_end() -> None:
    node = admission()
    for _ in range(5):
        node.admit(ports(2000))
        node.admit(ports(2000, first=2000))
    with pytest.raises(WireError, match="5000 ports, including those that are gone, of one node"):
        node.admit(ports(1000, first=4000))
    node.admit(ports(2000))


def test_sources_that_come_and_go_do_not_add_up_without_end() -> None:
    node = admission()
    block = {"every": 1, "objects": []}
    for n in range(256):
        node.admit(hello_of(blocks=[{"source": f"s{n}", **block}]))
    with pytest.raises(WireError, match="257 sources, including those that are gone, of one node"):
        node.admit(hello_of(blocks=[{"source": "s256", **block}]))
    node.admit(hello_of(blocks=[{"source": "s0", **block}]))


def test_values_are_bounded() -> None:
    wide = [port(f"eth{n}", metrics=("netdev_up",) * 1000) for n in range(66)]
    admission().admit(hello(*wide[:65]))
    with pytest.raises(WireError, match="hello: 66001 values of one node, 65536 at most"):
        admission().admit(hello(*wide))


def test_a_newer_probe_may_know_more_but_not_without_end() -> None:
    def newer(count: int, first: int = 0) -> Hello:
        names = [f"warp_{number}" for number in range(first, first + count)]
        item = {"id": "o", "kind": "ethernet", "port": "eth0", "info": {}, "metrics": names}
        return hello_of(blocks=[{"source": "warp", "every": 1, "objects": [item]}])

    node = admission()
    node.admit(newer(256))
    node.admit(newer(256))
    with pytest.raises(WireError, match="257 metrics that this console does not know"):
        node.admit(newer(1, first=1000))


@pytest.mark.parametrize("name", HOSTS)
def test_what_the_probe_tells_of_any_host_is_admitted(name: str, tmp_path: Path) -> None:
    HOSTS[name](tmp_path)
    command = [sys.executable, "-m", "collectors", "--once", "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=240)
    said = decode(done.stdout.splitlines()[0])
    assert isinstance(said, Hello)
    admission().admit(said)
