"""Flows that switches sampled (sFlow): how much each sends over a port, and how sure that is.

A switch samples one of N packets. The bytes of a flow are estimated as the bytes of its sampled
packets times N. With n samples of it the estimate is within 196 * sqrt(1 / n) % of the truth, in 95
of 100 cases (sflow.org, "Packet Sampling Theory").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated

import msgspec

from fabmon.fabric.flows.addresses import Addresses, parse_address
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.wire.messages import Hello

KEPT_NS = 30_000_000_000
"""Samples of that time are shown."""

MOST_AGENTS = 4096
_PERCENT_OF_ONE_SAMPLE = 196.0

TX, RX = "tx", "rx"

_UDP, _ROCE_PORT = 17, 4791
_PROTOCOLS = {1: "ICMP", 2: "IGMP", 6: "TCP", _UDP: "UDP", 47: "GRE", 50: "ESP", 58: "ICMPv6"}

_Sampled = tuple["FlowKey | None", int, int]
"""Samples and bytes of a flow, or (None) of smaller ones together."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class FlowKey(msgspec.Struct, frozen=True, array_like=True):
    """What the packets of a flow have in common: addresses, IP protocol, ports (0 where it has
    none or they were not sampled), and of RoCE the destination queue pair, else -1."""

    src: str
    dst: str
    protocol: int
    sport: int = 0
    dport: int = 0
    qp: int = -1

    @property
    def protocol_name(self) -> str:
        """`RoCE QP 0x1a2b`, `TCP`, `UDP`, `ICMP`, else the number of the IP protocol."""
        if self.qp >= 0:
            return f"RoCE QP {self.qp:#x}"
        if self.protocol == _UDP and self.dport == _ROCE_PORT:
            return "RoCE"
        return _PROTOCOLS.get(self.protocol, f"IP protocol {self.protocol}")


class SampledFlow(msgspec.Struct, frozen=True, array_like=True):
    """What one flow sent over a port: `way` is `tx` or `rx` as seen from the port `if_index`.

    `samples` is the number of sampled packets, `bytes` the estimate from them.
    """

    if_index: _Count
    way: str
    flow: FlowKey
    samples: _Count
    bytes: _Count


class FlowSamples(msgspec.Struct, frozen=True):
    """The largest flows of one agent in `seconds` up to the tick that they came with.

    `node` is the node that the hosts file has at the agent's address, empty where it has none.
    `rate` is the sampling rate that most samples have: one packet of so many. `others` are, by
    port and way, the samples and bytes of smaller flows and of packets without IP, together.
    `lost` is the share of datagrams that did not arrive; the bytes are corrected for it.
    """

    agent: str
    seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)]
    rate: _Count
    flows: tuple[SampledFlow, ...]
    others: tuple[tuple[_Count, str, _Count, _Count], ...] = ()
    lost: float = 0.0
    node: str = ""


class SampledRate(msgspec.Struct, frozen=True):
    """The rate of a flow over a port, with the number of samples that it is from; `flow` is None
    for smaller flows together."""

    flow: FlowKey | None
    bps: float
    samples: int

    @property
    def error_percent(self) -> float:
        """The relative error of the rate at 95 % confidence, in percent."""
        return relative_error_percent(self.samples)


class PortSamples(msgspec.Struct, frozen=True):
    """The sampled flows of a port in one way, the largest first; one of `rate` packets was sampled
    in the last `seconds`. `lost` is the share of datagrams that did not arrive in that time, for
    which the rates are corrected."""

    flows: tuple[SampledRate, ...]
    rate: int
    seconds: float
    lost: float = 0.0


class SampledInterface(msgspec.Struct, frozen=True):
    """An interface of an agent that samples are of, by ifIndex. `node` is the agent's node and
    `port` the interface's, None where they are not known."""

    agent: str
    if_index: int
    way: str
    node: str | None
    port: Port | None
    samples: PortSamples


def relative_error_percent(samples: int) -> float:
    """The relative error of an estimate from so many samples, at 95 % confidence, in percent."""
    return _PERCENT_OF_ONE_SAMPLE * math.sqrt(1 / samples) if samples else math.inf


class RecentSamples:
    """The samples of the last 30 s, by agent."""

    def __init__(self) -> None:
        self._batches: dict[str, list[tuple[int, FlowSamples]]] = {}

    def add(self, batches: Iterable[FlowSamples], time_ns: int) -> bool:
        """Add the samples of a tick, and drop those that are too old; whether anything changed."""
        changed = False
        for batch in batches:
            if batch.agent in self._batches or len(self._batches) < MOST_AGENTS:
                self._batches.setdefault(batch.agent, []).append((time_ns, batch))
                changed = True
        for agent, kept in list(self._batches.items()):
            recent = [each for each in kept if 0 <= time_ns - each[0] < KEPT_NS]
            if len(recent) < len(kept):
                changed = True
                self._batches[agent] = recent
            if not recent:
                del self._batches[agent]
        return changed

    def by_agent(self) -> dict[str, tuple[FlowSamples, ...]]:
        """The samples of each agent, oldest first."""
        return {agent: tuple(batch for _, batch in kept) for agent, kept in self._batches.items()}


class SampledTraffic:
    """Sampled flows by port, matched with the nodes of a fabric when first asked for."""

    def __init__(
        self,
        fabric: Fabric,
        hellos: Mapping[str, Hello] | None = None,
        agents: Mapping[str, Sequence[FlowSamples]] | None = None,
    ) -> None:
        self.fabric = fabric
        self._hellos = hellos or {}
        self._agents = agents or {}
        self._places: dict[str, dict[tuple[int, str], list[_Sampled]]] = {}

    def __bool__(self) -> bool:
        return bool(self._agents)

    @cached_property
    def addresses(self) -> Addresses:
        """The addresses that the nodes report."""
        return Addresses(self.fabric, self._hellos)

    def on_link(self, port: Port, way: str) -> PortSamples | None:
        """What was sampled of a port in a direction: by its own switch, else by that of its other
        end; None where neither is an agent."""
        own = self._of_port(port, way)
        if own is not None or port.peer is None:
            return own
        return self._of_port(self.fabric.ports[port.peer], RX if way == TX else TX)

    @cached_property
    def unmatched(self) -> tuple[str, ...]:
        """Agents whose address no watched node has."""
        return tuple(sorted(set(self._agents) - set(self._agent_of_node.values())))

    def interfaces(self) -> list[SampledInterface]:
        """Every interface that something was sampled of, also of agents that are no watched nodes,
        by agent, ifIndex and way."""
        node_of = {agent: node for node, agent in self._agent_of_node.items()}
        ports = {
            (port.node, port.info.get("ifindex")): port
            for port in self.fabric.ports
            if port.node in self._agent_of_node
        }
        found = []
        for agent in sorted(self._agents):
            node = node_of.get(agent)
            for index, way in sorted(self._by_place(agent)):
                port = ports.get((node or "", index))
                samples = self._sampled_at(agent, index, way)
                found.append(SampledInterface(agent, index, way, node, port, samples))
        return found

    def end_name(self, address: str) -> str:
        """The port or node with an address, as it is displayed; else the address."""
        parsed = parse_address(address)
        node = None if parsed is None else self.addresses.owner(parsed)
        if parsed is None or node is None:
            return address
        owned = (each for each in self.addresses.of(node) if each.address == parsed)
        port = next((each.port for each in owned if each.port is not None), None)
        return node if port is None else port.display_name

    def _of_port(self, port: Port, way: str) -> PortSamples | None:
        agent = self._agent_of_node.get(port.node)
        index = port.info.get("ifindex")
        if agent is None or not isinstance(index, int):
            return None
        return self._sampled_at(agent, index, way)

    def _sampled_at(self, agent: str, index: int, way: str) -> PortSamples:
        batches = self._agents[agent]
        seconds = sum(batch.seconds for batch in batches)
        counts: dict[FlowKey | None, list[int]] = {}
        for flow, samples, size in self._by_place(agent).get((index, way), ()):
            count = counts.setdefault(flow, [0, 0])
            count[0] += samples
            count[1] += size
        rates = [
            SampledRate(flow, size * 8 / seconds, samples)
            for flow, (samples, size) in counts.items()
        ]
        rates.sort(key=lambda each: (each.flow is None, -each.bps))
        lost = sum(batch.lost * batch.seconds for batch in batches) / seconds
        return PortSamples(tuple(rates), batches[-1].rate, seconds, lost)

    def _by_place(self, agent: str) -> Mapping[tuple[int, str], list[_Sampled]]:
        """What an agent sampled, by ifIndex and way: it may name thousands of interfaces."""
        known = self._places.get(agent)
        if known is None:
            known = self._places[agent] = {}
            for batch in self._agents[agent]:
                for each in batch.flows:
                    place = known.setdefault((each.if_index, each.way), [])
                    place.append((each.flow, each.samples, each.bytes))
                for index, way, samples, size in batch.others:
                    known.setdefault((index, way), []).append((None, samples, size))
        return known

    @cached_property
    def _agent_of_node(self) -> dict[str, str]:
        """Node -> its agent's address: by the hosts file, else by the addresses that it reports."""
        found = {}
        for agent, batches in self._agents.items():
            parsed = parse_address(agent)
            node = batches[-1].node or (self.addresses.owner(parsed) if parsed else None)
            if node:
                found[node] = agent
        return found
