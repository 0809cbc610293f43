"""How everything is cabled, from all that is given and told, and where each node stands by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fabmon.fabric import model
from fabmon.fabric.cables import cables
from fabmon.fabric.facts import Facts
from fabmon.fabric.model import Host, Shape
from fabmon.fabric.topology.claims import given_claims, told_claims, told_roles
from fabmon.fabric.topology.given import Topology
from fabmon.fabric.topology.merge import Wiring, merge
from fabmon.fabric.topology.places import Places
from fabmon.fabric.topology.shape import shape


class Cabling(NamedTuple):
    """How everything is cabled, and where each node stands."""

    wiring: Wiring
    shape: Shape


def cabling(hosts: Sequence[Host], facts: Mapping[str, Facts], topology: Topology) -> Cabling:
    """The cables and the places; `facts` is what the nodes tell, by node."""
    places = Places(facts)
    roles = {places.node(name): model.HOST for name in topology.hosts}
    roles |= {places.node(name): model.SWITCH for name in topology.switches}
    roles |= {places.node(name): role for name, role in told_roles(facts).items()}
    roles |= {host.name: host.role for host in hosts}
    switches = {name for name, role in roles.items() if role == model.SWITCH}
    claims = [*given_claims(topology), *told_claims(facts)]
    seen = cables({name: (fact.ports, fact.neighbours) for name, fact in facts.items()})
    wiring = merge(claims, seen, places, switches)
    # Whatever is an equal-cost next hop of a switch routes too.
    for name in switches:
        for members, _ in facts[name].members() if name in facts else ():
            for port in members:
                cable = wiring.cables.get((name, port))
                if cable is not None:
                    roles.setdefault(cable.node, model.SWITCH)
    links = {(end[0], cable.node) for end, cable in wiring.cables.items()}
    named = Topology(
        tiers={places.node(name): tier for name, tier in topology.tiers.items()},
        planes={places.node(name): plane for name, plane in topology.planes.items()},
        pods={places.node(name): pod for name, pod in topology.pods.items()},
    )
    return Cabling(wiring, shape(roles, links, named))
