"""The way of a flow: across a chain of real routers, and what a probe does when it is asked."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from collectors.loop.requests import BadRequest
from collectors.loop.trace import parse_trace, trace
from tests.fixtures import routers
from tests.fixtures.in_namespace import can_have_one, namespace
from tests.requirements import need, need_command, need_root

ROOT = Path(__file__).parents[3]
LOOP = {"src": "127.0.0.1", "dst": "127.0.0.1", "sports": [0xC001]}


@pytest.fixture(scope="module")
def scene() -> Any:
    need_root()
    need_command("ip", "iproute2")
    need_command("unshare", "util-linux")
    need("network namespaces", can_have_one(), "run in a privileged container")
    return namespace("routers")


def paths(parts: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    return [part["path"] for part in parts if "path" in part]


def responders(path: Dict[str, Any]) -> List[List[str]]:
    """Who answered at each hop."""
    return [[address for address, _ in hop] for hop in path["hops"]]


SECOND = {
    "v4": {"r2": "10.0.2.1", "r3": "10.0.3.1"},
    "v6": {"r2": "fd00:2::b", "r3": "fd00:3::b"},
}


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_every_flow_is_followed_over_the_link_that_it_is_hashed_to(scene: Any, family: str) -> None:
    """Compared with the counters of the balancing router, for datagrams of the flow itself."""
    ways = scene[family]["ways"]
    found = {str(path["sport"]): responders(path) for path in paths(scene[family]["parts"])}
    assert set(found) == set(ways) == {str(sport) for sport in routers.SPORTS}
    assert set(ways.values()) == {"r2", "r3"}
    for sport, way in ways.items():
        assert found[sport][1] == [SECOND[family][way]]


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_routers_that_limit_their_answers_are_asked_in_their_own_time(
    scene: Any, family: str
) -> None:
    """Eight flows cross r1 and r4, which answer six times at once and then once a second."""
    for path in paths(scene[family]["parts"]):
        assert path["end"] == "reached"
        assert [len(hop) for hop in path["hops"]] == [1, 1, 1, 1]
        assert all(0 < took_us < 1_000_000 for hop in path["hops"] for _, took_us in hop)


def test_several_answers_of_each_hop(scene: Any) -> None:
    (path,) = paths(scene["several"])
    assert [len(hop) for hop in path["hops"]] == [3, 3, 3, 1]
    assert {len(set(hop)) for hop in responders(path)} == {1}


def test_a_router_that_refuses_says_why(scene: Any) -> None:
    (path,) = paths(scene["prohibited"])
    assert (path["end"], path["text"]) == ("refused", "10.0.1.1 says: prohibited by a filter")


def test_a_hop_that_does_not_answer_is_left_out_and_the_way_goes_on(scene: Any) -> None:
    (path,) = paths(scene["one_silent"])
    assert [len(hop) for hop in path["hops"]] == [1, 1, 0, 1]
    assert path["end"] == "reached"


def test_three_that_do_not_answer_end_it(scene: Any) -> None:
    (path,) = paths(scene["silent_end"])
    assert [len(hop) for hop in path["hops"]] == [1, 1, 0, 0, 0]
    assert path["end"] == "silent"


def test_not_further_than_asked(scene: Any) -> None:
    (path,) = paths(scene["short"])
    assert (path["end"], len(path["hops"])) == ("far", 2)


def test_a_host_without_a_route_says_so(scene: Any) -> None:
    (path,) = paths(scene["no_route"])
    assert (path["end"], path["text"]) == ("failed", "this host has no route there")


def test_this_machine_reaches_itself() -> None:
    parts: List[Dict[str, Any]] = []
    trace(LOOP, parts.append)
    (path,) = paths(parts)
    assert path["end"] == "reached"
    assert responders(path) == [["127.0.0.1"]]


def test_a_port_that_is_in_use_is_left_alone() -> None:
    parts: List[Dict[str, Any]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        trace({**LOOP, "sports": [port]}, parts.append)
    (path,) = paths(parts)
    assert (path["end"], path["text"]) == ("failed", f"UDP port {port} is in use on this host")


def test_an_address_of_another_host_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"192\.0\.2\.7 is no address of this host"):
        trace({**LOOP, "src": "192.0.2.7"}, lambda part: None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sports": []}, "1 to 32 ports"),
        ({"sports": list(range(1, 34))}, "1 to 32 ports"),
        ({"sports": [70000]}, "a port must be 1 to 65535, not 70000"),
        ({"src": "gpu001"}, "src must be an IP address, not 'gpu001'"),
        ({"dst": None}, "dst must be an IP address, not None"),
        ({"dst": "::1"}, "127.0.0.1 and ::1 are not of one address family"),
        ({"dev": "a-name-of-sixteen"}, "dev must be the name of an interface"),
        ({"tos": 256}, "tos must be 0 to 255"),
        ({"probes": 4}, "probes must be 1 to 3"),
        ({"max_hops": 65}, "max_hops must be 1 to 64"),
        ({"seconds": 121}, "seconds must be 1 to 120"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_with_the_reason(
    change: Dict[str, Any], said: str
) -> None:
    with pytest.raises(BadRequest, match=said):
        parse_trace({**LOOP, **change})


def test_a_running_probe_is_asked() -> None:
    command = [sys.executable, "-m", "collectors", "--control"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as probe:
        assert probe.stdin is not None
        assert probe.stdout is not None
        for line in ({"interval_s": 0.1, "lease_s": 30}, {"trace": {"id": 4, **LOOP}}):
            probe.stdin.write(json.dumps(line).encode() + b"\n")
        probe.stdin.flush()
        said: List[Dict[str, Any]] = []
        while not (said and said[-1].get("done")):
            kind, *rest = json.loads(probe.stdout.readline())
            if kind == "trace":
                said.append(rest[0])
        probe.stdin.close()
        assert probe.wait(timeout=240) == 0
    assert [part["id"] for part in said] == [4, 4]
    assert said[0]["path"]["end"] == "reached"
    assert "error" not in said[1]
