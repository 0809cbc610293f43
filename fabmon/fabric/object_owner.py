"""Whom a node may speak for: itself, and where it was asked to, nodes that nobody else watches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.wire.messages import Hello, ObjectInfo


def owner_of(item: ObjectInfo, speaker: Host, given: Mapping[str, Host]) -> str | None:
    """The node that an object is about; None where the speaker has no say in it.

    `given` are the nodes that are watched by themselves: nobody else speaks for those, so that a
    node that lies costs its own row only. A node is the same with its domain and without.
    """
    if item.node is None or item.node == speaker.name:
        return speaker.name
    if not speaker.tells_of_others or _short(item.node) in _short_names(tuple(given)):
        return None
    return item.node


def reported_hosts(given: Mapping[str, Host], hellos: Mapping[str, Hello]) -> dict[str, Host]:
    """The nodes that are known only from what others tell, each with the `via` of its speaker."""
    found: dict[str, Host] = {}
    for speaker, item in _objects(given, hellos):
        name = owner_of(item, speaker, given)
        if name is not None and name != speaker.name and name not in found:
            role = str(item.info.get("node_role", SWITCH))
            group = item.info.get("node_group")
            found[name] = Host(
                name=name,
                address=speaker.name,
                via=speaker.via,
                role=role,
                group=str(group) if group else None,
            )
    return found


@lru_cache(maxsize=8)
def _short_names(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(_short, names))


def _short(name: str) -> str:
    """Without the domain; an address is itself."""
    first = name.partition(".")[0]
    return name if first.isdigit() else first


def _objects(
    given: Mapping[str, Host], hellos: Mapping[str, Hello]
) -> Iterable[tuple[Host, ObjectInfo]]:
    for name, hello in hellos.items():
        if given[name].tells_of_others:
            for block in hello.blocks:
                for item in block.objects:
                    yield given[name], item
