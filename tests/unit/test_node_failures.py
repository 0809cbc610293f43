"""Forty nodes that fail for one reason are one text, with one command for all of them."""

from __future__ import annotations

import subprocess

import pytest

from fabmon.fabric.node_failures import common_reason

NODES = range(1, 41)
KEYSCAN = "ssh-keyscan -p 2222 {} >> ~/.ssh/known_hosts"


def test_equal_reasons_are_one() -> None:
    assert common_reason(["out of files"] * 3, "files") == "out of files"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("refused by 10.0.0.{}: is sshd running?", "refused by 10.0.0.[1-40]: is sshd running?"),
        ("no frame for {}.5 s", "no frame for 1.5 to 40.5 s"),
    ],
)
def test_what_differs_is_folded(reason: str, expected: str) -> None:
    assert common_reason((reason.format(node) for node in NODES), "x") == expected


def test_a_colon_after_names_of_several_kinds_is_said_once() -> None:
    reasons = [f"no address for {name}: unknown" for name in ("gpu001", "gpu002", "leaf1")]
    assert common_reason(reasons, "dns") == "no address for gpu[001-002],leaf1: unknown"


def test_what_has_nothing_in_common_is_omitted() -> None:
    reasons = [f"host key unknown: ssh-rsa SHA256:{'/' * node} for all" for node in NODES]
    assert common_reason(reasons, "host key") == "host key unknown: ssh-rsa … for all"


def test_a_command_of_one_host_stays_an_example() -> None:
    reasons = [f"host key changed: ssh-keygen -R 10.0.0.{node}" for node in NODES]
    assert common_reason(reasons, "host key changed") == (
        f"host key changed, for example: {reasons[0]}"
    )


def test_a_command_with_another_port_for_each_node_stays_an_example() -> None:
    reasons = [f"host key unknown: ssh-keyscan -p {22000 + node} 127.0.0.1" for node in NODES]
    assert common_reason(reasons, "host key") == f"host key, for example: {reasons[0]}"


def test_reasons_that_are_not_alike_stay_an_example() -> None:
    assert common_reason(["a b", "a"], "x") == "x, for example: a b"


@pytest.mark.parametrize(
    "names",
    [
        [f"10.0.0.{node}" for node in NODES],
        [f"gpu{node:03}" for node in NODES if node % 7],
        ["login", "gpu01", "gpu02", "gpu07"],
    ],
)
def test_a_command_of_many_hosts_is_one_that_a_shell_expands(names: list[str]) -> None:
    text = common_reason((KEYSCAN.format(name) for name in names), "host key")
    hosts = text.removeprefix("ssh-keyscan -p 2222 ").removesuffix(" >> ~/.ssh/known_hosts")
    expanded = subprocess.run(
        ["bash", "-c", f"echo {hosts}"], check=True, capture_output=True, text=True
    )
    assert sorted(expanded.stdout.split()) == sorted(names)
