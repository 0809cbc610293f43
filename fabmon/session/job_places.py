"""Where the ports of a job are, by nodes that are asked now and by the plan."""

from __future__ import annotations

from collections.abc import Sequence

from fabmon.analysis.job_log.places import AllPlaces, FabricPlaces, Places, PlannedPlaces
from fabmon.fabric.model import Host
from fabmon.session import event_loop
from fabmon.session.node_queries import collect_fabric
from fabmon.session.played_part import rail_rates
from fabmon.session.session import Session


def live_places(
    session: Session, hosts: Sequence[Host], duration_s: float, notes: list[str]
) -> tuple[AllPlaces, dict[str, list[float]]]:
    """Places from nodes, which are asked now, and from the plan; and the line rates of each host's
    rails. Adds a note where nodes did not answer."""
    places: list[Places] = []
    rates: dict[str, list[float]] = {}
    if hosts:
        snapshot, hellos = event_loop.run(collect_fabric(session, list(hosts), duration_s))
        places.append(FabricPlaces(snapshot.fabric, hellos))
        rates = rail_rates(snapshot)
        missing = [host.name for host in hosts if host.name not in hellos]
        if missing:
            notes.append(f"{len(missing)} of {len(hosts)} nodes did not answer.")
    return AllPlaces([*places, PlannedPlaces(session.topology, hosts)]), rates
