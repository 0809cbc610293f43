"""Checks along a rail: ports that are down, missing or cabled wrongly; speed, MTU, PFC, ECN."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fabmon.analysis.audit.survey import FIX, NOTE, Problem, Survey
from fabmon.analysis.detectors.miscabled import CAUSE, miscabled_conditions
from fabmon.fabric.model import FABRIC, HOST, RAIL, SWITCH, Node, Port
from fabmon.fabric.roles.evidence import is_rdma
from fabmon.fabric.topology.tier_matrix import down_up, ratio_text
from fabmon.fabric.wording import bit_rate, name_list

_HEADERS = 40 + 8 + 12 + 4 + 28 + 4
"""GRH, UDP, BTH, XRC, atomic ETH, ICRC: bytes of headers that the kernel leaves room for."""

_MTUS = (4096, 2048, 1024, 512, 256)

FULL_RDMA_MTU = 4096


def roce_mtu(netdev_mtu: float) -> int | None:
    """The payload of an RDMA packet, bytes: 1024 for an MTU of 1500; None below 256.

    The kernel computes `active_mtu` of a RoCE port so (Linux include/rdma/ib_addr.h,
    iboe_get_mtu), and reports it only through the verbs library.
    """
    room = netdev_mtu - _HEADERS
    return next((mtu for mtu in _MTUS if mtu <= room), None)


_MAX_NAMED = 4
"""Ports, or PCI slots, named in a problem."""

_SMALL_RDMA_MTU = 2048
"""RDMA MTU below which a rail is a problem: MTU 1500 gives 1024."""

_MORE_DOWN = 1.02
"""Capacity to hosts, over that of the uplinks, from which on a leaf is oversubscribed."""

_NUMBER = re.compile(r"\d+")

T = TypeVar("T", float, str)


def slower_than_peers(survey: Survey) -> Iterator[Problem]:
    """Ports with a line rate below that of most ports of their rail: a failed lane halves it."""
    for rail, ports in survey.rails():
        rates = [(port, float(survey.snapshot.line_rate_bps[port.row])) for port in ports]
        known = [(port, rate) for port, rate in rates if rate > 0]
        usual = _most_common([rate for _, rate in known])
        for port, rate in known:
            if usual is None or rate >= usual:
                continue
            yield Problem(
                check="link_speed",
                severity=FIX,
                ports=(port.id,),
                text=f"{bit_rate(rate)}, its rail {rail} runs at {bit_rate(usual)}",
                advice="Look at the cable, the optics and the port's lanes on both ends.",
            )


def line_rate_unknown(survey: Survey) -> Iterator[Problem]:
    """Ports of the fabric that are up and report no line rate, as virtual NICs do."""
    up, line_rate_bps = survey.snapshot.up, survey.snapshot.line_rate_bps
    unknown = tuple(
        port.id
        for port in survey.ports()
        if port.role in FABRIC and up[port.row] == 1 and not line_rate_bps[port.row] > 0
    )
    if unknown:
        yield Problem(
            check="line_rate",
            severity=NOTE,
            ports=unknown,
            text="no line rate is reported: no utilisation, and no finding that needs it",
            advice="Name it in the hosts file, as in speed.eth0=25G.",
        )


def mtu_differs(survey: Survey) -> Iterator[Problem]:
    """Ports of one rail with different MTUs: larger packets are dropped on their path."""
    yield from _odd_ones(
        survey,
        "mtu",
        lambda port: survey.level(port, "netdev_mtu"),
        lambda value: f"MTU {value:g}",
        "Set the same MTU on every port of the rail, and on the switches between them.",
    )


def roce_mtu_small(survey: Survey) -> Iterator[Problem]:
    """RoCE rails on which RDMA packets carry less than 2048 bytes, as with MTU 1500.

    Virtual ports are left out. Ports whose MTU differs from that of their rail are reported by
    `mtu_differs`.
    """
    for rail, ports in survey.rails():
        known = [(port, mtu) for port in ports if (mtu := survey.level(port, "netdev_mtu"))]
        usual = _most_common([mtu for _, mtu in known])
        active = None if usual is None else roce_mtu(usual)
        small = tuple(
            port.id
            for port, mtu in known
            if mtu == usual
            and port.kind == "ethernet"
            and port.info.get("rdma")
            and not port.info.get("virtual")
        )
        if small and active is not None and active < _SMALL_RDMA_MTU:
            yield Problem(
                check="roce_mtu",
                severity=FIX,
                ports=small,
                text=f"MTU {usual:g} on rail {rail}: RDMA packets carry {active} bytes (derived"
                f" from the MTU) instead of {FULL_RDMA_MTU}",
                advice="Set MTU 9000 (4200 at least) on the ports of the rail and on the switches.",
            )


def pfc_differs(survey: Survey) -> Iterator[Problem]:
    """PFC that is on at some ports only, or for different priorities."""
    yield from _odd_ones(
        survey,
        "pfc",
        _pfc,
        str,
        "Make PFC the same on all ports of the rail: mlnx_qos or dcb pfc, and the switch ports.",
    )


def ecn_differs(survey: Survey) -> Iterator[Problem]:
    """DCQCN that is on at some ports only: senders without it take bandwidth from the others."""
    yield from _odd_ones(
        survey,
        "ecn",
        _ecn,
        str,
        "Make RoCE ECN the same on all ports: /sys/class/net/*/ecn/roce_{np,rp}/enable.",
    )


def leaves_differ(survey: Survey) -> Iterator[Problem]:
    """Ports that are cabled to the leaf of another rail.

    A leaf belongs to a rail when most of its ports are of that rail; then the hosts on it show
    where their other rails should go. A rail may have many leaves, one in each scalable unit. Where
    every leaf of a rack takes all rails, there is nothing to check.
    """
    leaf_of = _leaves(survey)
    on_leaf: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for (node, rail), (_, leaf) in leaf_of.items():
        on_leaf[leaf].append((node, rail))
    for (node, rail), (port, leaf) in leaf_of.items():
        owner = _majority([rail for _, rail in on_leaf[leaf]])
        if owner is None or owner == rail:
            continue
        peers = [peer for peer, theirs in on_leaf[leaf] if theirs == owner and peer != node]
        leaves_of_peers = [leaf_of[peer, rail][1] for peer in peers if (peer, rail) in leaf_of]
        expected = _most_common(leaves_of_peers)
        if expected is not None and expected != leaf:
            yield Problem(
                check="rail_leaf",
                severity=FIX,
                ports=(port.id,),
                text=f"cabled to {leaf}; rail {rail} of the other hosts is cabled to {expected}",
                advice="Look at the cabling plan: two cables may be swapped.",
            )


def leaves_oversubscribed(survey: Survey) -> Iterator[Problem]:
    """Leaves whose links to hosts carry more than their uplinks: one problem for each ratio."""
    found: dict[str, list[str]] = defaultdict(list)
    capacity = down_up(survey.snapshot.fabric, survey.snapshot.line_rate_bps, survey.snapshot.up)
    for leaf, (down_bps, up_bps) in capacity.items():
        if down_bps > _MORE_DOWN * up_bps:
            rates = f"{bit_rate(down_bps)} to hosts, {bit_rate(up_bps)} up"
            found[f"{ratio_text(down_bps, up_bps)} ({rates})"].append(leaf)
    for text, leaves in found.items():
        yield Problem(
            check="down_up",
            severity=NOTE,
            ports=tuple(leaves),
            text=f"down:up {text}, of links that are up",
            advice="Expect full uplinks when all hosts send to other leaves; look for uplinks that"
            " are down, or place jobs within a leaf.",
        )


def _leaves(survey: Survey) -> dict[tuple[str, str], tuple[Port, str]]:
    """(node, rail) -> its port and the switch that it is cabled to, where that is known."""
    fabric = survey.snapshot.fabric
    roles = {node.name: node.role for node in fabric.nodes}
    return {
        (port.node, rail): (port, fabric.ports[port.peer].node)
        for rail, ports in survey.rails()
        for port in ports
        if port.peer is not None and roles.get(fabric.ports[port.peer].node) == SWITCH
    }


def _majority(values: Sequence[str]) -> str | None:
    """The value that more than half have; None without one."""
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None


def _pfc(port: Port) -> str | None:
    state = port.info.get("pfc")
    if state not in ("on", "off"):
        return None
    priorities = ",".join(str(each) for each in port.info.get("pfc_priorities", ()))
    return f"PFC on for priority {priorities}" if state == "on" and priorities else "PFC off"


def _ecn(port: Port) -> str | None:
    if "roce_ecn_np" not in port.info and "roce_ecn_rp" not in port.info:
        return None
    parts = []
    for key, direction in (("roce_ecn_np", "receiving"), ("roce_ecn_rp", "sending")):
        priorities = ",".join(str(each) for each in port.info.get(key, ()))
        parts.append(f"{direction} {priorities or 'none'}")
    return f"ECN for priorities {', '.join(parts)}"


def _odd_ones(
    survey: Survey,
    check: str,
    value_of: Callable[[Port], T | None],
    words: Callable[[T], str],
    advice: str,
) -> Iterator[Problem]:
    """The ports of each rail whose value is not the most common one of their rail."""
    for rail, ports in survey.rails():
        known = [(port, value) for port in ports if (value := value_of(port)) is not None]
        usual = _most_common([value for _, value in known])
        if usual is None:
            continue
        odd: dict[T, list[str]] = defaultdict(list)
        for port, value in known:
            if value != usual:
                odd[value].append(port.id)
        for value, names in odd.items():
            yield Problem(
                check=check,
                severity=FIX,
                ports=tuple(names),
                text=f"{words(value)} on {name_list(names, _MAX_NAMED)}; "
                f"{words(usual)} on the rest of rail {rail}",
                advice=advice,
            )


def _most_common(values: Sequence[T]) -> T | None:
    """The most common value; of several the greatest; None without values."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value), default=None)


def rails_down(survey: Survey) -> Iterator[Problem]:
    """Ports that are down while most ports of their rail are up; or are the only one of it."""
    up = survey.snapshot.up
    for rail, ports in survey.rails():
        known = [port for port in ports if up[port.row] == up[port.row]]
        if len(known) == 1 and up[known[0].row] == 0:
            yield Problem(
                check="rail_down",
                severity=NOTE,
                ports=(known[0].id,),
                text=f"down, and rail {rail} has no other port that says whether it should be",
                advice="If it should be up: look at the cable, the optics and the switch port.",
            )
        alive = sum(up[port.row] == 1 for port in known)
        if 2 * alive <= len(known):
            continue
        for port in known:
            if up[port.row] == 0:
                yield Problem(
                    check="rail_down",
                    severity=FIX,
                    ports=(port.id,),
                    text=f"down, {alive} of the {len(known)} ports of rail {rail} are up",
                    advice="Look at the cable, the optics and the switch port; then at its driver.",
                )


def rails_missing(survey: Survey) -> Iterator[Problem]:
    """Hosts with fewer or more rails than most of their peers, hosts whose names differ in numbers
    only. Where some of the peers have RDMA, only ports with RDMA count.
    """
    peers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in survey.snapshot.fabric.nodes:
        if node.role == HOST and node.name in survey.hellos:
            peers[_NUMBER.sub("#", node.name)].append(node)
    for nodes in peers.values():
        yield from _other_counts({node.name: _rails(node, nodes) for node in nodes})


def _rails(node: Node, peers: Sequence[Node]) -> list[Port]:
    rdma = any(is_rdma(port.info) for peer in peers for port in peer.ports)
    return [port for port in node.ports if port.role == RAIL and (is_rdma(port.info) or not rdma)]


def _other_counts(rails: dict[str, list[Port]]) -> Iterator[Problem]:
    """Those of some peers, with their `rails` by name, that have fewer or more rails than most."""
    counts = Counter(len(ports) for ports in rails.values())
    usual = max(counts, key=lambda count: (counts[count], count))
    if 2 * counts[usual] < len(rails):
        return
    places = Counter(str(port.info.get("pci")) for ports in rails.values() for port in ports)
    for name, ports in rails.items():
        if len(ports) > usual and 2 * counts[usual] > len(rails):
            more = [port.id for port in ports if 2 * places[str(port.info.get("pci"))] < len(rails)]
            yield Problem(
                check="rail_extra",
                severity=NOTE,
                ports=tuple(more) or (name,),
                text=f"{len(ports)} rails, most of its peers have {usual}",
                advice="Look whether the card is for training; the table [roles] of fabmon.toml "
                "gives it another role.",
            )
        if len(ports) >= usual:
            continue
        mine = {str(port.info.get("pci")) for port in ports} | {"None"}
        empty = [each for each in places if each not in mine and 2 * places[each] >= len(rails)]
        where = f"; nothing at {', '.join(sorted(empty)[:_MAX_NAMED])}" if empty else ""
        yield Problem(
            check="rail_missing",
            severity=FIX,
            ports=(name,),
            text=f"{len(ports)} rails, most of its peers have {usual}{where}",
            advice="Look whether the card is there (lspci), and whether its driver is (dmesg).",
        )


def miscabled_ports(survey: Survey) -> Iterator[Problem]:
    """Cables that are not where the topology has them: one problem for each related set."""
    fabric = survey.snapshot.fabric
    for condition in miscabled_conditions(fabric):
        yield Problem(
            check=CAUSE.name,
            severity=FIX,
            ports=tuple(fabric.ports[row].id for row in condition.rows),
            text=condition.text,
            advice=condition.advice,
        )
