"""What `fabmon doctor` and `fabmon flows` report, and where the ports of a job are: collected from
live nodes, then printed once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from fabmon.analysis.audit.sources import IB_FABRIC, IB_FABRIC_HCAS
from fabmon.analysis.audit.survey import Surveyor
from fabmon.analysis.evidence.doubtful_rates import needs_more_ticks
from fabmon.analysis.job_log.places import AllPlaces, FabricPlaces, PlannedPlaces
from fabmon.fabric.flows.queue_pairs import SOURCE
from fabmon.fabric.hosts.hosts_file import HostsFileError, from_nodesets, read
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import HOST, Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, Tick
from fabmon.fabric.wire.messages import Hello
from fabmon.report.doctor import DoctorRecord, examine
from fabmon.session import event_loop
from fabmon.session.errors import UsageError
from fabmon.session.node_selection import JobSources
from fabmon.session.played_part import rail_rates
from fabmon.session.session import Session
from fabmon.session.stderr_lines import say

_DOCTOR_FRAMES = 3
"""Frames of a node before it is judged: rates need two, and a first read may be slow."""

_EXPORTER_FRAMES = 6
"""The same of a node with exporters, whose first rate is that of the fifth page."""

_PAST_TICKS = 4
"""Scrapes of Prometheus before now that are read for the doctor's rates."""

_FLOWS_FRAMES = 8
"""A host that reported no queue pairs by then has none: the probe looks every 5 frames."""

if TYPE_CHECKING:
    from fabmon.feeds.prometheus.feed import PrometheusFeed

_JOBS_S = 15.0
"""How long nodes are asked for the jobs of their processes."""

_GONE = (NodeState.FAILED, NodeState.LOST)


async def examine_nodes(session: Session, hosts: Sequence[Host], duration_s: float) -> DoctorRecord:
    """The doctor's record, as soon as every node has sent enough or failed, or after a time."""
    surveyor = Surveyor(hosts)

    def is_settled(tick: Tick, snapshot: Snapshot) -> bool:
        surveyor.accept(tick)
        # The scheduler is asked meanwhile; where it cannot be, its report says why.
        return (
            snapshot.jobs.report is not None
            and all(
                (
                    surveyor.frames_of(host.name)
                    >= (_EXPORTER_FRAMES if host.via == "exporters" else _DOCTOR_FRAMES)
                    and (not reads_fabric(host) or has_read_fabric(surveyor, snapshot, host))
                )
                or snapshot.statuses[host.name].state in _GONE
                for host in hosts
            )
            and not needs_more_ticks(snapshot)
        )

    snapshot = await _listen(session, hosts, duration_s, is_settled)
    return examine(surveyor.survey(snapshot))


async def examine_prometheus(session: Session, feed: PrometheusFeed) -> DoctorRecord | None:
    """The doctor's record of what a Prometheus server has of each node; None where the server does
    not answer, which is printed."""
    from fabmon.feeds.prometheus.responses import PrometheusError

    surveyor = Surveyor(feed.hosts)
    async with aclosing(feed):
        try:
            await feed.open()
        except PrometheusError as error:
            say(str(error))
            return None
        history = session.history(feed.hosts, feed.interval_s)
        async for tick in feed.past(_PAST_TICKS * feed.interval_s):
            surveyor.accept(tick)
            history.accept(tick)
        tick = await feed.poll()
        surveyor.accept(tick)
        return examine(surveyor.survey(history.accept(tick)))


async def collect_queue_pairs(
    session: Session, hosts: Sequence[Host], duration_s: float, sflow: str | None = None
) -> Snapshot:
    """A snapshot, as soon as every host has reported its queue pairs or why not, a host that reads
    an InfiniBand fabric its forwarding tables, and switches samples of known ports where sFlow is
    received, or at the end."""
    is_sampled = receives_sflow(hosts, sflow)
    frames: Counter[str] = Counter()

    def is_settled(tick: Tick, snapshot: Snapshot) -> bool:
        frames.update(node for node, _ in tick.frames)
        has_tables = snapshot.fabric.forwarding is not None or not any(map(reads_fabric, hosts))
        return (
            has_tables
            and all(_has_reported(snapshot, h, frames[h.name]) for h in hosts)
            and (not is_sampled or _has_samples(snapshot))
        )

    return await _listen(session, hosts, duration_s, is_settled, sflow)


def job_sources(session: Session) -> JobSources:
    """Where a run finds the jobs that select its nodes."""

    def on_nodes(hosts: Sequence[Host]) -> tuple[Job, ...]:
        found = collect_queue_pairs(session, [h for h in hosts if h.role == HOST], _JOBS_S)
        return event_loop.run(found).jobs.jobs

    commands = session.settings.jobs
    return JobSources(commands.squeue, commands.kubectl, on_nodes)


async def collect_fabric(
    session: Session, hosts: Sequence[Host], duration_s: float
) -> tuple[Snapshot, dict[str, Hello]]:
    """A snapshot and the hellos of the nodes, as soon as every node has sent one or failed, or at
    the end."""
    hellos: dict[str, Hello] = {}

    def is_settled(tick: Tick, snapshot: Snapshot) -> bool:
        hellos.update(tick.hellos)
        return all(
            host.name in hellos or snapshot.statuses[host.name].state in _GONE for host in hosts
        )

    return await _listen(session, hosts, duration_s, is_settled), hellos


def reads_fabric(host: Host) -> bool:
    """Whether a host is to read an InfiniBand fabric in band."""
    return any(name.lstrip("+") == IB_FABRIC for name in host.sources)


def receives_sflow(hosts: Sequence[Host], sflow: str | None) -> bool:
    """Whether what switches sample is received: at `sflow`, or for a node with via=sflow."""
    return sflow is not None or any(host.via == "sflow" for host in hosts)


def _has_samples(snapshot: Snapshot) -> bool:
    """Whether samples have come, and the ports of all that watched switches sent are known: their
    counters, which name the ports, may come later."""
    found = snapshot.sampled.interfaces() if snapshot.sampled else []
    return bool(found) and all(each.port is not None or each.node is None for each in found)


def has_read_fabric(surveyor: Surveyor, snapshot: Snapshot, host: Host) -> bool:
    """Whether a host has read its InfiniBand fabric once, or said why it cannot."""
    lost = any(each.source == IB_FABRIC for each in snapshot.notices.get(host.name, ()))
    return lost or {IB_FABRIC, IB_FABRIC_HCAS} <= surveyor.sources_of(host.name)


async def _listen(
    session: Session,
    hosts: Sequence[Host],
    duration_s: float,
    is_settled: Callable[[Tick, Snapshot], bool],
    sflow: str | None = None,
) -> Snapshot:
    """The first snapshot for which `is_settled` holds, or the last one before the time is over."""
    history = session.history(hosts)
    until_s = time.monotonic() + duration_s
    live_feed = session.live_feed(hosts, sflow=sflow)
    async with aclosing(live_feed) as feed, session.with_jobs(feed) as ticks:
        async for tick in ticks:
            snapshot = history.accept(tick)
            if is_settled(tick, snapshot) or time.monotonic() >= until_s:
                break
        return snapshot


def _has_reported(snapshot: Snapshot, host: Host, frames: int) -> bool:
    if snapshot.statuses[host.name].state in _GONE:
        return True
    refused = any(notice.source == SOURCE for notice in snapshot.notices.get(host.name, ()))
    reported = host.name in snapshot.connections.flows.reporting
    # A switch has no queue pairs; it reports its cables with its first frame.
    return bool(frames) and (reported or refused or host.role != HOST or frames >= _FLOWS_FRAMES)


def named_hosts(path: Path | None, nodesets: Sequence[str] = ()) -> list[Host]:
    """The nodes of --hosts and --host; none without them. Raises UsageError."""
    try:
        from_file = [] if path is None else read(path)
        return [*from_file, *(from_nodesets(list(nodesets)) if nodesets else ())]
    except HostsFileError as error:
        raise UsageError(str(error)) from None


def live_places(
    session: Session, hosts: Sequence[Host], duration_s: float, notes: list[str]
) -> tuple[AllPlaces, dict[str, list[float]]]:
    """Places from nodes, which are asked now, and from the plan; and the line rates of each host's
    rails. Adds a note where nodes did not answer."""
    places: list[FabricPlaces] = []
    rates: dict[str, list[float]] = {}
    if hosts:
        snapshot, hellos = event_loop.run(collect_fabric(session, list(hosts), duration_s))
        places.append(FabricPlaces(snapshot.fabric, hellos))
        rates = rail_rates(snapshot)
        missing = [host.name for host in hosts if host.name not in hellos]
        if missing:
            notes.append(f"{len(missing)} of {len(hosts)} nodes did not answer.")
    return AllPlaces([*places, PlannedPlaces(session.topology, hosts)]), rates
