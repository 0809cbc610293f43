"""Full links between spines and cores: what feeds them comes from leaves, and is of many hosts."""

from __future__ import annotations

import pytest

from fabmon.fabric.model import HOST, SWITCH, Host
from fabmon.fabric.wire.messages import Hello
from tests.builders import METRICS, LeafSpine, Watched, ecmp, hello, neighbour, port

GBPS = 1e9
WAIT = "ib_ext_tx_wait"
SECONDS = 20


class Pod(LeafSpine):
    """Two leaves with hosts of 400G below a spine with four uplinks of 400G to cores; its links to
    the leaves have 800G."""

    def __init__(self, hosts: int, metrics: tuple[str, ...] = ()) -> None:
        super().__init__(uplinks=4, hosts=2 * hosts, rate_bps=400 * GBPS, metrics=metrics)
        self.leaf_of = {name: f"leaf{1 + n // hosts}" for n, name in enumerate(self.servers)}
        self._peer.clear()
        for number, name in enumerate(self.servers, start=1):
            self._cable(f"{self.leaf_of[name]}/down{number}", f"{name}/eth0")
        for number in (1, 2):
            self._cable(f"leaf{number}/up1", f"spine1/swp{number}")
        for number in range(1, 5):
            self._cable(f"spine1/up{number}", f"core{number}/swp1")
        self._cables = {**self._peer, **{far: near for near, far in self._peer.items()}}

    @property
    def hosts(self) -> list[Host]:
        fast = ("up1", 800 * GBPS)
        said = [Host(name=name, role=HOST, speeds=(("*", self.rate_bps),)) for name in self.servers]
        for name, own in (("leaf1", (fast,)), ("leaf2", (fast,)), ("spine1", self._to_leaves)):
            said.append(Host(name=name, role=SWITCH, speeds=(("*", self.rate_bps), *own)))
        return said

    @property
    def _to_leaves(self) -> tuple[tuple[str, float], ...]:
        return ("swp1", 800 * GBPS), ("swp2", 800 * GBPS)

    def hellos(self) -> dict[str, Hello]:
        said = {}
        for node in (*self.servers, "leaf1", "leaf2", "spine1"):
            names = [each.partition("/")[2] for each in self._cables if each.startswith(f"{node}/")]
            metrics = self._host_metrics if node in self.servers else (*METRICS, WAIT)
            objects = [port(name, f"{node}-{name}", metrics) for name in names]
            if node == "spine1":
                objects.append(ecmp(*(f"up{number}" for number in range(1, 5))))
            for name in names:
                far = self._cables[f"{node}/{name}"]
                objects.append(neighbour(name, far.replace("/", "-")))
            said[node] = hello(*objects)
        return said

    def send_up(self, gbps: float, server: int) -> None:
        """A flow of a host to another pod, over the first core."""
        name = f"gpu{server:03}"
        leaf = self.leaf_of[name]
        self.send(gbps * GBPS, f"{name}/eth0", f"{leaf}/up1", "spine1/up1")


def test_a_leaf_could_send_what_its_hosts_could() -> None:
    """One host of each leaf has half of the link: they lose half, though their leaves' links to the
    spine could carry twice as much as they."""
    pod = Pod(hosts=2)
    for server in (1, 3):
        pod.send_up(195, server)
    for leaf in (1, 2):
        pod.counted[f"leaf{leaf}/up1", WAIT] = 0.3 * 800 * GBPS / 64
    (finding,) = Watched(pod).seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "spine1/up1")
    assert finding.lost == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("waits", [0.6, 0.0])
def test_a_leaf_that_waits_shares_the_link_however_little_it_sends(waits: float) -> None:
    """Three hosts of one leaf and one of the other share it: what the second leaf sends is a third
    of what the first does, and slowed all the same."""
    pod = Pod(hosts=3)
    for server in (1, 2, 3, 4):
        pod.send_up(97.5, server)
    pod.counted["leaf2/up1", WAIT] = waits * 800 * GBPS / 64
    watched = Watched(pod)
    found = watched.seconds(SECONDS).findings
    assert [each.subject for each in found] == (["spine1/up1"] if waits else [])
    for each in found:
        assert each.lost == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(
    ("waits", "down_gbps", "is_found"),
    [
        pytest.param(0.5, 0, True, id="leaf2 waits"),
        pytest.param(0.0, 0, False, id="nobody waits"),
        pytest.param(0.5, 560, False, id="it may wait for another port"),
    ],
)
def test_a_link_that_is_full_for_parts_of_seconds_is_the_busy_one_that_others_wait_for(
    waits: float, down_gbps: float, is_found: bool
) -> None:
    """Four hosts of two leaves send 280 Gb/s over a link of 400G, and one leaf waits."""
    pod = Pod(hosts=2)
    for server in (1, 2, 3, 4):
        pod.send_up(70, server)
    pod.send(down_gbps * GBPS, "spine1/swp1")
    pod.counted["leaf2/up1", WAIT] = waits * 800 * GBPS / 64
    watched = Watched(pod)
    watched.seconds(SECONDS)
    assert watched.opened() == (["ecmp_collision spine1/up1"] if is_found else [])


@pytest.mark.parametrize(
    ("metrics", "lost"), [((), 0.5), (("rdma_cnp_handled",), 0.25)], ids=["UDP", "RDMA"]
)
def test_what_a_spine_drops_is_not_achieved_but_of_rdma_which_loses_nothing(
    metrics: tuple[str, ...], lost: float
) -> None:
    """Two hosts send 300 Gb/s each, and 400 Gb/s leave the spine."""
    pod = Pod(hosts=2, metrics=metrics)
    for server in (1, 3):
        name = f"gpu{server:03}"
        pod.send(300 * GBPS, f"{name}/eth0", f"{pod.leaf_of[name]}/up1")
    pod.send(400 * GBPS, "spine1/up1")
    for leaf in (1, 2):
        pod.counted[f"leaf{leaf}/up1", WAIT] = 0.3 * 800 * GBPS / 64
    (finding,) = Watched(pod).seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "spine1/up1")
    assert finding.lost == pytest.approx(lost, abs=0.03)
