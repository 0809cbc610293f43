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
from fabmon.fabric.names import is_loopback
from fabmon.fabric.openmetrics import OPENMETRICS, Samples, choose_content_type, family_lines
from fabmon.fabric.tick import NodeState
from fabmon.http_server import http_server

Publish = Callable[[Scene], None]


@asynccontextmanager
async def metrics_server(host: str, port: int) -> AsyncIterator[Publish]:
    """Serve `/metrics` at an address; what is published last is what is served.

    Connections have the limits of those to an agent; none has a token. At a loopback address only
    requests for one are answered. Raises OSError if the address cannot be listened on.
    """
    last: Scene | None = None

    def publish(scene: Scene) -> None:
        nonlocal last
        last = scene

    asked: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def answer(request: web.Request) -> web.Response:
        if request.transport is not None:
            asked.add(request.transport)
        if is_loopback(host) and not is_loopback(request.url.host or ""):
            # A page in a browser here may call this address by a name of its own, and read it.
            raise web.HTTPMisdirectedRequest(text="ask for 127.0.0.1 or localhost\n")
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
    version: Samples = [({"version": __version__}, 1)]
    used: Samples = [({}, f"{cpu_s:.3f}")]
    parts = family_lines("watch", "info", "", "the fabmon that watches", version, style)
    parts += family_lines(
        "watch_cpu_seconds", "counter", "seconds", "CPU time of fabmon itself", used, style
    )
    for name, unit, help_, samples in () if scene is None else _gauges(scene):
        parts += family_lines(f"watch_{name}", "gauge", unit, help_, samples)
    return "".join([*parts, "# EOF\n"] if style == OPENMETRICS else parts)


def _gauges(
    scene: Scene,
) -> Iterator[tuple[str, str, str, Samples]]:
    """(name, unit, help, samples) of each gauge."""
    snapshot, jobs = scene.snapshot, scene.iteration_report.jobs
    at = f"{snapshot.time_ns / 1e9:.3f}"
    yield "tick_timestamp_seconds", "seconds", "wall clock of the last tick", [({}, at)]
    yield "interval_seconds", "seconds", "time between two ticks", [({}, snapshot.interval_s)]

    # Every cause has a series: a rule sees 0 where a finding closes.
    counts = Counter({(each.name, each.severity): 0 for each in CAUSES.values()})
    counts.update((each.cause, shown_moment(each).severity) for each in scene.findings)
    found = (({"cause": name, "severity": level}, n) for (name, level), n in counts.items())
    yield "findings", "", "open findings", found
    lost = dict.fromkeys(CAUSES, 0.0)
    for finding in scene.findings:
        lost[finding.cause] = max(lost.get(finding.cause, 0.0), lost_bandwidth(finding))
    help_ = "highest share of bandwidth lost now by an open finding"
    shares = (({"cause": cause}, f"{share:.4f}") for cause, share in lost.items())
    yield "lost_bandwidth_ratio", "ratio", help_, shares

    states = Counter(status.state for status in snapshot.statuses.values())
    nodes = (({"state": state.value}, states[state]) for state in NodeState)
    yield "nodes", "", "watched nodes, by state", nodes
    ports = (port for node in snapshot.fabric.nodes for port in node.ports)
    of_ports = Counter(snapshot.state(port.row) for port in ports)
    links = (({"state": each}, of_ports[each]) for each in ("up", "down", "stale", "unknown"))
    yield "links", "", "ports of watched nodes, by state", links
    help_ = "ports that count a traffic which cannot be, or another unit"
    yield "doubtful_ports", "", help_, [({}, len(scene.doubtful_rows))]

    help_ = "step time of a job, named by its first host"
    steps = (({"job_host": job.hosts[0]}, f"{job.step_s:.3f}") for job in jobs if job.resolved)
    yield "job_step_seconds", "seconds", help_, steps
    help_ = "hosts whose traffic has the iterations of the job"
    yield "job_hosts", "", help_, (({"job_host": job.hosts[0]}, len(job.hosts)) for job in jobs)
