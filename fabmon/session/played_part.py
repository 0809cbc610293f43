"""What a part of a recording shows: the fabric, findings, and the loads of every port."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set

import numpy as np

from fabmon.analysis.causes import sentence
from fabmon.analysis.finding import Change, Finding, shown_moment
from fabmon.analysis.job.wire import Extent, FindingAtTime, PortLoad, Wire, wire_state
from fabmon.analysis.job_log.places import AllPlaces, FabricPlaces, PlannedPlaces
from fabmon.analysis.scene import Scene, missing_findings
from fabmon.fabric.model import RAIL, Fabric, Host
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_wording import utc
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import Hello
from fabmon.history.bins import PortBins
from fabmon.recording.reading.timeline import Timeline
from fabmon.scenes.lead_in import lead_in_ns
from fabmon.session.replay_run import PlayedRange
from fabmon.session.session import Session

_COLUMNS = {
    "tx_util": "tx_util",
    "rx_util": "rx_util",
    "paused": "pause_rx",
    "pausing": "pause_tx",
    "errors": "damage",
    "drops": "drops",
}
"""Field of a PortLoad -> column of a snapshot."""


def rail_rates(snapshot: Snapshot) -> dict[str, list[float]]:
    """The line rates of each host's rails, where known."""
    found: dict[str, list[float]] = {}
    for port in snapshot.fabric.ports:
        # The digits of a float32: 400e9 is 399999991808 otherwise.
        rate_bps = float(f"{snapshot.line_rate_bps[port.row]:.6g}")
        if port.node and port.role == RAIL and rate_bps > 0:
            found.setdefault(port.node, []).append(rate_bps)
    return found


class PlayedPart:
    """What a part of a recording shows: the fabric, findings, and the extremes of every port."""

    def __init__(self) -> None:
        self.fabric = Fabric(0, (), (), ())
        self.hellos: dict[str, Hello] = {}
        self.rail_rates: dict[str, list[float]] = {}
        self.failed_detectors: tuple[str, ...] = ()
        self._findings: dict[tuple[str, int], Finding] = {}
        self._seen: defaultdict[str, PortBins] = defaultdict(PortBins)
        self._down_s: Floats = np.zeros(0, np.float32)

    def places(self, topology: Topology | None, hosts: Iterable[Host]) -> AllPlaces:
        """Where ports are, by the recording and by the plan."""
        planned = PlannedPlaces(topology, hosts)
        return AllPlaces([FabricPlaces(self.fabric, self.hellos), planned])

    def rows_of(self, ports: Iterable[str]) -> list[int]:
        """Ports by their id, each followed by the switch port at its other end if watched."""
        by_id = {port.id: port for port in self.fabric.ports}
        found = [by_id[each] for each in ports if each in by_id]
        rows = [row for port in found for row in (port.row, port.peer) if row is not None]
        return list(dict.fromkeys(rows))

    def rails_of(self, hosts: Set[str]) -> list[int]:
        """The rails of some hosts, which may be given with their domains."""
        wanted = {without_domain(host) for host in hosts}
        return [
            port.row
            for node in self.fabric.nodes
            if without_domain(node.name) in wanted
            for port in node.ports
            if port.role == RAIL
        ]

    def accept(self, scene: Scene) -> None:
        """Add a scene."""
        self.failed_detectors = scene.failed_detectors
        closed = [finding for change, finding in scene.changes if change is Change.CLOSE]
        for finding in (*scene.findings, *closed):
            # One that closed and opened again has two times, and is listed with both.
            self._findings[finding.key, finding.since_ns] = finding
        snapshot = scene.snapshot
        size = len(snapshot.up)
        self._down_s = grown(self._down_s, size)
        self._down_s[:size] += np.where(snapshot.up == 0, snapshot.interval_s, 0.0)
        for name in _COLUMNS.values():
            is_util = name in ("tx_util", "rx_util")
            self._seen[name].add(getattr(snapshot, name) if is_util else snapshot.column(name))

    def wire(
        self,
        window: tuple[int, int],
        clock: str,
        rows: Sequence[int],
        hosts: Set[str],
        not_recorded: Sequence[str] = (),
    ) -> Wire:
        """What some ports did, and what was found on them and on `hosts`; `clock` says how the
        times were aligned, and how sure that is."""
        start_ns, end_ns = window
        loads = [self.load(row) for row in rows]
        findings = [self._finding(each, set(rows), hosts) for each in self._findings.values()]
        return Wire(
            clock=clock,
            start=utc(start_ns),
            end=utc(end_ns),
            not_recorded=[*not_recorded, *missing_findings(self.failed_detectors)],
            state=wire_state(loads)[0],
            port_count=len(rows),
            ports=loads,
            findings=sorted(findings, key=lambda each: (not each.is_on_path, each.since)),
        )

    def load(self, row: int) -> PortLoad:
        """What a port did."""
        port = self.fabric.ports[row]
        return PortLoad(
            port=port.id,
            name=port.display_name,
            down_s=float(self._down_s[row]) if row < len(self._down_s) else 0.0,
            **{
                name: Extent(*map(_rounded, self._seen[column].of_row(row)))
                for name, column in _COLUMNS.items()
            },
        )

    def _finding(self, finding: Finding, rows: set[int], hosts: Set[str]) -> FindingAtTime:
        subject = finding.subject_node
        on_path = bool(rows.intersection(finding.rows)) or subject in hosts
        return FindingAtTime(
            text=sentence(finding),
            subject=finding.subject,
            severity=shown_moment(finding).severity,
            since=utc(finding.since_ns),
            until=None if finding.until_ns is None else utc(finding.until_ns),
            is_on_path=on_path,
        )


def play_part(
    session: Session, timeline: Timeline, from_ns: int, until_ns: int, redactor: Redactor
) -> PlayedPart:
    """Play a part of a recording, with the state at its start; the redactor learns its names."""
    played = PlayedPart()
    part = PlayedRange(session, timeline, from_ns, until_ns, "looking at the recording")
    pipeline = session.recorded_pipeline(timeline)
    for is_inside, tick in part.ticks(lead_in_ns(timeline)):
        redactor.learn(tick)
        played.hellos.update(tick.hellos)
        scene = pipeline.accept(tick)
        played.fabric = scene.snapshot.fabric
        played.rail_rates = played.rail_rates or rail_rates(scene.snapshot)
        if is_inside:
            played.accept(scene)
    return played


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)
