"""Which node a reported object belongs to: nodes may report only themselves, unless the hosts file
lets them report others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.wire.messages import Hello, ObjectInfo


def owner_of(item: ObjectInfo, sender: Host, given: Mapping[str, Host]) -> str | None:
    """The node that an object belongs to; None if `sender` may not report it, or if it has no name.

    `given` are the nodes of the hosts file: only they report themselves, so a node with false
    reports costs only its own row. Names with and without domain are the same node.
    """
    if item.node is None or item.node == sender.name:
        return sender.name
    if not sender.reports_other_nodes or not item.node:
        return None
    if _short(item.node) in _short_names(tuple(given)):
        return None
    return item.node


def reported_hosts(given: Mapping[str, Host], hellos: Mapping[str, Hello]) -> dict[str, Host]:
    """The nodes that only others report, each with the `via` of the reporting node."""
    found: dict[str, Host] = {}
    for sender, item in _objects(given, hellos):
        name = owner_of(item, sender, given)
        if name is not None and name != sender.name and name not in found:
            role = str(item.info.get("node_role", SWITCH))
            group = item.info.get("node_group")
            found[name] = Host(
                name=name,
                address=sender.name,
                via=sender.via,
                role=role,
                group=str(group) if group else None,
            )
    return found


@lru_cache(maxsize=8)
def _short_names(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_short, names))


def _short(name: str) -> str:
    """A name without its domain; an IP address unchanged."""
    first = name.partition(".")[0]
    return name if first.isdecimal() else first


def _objects(
    given: Mapping[str, Host], hellos: Mapping[str, Hello]
) -> Iterable[tuple[Host, ObjectInfo]]:
    for name, hello in hellos.items():
        if given[name].reports_other_nodes:
            for block in hello.blocks:
                for item in block.objects:
                    yield given[name], item
