"""Serves findings as metrics over HTTP, for `fabmon watch --metrics`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from weakref import WeakSet

from aiohttp import web

from fabmon import __version__
from fabmon.analysis.causes import CAUSES, lost_bandwidth
from fabmon.analysis.finding import shown_moment
from fabmon.analysis.scene import Scene
from fabmon.fabric.openmetrics import OPENMETRICS, PREFIX, choose_content_type, head, labels
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState
from fabmon.http_server import http_server

Publish = Callable[[Scene], None]


@asynccontextmanager
async def metrics_server(host: str, port: int) -> AsyncIterator[Publish]:
    """Serve `/metrics` at an address; what is published last is what is served.

    Connections have the limits of those to an agent; none has a token. Raises OSError if the
    address cannot be listened on.
    """
    last: Scene | None = None

    def publish(scene: Scene) -> None:
        nonlocal last
        last = scene

    asked: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def answer(request: web.Request) -> web.Response:
        if request.transport is not None:
            asked.add(request.transport)
        kind = choose_content_type(request.headers.get("Accept", ""))
        body = watch_metrics(last, time.process_time(), kind).encode()
        return web.Response(body=body, headers={"Content-Type": kind})

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", answer)
    async with http_server(app, host, port, asked, WeakSet()):
        yield publish


def watch_metrics(scene: Scene | None, cpu_s: float, style: str) -> str:
    """The page; before the first scene only what is known of fabmon itself.

    `cpu_s` is the CPU time of this process; `style` is OPENMETRICS or PROMETHEUS.
    """
    parts = [*_own(cpu_s, style), *(_fabric(scene) if scene is not None else ())]
    return "".join([*parts, "# EOF\n"] if style == OPENMETRICS else parts)


def _own(cpu_s: float, style: str) -> Iterator[str]:
    name = f"{PREFIX}watch"
    yield head(name, "info", "", "the fabmon that watches", style)
    yield f"{name}_info{labels({'version': __version__})} 1\n"
    name = f"{PREFIX}watch_cpu_seconds"
    yield head(name, "counter", "seconds", "CPU time of fabmon itself", style)
    yield f"{name}_total {cpu_s:.3f}\n"


def _fabric(scene: Scene) -> Iterator[str]:
    """Gauges: older readers take the UNIT lines of them as comments."""
    snapshot = scene.snapshot
    name = f"{PREFIX}watch_tick_timestamp_seconds"
    yield head(name, "gauge", "seconds", "wall clock of the last tick")
    yield f"{name} {snapshot.time_ns / 1e9:.3f}\n"
    name = f"{PREFIX}watch_interval_seconds"
    yield head(name, "gauge", "seconds", "time between two ticks")
    yield f"{name} {snapshot.interval_s}\n"

    # Every cause has a series: a rule sees 0 where a finding closes.
    counts = Counter({(each.name, each.severity): 0 for each in CAUSES.values()})
    counts.update((each.cause, shown_moment(each).severity) for each in scene.findings)
    lost = dict.fromkeys(CAUSES, 0.0)
    for finding in scene.findings:
        lost[finding.cause] = max(lost.get(finding.cause, 0.0), lost_bandwidth(finding))
    name = f"{PREFIX}watch_findings"
    yield head(name, "gauge", "", "open findings")
    for (cause, severity), count in counts.items():
        yield f"{name}{labels({'cause': cause, 'severity': severity})} {count}\n"
    name = f"{PREFIX}watch_lost_bandwidth_ratio"
    yield head(name, "gauge", "ratio", "highest share of bandwidth lost now by an open finding")
    for cause, share in lost.items():
        yield f"{name}{labels({'cause': cause})} {share:.4f}\n"

    yield from _states("nodes", "watched nodes", _nodes(snapshot))
    yield from _states("links", "ports of watched nodes", _links(snapshot))

    name = f"{PREFIX}watch_doubtful_ports"
    yield head(name, "gauge", "", "ports that count a traffic which cannot be, or another unit")
    yield f"{name} {len(scene.doubtful_rows)}\n"

    jobs = scene.iteration_report.jobs
    if jobs:
        name = f"{PREFIX}watch_job_step_seconds"
        yield head(name, "gauge", "seconds", "step time of a job, named by its first host")
        for job in jobs:
            yield f"{name}{labels({'job_host': job.hosts[0]})} {job.step_s:.3f}\n"
        name = f"{PREFIX}watch_job_hosts"
        yield head(name, "gauge", "", "hosts whose traffic has the iterations of the job")
        for job in jobs:
            yield f"{name}{labels({'job_host': job.hosts[0]})} {len(job.hosts)}\n"


def _states(what: str, help_: str, counts: dict[str, int]) -> Iterator[str]:
    name = f"{PREFIX}watch_{what}"
    yield head(name, "gauge", "", f"{help_}, by state")
    for state, count in counts.items():
        yield f"{name}{labels({'state': state})} {count}\n"


def _nodes(snapshot: Snapshot) -> dict[str, int]:
    counts = Counter(status.state.value for status in snapshot.statuses.values())
    return {state.value: counts[state.value] for state in NodeState}


def _links(snapshot: Snapshot) -> dict[str, int]:
    """Ports by state, as `Snapshot.state` has them."""
    counts = Counter(
        snapshot.state(port.row) for node in snapshot.fabric.nodes for port in node.ports
    )
    return {state: counts[state] for state in ("up", "down", "stale", "unknown")}
