"""Findings that were open when an earlier run ended: taken up again, until it is known of each
whether it is still so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from fabmon.analysis.causes import CAUSES, causes_with
from fabmon.analysis.detectors import driver_failed, node_lost
from fabmon.analysis.fabric_structure import FabricStructure, keep_cables
from fabmon.analysis.finding import Finding, Trait
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Fabric
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus

_JUDGED_AFTER_S, _JUDGED_AFTER_TICKS = 120.0, 60
"""Seconds, and ticks, after its nodes answered in which a finding is found again, if it is still
so: changes of carrier are counted over so long, and a job is judged by 40 ticks."""

_UNKNOWN_NODE_S = 600.0
"""Seconds in which a node is found again that no list has: what Prometheus and managers report is
known once it is reported, and the last scrape may have missed it. A node that is listed has as long
to answer, whenever it was heard last."""

_STATES = causes_with(Trait.GONE)
"""Causes that one answer of the nodes is enough for."""
_DOWN = causes_with(Trait.OF_LINK) & _STATES

_UNREPORTED_S = 86_400.0
"""Seconds for which a link stays down whose port is no longer reported, and for which a node is
waited for that does not answer: an alert of a NIC that failed is seen within a day, and one that
was removed needs none."""
_UNREPORTED = "; its port is no longer reported"

_ANSWERED = (NodeState.UP, NodeState.STALE, NodeState.LOST)
_FAILED = (NodeState.FAILED,)

_MOST = 4096
"""Findings that are taken up, most severe first."""


class EarlierFinding(msgspec.Struct, frozen=True):
    """An open finding as it is kept between two runs. Its rows are of one run: `ports` are their
    ids, `was_up` those that had been up, `best_line_rates_bps` the highest that each had (parallel
    to `ports`, 0 where not known)."""

    finding: Finding
    ports: tuple[str, ...] = ()
    was_up: tuple[str, ...] = ()
    best_line_rates_bps: tuple[float, ...] = ()


def kept_findings(scene: Scene) -> Iterator[EarlierFinding]:
    """The open findings of a scene, most severe first."""
    snapshot = scene.snapshot
    for finding in scene.findings:
        ports = [snapshot.fabric.ports[row] for row in finding.rows]
        yield EarlierFinding(
            msgspec.structs.replace(finding, rows=()),
            tuple(port.id for port in ports),
            tuple(port.id for port in ports if snapshot.was_up[port.row]),
            tuple(np.nan_to_num(snapshot.best_line_rate_bps[list(finding.rows)]).tolist()),
        )


@dataclass(slots=True)
class Awaited:
    """A finding of which it is not known yet whether it is still so. `rows` are those of its ports
    that have been read; `waits_for` is what has not been, a text, and `waited_s` for how long;
    `left_s` is the time that remains once all has been, None before. `is_unreported`: its nodes
    have answered without its ports, or not for a day."""

    kept: EarlierFinding
    rows: tuple[int, ...] = ()
    waits_for: str = ""
    waited_s: float = 0.0
    left_s: float | None = None
    is_unreported: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all its ports have been read."""
        return len(self.rows) == len(self.kept.ports)

    @property
    def is_of_link(self) -> bool:
        """Whether it is about a cable: one end is enough."""
        return Trait.OF_LINK in CAUSES[self.kept.finding.cause].traits

    @property
    def is_usable(self) -> bool:
        """Whether rules can read its rows."""
        is_lost = self.kept.finding.cause == node_lost.CAUSE.name
        return is_lost or self.is_complete or (self.is_of_link and bool(self.rows))

    def wait(self, snapshot: Snapshot) -> None:
        """Note what has to be read before it can be judged, or let time pass."""
        finding = self.kept.finding
        names = [name.partition("/")[0] for name in (*self.kept.ports[:2], finding.subject)]
        known = [snapshot.statuses[name] for name in names if name in snapshot.statuses]
        self.waits_for = _waits_for(known)
        is_given_up = bool(self.waits_for) and self._is_given_up(snapshot)
        if not self.waits_for and finding.cause == driver_failed.CAUSE.name:
            self.waits_for = _driver(snapshot, names[0], self.rows)
        is_gone = finding.cause in _DOWN and bool(self.kept.ports) and not self.rows
        self.is_unreported = (is_gone and not self.waits_for) or is_given_up
        if is_given_up:
            self.left_s = 0.0
        elif self.waits_for:
            self.left_s = None
        elif known and self.is_unreported:
            self.left_s = seconds_unreported(finding, snapshot)
        elif known and finding.cause in _STATES:
            self.left_s = 0.0
        elif self.left_s is None:
            judged_s = max(_JUDGED_AFTER_S, _JUDGED_AFTER_TICKS * snapshot.interval_s)
            self.left_s = judged_s if known else _UNKNOWN_NODE_S
        else:
            self.left_s = max(0.0, self.left_s - snapshot.interval_s)

    def _is_given_up(self, snapshot: Snapshot) -> bool:
        """Whether a node has not answered for so long that its finding says nothing any more; that
        a node is lost is still so."""
        self.waited_s += snapshot.interval_s
        finding = self.kept.finding
        is_lost = finding.cause == node_lost.CAUSE.name
        is_due = not seconds_unreported(finding, snapshot) and self.waited_s >= _UNKNOWN_NODE_S
        return is_due and not is_lost


def seconds_unreported(finding: Finding, snapshot: Snapshot) -> float:
    """For how long a link stays down whose port is no longer reported; 0: no longer."""
    last_ns = finding.since_ns if finding.seen_ns is None else finding.seen_ns
    return max(0.0, _UNREPORTED_S - (snapshot.time_ns - last_ns) / 1e9)


def down_and_gone(findings: Iterable[Finding], fabric: Fabric) -> Iterator[Finding]:
    """Links down whose ports their nodes no longer report, as of a NIC that has failed or whose
    driver is loaded again: they are down until the ports are back."""
    for each in findings:
        if each.cause not in _DOWN or not each.rows:
            continue
        if not any(fabric.ports[row].node for row in each.rows):
            yield each


def with_unreported(finding: Finding, keys: Collection[str]) -> Finding:
    """A finding; where its key is one of `keys` its text says that its port is not reported."""
    text = finding.text.removesuffix(_UNREPORTED) + _UNREPORTED * (finding.key in keys)
    return finding if text == finding.text else msgspec.structs.replace(finding, text=text)


class EarlierFindings:
    """The findings that an earlier run left open, as far as they are not judged anew."""

    def __init__(self, kept: Iterable[EarlierFinding] = ()) -> None:
        self._awaited = {
            each.finding.key: Awaited(each)
            for each in list(kept)[:_MOST]
            if each.finding.cause in CAUSES and each.finding.until_ns is None
        }
        self._was_up: set[int] = set()
        self._best_line_rate_bps: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._awaited)

    @property
    def findings(self) -> list[Finding]:
        """Those that are not judged yet."""
        return [each.kept.finding for each in self._awaited.values()]

    @property
    def not_judged(self) -> set[str]:
        """Keys of those that stay open, whether their condition holds or not."""
        return {key for key, each in self._awaited.items() if each.left_s is None or each.left_s}

    @property
    def unreported(self) -> set[str]:
        """Keys of links down whose nodes have answered without their ports."""
        return {key for key, each in self._awaited.items() if each.is_unreported}

    def unusable(self) -> set[str]:
        """Keys of those whose ports have not been read."""
        return {key for key, each in self._awaited.items() if not each.is_usable}

    def accept(
        self, snapshot: Snapshot, opened: Mapping[str, Finding], held: Collection[str]
    ) -> list[Finding]:
        """Take a tick. Those that are not open any more, or whose condition `held`, are judged.

        Returns the open findings whose ports were read first at this tick, with their rows.
        """
        ids = {name for each in self._awaited.values() for name in each.kept.ports}
        rows = snapshot.fabric.rows_of(ids)
        located = []
        for key, each in list(self._awaited.items()):
            found = tuple(rows[name] for name in each.kept.ports if name in rows)
            self._was_up |= {rows[name] for name in each.kept.was_up if name in rows}
            rates = zip(each.kept.ports, each.kept.best_line_rates_bps, strict=False)
            self._best_line_rate_bps |= {rows[name]: rate for name, rate in rates if name in rows}
            is_new, each.rows = found != each.rows, found
            if key not in opened or (key in held and each.is_complete):
                del self._awaited[key]
            elif key in held:
                each.waits_for, each.left_s = "", 0.0
            else:
                each.wait(snapshot)
                if is_new:
                    located.append(msgspec.structs.replace(opened[key], rows=found))
        return located

    def with_past(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, with what the ports had been in the earlier run: up, and how fast."""
        if not (self._was_up or self._best_line_rate_bps):
            return snapshot
        was_up, best = snapshot.was_up.copy(), snapshot.best_line_rate_bps.copy()
        was_up[list(self._was_up)] = True
        for row, rate in self._best_line_rate_bps.items():
            best[row] = np.fmax(best[row], rate)
        return replace(snapshot, was_up=was_up, best_line_rate_bps=best)

    def keep_cables(self, structure: FabricStructure) -> None:
        """Cable the ends of links that had a fault, where nothing reports a cable of them: LLDP has
        no neighbour at a port that is down."""
        for each in self._awaited.values():
            is_named = each.kept.finding.subject in each.kept.ports
            if each.is_of_link and is_named and len(each.rows) == 2 == len(each.kept.ports):
                keep_cables(
                    structure.peer, structure.node, structure.ports, *np.array([each.rows]).T
                )

    def marked(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Open findings; those of which nothing is known yet say so."""
        awaited: Mapping[str, Awaited] = self._awaited
        return tuple(
            msgspec.structs.replace(each, unseen=awaited[each.key].waits_for)
            if each.key in awaited and awaited[each.key].waits_for
            else each
            for each in findings
        )


def _waits_for(nodes: list[NodeStatus]) -> str:
    """Which node has to answer before anything is known, in a sentence; empty: none. Of one that
    cannot be reached another end of the cable may speak."""
    silent = [each for each in nodes if each.state not in _ANSWERED]
    if not silent or (len(silent) < len(nodes) and all(each.state in _FAILED for each in silent)):
        return ""
    return f"whether it is still so: {silent[0].node} has not answered since fabmon was started"


def _driver(snapshot: Snapshot, node: str, rows: tuple[int, ...]) -> str:
    """What a kernel logged before is not read again: a driver works if it logs so or if its device
    carries traffic."""
    traffic = [snapshot.column(name)[list(rows)] for name in ("tx_bps", "rx_bps")]
    if snapshot.logs.get(node) or (np.nan_to_num(traffic) > 0).any():
        return ""
    return "whether it is still so: the kernel logged it before fabmon was started"
