"""The settings of a run; builds its feeds, its pipeline, and what keeps and sends its findings."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fabmon.analysis.scene import Scene
from fabmon.fabric.garbage_collection import GarbageSchedule
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.fabric.wording import file_error
from fabmon.feeds.kubectl import Kubectl
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.squeue import Squeue
from fabmon.recording.writing.recorder import Recorder
from fabmon.scenes.builder import SceneBuilder
from fabmon.scenes.pipeline import AnalysisTime, Pipeline
from fabmon.scenes.tick_costs import Part
from fabmon.session.config import Config, load, load_topology, user_file
from fabmon.session.errors import UsageError
from fabmon.session.kept_findings import KeptFindings
from fabmon.session.slow_files import said_if_slow
from fabmon.session.stderr_lines import LineFormatter

if TYPE_CHECKING:
    from fabmon.alerts.delivery import Alerts


_MOST_SSH_CONFIG_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Session(SceneBuilder):
    """The settings of a run; its methods build the parts of the run from them."""

    settings: Config

    @classmethod
    def load(
        cls,
        config: Path | None,
        topologies: Sequence[Path] = (),
        ssh_config: Path | None = None,
        model: Path | None = None,
    ) -> Session:
        """The session that the options describe. Raises UsageError."""
        if logging.lastResort is not None:  # What is logged before a run says where to.
            logging.lastResort.setFormatter(LineFormatter())
        with said_if_slow(config or user_file()):
            settings = load(config, model)
        with said_if_slow((*topologies, config or user_file())[0]):
            topology = load_topology(settings, config, topologies)
        if ssh_config is not None:
            with said_if_slow(ssh_config):
                _check_readable(ssh_config, "--ssh-config")
            settings = msgspec.structs.replace(settings, ssh_config=str(ssh_config))
        return cls(settings, topology, settings.hints)

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

    def pipeline(
        self,
        hosts: Sequence[Host],
        interval_s: float = 1.0,
        recorder: Recorder | None = None,
        analysis_time: AnalysisTime | None = None,
        kept: KeptFindings | None = None,
    ) -> Pipeline:
        """A new pipeline for the ticks of these nodes; it takes up the findings that are `kept`."""
        history, analyst = self.history(hosts, interval_s), self.analyst()
        if kept is not None:
            analyst.take_up(kept.load())
        return Pipeline(history, analyst, recorder, analysis_time)

    def alerts(self, cluster: str, known_from: str) -> Alerts | None:
        """What sends alerts to the configured receivers; None without any.

        `cluster` names the nodes where the configuration does not; `known_from` is as in
        `kept_findings`. Raises UsageError.
        """
        config = self.settings.alerts
        if not config.receivers:
            return None
        from fabmon.alerts.delivery import Alerts
        from fabmon.alerts.settings import AlertsError

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


def _check_readable(path: Path, what: str) -> None:
    try:
        # It is read once for each node: not a pipe, and no device but /dev/null.
        is_small = path.is_file() and path.stat().st_size <= _MOST_SSH_CONFIG_BYTES
        if path.exists() and not is_small and not path.samefile(os.devnull):
            raise UsageError(f"{what} {path}: not a file of at most 16 MiB")
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{what} {path}: {file_error(error)}") from None


async def scenes_of(
    pipeline: Pipeline,
    ticks: AsyncIterator[Tick],
    past: AsyncIterator[Tick] | None = None,
    alerts: Alerts | None = None,
    kept: KeptFindings | None = None,
) -> AsyncGenerator[Scene, None]:
    """The scene of every tick of a feed; the ticks of its past are processed before, unseen.

    Its open findings are `kept`, then `alerts` are sent of it.
    """
    if past is not None:
        async for tick in past:
            pipeline.accept(tick)
            await asyncio.sleep(0)
    garbage = GarbageSchedule()
    async with alerts or nullcontext():
        with nullcontext() if kept is None else closing(kept):
            async for tick in ticks:
                pipeline.costs.end(Part.READING)
                if kept is not None and (arrived := kept.arrived()):
                    pipeline.take_up(arrived)
                scene = pipeline.accept(tick)
                garbage.accept(tick)
                if kept is not None:
                    await kept.accept(scene)
                if alerts is not None:
                    alerts.accept(scene, are_known=kept is None or kept.is_known)
                yield scene
                pipeline.costs.end(Part.DRAWING)
