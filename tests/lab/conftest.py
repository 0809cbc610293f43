"""One lab for all tests that only look at it or leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.requirements import need_command, need_path, need_root

SEED = "/proc/sys/net/ipv4/fib_multipath_hash_seed"
_RATE_MBPS = 20
"""Every packet costs CPU time at each of its hops, and several labs run beside each other."""


@pytest.fixture(scope="session")
def lab_parts() -> None:
    """Skip, naming what is missing, where a lab cannot be built."""
    need_root()
    need_command("ip", "iproute2")
    need_command("tc", "iproute2")
    need_command("sshd", "openssh-server")
    need_command("ssh", "openssh-client")
    need_command("ssh-keygen", "openssh-client")
    need_command("iperf3", "iperf3")
    need_command("useradd", "passwd")
    need_command("unshare", "util-linux")
    need_command("hostname", "hostname")
    need_path(SEED, "a Linux kernel of 6.11 or later, with CONFIG_IP_ROUTE_MULTIPATH")


@pytest.fixture(scope="session")
def shared_lab(lab_parts: None) -> Iterator[Lab]:
    """The lab of the session: 4 spines, 2 leaves, 4 hosts a leaf."""
    with Lab(spines=4, leaves=2, hosts_per_leaf=4, rate_mbps=_RATE_MBPS) as built:
        yield built


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """The lab of the session; traffic that a test started ends with the test."""
    yield shared_lab
    shared_lab.stop_traffic()
