"""Who says that which port is cabled to which: the given topology, and what the nodes tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fabmon.fabric.facts import Facts, Told
from fabmon.fabric.model import HOST, SWITCH
from fabmon.fabric.topology.given import CONFIG, INFINIBAND, End, Topology

LLDP = "LLDP"
UFM = "UFM"
MAC = "neighbour MAC"

TRUST = (CONFIG, LLDP, INFINIBAND, UFM, MAC)
"""The most trusted first."""

_SOURCES = {"ib_fabric": INFINIBAND, "ufm": UFM}
"""Sources of the wire that tell of peers otherwise than by LLDP (lldp, sonic, eapi, snmp)."""


class Claim(NamedTuple):
    """Somebody's word on a cable."""

    one: End
    other: End
    source: str
    by: str


def given_claims(topology: Topology) -> Iterator[Claim]:
    """What the person gave."""
    for cable in topology.cables:
        yield Claim(cable.one, cable.other, cable.source, cable.by)


def told_claims(facts: Mapping[str, Facts]) -> Iterator[Claim]:
    """What the nodes were told by their neighbours or by the fabric."""
    for node, fact in facts.items():
        if not fact.told:
            continue
        by_netdev = fact.by_device()
        for told in fact.told:
            port = told.port if told.port in fact.ports else by_netdev.get(told.port)
            if port is not None:
                source = _SOURCES.get(told.source, LLDP)
                yield Claim(End(node, port), _end(told), source, node)


def told_roles(facts: Mapping[str, Facts]) -> dict[str, str]:
    """The roles that neighbours say they have, by what they call themselves."""
    return {
        str(told.peer.get("node")): str(told.peer["role"])
        for fact in facts.values()
        for told in fact.told
        if told.peer.get("role") in (HOST, SWITCH)
    }


def _end(told: Told) -> End:
    peer = told.peer
    node, port, name = (str(peer.get(key) or "") for key in ("node", "port", "port_name"))
    ids = tuple([str(peer[key]) for key in ("guid", "mac") if peer.get(key)])
    if port.count(":") != 5:
        return End(node, port, (name,) if name else (), ids)
    # An LLDP port may be called by its MAC address; what is shown is then its description.
    return End(node, name or port, (), (port, *ids))
