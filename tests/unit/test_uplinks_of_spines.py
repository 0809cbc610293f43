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
    """Leaves with hosts of 400G each below a spine with four uplinks of 400G to cores; its links to
    the leaves have 800G."""

    def __init__(self, hosts: int, metrics: tuple[str, ...] = (), leaves: int = 2) -> None:
        super().__init__(uplinks=4, hosts=leaves * hosts, rate_bps=400 * GBPS, metrics=metrics)
        self._leaves = [f"leaf{number}" for number in range(1, leaves + 1)]
        self.leaf_of = {name: f"leaf{1 + n // hosts}" for n, name in enumerate(self.servers)}
        self._peer.clear()
        for number, name in enumerate(self.servers, start=1):
            self._cable(f"{self.leaf_of[name]}/down{number}", f"{name}/eth0")
        for number, leaf in enumerate(self._leaves, start=1):
            self._cable(f"{leaf}/up1", f"spine1/swp{number}")
        for number in range(1, 5):
            self._cable(f"spine1/up{number}", f"core{number}/swp1")
        self._cables = {**self._peer, **{far: near for near, far in self._peer.items()}}

    @property
    def hosts(self) -> list[Host]:
        fast = {leaf: ["up1"] for leaf in self._leaves}
        fast["spine1"] = [f"swp{number + 1}" for number in range(len(self._leaves))]
        said = [Host(name=name, role=HOST, speeds=(("*", self.rate_bps),)) for name in self.servers]
        for name, ports in fast.items():
            own = tuple((each, 800 * GBPS) for each in ports)
            said.append(Host(name=name, role=SWITCH, speeds=(("*", self.rate_bps), *own)))
        return said

    def hellos(self) -> dict[str, Hello]:
        said = {}
        for node in (*self.servers, *self._leaves, "spine1"):
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

    def send_up(self, gbps: float, server: int, core: int = 1) -> None:
        """A flow of a host to another pod."""
        name = f"gpu{server:03}"
        leaf = self.leaf_of[name]
        self.send(gbps * GBPS, f"{name}/eth0", f"{leaf}/up1", f"spine1/up{core}")


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


@pytest.mark.parametrize("other_gbps", [310, 200])
def test_an_exchange_takes_as_long_as_its_group_on_average(other_gbps: float) -> None:
    """Six hosts of two leaves share one of four links; of the other three each carries the flow of
    a host of a third leaf, which waits for the exchange too."""
    pod = Pod(hosts=6, leaves=3)
    for server in range(1, 13):
        pod.send_up(390 / 12, server)
    for core in (2, 3, 4):
        pod.send_up(other_gbps, 11 + core, core)
    for leaf in (1, 2):
        pod.counted[f"leaf{leaf}/up1", WAIT] = 0.3 * 800 * GBPS / 64
    (finding,) = Watched(pod).seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "spine1/up1")
    assert finding.lost == pytest.approx(1 - (390 + 3 * other_gbps) / (4 * 390), abs=0.02)


@pytest.mark.parametrize(("leaf2_gbps", "waits"), [(100, 0.2), (55, 0.2), (20, 0.08)])
def test_a_leaf_that_waits_a_little_beside_an_elephant_is_no_collision(
    leaf2_gbps: float, waits: float
) -> None:
    """What waits goes over another link than the elephant, which sends at line rate."""
    pod = Pod(hosts=4)
    pod.send_up(390, 1)
    pod.send_up(100, 2, core=2)
    pod.send_up(leaf2_gbps, 5, core=3)
    pod.counted["leaf2/up1", WAIT] = waits * 800 * GBPS / 64
    watched = Watched(pod)
    watched.seconds(SECONDS)
    assert watched.opened() == []


@pytest.mark.parametrize("waits", [0.6, 0.0])
def test_a_leaf_shares_the_link_however_little_it_sends(waits: float) -> None:
    """Three hosts of one leaf and one of the other share it: what the second leaf sends is a third
    of what the first does, and slowed all the same. The first could send 800 Gb/s."""
    pod = Pod(hosts=3)
    for server in (1, 2, 3, 4):
        pod.send_up(97.5, server)
    pod.counted["leaf2/up1", WAIT] = waits * 800 * GBPS / 64
    watched = Watched(pod)
    found = watched.seconds(SECONDS).findings
    (finding,) = found
    assert finding.subject == "spine1/up1"
    assert finding.lost == pytest.approx(1 - 390 / (800 + 400), abs=0.08)


@pytest.mark.parametrize(
    ("waits", "down_gbps", "is_found"),
    [
        pytest.param(0.5, 0, True, id="both leaves wait"),
        pytest.param(0.0, 0, False, id="nobody waits"),
        pytest.param(0.5, 560, False, id="they may wait for another port"),
    ],
)
def test_a_link_that_is_full_for_parts_of_seconds_is_the_busy_one_that_others_wait_for(
    waits: float, down_gbps: float, is_found: bool
) -> None:
    """Four hosts of two leaves send 280 Gb/s over a link of 400G."""
    pod = Pod(hosts=2)
    for server in (1, 2, 3, 4):
        pod.send_up(70, server)
    pod.send(down_gbps * GBPS, "spine1/swp1")
    for leaf in (1, 2):
        pod.counted[f"leaf{leaf}/up1", WAIT] = waits * 800 * GBPS / 64
    watched = Watched(pod)
    watched.seconds(SECONDS)
    assert watched.opened() == (["ecmp_collision spine1/up1"] if is_found else [])


@pytest.mark.parametrize(
    ("metrics", "lost"), [((), 1 / 3), (("rdma_cnp_handled",), 0.25)], ids=["UDP", "RDMA"]
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
