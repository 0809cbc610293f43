"""What a fault acts on, and the NICs, links and flows that it may choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.world.sampling import Sampler
from tests.world.topology import NIC, UP, Topology, ends
from tests.world.transport import INFINIBAND
from tests.world.truth import Judge, Truth
from tests.world.workloads import Cluster


class NotPossibleError(Exception):
    """This fabric cannot have that fault."""


@dataclass
class Scene:
    """What a fault acts on. `hosts` are those of the job."""

    cluster: Cluster
    judge: Judge
    sampler: Sampler
    hosts: list[int]
    start_s: float
    end_s: float

    @property
    def topology(self) -> Topology:
        """The hardware."""
        return self.cluster.topology

    def truth(self, cause: str, *more: str, ports: list[int], nodes: list[str]) -> Truth:
        """A new truth about ports and nodes."""
        truth = Truth(cause, frozenset((cause, *more)), self.start_s, self.end_s)
        truth.ports = {self.topology.port_id(p) for p in ports}
        truth.nodes = set(nodes)
        truth.required = True
        return truth

    def crossing(self, link: int) -> set[str]:
        """Ids of the NICs whose flows take a link."""
        table, found = self.cluster.world.table, set()
        for flow in table.flows:
            if any(hop.link == link for hop in flow.hops):
                found |= {self.topology.port_id(p) for p in (flow.src, flow.dst) if p >= 0}
        return found

    def of_link(self, link: int, cause: str, *more: str) -> Truth:
        """A new truth about both ends of a link, and the flows that cross it."""
        topology, both = self.topology, ends(self.topology, link)
        truth = self.truth(cause, *more, ports=both, nodes=[topology.node_of(p) for p in both])
        truth.inside = bool(topology.role[both[0]] == UP or topology.role[both[1]] == UP)
        truth.affected = self.crossing(link)
        return truth

    def seen_by_waiting_only(self, truth: Truth, nics: list[int]) -> None:
        """Set what shows of slow receivers on InfiniBand.

        Only the switch's port counts that a receiver is slow: hosts see that its senders wait. A
        counter of 32 bits is full after 0.7 s of waiting (1.4 s at 200 Gb/s), and shows nothing
        then: that is before a fault has shown for as long as it must."""
        if self.cluster.world.transport.settings.transport != INFINIBAND:
            return
        if self.sampler.view.xmit_wait_bits == 32:
            truth.required = False
        if not self.sampler.view.visible:
            truth.inside = True
            for nic in nics:
                truth.affected |= self.crossing(int(self.topology.peer[nic]))

    def during(self, begin: Callable[[], None], finish: Callable[[], None]) -> None:
        """Call `begin` and `finish` at the fault's start and end."""
        self.at(self.start_s, begin)
        self.at(self.end_s, finish)

    def at(self, at_s: float, change: Callable[[], None]) -> None:
        """Change the model at that time."""
        world = self.cluster.world

        def changed() -> None:
            change()
            world.dirty = True

        world.at(at_s, changed)


def some_rails(scene: Scene, host: int) -> list[int]:
    """One NIC of a host, or sometimes all."""
    topology, rng = scene.topology, scene.cluster.rng
    rails = topology.shape.rails
    if rng.random() < 0.3:
        return list(topology.hosts[host][:rails])
    return [topology.nic(host, int(rng.integers(rails)))]


def used_link(scene: Scene) -> int:
    """A NIC's link or an uplink that the job's flows use."""
    topology, rng, table = scene.topology, scene.cluster.rng, scene.cluster.world.table
    links: dict[bool, set[int]] = {True: set(), False: set()}
    for group in scene.cluster.groups:
        for flow in table.flows_of(group):
            for hop in flow.hops:
                if hop.link < topology.ports:
                    is_nic = bool(topology.role[hop.link] == NIC)
                    if is_nic or topology.role[hop.link] == UP:
                        links[is_nic].add(hop.link)
    kinds = [kind for kind, found in links.items() if found]
    if not kinds:
        raise NotPossibleError
    chosen = sorted(links[kinds[int(rng.integers(len(kinds)))]])
    return int(rng.choice(chosen))


def is_uplink(topology: Topology, link: int) -> bool:
    """Whether a link goes from a leaf or spine upwards."""
    return link < topology.ports and bool(topology.role[link] == UP)


def ends_of(topology: Topology, links: list[int]) -> list[int]:
    """Both ports of each link."""
    return [port for link in links for port in ends(topology, link)]
