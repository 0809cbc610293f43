"""The ports of one node: their order, roles, numbers and labels."""

from __future__ import annotations

from collections.abc import Callable

from fabmon.fabric import model
from fabmon.fabric.model import Host, Port, PortRole
from fabmon.fabric.names import matches, natural
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.roles.port_roles import HostRoles
from fabmon.fabric.roles.rules import FRONT_PANEL, RoleRules, names_of_port
from fabmon.fabric.topology.cabling import Cabling, Rails, uplinks_of

_ROLE_OF_KIND = {"gpu": model.GPU, "nvlink": model.NVLINK, "xgmi": model.NVLINK}


def ports_of(
    host: Host,
    fact: NodeFacts,
    row_of: Callable[[str, str], int],
    cabled: Cabling,
    rails: Rails,
    roles: HostRoles,
) -> tuple[Port, ...]:
    """The ports of a node in physical order: by PCI address, then by name.

    `row_of` gives the permanent row of a (node, port).
    """
    order = sorted(
        fact.ports,
        key=lambda name: (str(fact.ports[name].get("pci", "~")), natural(name)),
    )
    counts: dict[str, int] = {}
    peers, known = cabled.wiring.peers, cabled.wiring.cables
    ports = []
    for name in order:
        info = fact.ports[name]
        role, reason = roles.roles.get(name) or PortRole(
            _ROLE_OF_KIND.get(str(info.get("kind")), model.MANAGEMENT), ""
        )
        # The links of a GPU are numbered as nvidia-smi does: from 0 for each GPU.
        within = f"{role} {name.partition('/')[0]}" if role == model.NVLINK else role
        index = counts.get(within, 0)
        if role == model.NVLINK:
            link = info.get("link")
            index = link if isinstance(link, int) and link >= 0 else index
        if role == model.RAIL:
            index = roles.rails.get(name, index)
        else:
            counts[within] = index + 1
        end = (host.name, name)
        peer = peers.get(end)
        ports.append(
            Port(
                row=row_of(host.name, name),
                node=host.name,
                name=name,
                kind=str(info.get("kind", "ethernet")),
                role=role,
                index=index,
                label=_label(role, index),
                peer=None if peer is None else row_of(*peer),
                info=rails.nearest(info, fact.ports),
                cable=known.get(end),
                role_reason=reason,
            )
        )
    return tuple(ports)


def roles_of_switch(host: Host, fact: NodeFacts, cabled: Cabling, rules: RoleRules) -> HostRoles:
    """The roles of a switch's ports."""
    is_front_panel = any(matches(name, FRONT_PANEL) for name in fact.ports)
    uplinks = uplinks_of(host, fact, cabled)
    roles = {}
    for name, info in fact.ports.items():
        if info.get("kind") in _ROLE_OF_KIND:
            continue
        if rules.is_management(names_of_port(name, info)[:2], is_front_panel):
            roles[name] = PortRole(model.MANAGEMENT, "its name matches management_ports")
        elif name in uplinks:
            roles[name] = PortRole(model.UPLINK, "leads to a higher tier")
        else:
            roles[name] = PortRole(model.DOWNLINK, "leads to a host or a lower tier")
    return HostRoles(roles, {})


def _label(role: str, index: int) -> str:
    """The short name of a port. NICs and GPUs count from 0, as drivers do; switch ports from 1, as
    front panels do."""
    from_zero = {
        model.RAIL: "r",
        model.GPU: "g",
        model.NVLINK: "nv",
        model.STORAGE: "s",
        model.FRONTEND: "f",
        model.MEMBER: "b",
    }
    if role in from_zero:
        return f"{from_zero[role]}{index}"
    prefix = {model.UPLINK: "up", model.DOWNLINK: "dn"}.get(role, "m")
    return f"{prefix}{index + 1}"
