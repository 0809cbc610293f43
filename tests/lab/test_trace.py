"""`fabmon trace` across real switches: what it says is what the kernel's ECMP does."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab, netns
from tests.lab.watching import FABMON
from tests.requirements import heeding_signals

DPORT = 4791
RATELIMIT = "net/ipv4/icmp_ratelimit"


def fabmon_trace(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [FABMON, "trace", *arguments, "--hosts", str(lab.hosts_file)]
    command += ["--ssh-config", str(lab.ssh_config)]
    return subprocess.run(
        lab.console_argv(heeding_signals(command)), capture_output=True, text=True, timeout=240
    )


def traced(lab: Lab, *arguments: str) -> dict[str, Any]:
    done = fabmon_trace(lab, *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    assert record["notes"] == []
    return record


def crossed(path: dict[str, Any]) -> list[str]:
    return [f"{hop['node']} {hop['in_port']}>{hop['out_port']}" for hop in path["hops"]]


@pytest.mark.parametrize(("src", "dst"), [("gpu001", "gpu006"), ("gpu007", "gpu002")])
def test_every_flow_takes_the_uplink_that_its_datagrams_leave_by(
    lab: Lab, src: str, dst: str
) -> None:
    """From a leaf with nexthop groups, and from one with plain multipath routes."""
    leaf, other = lab.layout.leaf_of(src), lab.layout.leaf_of(dst)
    sports = [lab.find_sport(src, dst, DPORT, uplink) for uplink in lab.layout.uplinks(leaf)]
    truth = lab.probe_uplinks(src, dst, sports, DPORT)
    assert sorted(truth.values()) == ["up1", "up2", "up3", "up4"]
    record = traced(lab, src, dst, *(f"--sport={sport}" for sport in sports))
    assert {path["sport"] for path in record["paths"]} == set(sports)
    for path in record["paths"]:
        uplink = truth[path["sport"]]
        spine = uplink.replace("up", "spine")
        near, far = leaf.replace("leaf", "swp"), other.replace("leaf", "swp")
        assert path["end"] == "reached"
        assert crossed(path) == [
            f"{leaf} {lab.layout.port_to(leaf, src)}>{uplink}",
            f"{spine} {near}>{far}",
            f"{other} {uplink}>{lab.layout.port_to(other, dst)}",
            f"{dst} eth0>",
        ]
    (spread,) = record["spreads"]
    assert spread["node"] == leaf
    assert spread["links"] == {uplink: [sport] for sport, uplink in truth.items()}


def test_what_a_person_reads_of_the_usual_eight_flows(lab: Lab) -> None:
    done = fabmon_trace(lab, "gpu001", "gpu005")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "gpu001/eth0 10.1.1.3 → gpu005/eth0 10.1.2.3  UDP to port 4791"
    assert lines[1].endswith("are known: 8 source ports from 49152 on")
    truth = lab.probe_uplinks("gpu001", "gpu005", range(0xC000, 0xC008), DPORT)
    used = len(set(truth.values()))
    assert f"leaf1 uplinks: 8 source ports use {used} of 4 links" in lines
    for uplink in set(truth.values()):
        taken = [str(sport) for sport in sorted(truth) if truth[sport] == uplink]
        assert f"  {uplink}  {len(taken):>3}  {' '.join(taken)}" in lines


def greet(lab: Lab, *hosts: str) -> None:
    """Have the hosts send a datagram, so that their leaves know them as neighbours.

    The kernel forgets neighbours that nobody sends to.
    """
    for host in hosts:
        with netns.make_socket(lab.ns(host), socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", (lab.layout.fabric_address("gpu001"), 9))


def test_two_hosts_of_one_leaf_cross_no_uplink(lab: Lab) -> None:
    greet(lab, "gpu003", "gpu004")
    record = traced(lab, "gpu003", "gpu004", "--sport=50000")
    assert crossed(record["paths"][0]) == ["leaf1 down3>down4", "gpu004 eth0>"]
    assert record["spreads"] == []


@pytest.fixture
def silent(lab: Lab) -> Iterator[str]:
    """A host that says nothing of datagrams that nobody there wants, as a NIC that takes RoCE."""
    greet(lab, "gpu008")
    netns.write_sysctls(lab.ns("gpu008"), {RATELIMIT: "3600000"})
    yield "gpu008"
    netns.write_sysctls(lab.ns("gpu008"), {RATELIMIT: "1000"})


def test_a_host_whose_nic_takes_roce_for_itself_is_found_by_the_port_before_it(
    lab: Lab, silent: str
) -> None:
    record = traced(lab, "gpu001", silent, "--sport=50000")
    (path,) = record["paths"]
    assert path["end"] == "silent"
    assert path["text"] == "gpu008/eth0 is behind leaf2/down4 and does not answer"
    assert len(path["hops"]) == 3


def test_a_port_that_there_is_not_is_named_with_those_that_there_are(lab: Lab) -> None:
    done = fabmon_trace(lab, "gpu001", "gpu006", "--from-port", "mlx5_3")
    assert done.returncode == 2
    assert "--from-port: gpu001 has no port mlx5_3; it has: eth0, mgmt0" in done.stderr
