"""Polarization by the queue pairs of few senders: how many flows they have, and their UDP ports."""

from __future__ import annotations

import pytest

from fabmon.analysis.finding import Finding
from fabmon.fabric.flows.udp_source_port import roce_source_port
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello
from tests.builders import GBPS, LeafSpine, Watched, hello, neighbour, port
from tests.connections import Wires

SENDERS, SECONDS = 4, 20


class FewSenders(LeafSpine):
    """Hosts of leaf1 that all send over up1, each to a host behind spine1; links of 400G.

    A sender has so many queue pairs to its receiver, of which the k-th has the numbers `numbers[k]`
    (local and remote).
    """

    def __init__(self, numbers: list[tuple[int, int]]) -> None:
        super().__init__(uplinks=4, hosts=SENDERS, rate_bps=400 * GBPS)
        self._wires = Wires()
        self._receivers = [f"dst{number}" for number in range(1, SENDERS + 1)]
        for number, (src, dst) in enumerate(zip(self.servers, self._receivers, strict=True), 1):
            self._cable(f"spine1/down{number}", f"{dst}/eth0")
            self.send(97 * GBPS, f"{src}/eth0", "leaf1/up1", f"spine1/down{number}")
            for local, remote in numbers:
                self._wires.connect(f"{src}/eth0", f"{dst}/eth0", local, remote, job=f"j{number}")

    @property
    def hosts(self) -> list[Host]:
        return [*super().hosts, *(self._host(name, "host") for name in self._receivers)]

    def hellos(self) -> dict[str, Hello]:
        said = super().hellos()
        spine = [port("swp1", "spine1-swp1"), neighbour("swp1", "leaf1-up1")]
        for number, dst in enumerate(self._receivers, 1):
            spine += [port(f"down{number}", f"spine1-down{number}")]
            spine += [neighbour(f"down{number}", f"{dst}-eth0")]
        said["spine1"] = hello(*spine)
        for number, name in enumerate((*self.servers, *self._receivers)):
            far = f"leaf1-down{number + 1}"
            if name in self._receivers:
                far = f"spine1-down{number - SENDERS + 1}"
            nic = port("eth0", f"{name}-eth0", driver="mlx5_core")
            said[name] = hello(nic, neighbour("eth0", far), self._wires.report(f"{name}/eth0"))
        return said


def found(numbers: list[tuple[int, int]]) -> Finding:
    (finding,) = Watched(FewSenders(numbers)).seconds(SECONDS).findings
    return finding


MANY = [(64 + 13 * each, 5064 + 7 * each) for each in range(8)]
"""Eight queue pairs, each with another UDP source port."""

ONE_PORT = [(1 << each, 1 << 19 - each) for each in range(1, 9)]
"""Eight queue pairs with the same UDP source port: it depends on the product of the numbers."""


def test_the_numbers_of_queue_pairs_have_these_ports() -> None:
    for numbers, ports in ((MANY, 8), (ONE_PORT, 1)):
        assert len({int(roce_source_port(*each)) for each in numbers}) == ports  # type: ignore[arg-type]


def test_one_flow_of_each_of_four_senders_on_one_link_may_be_chance() -> None:
    assert found([(64, 5064)]).cause == "ecmp_collision"
    assert found([]).cause == "ecmp_collision", "queue pairs are not known"


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (MANY, "The 32 queue pairs have 8 UDP source ports"),
        (ONE_PORT, "All 32 queue pairs have one"),
    ],
)
def test_many_queue_pairs_of_four_senders_on_one_link_are_polarized(
    numbers: list[tuple[int, int]], said: str
) -> None:
    finding = found(numbers)
    assert (finding.cause, finding.subject) == ("polarization", "leaf1/uplinks")
    assert finding.text.startswith("16 or more flows of leaf1 use 1 of 4 uplinks (up1)")
    assert finding.advice.startswith(said)
    assert finding.text.endswith("one UDP source port") == (numbers is ONE_PORT)
