"""The configured part of port roles: management patterns, and overrides by host and port."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from fabmon.fabric import model
from fabmon.fabric.names import matches

MANAGEMENT_PORTS = ("mgmt*", "Management*", "docker*", "virbr*", "cni*", "usb*")
"""Default patterns of ports that carry no training traffic."""

FRONT_PANEL = ("swp[0-9]*", "Ethernet[0-9]*")
"""Front-panel ports of Linux switches; beside them, eth0 is a management port."""

ROLES = (model.RAIL, model.STORAGE, model.FRONTEND, model.MANAGEMENT)
"""Roles that the configuration may give to a host's port."""


class RoleOverride(NamedTuple):
    """The role of all ports that match `ports` on the hosts that match `hosts`."""

    hosts: str
    ports: str
    role: str


class RoleRules(msgspec.Struct, frozen=True):
    """What the configuration says about roles: name patterns of management ports, and overrides,
    the first match first. `original` returns the name of a host that a redactor has replaced."""

    management: tuple[str, ...] = MANAGEMENT_PORTS
    overrides: tuple[RoleOverride, ...] = ()
    original: Callable[[str], str] = str

    def is_management(self, names: Sequence[str], is_front_panel: bool = False) -> bool:
        """Whether one of a port's names matches a management pattern."""
        patterns = (*self.management, "eth[0-9]") if is_front_panel else self.management
        return any(matches(name, patterns) for name in names)

    def override(self, host: str, names: Sequence[str]) -> str | None:
        """The configured role of a host's port; None without one."""
        for each in self.overrides:
            is_of_host = fnmatchcase(self.original(host), each.hosts)
            if is_of_host and any(fnmatchcase(name, each.ports) for name in names):
                return each.role
        return None


def names_of_port(name: str, info: Mapping[str, Any]) -> tuple[str, ...]:
    """The names by which patterns find a port: its own, interface, RDMA device, bond, PCI
    address."""
    facts = (str(info[key]) for key in ("netdev", "rdma", "bond", "pci") if key in info)
    return tuple(dict.fromkeys((name, *facts)))


def overrides(table: Mapping[str, str]) -> tuple[RoleOverride, ...]:
    """The overrides of the table [roles]: `host pattern/port pattern` or `port pattern` = role.

    Raises ValueError with the key and what to write instead.
    """
    found = []
    for key, role in table.items():
        hosts, slash, ports = key.partition("/")
        if not slash:
            hosts, ports = "*", key
        if not hosts or not ports:
            raise ValueError(f'"{key}": write "host/port", as in "gpu*/eno1", or a port alone')
        if role not in ROLES:
            raise ValueError(f'"{key}" = "{role}": write one of {", ".join(ROLES)}')
        found.append(RoleOverride(hosts, ports, role))
    return tuple(found)
