"""Builds the parts of a run: histories, analysts, rate chunks, the pipeline to scenes."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.causes import sentence
from fabmon.analysis.finding import Change, Finding, to_stored
from fabmon.analysis.scene import Scene
from fabmon.analysis.tracker import Begins
from fabmon.fabric.fabric_builder import PortRows
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import clock_text
from fabmon.fabric.wording import file_error
from fabmon.feeds.kubectl import Kubectl
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.squeue import Squeue
from fabmon.history.chunk_rates import RateChunkBuilder
from fabmon.history.history import RING_TICKS, History
from fabmon.recording.format.records import Note
from fabmon.recording.reading.recorded_findings import (
    RecordedBegins,
    RecordedFindings,
    redacted_notes,
)
from fabmon.recording.writing.cut import redacted_hosts, redacted_topology
from fabmon.recording.writing.recorder import Recorder
from fabmon.session.config import Config, load, load_topology
from fabmon.session.errors import UsageError
from fabmon.session.garbage import GarbageSchedule
from fabmon.session.kept_findings import KeptFindings

if TYPE_CHECKING:
    from fabmon.alerts.delivery import Alerts
    from fabmon.analysis.iteration.model_arithmetic import JobHints
    from fabmon.fabric.roles.rules import RoleRules
    from fabmon.fabric.topology.plan import Topology
    from fabmon.recording.reading.timeline import Timeline


_LOG = logging.getLogger("fabmon.session")
_MOST_PASSED_OVER = 10
_ROOM_TO_SPARE = 1.4
_SAID_FOR_S = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """The settings of a run; its methods build the parts of the run from them.

    `topology` is the cabling and `hints` the training job that the user described. When a recording
    is read, `redactor` replaces its names (None: they are shown); `topology` has the original ones.
    `renamed_by` has replaced those of a feed before. All histories of a session use the same port
    rows (`rows`), and keep `ring_ticks` ticks.
    """

    settings: Config
    topology: Topology | None = None
    hints: JobHints | None = None
    redactor: Redactor | None = None
    renamed_by: Redactor | None = None
    rows: PortRows = field(default_factory=PortRows)
    ring_ticks: int = RING_TICKS

    @classmethod
    def load(
        cls,
        config: Path | None,
        topologies: Sequence[Path] = (),
        ssh_config: Path | None = None,
        hints: JobHints | None = None,
    ) -> Session:
        """The session that the options describe. Raises UsageError."""
        settings = load(config)
        topology = load_topology(settings, config, topologies)
        if ssh_config is not None:
            _check_readable(ssh_config, "--ssh-config")
            settings = msgspec.structs.replace(settings, ssh_config=str(ssh_config))
        return cls(settings, topology, hints)

    def redacted(self, redactor: Redactor | None) -> Session:
        """A copy for a feed whose ticks are redacted: the topology is redacted too."""
        topology = redacted_topology(self.topology, redactor)
        return replace(self, topology=topology, renamed_by=redactor)

    def for_recording(self, timeline: Timeline, redact: bool) -> Session:
        """A copy for reading a recording; with `redact` the names of the recording are replaced."""
        return replace(self, redactor=Redactor(timeline.hosts) if redact else None)

    def detached(self) -> Session:
        """A copy with separate port rows, for use in another thread."""
        return replace(self, rows=PortRows())

    def live_feed(
        self, hosts: Sequence[Host], interval_s: float = 1.0, sflow: str | None = None
    ) -> LiveFeed:
        """A feed that connects to some nodes, with the SSH settings of the configuration.

        `sflow` is where to receive sFlow, `[HOST]:PORT`. Raises UsageError where that is not
        possible, or the ssh_config cannot be read.
        """
        ssh_config = self.settings.ssh_config
        if ssh_config is not None:
            _check_readable(Path(ssh_config), "ssh_config in fabmon.toml:")
        try:
            return LiveFeed(hosts, interval_s=interval_s, ssh_config=ssh_config, sflow=sflow)
        except ValueError as error:
            raise UsageError(f"--sflow: {error}") from None
        except OSError as error:
            where = sflow or "port 6343 (via=sflow)"
            raise UsageError(
                f"sFlow cannot be received on {where}: {error.strerror}; --sflow selects another"
                " address"
            ) from None

    def squeue(self, known: Sequence[Job] = (), redact: bool = False) -> Squeue:
        """What asks the scheduler for jobs; `known` are those that are known before."""
        return Squeue(self.settings.jobs.squeue, known=known, quotes_errors=not redact)

    @asynccontextmanager
    async def with_jobs(
        self, ticks: AsyncIterator[Tick], known: Sequence[Job] = (), redact: bool = False
    ) -> AsyncIterator[AsyncIterator[Tick]]:
        """The ticks with the jobs of Slurm and Kubernetes, which are asked for meanwhile; `known`
        are those that are known before."""
        async with (
            self.squeue(known, redact) as squeue,
            Kubectl(self.settings.jobs.kubectl) as kubectl,
        ):
            yield kubectl.with_pods(squeue.with_jobs(ticks))

    def history(self, hosts: Sequence[Host], interval_s: float = 1.0) -> History:
        """A new history of some nodes."""
        topology = redacted_topology(self.topology, self.redactor)
        return History(
            hosts, interval_s, self._role_rules, self.ring_ticks, topology=topology, rows=self.rows
        )

    @property
    def _role_rules(self) -> RoleRules:
        """The configured roles, for names that a redactor has replaced."""
        rules, redactor = self.settings.role_rules, self.redactor or self.renamed_by
        return (
            rules
            if redactor is None
            else msgspec.structs.replace(rules, original=redactor.original)
        )

    def recorded_history(self, timeline: Timeline) -> History:
        """A new history of the nodes of a recording, with redacted names if there is a redactor."""
        return self.history(redacted_hosts(timeline, self.redactor), timeline.interval_s)

    def analyst(self, begins: Begins | None = None) -> Analyst:
        """A new analyst with the thresholds of the configuration; `begins` are the recorded ones of
        findings that are computed again."""
        return Analyst(self.settings.thresholds, self.hints, begins=begins)

    def chunk_builder(self) -> RateChunkBuilder:
        """Computes rates from the raw chunks of a recording; ports have their original names."""
        return RateChunkBuilder(self.settings.role_rules, self.topology)

    def pipeline(
        self,
        hosts: Sequence[Host],
        interval_s: float = 1.0,
        recorder: Recorder | None = None,
        analysis_time: AnalysisTime | None = None,
        alerts: Alerts | None = None,
        kept: KeptFindings | None = None,
    ) -> Pipeline:
        """A new pipeline for the ticks of these nodes; it takes up the findings that are `kept`."""
        history, analyst = self.history(hosts, interval_s), self.analyst()
        if kept is not None:
            analyst.take_up(kept.load())
        return Pipeline(history, analyst, recorder, analysis_time, alerts, kept)

    def alerts(self, cluster: str, known_from: str) -> Alerts | None:
        """What sends alerts to the configured receivers; None without any.

        `cluster` names the nodes where the configuration does not; `known_from` is as in
        `kept_findings`. Raises UsageError.
        """
        config = self.settings.alerts
        if not config.receivers:
            return None
        from fabmon.alerts.delivery import Alerts
        from fabmon.alerts.errors import AlertsError

        try:
            return Alerts(config, self._cluster or cluster, self._cluster or known_from)
        except AlertsError as error:
            raise UsageError(f"[alerts] {error}") from None

    def kept_findings(self, known_from: str) -> KeptFindings:
        """The open findings of a watch, from run to run. `known_from` distinguishes its nodes from
        those of others where the configuration does not."""
        return KeptFindings(self._cluster or known_from)

    @property
    def _cluster(self) -> str:
        """The configured name, which is not shown where names are replaced; else empty."""
        return "" if self.renamed_by is not None else self.settings.alerts.cluster

    def recorded_pipeline(self, timeline: Timeline) -> Pipeline:
        """A new pipeline for the ticks of a recording; a finding begins when it was recorded to."""
        findings = RecordedFindings(redacted_notes(timeline, timeline.notes(), self.redactor))
        begins = RecordedBegins(findings, timeline.run_starts_ns)
        return Pipeline(self.recorded_history(timeline), self.analyst(begins))


def _check_readable(path: Path, what: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{what} {path}: {file_error(error)}") from None


class AnalysisTime:
    """Limits what the analysis of live ticks may take to half of the time.

    Where it takes longer, as on a busy machine, only every n-th tick is analysed, so that the
    screen follows; every tick is shown and recorded. A tick comes every `interval_s` seconds of
    `clock`.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._taken_s: deque[float] = deque(maxlen=5)
        self._every = 1
        self._passed_over = 0
        self._said_every = True
        self._said_at_s = -math.inf

    @contextmanager
    def analysing(self) -> Iterator[bool]:
        """Whether to analyse this tick; the time inside is counted if so."""
        if self._passed_over + 1 < self._every:
            self._passed_over += 1
            yield False
            return
        start_s = self._clock()
        yield True
        self._passed_over = 0
        end_s = self._clock()
        self._taken_s.append(end_s - start_s)
        if len(self._taken_s) == self._taken_s.maxlen:
            self._adapt(end_s)

    def _adapt(self, now_s: float) -> None:
        # The median of several: the structure of a new fabric takes a second, once.
        usual_s = sorted(self._taken_s)[len(self._taken_s) // 2]
        halves = 2 * usual_s / self._interval_s
        # More often again only once there is room to spare: not now more often, now less.
        if not self._every - 1 < _ROOM_TO_SPARE * halves <= _ROOM_TO_SPARE * self._every:
            self._every = max(1, min(math.ceil(halves), _MOST_PASSED_OVER))
        is_every = self._every == 1
        # What is said holds for a while: a load that comes and goes is not said each time.
        if is_every is not self._said_every and now_s - self._said_at_s >= _SAID_FOR_S:
            self._said_every, self._said_at_s = is_every, now_s
            _LOG.warning("analysis takes %.2g s a tick: %s", usual_s, _analysed(self._every))


def _analysed(every: int) -> str:
    return "every tick is analysed again" if every == 1 else f"only one in {every} is analysed"


class Pipeline:
    """Turns ticks into scenes: history, then analyst; with a recorder, each tick is recorded.

    `analysis_time` limits the analysis; without it every tick is analysed. `alerts` are sent of the
    scenes of `scenes`, after their findings were `kept`.
    """

    def __init__(
        self,
        history: History,
        analyst: Analyst,
        recorder: Recorder | None = None,
        analysis_time: AnalysisTime | None = None,
        alerts: Alerts | None = None,
        kept: KeptFindings | None = None,
    ) -> None:
        self.history = history
        self._analyst = analyst
        self._recorder = recorder
        self._analysis_time = analysis_time or AnalysisTime(math.inf)
        self._alerts = alerts
        self._kept = kept

    def accept(self, tick: Tick) -> Scene:
        """Process a tick: returns its scene."""
        snapshot = self.history.accept(tick)
        with self._analysis_time.analysing() as is_analysed:
            accept = self._analyst.accept if is_analysed else self._analyst.pass_over
            scene = accept(snapshot)
        if self._recorder is not None:
            notes = finding_notes(scene)
            if tick.clock_jumped_ns:
                text = clock_text(tick.clock_jumped_ns)
                notes.append(Note(kind="bookmark", time_ns=tick.time_ns, seq=tick.seq, text=text))
            self._recorder.accept(tick, scene.snapshot, notes)
        return scene

    async def scenes(
        self, ticks: AsyncIterator[Tick], past: AsyncIterator[Tick] | None = None
    ) -> AsyncGenerator[Scene, None]:
        """The scene of every tick of a feed; the ticks of its past are processed before, unseen."""
        if past is not None:
            async for tick in past:
                self.accept(tick)
                await asyncio.sleep(0)
        garbage = GarbageSchedule()
        async with self._alerts or nullcontext():
            with nullcontext() if self._kept is None else closing(self._kept):
                async for tick in ticks:
                    scene = self.accept(tick)
                    garbage.accept(tick)
                    if self._kept is not None:
                        await self._kept.accept(scene)
                    if self._alerts is not None:
                        self._alerts.accept(scene)
                    yield scene


def finding_notes(scene: Scene) -> list[Note]:
    """The changes of findings at a tick, as notes of a recording."""
    return [_note(scene, change, finding) for change, finding in scene.changes]


def _note(scene: Scene, change: Change, finding: Finding) -> Note:
    snapshot = scene.snapshot
    return Note(
        kind="finding",
        time_ns=snapshot.time_ns,
        seq=snapshot.seq,
        text=sentence(finding),
        change=change.value,
        ports=tuple(snapshot.fabric.ports[row].id for row in finding.rows),
        finding=to_stored(finding),
    )
