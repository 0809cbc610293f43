"""What should be equal along a rail and is not: speed, MTU, PFC, ECN, the leaf."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fabmon.analysis.audit.fault import MEND, Fault
from fabmon.analysis.audit.survey import Survey
from fabmon.fabric.model import SWITCH, Port

_MOST_NAMED = 4

T = TypeVar("T", float, str)


def slower_than_peers(survey: Survey) -> Iterator[Fault]:
    """A port whose line rate is below that of most ports of its rail; a downed lane halves it."""
    for rail, ports in survey.rails():
        rates = [(port, float(survey.moment.line_rate_bps[port.row])) for port in ports]
        known = [(port, rate) for port, rate in rates if rate > 0]
        usual = _most_common([rate for _, rate in known])
        for port, rate in known:
            if usual is None or rate >= usual:
                continue
            yield Fault(
                check="link_speed",
                severity=MEND,
                ports=(port.id,),
                text=f"{rate / 1e9:g} Gb/s, its rail {rail} runs at {usual / 1e9:g} Gb/s",
                advice="Look at the cable, the optics and the port's lanes on both ends.",
            )


def mtu_differs(survey: Survey) -> Iterator[Fault]:
    """Ports of one rail with different largest packets: the greater ones are dropped on the way."""
    yield from _odd_ones(
        survey,
        "mtu",
        lambda port: survey.level(port, "netdev_mtu"),
        lambda value: f"MTU {value:g}",
        "Set the same MTU on every port of the rail, and on the switches between them.",
    )


def pfc_differs(survey: Survey) -> Iterator[Fault]:
    """PFC on here and off there, or on for other priorities."""
    yield from _odd_ones(
        survey,
        "pfc",
        _pfc,
        str,
        "Make PFC the same on all ports of the rail: mlnx_qos or dcb pfc, and the switch ports.",
    )


def ecn_differs(survey: Survey) -> Iterator[Fault]:
    """DCQCN on here and off there: those without it push the others aside."""
    yield from _odd_ones(
        survey,
        "ecn",
        _ecn,
        str,
        "Make RoCE ECN the same on all ports: /sys/class/net/*/ecn/roce_{np,rp}/enable.",
    )


def leaves_differ(survey: Survey) -> Iterator[Fault]:
    """Ports that are cabled to the leaf of another rail.

    A leaf is a rail's when most of its ports are of that rail; then the hosts on it tell where
    their other rails go. Rails may have many leaves, one in each scalable unit. Where a rack's
    leaves take all rails alike, nothing is told.
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
        homes = [leaf_of[peer, rail][1] for peer in peers if (peer, rail) in leaf_of]
        home = _most_common(homes)
        if home is not None and home != leaf:
            yield Fault(
                check="rail_leaf",
                severity=MEND,
                ports=(port.id,),
                text=f"cabled to {leaf}, rail {rail} of the others to {home}",
                advice="Look at the cabling plan: two cables may be swapped.",
            )


def _leaves(survey: Survey) -> dict[tuple[str, str], tuple[Port, str]]:
    """(node, rail) -> its port and the switch that it is cabled to, where that is known."""
    fabric = survey.moment.fabric
    roles = {node.name: node.role for node in fabric.nodes}
    return {
        (port.node, rail): (port, fabric.ports[port.peer].node)
        for rail, ports in survey.rails()
        for port in ports
        if port.peer is not None and roles.get(fabric.ports[port.peer].node) == SWITCH
    }


def _majority(values: Sequence[str]) -> str | None:
    """The value of more than half of them."""
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
    told = []
    for key, who in (("roce_ecn_np", "receiving"), ("roce_ecn_rp", "sending")):
        priorities = ",".join(str(each) for each in port.info.get(key, ()))
        told.append(f"{who} {priorities or 'none'}")
    return f"ECN for priorities {', '.join(told)}"


def _odd_ones(
    survey: Survey,
    check: str,
    value_of: Callable[[Port], T | None],
    words: Callable[[T], str],
    advice: str,
) -> Iterator[Fault]:
    """Along each rail the ports whose value is not that of most."""
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
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield Fault(
                check=check,
                severity=MEND,
                ports=tuple(names),
                text=f"{words(value)} on {', '.join(names[:_MOST_NAMED])}{more}; "
                f"{words(usual)} on the rest of rail {rail}",
                advice=advice,
            )


def _most_common(values: Sequence[T]) -> T | None:
    """The value that most have; of equally common ones the greatest; None without values."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value), default=None)
