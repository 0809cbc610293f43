"""What every scene of a run is computed with: settings, cabling, names, the rows of ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.causes import Thresholds
from fabmon.analysis.tracker import Begins
from fabmon.fabric.fabric_builder import PortRows
from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.roles.rules import RoleRules
from fabmon.fabric.snapshot import RING_TICKS
from fabmon.history.chunk_rates import RateChunkBuilder
from fabmon.history.history import History
from fabmon.recording.reading.recorded_findings import (
    RecordedFindings,
    recorded_begins,
    redacted_notes,
)
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.cut import redacted_hosts, redacted_topology
from fabmon.scenes.pipeline import Pipeline

if TYPE_CHECKING:
    from fabmon.analysis.iteration.model_arithmetic import JobHints
    from fabmon.fabric.topology.plan import Topology


class SceneSettings(Protocol):
    """The settings that decide what a scene says."""

    @property
    def thresholds(self) -> Thresholds:
        """Those of the analysis."""

    @property
    def role_rules(self) -> RoleRules:
        """The configured roles of ports."""


@dataclass(frozen=True, slots=True)
class SceneBuilder:
    """Builds histories, analysts, and the pipelines that turn ticks into scenes.

    `topology` is the cabling and `hints` the training job that the user described. When a recording
    is read, `redactor` replaces its names (None: they are shown); `topology` has the original ones.
    `renamed_by` has replaced those of a feed before. All histories use the same port rows (`rows`),
    and keep `ring_ticks` ticks.
    """

    settings: SceneSettings
    topology: Topology | None = None
    hints: JobHints | None = None
    redactor: Redactor | None = None
    renamed_by: Redactor | None = None
    rows: PortRows = field(default_factory=PortRows)
    ring_ticks: int = RING_TICKS

    def redacted(self, redactor: Redactor | None) -> Self:
        """A copy for a feed whose ticks are redacted: the topology is redacted too."""
        topology = redacted_topology(self.topology, redactor)
        return replace(self, topology=topology, renamed_by=redactor)

    def for_recording(self, timeline: Timeline, redact: bool) -> Self:
        """A copy for reading a recording; with `redact` the names of the recording are replaced."""
        return replace(self, redactor=Redactor(timeline.hosts) if redact else None)

    def detached(self) -> Self:
        """A copy with separate port rows, for use in another thread."""
        return replace(self, rows=PortRows())

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

    def recorded_pipeline(self, timeline: Timeline) -> Pipeline:
        """A new pipeline for the ticks of a recording; a finding begins when it was recorded to."""
        findings = RecordedFindings(redacted_notes(timeline, timeline.notes(), self.redactor))
        begins = recorded_begins(findings, timeline.run_starts_ns)
        return Pipeline(self.recorded_history(timeline), self.analyst(begins))
