"""The flows between hosts, by their queue pairs and by what switches sampled: as one object and as
a table."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.fabric.flows.queue_pairs import SOURCE
from fabmon.fabric.flows.sampled import SampledTraffic
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.model import HOST, RAIL
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.routing_mode import STATIC
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import utc
from fabmon.report.output import aligned
from fabmon.report.sampled_flows import SampledPortRecord, sampled_ports, sampled_table

_MOST = 16
"""Links in the table."""


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One queue pair, over which a flow may be sent.

    `peer` and `peer_port` are null where the other end is not known; `candidates` is the number of
    queue pairs of watched hosts that it could be. `sport` is the UDP source port, null where it
    cannot be computed. `leaf` and `peer_leaf` are the switches, null where they are not known.
    `path` are the ports of switches that send the flow on, by InfiniBand's forwarding tables; empty
    where they are not known or adaptive routing decides.
    """

    node: str
    port: str
    leaf: str | None
    peer: str | None
    peer_port: str | None
    peer_leaf: str | None
    candidates: int
    lqpn: int
    rqpn: int
    sport: int | None
    comm: str
    pid: int | None
    job: str | None
    path: list[str]


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A link between InfiniBand switches: the `flows` and the pairs of hosts that the forwarding
    tables send over it, in the direction from `port` to `peer`."""

    port: str
    peer: str
    flows: int
    host_pairs: int


class LeavesRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The number of flows from one leaf to another, and of their UDP source ports (0: unknown)."""

    leaf: str
    peer_leaf: str
    flows: int
    sports: int


class SilentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A host that does not report its queue pairs, and why."""

    node: str
    reason: str


class FlowsRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="flows"):
    """`fabmon flows --format json`. `reporting` hosts of all `hosts` report their queue pairs;
    `left_out` queue pairs were only counted. `sampled` are the flows that switches sampled (sFlow),
    which are estimates; null where no sFlow is received.
    """

    time: datetime.datetime
    reporting: int
    hosts: int
    left_out: int
    silent: list[SilentRecord]
    leaves: list[LeavesRecord]
    links: list[LinkRecord]
    flows: list[FlowRecord]
    sampled: list[SampledPortRecord] | None


def flows_record(snapshot: Snapshot, *, receives_sflow: bool = False) -> FlowsRecord:
    """All that is known of flows at a moment; `receives_sflow` says whether samples are taken."""
    table = snapshot.connections.flows
    hosts = [node.name for node in snapshot.fabric.nodes if node.role == HOST]
    order = sorted(range(len(table)), key=lambda n: (table.src[n], table.lqpn[n]))
    return FlowsRecord(
        time=utc(snapshot.time_ns),
        reporting=len(table.reporting),
        hosts=len(hosts),
        left_out=table.left_out,
        silent=[
            SilentRecord(node=name, reason=_why_silent(snapshot, name))
            for name in hosts
            if name not in table.reporting
        ],
        leaves=[
            LeavesRecord(leaf=each.src, peer_leaf=each.dst, flows=each.flows, sports=each.sports)
            for each in snapshot.connections.between_leaves()
        ],
        links=_links(snapshot),
        flows=[_flow(snapshot, flow) for flow in order],
        sampled=sampled_ports(snapshot.sampled or SampledTraffic(snapshot.fabric))
        if receives_sflow
        else None,
    )


def flows_table(record: FlowsRecord) -> str:
    """The table: hosts without queue pairs, sampled flows, flows between leaves, then a line per
    queue pair."""
    time = f"{record.time:%Y-%m-%d %H:%M:%SZ}"
    lines = [
        f"{time}  {record.reporting}/{record.hosts} hosts report their queue pairs"
        f"  {len(record.flows)} flows"
    ]
    if record.left_out:
        lines.append(f"- {record.left_out} more are only counted: a node reports 4,096")
    lines += _silent(record.silent)
    if record.sampled is not None:
        lines += ["", *sampled_table(record.sampled)]
    if record.leaves:
        lines.append("")
        lines += aligned([("LEAF", "TO", "FLOWS", "SPORTS"), *map(_leaves, record.leaves)])
    if record.links:
        lines.append("")
        lines += aligned([("LINK", "TO", "FLOWS", "HOST PAIRS"), *map(_link, record.links[:_MOST])])
        if len(record.links) > _MOST:
            lines.append(f"- and {len(record.links) - _MOST} links with fewer: --format json")
    if record.flows:
        head = ("NODE", "PORT", "QPN", "TO", "PORT", "QPN", "SPORT", "OF", "PID")
        lines.append("")
        lines += aligned([head, *map(_cells, record.flows)])
    return "\n".join(lines) + "\n"


def _silent(silent: Sequence[SilentRecord]) -> Iterator[str]:
    """A line per reason, with its hosts."""
    hosts_by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for each in silent:
        hosts_by_reason[each.reason].append(each.node)
    for reason, nodes in hosts_by_reason.items():
        count = f" ({len(nodes)} hosts)" if len(nodes) > 1 else ""
        yield f"x {fold(nodes)}{count}: {reason}"


def _links(snapshot: Snapshot) -> list[LinkRecord]:
    """The links between InfiniBand switches that are used, those with the most flows first."""
    fabric, found = snapshot.fabric, []
    for port in fabric.ports:
        peer = None if port.peer is None else fabric.ports[port.peer]
        if peer is None or RAIL in (port.role, peer.role) or port.kind != "infiniband":
            continue
        on_link = snapshot.connections.on_link([port.row])
        if on_link is not None and len(on_link.pairs.src):
            pairs = len(on_link.pairs.hosts(fabric))
            flows = len(on_link.flows)
            found.append(LinkRecord(port=port.id, peer=peer.id, flows=flows, host_pairs=pairs))
    return sorted(found, key=lambda each: (-each.flows, -each.host_pairs))


def _flow(snapshot: Snapshot, flow: int) -> FlowRecord:
    table, found, ports = (
        snapshot.connections.flows,
        snapshot.connections.leaves,
        snapshot.fabric.ports,
    )
    src, dst = int(table.src[flow]), int(table.dst[flow])
    owner = table.owner(flow)

    def leaf(row: int) -> str | None:
        place = int(found.of[row]) if row != NONE else NONE
        return None if place == NONE else found.names[place]

    return FlowRecord(
        node=ports[src].node,
        port=ports[src].name,
        leaf=leaf(src),
        peer=None if dst == NONE else ports[dst].node,
        peer_port=None if dst == NONE else ports[dst].name,
        peer_leaf=leaf(dst),
        candidates=int(table.candidates[flow]),
        lqpn=int(table.lqpn[flow]),
        rqpn=int(table.rqpn[flow]),
        sport=int(table.sport[flow]) or None,
        comm=owner.comm,
        pid=owner.pid or None,
        job=owner.job or None,
        path=_path(snapshot, src, dst),
    )


def _path(snapshot: Snapshot, src: int, dst: int) -> list[str]:
    """The ports of switches that send a flow on; empty where not exactly one path is known."""
    forwarding, fabric = snapshot.connections.forwarding, snapshot.fabric
    if forwarding is None or dst == NONE or fabric.routing_of(src).mode != STATIC:
        return []
    paths = forwarding.path(src, dst)
    return [fabric.ports[row].id for row in paths[0][1:]] if len(paths) == 1 else []


def _why_silent(snapshot: Snapshot, node: str) -> str:
    """Why a host does not report its queue pairs."""
    for notice in snapshot.notices.get(node, ()):
        if notice.source == SOURCE and notice.event == "lost":
            return notice.text
    status = snapshot.statuses[node]
    if status.state is not NodeState.UP:
        return f"{status.state}: {status.reason}" if status.reason else str(status.state)
    return "no RDMA device, or it is not reported"


def _leaves(each: LeavesRecord) -> tuple[str, ...]:
    return each.leaf, each.peer_leaf, str(each.flows), str(each.sports or "·")


def _link(each: LinkRecord) -> tuple[str, ...]:
    return each.port, each.peer, str(each.flows), str(each.host_pairs)


def _cells(each: FlowRecord) -> tuple[str, ...]:
    unknown = f"one of {each.candidates}" if each.candidates > 1 else "unknown"
    return (
        each.node,
        each.port,
        str(each.lqpn),
        each.peer or unknown,
        each.peer_port or "·",
        str(each.rqpn),
        str(each.sport or "·"),
        f"job {each.job}" if each.job else each.comm,
        str(each.pid or "kernel"),
    )
