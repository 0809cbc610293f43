"""The flows that switches sampled (sFlow), by port: as objects and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fabmon.fabric.flows.sampled import (
    FlowKey,
    SampledInterface,
    SampledRate,
    SampledTraffic,
    relative_error_percent,
)
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import bit_rate, name_list, plural
from fabmon.report.output import aligned

_MOST = 16
"""Flows in the table."""


class SampledFlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One flow, estimated from `samples` packets: its rate and bytes are within `error_percent` of
    the truth in 95 of 100 cases.

    `src_name` and `dst_name` are the ports or nodes with its addresses, null where they are not
    known. `protocol` is the IP protocol, `qp` the destination queue pair of RoCE; a port or queue
    pair that the flow lacks, or that was not sampled, is null.
    """

    src: str
    src_name: str | None
    dst: str
    dst_name: str | None
    protocol: int
    sport: int | None
    dport: int | None
    qp: int | None
    bps: float
    bytes: int
    samples: int
    error_percent: float


class SampledOthersRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The smaller flows of a port together, and packets without IP."""

    bps: float
    bytes: int
    samples: int
    error_percent: float


class SampledPortRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch sampled at one port in the last `seconds`, in the `direction` there (tx or rx):
    about one of `sampling_rate` packets. The largest flow is the first.

    `agent` is the address of the sFlow agent, `if_index` its number of the port. `node`, `port` and
    `peer` (the other end of the link) are null where they are not known. `lost` is the share of
    datagrams that did not arrive; rates and bytes are corrected for it. `others` is null where all
    flows are listed. A packet counts at the port that received and at the one that sent it.
    """

    agent: str
    node: str | None
    port: str | None
    peer: str | None
    if_index: int
    direction: str
    sampling_rate: int
    seconds: float
    lost: float
    flows: list[SampledFlowRecord]
    others: SampledOthersRecord | None


def sampled_ports(traffic: SampledTraffic) -> list[SampledPortRecord]:
    """Every port that something was sampled of, those of agents of no watched node included."""
    return [_port(traffic, each) for each in traffic.interfaces()]


def _port(traffic: SampledTraffic, place: SampledInterface) -> SampledPortRecord:
    port, sampled = place.port, place.samples
    peer = None if port is None or port.peer is None else traffic.fabric.ports[port.peer]
    others = [each for each in sampled.flows if each.flow is None]
    return SampledPortRecord(
        agent=place.agent,
        node=place.node,
        port=port.id if port is not None else None,
        peer=peer.id if peer is not None else None,
        if_index=place.if_index,
        direction=place.way,
        sampling_rate=sampled.rate,
        seconds=round(sampled.seconds, 1),
        lost=round(sampled.lost, 4),
        flows=[
            _flow(traffic, each.flow, each, sampled.seconds)
            for each in sampled.flows
            if each.flow is not None
        ],
        others=_others(others[0], sampled.seconds) if others else None,
    )


def _flow(
    traffic: SampledTraffic, flow: FlowKey, each: SampledRate, seconds: float
) -> SampledFlowRecord:
    src, dst = traffic.end_name(flow.src), traffic.end_name(flow.dst)
    return SampledFlowRecord(
        src=flow.src,
        src_name=src if src != flow.src else None,
        dst=flow.dst,
        dst_name=dst if dst != flow.dst else None,
        protocol=flow.protocol,
        sport=flow.sport or None,
        dport=flow.dport or None,
        qp=flow.qp if flow.qp >= 0 else None,
        bps=round(each.bps),
        bytes=round(each.bps * seconds / 8),
        samples=each.samples,
        error_percent=round(each.error_percent, 1),
    )


def _others(each: SampledRate, seconds: float) -> SampledOthersRecord:
    return SampledOthersRecord(
        bps=round(each.bps),
        bytes=round(each.bps * seconds / 8),
        samples=each.samples,
        error_percent=round(each.error_percent, 1),
    )


def sampled_table(ports: Sequence[SampledPortRecord]) -> Iterator[str]:
    """The largest sampled flows of all ports, a line each."""
    found = [(port, flow) for port in ports for flow in port.flows]
    if not ports:
        yield "sFlow: no sampled packet arrived. Do the switches send to this machine, and sample?"
        yield "- Samples are summed over 10 s: --duration 30s waits longer."
        return
    agents = len({port.agent for port in ports})
    yield (
        f"sFlow: {plural(len(found), 'flow')} at ports of {plural(agents, 'switch')},"
        " estimated from sampled packets; ± at 95 % confidence"
    )
    found.sort(key=lambda each: -each[1].bps)
    head = (
        *("PORT", "WAY", "TO", "FLOW FROM", "FLOW TO", "PROTOCOL"),
        *("RATE", "± %", "SAMPLES", "1 OF", "LAST"),
    )
    yield from aligned([head, *(_cells(port, flow) for port, flow in found[:_MOST])])
    if len(found) > _MOST:
        yield f"- and {len(found) - _MOST} smaller ones: --format json"
    if any(port.others for port in ports):
        yield "- smaller flows of a port are only summed, as `others` in --format json"
    unknown = sorted({port.agent for port in ports if port.node is None})
    if unknown:
        yield f"- sFlow of {name_list(unknown, 4)}: no watched node has this address (address=)"


def _cells(port: SampledPortRecord, flow: SampledFlowRecord) -> tuple[str, ...]:
    dport = flow.dport if flow.qp is None else None
    key = FlowKey(
        *(flow.src, flow.dst, flow.protocol, flow.sport or 0, flow.dport or 0),
        -1 if flow.qp is None else flow.qp,
    )
    return (
        port.port or f"{port.node or port.agent} ifIndex {port.if_index}",
        port.direction,
        port.peer or "·",
        _end(flow.src_name or flow.src, flow.sport),
        _end(flow.dst_name or flow.dst, dport),
        key.protocol_name,
        bit_rate(flow.bps),
        f"{relative_error_percent(flow.samples):.0f}",
        str(flow.samples),
        str(port.sampling_rate),
        duration(port.seconds),
    )


def _end(name: str, port: int | None) -> str:
    """`gpu002 r3 port 49153`."""
    return f"{name} port {port}" if port else name
