"""Runs that watch a feed: live nodes, Prometheus, or the demo; on the screen or printed."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor, redacted
from fabmon.fabric.tick import NodeState, Tick
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wording import plural
from fabmon.feeds.inspector.reports import with_collectives
from fabmon.feeds.live import LiveFeed
from fabmon.recording.writing.recorder import Recorder
from fabmon.session.config import PrometheusConfig, load
from fabmon.session.end_signals import EndSignals
from fabmon.session.errors import Exit, UsageError
from fabmon.session.garbage import set_for_a_run
from fabmon.session.node_queries import job_sources
from fabmon.session.node_selection import Selection, inspector_of, select_nodes, selected_hosts
from fabmon.session.presentation import (
    FINDINGS,
    RunOptions,
    ScreenSetup,
    check_writable,
    is_screen,
    load_screen,
    show,
    warn_of_simulation,
)
from fabmon.session.printing import redacted_log
from fabmon.session.recorder_setup import DEMO_MARK, describe_status, recorder_for, ring_recorder
from fabmon.session.session import AnalysisTime, Session

if TYPE_CHECKING:
    from fabmon.alerts.delivery import Alerts
    from fabmon.feeds.demo.feed import DemoFeed
    from fabmon.feeds.demo.scenario import Scenario
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.tui.app import AskBurst

_REDACTED_TITLE = "without names"
_SWITCH_S = 0.001
"""How long another thread may run Python while the screen waits: by default it is 5 ms, at every
wait for input, and a block of a recording takes 0.1 s to compress."""
_RING_TICKS_OF_LARGE_SITES = 240
"""As many as the analysis of iterations looks at: 900 ticks of 80,000 ports would take 600 MB."""
_FAST_HOSTS = 32
"""Larger demos take so long to start that a line says so."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A feed that is watched: `ticks` and `hosts` have the names that are shown.

    `past` are ticks from before the first; they are analysed, but not shown. `speed` is in seconds
    of the ticks a second. `cluster` names the nodes in alerts. `ras_hosts` are those whose jobs may
    be asked about by NCCL's RAS.
    """

    session: Session
    options: RunOptions
    setup: ScreenSetup
    ticks: AsyncIterator[Tick]
    hosts: Sequence[Host]
    interval_s: float
    past: AsyncIterator[Tick] | None = None
    speed: float = 1.0
    cluster: str = ""
    ras_hosts: Sequence[Host] = ()

    async def show(self) -> Exit:
        """Show the scenes of the feed, and record it as the options say."""
        sys.setswitchinterval(_SWITCH_S)
        if self.options.style == FINDINGS:
            print(f"fabmon: {self._what_is_watched()}", file=sys.stderr, flush=True)
        # The signals are handled until the recorder is closed: none of them cuts off its end.
        signals = EndSignals() if is_screen(self.options) else None
        with signals or nullcontext(), self._recorder() as recorder:
            setup = self.setup
            if signals is not None:
                from fabmon.session.recording_access import LiveRecording

                recording = LiveRecording(self.session, recorder, self.options.redact)
                setup = replace(setup, recording=recording, signals=signals)
                if self.ras_hosts:
                    from fabmon.session.screen_ras import screen_ras

                    asking = screen_ras(self.session, self.ras_hosts, recording.paths)
                    setup = replace(setup, ask_ras=asking)
            if signals is not None or self.options.picture is not None:
                from fabmon.session.preferences import start_screen

                # A picture shows what options and fabmon.toml say, whoever makes it.
                setup = start_screen(
                    setup,
                    self.session.settings,
                    self.options.theme,
                    is_live=setup.mark != DEMO_MARK,
                    is_kept=signals is not None,
                )
            made = recorder if isinstance(recorder, Recorder) else None
            limit = AnalysisTime(self.interval_s / self.speed)
            pipeline = self.session.pipeline(
                self.hosts, self.interval_s, made, limit, self._alerts()
            )
            async with aclosing(pipeline.scenes(self.ticks, self.past)) as scenes:
                return await show(scenes, self.options, setup)

    def _what_is_watched(self) -> str:
        """One line: which nodes, how often, and where findings are sent."""
        from fabmon.alerts.settings import receivers_text

        metrics = self.options.metrics
        parts = [
            f"watching {plural(len(self.hosts), 'node')} ({self.setup.title})"
            f" every {interval(self.interval_s)}",
            receivers_text(self.session.settings.alerts),
            *([] if metrics is None else [f"metrics at {metrics[0]}:{metrics[1]}"]),
        ]
        return "; ".join(parts)

    def _alerts(self) -> Alerts | None:
        """Alerts of real nodes, where somebody watches: not of single reports and pictures."""
        is_watched = is_screen(self.options) or self.options.style == FINDINGS
        if self.setup.mark == DEMO_MARK or not is_watched:
            return None
        return self.session.alerts(self.cluster)

    @contextmanager
    def _recorder(self) -> Iterator[Recorder | str]:
        """A recorder to --record, else, if the screen is shown, to the ring; or why there is none.

        Raises UsageError.
        """
        options, path = self.options, self.options.record
        recorder: Recorder | str = "nothing is recorded without a screen"
        console = "" if options.redact else None
        title = self.setup.title
        if self.setup.mark:
            title = f"{self.setup.mark}: {title}"
        if options.redact and path is not None and path.exists():
            raise UsageError(f"--redact: {path} exists and may contain names: name a new file")
        if path is not None:
            recorder = recorder_for(path, self.hosts, self.interval_s, title, console=console)
        elif is_screen(options):
            config = self.session.settings.recording
            recorder = ring_recorder(config, self.hosts, self.interval_s, title, console)
        try:
            yield recorder
        finally:
            if isinstance(recorder, Recorder):
                status = recorder.close()
                if path is not None:
                    print(f"fabmon: {describe_status(status)}", file=sys.stderr)


def watch(options: RunOptions) -> Exit:
    """Watch live nodes, or Prometheus. Raises UsageError before anything is connected to."""
    if sys.stdout is None:
        raise UsageError("standard output is closed: there is nowhere to show anything")
    set_for_a_run()
    session = Session.load(options.config, options.topologies, options.ssh_config, options.hints)
    if options.picture is not None:
        check_writable(options.picture)
    try:
        if options.prometheus is not None:
            if options.jobs:
                raise UsageError(f"{options.jobs}: with --prometheus, filter with / on the screen")
            return asyncio.run(_watch_prometheus(session, options, options.prometheus))
        sources = job_sources(session)
        selection = select_nodes(options.hosts, options.nodesets, options.jobs, sources)
        return asyncio.run(_watch_nodes(session, options, selection))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _watch_nodes(session: Session, options: RunOptions, selection: Selection) -> Exit:
    settings = session.settings
    directory, hosts = inspector_of(options.nccl_inspector, selection.hosts)
    interval_s = options.interval_s or settings.interval_s
    feed = session.live_feed(hosts, interval_s, options.sflow)
    redactor = Redactor(hosts) if options.redact else None
    title = _REDACTED_TITLE if redactor else selection.title
    setup = ScreenSetup(
        title,
        options.color or settings.color,
        ask_burst=_burst(feed, redactor),
        ask_retry=feed.retry,
        nodes_options=options.nodes_options(),
        age_s=feed.age_s,
    )
    feed.redact_log(redactor)
    with redacted_log(redactor):
        async with (
            aclosing(feed),
            session.with_jobs(feed, selection.jobs, options.redact) as ticks,
        ):
            feed.start(is_screen(options))
            if is_screen(options):
                await load_screen()
            return await _Run(
                session.redacted(redactor),
                options,
                setup,
                redacted(with_collectives(ticks, directory), redactor),
                _hosts(hosts, redactor),
                interval_s,
                cluster=title,
                ras_hosts=() if redactor else hosts,
            ).show()


async def _watch_prometheus(session: Session, options: RunOptions, url: str) -> Exit:
    directory, _ = inspector_of(options.nccl_inspector, [])
    is_named = options.hosts is not None or bool(options.nodesets)
    hosts = selected_hosts(options.hosts, options.nodesets) if is_named else []
    feed = prometheus_feed(url, session.settings.prometheus, options, hosts)
    redactor = Redactor(hosts) if options.redact else None
    if redactor is not None:
        redactor.node(urlsplit(url).hostname or "")
    feed.redact_log(redactor)
    with redacted_log(redactor):
        async with aclosing(feed), session.with_jobs(feed, redact=options.redact) as ticks:
            ticks = with_collectives(ticks, directory)
            return await _show_prometheus(session, options, feed, ticks, redactor)


async def _show_prometheus(
    session: Session,
    options: RunOptions,
    feed: PrometheusFeed,
    ticks: AsyncIterator[Tick],
    redactor: Redactor | None,
) -> Exit:
    from fabmon.feeds.prometheus.responses import PrometheusError

    settings = session.settings
    is_drawn = options.style is None and not options.once
    past_s = settings.prometheus.history_minutes * 60 if is_drawn else 0.0

    def shown(text: str) -> str:
        return text if redactor is None else redactor.text(text)

    try:
        await feed.open()
    except PrometheusError as error:
        print(f"fabmon: {shown(str(error))}", file=sys.stderr)
        return Exit.NO_NODE
    title = _REDACTED_TITLE if redactor else feed.title
    setup = ScreenSetup(
        f"every {interval(feed.interval_s)}: {title}",
        options.color or settings.color,
        nothing=lambda: shown(feed.why_empty),
        on_open=_opener(feed, redactor),
        data_age_s=feed.data_age_s,
    )
    session = session.redacted(redactor)
    if feed.is_large:
        session = replace(session, ring_ticks=_RING_TICKS_OF_LARGE_SITES)
    return await _Run(
        session,
        options,
        setup,
        redacted(ticks, redactor),
        _hosts(feed.hosts, redactor),
        feed.interval_s,
        redacted(feed.past(past_s), redactor),
        cluster=title,
    ).show()


def prometheus_feed(
    url: str, config: PrometheusConfig, options: RunOptions, hosts: Sequence[Host]
) -> PrometheusFeed:
    """The feed that the options and the configuration describe. Raises UsageError."""
    from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.feeds.prometheus.responses import BadAccess
    from fabmon.feeds.prometheus.series_selection import parse_label, parse_matchers

    token_file = str(options.token_file) if options.token_file is not None else None
    try:
        access = PrometheusAccess(
            url=url,
            token_file=token_file or config.token_file,
            password_file=None if token_file else config.password_file,
            ca_file=config.ca_file,
            insecure=config.insecure,
            tenant=config.tenant,
        )
        return PrometheusFeed(
            PrometheusClient(access),
            hosts=[msgspec.structs.replace(host, via="exporters") for host in hosts],
            selections=[parse_matchers(each) for each in options.matches or config.match],
            node=parse_label(config.node_label),
            interval_s=options.interval_s,
        )
    except BadAccess as error:
        raise UsageError(str(error)) from None


def watch_demo(
    options: RunOptions,
    scenario: Path | None = None,
    topology: str | None = None,
    hosts: int | None = None,
    seed: int | None = None,
    speed: float = 1.0,
) -> Exit:
    """Watch a simulated fabric: that of a scenario file, else the tour on a topology.

    `hosts` and `seed` change those of the scenario; `speed` is in simulated seconds a second.
    Raises UsageError.
    """
    from fabmon.feeds.demo import scenario as scenarios
    from fabmon.feeds.demo.feed import DemoFeed
    from fabmon.feeds.demo.random_faults import with_random_faults

    session = Session(load(options.config), hints=options.hints)
    try:
        played = scenarios.read(scenario) if scenario else scenarios.tour(topology or "leaf-spine")
        played = scenarios.resized(played, hosts, seed)
        played = played if scenario else with_random_faults(played)
        has_terminal = sys.stderr is not None and sys.stderr.isatty()
        if played.topology.hosts > _FAST_HOSTS and has_terminal:
            print(
                f"fabmon: simulating {played.topology.hosts} hosts …", file=sys.stderr, flush=True
            )
        feed = DemoFeed(played, speed=speed, start_ns=time.time_ns())
        return asyncio.run(_watch_simulation(session, options, feed, played, speed))
    except scenarios.ScenarioError as error:
        where = f"{scenario}: " if scenario and str(scenario) not in str(error) else ""
        raise UsageError(f"{where}{error}") from None
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _watch_simulation(
    session: Session, options: RunOptions, feed: DemoFeed, scenario: Scenario, speed: float
) -> Exit:
    from fabmon.analysis.causes import title
    from fabmon.feeds.demo.random_faults import captions as fault_captions
    from fabmon.tui.tips import Tip

    if not is_screen(options) and options.picture is None:
        warn_of_simulation()
    tour_s = max((each.at + each.duration for each in scenario.caption), default=math.inf)
    lines = [*scenario.caption, *fault_captions(feed.world, tour_s, title)]
    captions = [Tip(each.at, each.duration, each.text) for each in lines]
    color = options.color or session.settings.color
    starting = f"simulating {scenario.topology.hosts} hosts; the first tick takes some seconds"
    setup = ScreenSetup(
        scenario.title,
        color,
        DEMO_MARK,
        captions,
        nothing=lambda: starting,
        age_s=feed.age_s,
    )
    async with aclosing(feed):
        return await _Run(session, options, setup, feed, feed.hosts, 1.0, speed=speed).show()


async def record_nodes(
    session: Session,
    selection: Selection,
    interval_s: float,
    recorder: Recorder,
    duration_s: float | None,
    sflow: str | None = None,
    nccl_inspector: str | None = None,
) -> bool:
    """Record nodes without a screen until SIGINT, SIGTERM or the end of the duration.

    Alerts are sent if receivers are configured.

    Returns whether any node was ever up.
    """
    loop = asyncio.get_running_loop()
    directory, hosts = inspector_of(nccl_inspector, selection.hosts)
    feed = session.live_feed(hosts, interval_s, sflow)
    alerts = session.alerts(selection.title)
    pipeline = session.pipeline(hosts, interval_s, recorder, AnalysisTime(interval_s), alerts)
    closing: list[asyncio.Task[None]] = []

    def stop() -> None:
        closing.append(loop.create_task(feed.aclose()))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if duration_s is not None:
        loop.call_later(duration_s, stop)
    ever_up = False
    async with (
        aclosing(feed),
        session.with_jobs(feed, selection.jobs) as ticks,
        aclosing(pipeline.scenes(with_collectives(ticks, directory))) as scenes,
    ):
        async for scene in scenes:
            states = scene.snapshot.statuses.values()
            ever_up = ever_up or any(status.state is NodeState.UP for status in states)
    await asyncio.gather(*closing)
    return ever_up


def _hosts(hosts: Sequence[Host], redactor: Redactor | None) -> list[Host]:
    """Hosts by the names that are shown."""
    return list(hosts) if redactor is None else [redactor.host(host) for host in hosts]


def _opener(feed: PrometheusFeed, redactor: Redactor | None) -> Callable[[str], None]:
    """Opens a node of a feed, by the name that is shown."""
    return lambda node: feed.open_node(node if redactor is None else redactor.original(node))


def _burst(feed: LiveFeed, redactor: Redactor | None) -> AskBurst:
    """Asks a node for fast samples, by the name that is shown."""
    if redactor is None:
        return feed.burst

    def burst(node: str, ports: Sequence[str], seconds: float, hz: float) -> str:
        return redactor.text(feed.burst(redactor.original(node), ports, seconds, hz))

    return burst
