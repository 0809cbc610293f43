"""What is known of a port besides its traffic: its facts, and its errors, congestion and pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fabmon.fabric.model import DOWNLINK, GPU, NVLINK, UPLINK, Port
from fabmon.fabric.pcie import NEAREST_FIRST
from fabmon.fabric.wording import NO_BREAK_SPACE, per_second, percent
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.labels import pcie_text
from fabmon.tui.text.picture.canvas import SHARES

_EVENTS = (
    ("errors", "errors"),
    ("drops", "drops"),
    ("ECN", "ecn"),
    ("CNP sent", "cnp_sent"),
    ("CNP", "cnp"),
    ("XOFF", "xoff"),
)
_SHOWN_ELSEWHERE = (
    *("kind", "line_rate_bps", "gid_prefix"),
    *("pcie_speed_gtps", "pcie_width", "pcie_max_speed_gtps", "pcie_max_width"),
)
"""Facts that other columns and facts contain."""


def congestion(ctx: DrawContext, row: int) -> list[tuple[str, str, float]]:
    """(name, value as text, value) of a port's errors, congestion and pause."""
    found = []
    for names, formatted in ((_EVENTS, per_second), (SHARES, percent)):
        for name, column in names:
            value = float(ctx.snapshot.column(column)[row])
            found.append((name, formatted(value), value))
    inside = ctx.fabric.ports[row].role in (GPU, NVLINK)
    return [each for each in found if not inside or each[0] in ("errors", "drops")]


def port_facts(info: Mapping[str, Any]) -> str:
    """Driver, PCI address, NUMA node, PCIe link, nearest NICs and PFC, then all other facts.

    Where it is wrapped, the name of a fact and its value stay on one line.
    """
    return ", ".join(_facts(info).values())


def shared_facts(ports: Sequence[Port]) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """(what most of the ports have; for each port, where it differs; what is its own).

    A fact is shared where more than half of the ports have the same; a port that lacks it says so.
    """
    facts = [
        {**({"role": role} if (role := role_text(port)) else {}), **_facts(port.info)}
        for port in ports
    ]
    shared: dict[str, str] = {}
    for name in dict.fromkeys(name for each in facts for name in each):
        text, count = Counter(each.get(name, "") for each in facts).most_common(1)[0]
        if 2 * count > len(ports):
            shared[name] = text
    differs = [
        [
            each.get(name) or f"no {name.replace('_', ' ')}"
            for name, text in shared.items()
            if each.get(name, "") != text
        ]
        for each in facts
    ]
    own = [[text for name, text in each.items() if name not in shared] for each in facts]
    return [text for text in shared.values() if text], differs, own


def _facts(info: Mapping[str, Any]) -> dict[str, str]:
    """The facts of a port by name, as texts."""
    left = dict(info)
    facts: dict[str, str] = {key: str(left.pop(key)) for key in ("driver", "pci") if key in left}
    numa = left.pop("numa_node", None)
    if numa is not None:
        facts["NUMA"] = fact("NUMA", numa)
    facts["PCIe"] = pcie_text(info)
    facts["nearest NIC"] = _nearest(left.pop("affinity", None))
    facts["PFC"] = _lossless(left.pop("pfc", None), left.pop("pfc_priorities", None))
    for key in _SHOWN_ELSEWHERE:
        left.pop(key, None)
    facts |= {
        key: fact(key, value) for key, value in left.items() if value not in (None, False, "")
    }
    return {key: text for key, text in facts.items() if text}


def fact(name: str, value: object) -> str:
    """`netdev eth0`, with a no-break space."""
    return f"{name}{NO_BREAK_SPACE}{value}"


def role_text(port: Port) -> str:
    """`storage (RDMA device; 200 Gb/s, the rails have 400 Gb/s)`; empty for a switch's port, whose
    label says it, and where no reason is known."""
    is_clear = port.role in (UPLINK, DOWNLINK) or not port.role_reason
    return "" if is_clear else f"{port.role} ({port.role_reason})"


def _nearest(affinity: object) -> str:
    """The NICs nearest to a GPU, with the distance as `nvidia-smi topo -m` names it."""
    if not isinstance(affinity, dict):
        return ""
    distances = {str(name): each for name, each in affinity.items() if isinstance(each, str)}
    if not distances:
        return ""
    places = {each: place for place, each in enumerate(NEAREST_FIRST)}
    nearest = min(distances.values(), key=lambda each: places.get(each, len(places)))
    names = [name for name, each in distances.items() if each == nearest]
    return f"nearest NIC {' '.join(names)} ({nearest})"


def _lossless(pfc: object, priorities: object) -> str:
    """Priority flow control: on (with its priorities), off, or not supported."""
    if pfc is None:
        return ""
    if pfc != "on":
        return f"PFC {'not supported' if pfc == 'unsupported' else pfc}"
    which = ", ".join(map(str, priorities)) if isinstance(priorities, (list, tuple)) else ""
    return f"PFC on, lossless: priority {which}" if which else "PFC on"
