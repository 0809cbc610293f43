"""The lab is what it says: reachable, hashed by 5-tuple, and as fast as its line rate."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tests.lab import Lab, LabError, build
from tests.lab.layout import Layout
from tests.unit.alerts.test_alertmanager import until

QUIET_MBPS = 1.0
"""ARP, pings and iperf3's control connection stay below this."""

NEAR = 0.10
"""How far a measured rate may be from the wanted one: a busy machine delays senders and shapers."""

PATIENCE_S = 240.0
"""How long a busy machine may starve the senders until a rate is as it should be."""


def ssh(lab: Lab, node: str, command: str) -> subprocess.CompletedProcess[str]:
    argv = lab.console_argv(["ssh", "-F", str(lab.ssh_config), node, command])
    return subprocess.run(argv, capture_output=True, text=True, timeout=240)


def uplink_rates(lab: Lab, leaf: str, seconds: float) -> dict[str, float]:
    """Mb/s that each uplink of `leaf` sends."""
    rates = lab.measure(leaf, seconds)
    return {uplink: rates[uplink][0] for uplink in lab.layout.uplinks(leaf)}


def sent_mbps(lab: Lab, node: str, port: str) -> float:
    """Mb/s that a port sends, over two seconds."""
    return lab.measure(node, 2.0)[port][0]


def until_near(measure: Callable[[], object], wanted: object) -> None:
    """Measure until it is near what is wanted; an assertion if it never was for `PATIENCE_S`."""
    deadline_s = time.monotonic() + PATIENCE_S
    measured = measure()
    while measured != pytest.approx(wanted, rel=NEAR) and time.monotonic() < deadline_s:
        measured = measure()
    assert measured == pytest.approx(wanted, rel=NEAR)


def test_ssh_reaches_every_node_as_an_unprivileged_user(lab: Lab) -> None:
    for node in lab.layout.nodes:
        done = ssh(lab, node, "hostname; id -un; ls -A; ls /sys/class/net")
        assert done.returncode == 0, done.stderr
        name, user, *ports = done.stdout.split()
        expected = {"lo", "mgmt0"} | {own.port for own, _ in lab.layout.ends(node)}
        assert (name, user, set(ports)) == (node, lab.user, expected)


def test_ssh_by_address_passes_known_hosts_without_the_config(lab: Lab) -> None:
    options = ["-o", f"UserKnownHostsFile={lab.known_hosts}", "-o", "StrictHostKeyChecking=yes"]
    target = f"{lab.user}@{lab.layout.mgmt_address('gpu003')}"
    argv = ["ssh", "-F", "none", "-i", str(lab.key), *options, target, "hostname"]
    done = subprocess.run(lab.console_argv(argv), capture_output=True, text=True, timeout=240)
    assert done.stdout == "gpu003\n", done.stderr


def test_hosts_file_has_a_line_for_every_node(lab: Lab) -> None:
    lines = lab.hosts_file.read_text().splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(lab.layout.nodes)
    assert f"gpu001 address=10.99.0.11 user={lab.user} speed={lab.rate_mbps:g}M" in lines
    assert f"leaf1 address=10.99.0.19 user={lab.user} role=switch speed={lab.rate_mbps:g}M" in lines


def test_ssh_does_not_cross_the_fabric(lab: Lab) -> None:
    before = {node: lab.counters(node, "eth0")["tx_bytes"] for node in lab.layout.hosts}
    for node in lab.layout.hosts:
        ssh(lab, node, "head -c 100000 /dev/zero")
    after = {node: lab.counters(node, "eth0")["tx_bytes"] for node in lab.layout.hosts}
    assert max(after[node] - before[node] for node in before) < 10_000


def test_ecmp_is_in_both_forms(lab: Lab) -> None:
    assert "nhid" in lab.exec("leaf1", ["ip", "route", "show", "10.1.2.0/24"]).stdout
    plain = lab.exec("leaf2", ["ip", "route", "show", "10.1.1.0/24"]).stdout
    assert "nhid" not in plain
    assert plain.count("nexthop via") == 4


@pytest.mark.parametrize("leaf", ["leaf1", "leaf2"])
def test_neighbours_know_each_other(lab: Lab, leaf: str) -> None:
    """Once they have greeted each other: the kernel forgets neighbours that nobody sends to."""
    build.greet(lab.layout, lab.prefix)

    def known() -> bool:
        table = lab.exec(leaf, ["ip", "neigh"]).stdout
        ends = lab.layout.ends(leaf)
        return all(f"{far.address} dev {own.port} lladdr" in table for own, far in ends)

    until(known)


@pytest.mark.parametrize(("src", "dst"), [("gpu001", "gpu006"), ("gpu008", "gpu002")])
def test_the_client_port_fixes_the_uplink(lab: Lab, src: str, dst: str) -> None:
    sports = range(50_000, 50_064)
    first = lab.probe_uplinks(src, dst, sports, 7000)
    assert len(first) == len(sports)
    assert lab.probe_uplinks(src, dst, sports, 7000) == first
    spread = Counter(first.values())
    assert set(spread) == set(lab.layout.uplinks(lab.layout.leaf_of(src)))
    assert max(spread.values()) < 40


@pytest.mark.parametrize(("src", "dst"), [("gpu001", "gpu006"), ("gpu008", "gpu002")])
def test_found_ports_take_the_wanted_uplink(lab: Lab, src: str, dst: str) -> None:
    leaf = lab.layout.leaf_of(src)
    for uplink in lab.layout.uplinks(leaf):
        sport = lab.find_sport(src, dst, 7100, uplink)
        before = lab.counters(leaf, uplink)["tx_packets"]
        assert lab.probe_uplink(src, dst, sport, 7100) == uplink
        assert lab.counters(leaf, uplink)["tx_packets"] >= before + 3


def test_a_seed_moves_flows(lab: Lab) -> None:
    sports = range(50_000, 50_032)
    before = lab.probe_uplinks("gpu001", "gpu005", sports, 7200)
    lab.set_hash_seed("leaf1", 12345)
    try:
        moved = lab.probe_uplinks("gpu001", "gpu005", sports, 7200)
    finally:
        lab.set_hash_seed("leaf1", 0)
    assert moved != before
    assert lab.probe_uplinks("gpu001", "gpu005", sports, 7200) == before


@pytest.mark.parametrize(("leaf", "uplink"), [("leaf1", "up3"), ("leaf2", "up1")])
def test_collide_fills_one_uplink_and_nothing_else(lab: Lab, leaf: str, uplink: str) -> None:
    flows = lab.collide(leaf, uplink)
    assert {flow.uplink for flow in flows} == {uplink}
    assert len({flow.src for flow in flows}) == len({flow.dst for flow in flows}) == 2
    until_near(lambda: uplink_rates(lab, leaf, 2.0)[uplink], lab.rate_mbps)
    rates = uplink_rates(lab, leaf, 2.0)
    rates.pop(uplink)
    assert max(rates.values()) < QUIET_MBPS
    deadline_s = time.monotonic() + PATIENCE_S
    while (
        min(received := [lab.measure(flow.dst, 0.5)["eth0"][1] for flow in flows])
        <= lab.rate_mbps / 5
    ):
        assert time.monotonic() < deadline_s, received


@pytest.mark.parametrize("leaf", ["leaf1", "leaf2"])
def test_spread_is_even(lab: Lab, leaf: str) -> None:
    flows = lab.spread(0.5, leaf)
    assert len(flows) == 4
    wanted = dict.fromkeys(lab.layout.uplinks(leaf), 0.5 * lab.rate_mbps)
    until_near(lambda: uplink_rates(lab, leaf, 2.0), wanted)


def test_both_directions_at_once(lab: Lab) -> None:
    lab.spread(0.4, "leaf1")
    lab.spread(0.3, "leaf2")
    uplinks = lab.layout.uplinks("leaf1")

    def measure() -> list[float]:
        rates = lab.measure("leaf1", 2.0)
        return [
            *(rates[uplink][0] for uplink in uplinks),
            *(rates[uplink][1] for uplink in uplinks),
        ]

    wanted = [0.4 * lab.rate_mbps] * len(uplinks) + [0.3 * lab.rate_mbps] * len(uplinks)
    until_near(measure, wanted)


def test_incast_fills_the_last_hop(lab: Lab) -> None:
    lab.incast("gpu002")
    until_near(lambda: lab.measure("gpu002", 2.0)["eth0"][1], lab.rate_mbps)
    most_mbps = 0.7 * lab.rate_mbps
    until(lambda: max(uplink_rates(lab, "leaf2", 1.0).values()) < most_mbps, PATIENCE_S)


def test_the_shaper_holds_the_line_rate(lab: Lab) -> None:
    lab.elephant("gpu001", "gpu005", "up2", 1.5 * lab.rate_mbps)
    for node, port in (("gpu001", "eth0"), ("leaf1", "up2"), ("leaf2", "down1")):
        until_near(partial(sent_mbps, lab, node, port), lab.rate_mbps)
        rates = [sent_mbps(lab, node, port) for _ in range(3)]
        # A busy machine reads a counter some milliseconds later than it says.
        assert min(rates) <= 1.002 * lab.rate_mbps, (node, port)
        assert max(rates) <= 1.03 * lab.rate_mbps, (node, port)


def test_a_port_can_be_slower(lab: Lab) -> None:
    lab.elephant("gpu001", "gpu005", "up1", 0.5 * lab.rate_mbps)
    lab.set_rate("leaf1", "up1", 0.2 * lab.rate_mbps)
    try:
        lab.measure("leaf1", 0.5)  # The queue of before drains at the new rate.
        until_near(lambda: uplink_rates(lab, "leaf1", 2.0)["up1"], 0.2 * lab.rate_mbps)
    finally:
        lab.set_rate("leaf1", "up1", lab.rate_mbps)


@pytest.mark.parametrize(("node", "port"), [("leaf1", "up2"), ("spine2", "swp1")])
def test_routes_go_around_a_dead_link(lab: Lab, node: str, port: str) -> None:
    sports = range(50_000, 50_032)
    lab.link_down(node, port)
    try:
        for src, dst in (("gpu001", "gpu005"), ("gpu005", "gpu001")):
            paths = lab.probe_uplinks(src, dst, sports, 7300)
            assert len(paths) == len(sports)
            assert set(paths.values()) == {"up1", "up3", "up4"}
        flow = lab.elephant("gpu001", "gpu005", "up3", 0.2 * lab.rate_mbps)
        assert flow.running
        with pytest.raises(LabError, match="up2"):
            lab.find_sport("gpu001", "gpu005", 7300, "up2")
    finally:
        lab.link_up(node, port)
    for src, dst in (("gpu001", "gpu005"), ("gpu005", "gpu001")):
        assert "up2" in lab.probe_uplinks(src, dst, sports, 7300).values()
        assert lab.probe_uplink(src, dst, lab.find_sport(src, dst, 7301, "up2"), 7301) == "up2"


def test_a_stopped_flow_is_silent_and_can_resume_if_paused(lab: Lab) -> None:
    flow = lab.elephant("gpu003", "gpu007", "up4", 0.5 * lab.rate_mbps)
    flow.pause()
    assert lab.measure("gpu003", 0.5)["eth0"][0] < QUIET_MBPS
    flow.start()
    until_near(lambda: uplink_rates(lab, "leaf1", 1.0)["up4"], 0.5 * lab.rate_mbps)
    flow.stop()
    assert not flow.running


def test_traffic_can_cross_a_fabric_without_neighbour_entries(lab_parts: None) -> None:
    with Lab(2, 2, 1, 20, arp=False) as lab:
        sports = range(50_000, 50_016)
        paths = lab.probe_uplinks("gpu001", "gpu002", sports, 7400)
        assert set(paths.values()) == {"up1", "up2"}
        for node in lab.layout.nodes:
            fabric = {own.port for own, _ in lab.layout.ends(node)}
            table = lab.exec(node, ["ip", "-j", "neigh", "show"]).stdout
            assert not fabric & {each["dev"] for each in json.loads(table)}


@pytest.mark.parametrize("shape", [(0, 2, 4), (4, 101, 4), (4, 2, 0)])
def test_a_shape_that_cannot_be_numbered_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be 1 to 100"):
        Layout(*shape)


def test_every_address_is_given_once() -> None:
    layout = Layout(8, 12, 30)
    ends = [end for cable in layout.cables for end in (cable.lower, cable.upper)]
    addresses = [end.address for end in ends] + [layout.mgmt_address(n) for n in layout.nodes]
    assert len(set(addresses)) == len(addresses)
    assert len({(end.node, end.port) for end in ends}) == len(ends)
