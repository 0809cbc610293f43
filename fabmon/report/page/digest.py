"""The contents of a report page, gathered in one pass over the scenes of a recording."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fabmon.analysis.affected_ports import affected_ports
from fabmon.analysis.finding import Change, Finding, shown_moment
from fabmon.analysis.iteration.results import JobIteration
from fabmon.analysis.recent_load import RecentLoad, full_port_ticks
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.filter import Mask
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.model import DOWNLINK, RAIL, UPLINK, Fabric, Port
from fabmon.fabric.moved_times import moved
from fabmon.fabric.snapshot import MOST_OF_LINE_RATE, Snapshot, has_line_rates, unknown_ports
from fabmon.fabric.time_wording import DAY_NS
from fabmon.history.bins import PortBins

MOST_BINS = 240
_MOST_EVENTS = 1000
_MOST_FINDINGS = 200
_MOST_BARS = 32


class Bins:
    """Equal parts of a time, at most MOST_BINS, each of the same number of ticks and of at least
    `least_s`; the first begins with the interval of the first tick."""

    def __init__(
        self, from_ns: int, until_ns: int, interval_s: float, least_s: float = 0.0
    ) -> None:
        """`until_ns` is in the last bin; `is_dated`: a time of day alone would be ambiguous."""
        self.from_ns = from_ns
        self.until_ns = until_ns
        self._tick_ns = max(1, round(interval_s * 1e9))
        ticks = max(1, round((until_ns - from_ns) / self._tick_ns) + 1)
        each = max(1, -(-ticks // MOST_BINS), round(least_s / interval_s))
        self.count = -(-ticks // each)
        self.is_dated = until_ns - from_ns > DAY_NS
        self.width_ns = each * self._tick_ns

    def covered(self, time_ns: int) -> Iterator[int]:
        """The bins that the interval before a tick covers by 40 % or more of it: so no bin is empty
        of which every tick is there, although their times vary by some milliseconds."""
        places = {self._place(time_ns - self._tick_ns * tenths // 10) for tenths in (4, 6)}
        yield from {min(self.count - 1, max(0, place)) for place in places}

    def after_last(self, time_ns: int) -> int:
        """How many bins a tick is after the last one; negative before it."""
        return self._place(time_ns - self._tick_ns // 2) - (self.count - 1)

    def _place(self, time_ns: int) -> int:
        return (time_ns - self.from_ns + self._tick_ns) // self.width_ns

    def move(self, by: int) -> None:
        """Move the time by so many bins."""
        self.from_ns += by * self.width_ns
        self.until_ns += by * self.width_ns


@dataclass(frozen=True, slots=True)
class Bar:
    """A port in a finding's picture: means of some seconds (RecentLoad); numbers are NaN
    where they are not known."""

    port: str
    label: str
    is_subject: bool
    tx_bps: float
    rx_bps: float
    tx_util: float
    rx_util: float
    up: float


@dataclass(slots=True)
class ReportedFinding:
    """A finding: `finding` as it was last, `kept` the moment of it that is shown, at `at_ns`; while
    scenes are added to the page, its worst one so far.

    `subject` is a display name, `victims` are texts. `bars` are its ports at `at_ns`, means of
    `mean_s` seconds before it, None: of those with traffic of RECENT_S seconds; `more` counts
    ports for which there is no bar.
    """

    finding: Finding
    kept: Finding
    subject: str
    victims: tuple[str, ...]
    at_ns: int
    bars: tuple[Bar, ...]
    more: int
    mean_s: float | None = None


@dataclass(slots=True)
class Digest:
    """The contents of a page. `findings` are in the order in which they began; there is no room for
    those in `left_out`, and for `left_out_events`. `is_known` says whether any port ever had a
    rate, `has_line_rates` whether one had a line rate. `failed_detectors` are those that failed.
    """

    bins: Bins
    busy: PortBins
    paused: PortBins
    ticks: int = 0
    is_known: bool = False
    has_line_rates: bool = False
    fabric: Fabric | None = None
    last: Snapshot | None = None
    findings: dict[tuple[str, int], ReportedFinding] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    jobs: tuple[JobIteration, ...] = ()
    left_out: set[tuple[str, int]] = field(default_factory=set)
    left_out_events: int = 0
    failed_detectors: tuple[str, ...] = ()
    _carries: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))

    @classmethod
    def empty(cls, bins: Bins) -> Digest:
        """Of no scene yet."""
        return cls(bins, PortBins(bins.count), PortBins(bins.count))

    def add(self, scene: Scene) -> None:
        """Add a scene, whose time is in the bins."""
        snapshot = scene.snapshot
        if snapshot.fabric is not self.fabric:
            fabric = snapshot.fabric
            self._carries = np.array([is_drawn(port, fabric) for port in fabric.ports])
        self.fabric, self.last = snapshot.fabric, snapshot
        busy = np.fmax(snapshot.tx_util, snapshot.rx_util)
        pause = np.fmax(*(snapshot.heat[HEAT.index(name)] for name in ("pause_rx", "pause_tx")))
        places = tuple(self.bins.covered(snapshot.time_ns))
        self.busy.add(np.where(self._carries, busy, np.nan), places)
        self.paused.add(np.where(self._carries, pause, np.nan), places)
        _findings(self, scene, first=self.ticks == 0)
        _events(self, scene)
        self.jobs = scene.iteration_report.jobs or self.jobs
        self.failed_detectors = scene.failed_detectors
        self.ticks += 1
        self.is_known = self.is_known or not unknown_ports(snapshot).all()
        self.has_line_rates = self.has_line_rates or has_line_rates(snapshot)

    def move(self, by: int) -> None:
        """Move the time by so many bins: what ended before it is left out."""
        self.bins.move(by)
        self.busy.move(by)
        self.paused.move(by)
        begin_ns = self.bins.from_ns
        self.findings = {
            key: each
            for key, each in self.findings.items()
            if each.finding.until_ns is None or each.finding.until_ns >= begin_ns
        }
        self.events = [event for event in self.events if event.time_ns >= begin_ns]

    def follow_clock(self, jumped_ns: int) -> None:
        """The wall clock was set by so much: what was seen is as old as it is."""
        self.bins.from_ns += jumped_ns
        self.bins.until_ns += jumped_ns
        self.findings = {
            (key, since_ns + jumped_ns): moved(each, jumped_ns)
            for (key, since_ns), each in self.findings.items()
        }
        self.left_out = {(key, since_ns + jumped_ns) for key, since_ns in self.left_out}
        self.events = [moved(each, jumped_ns) for each in self.events]

    def copy(self) -> Digest:
        """The same, which another thread can read while scenes are added to this one."""
        made = replace(
            self,
            bins=copy.copy(self.bins),
            busy=self.busy.copy(),
            paused=self.paused.copy(),
            findings={key: copy.copy(each) for key, each in self.findings.items()},
            left_out=set(self.left_out),
            events=list(self.events),
        )
        made.show_last()
        return made

    def show_last(self) -> None:
        """Show the findings that hold as they are at the last scene. No scene is added after it."""
        for reported in self.findings.values():
            if self.last is not None and _is_shown_as_it_is(reported.finding):
                _keep(reported, reported.finding, self.last)


def digest(scenes: Iterable[Scene], bins: Bins) -> Digest:
    """The contents of a page about these scenes, which are read once."""
    made = Digest.empty(bins)
    for scene in scenes:
        made.add(scene)
    made.show_last()
    return made


def is_drawn(port: Port, fabric: Fabric) -> bool:
    """Whether a port has a row in the heatmap: rails, uplinks, and else one end of each cable."""
    if not port.node:
        return False
    if port.role == DOWNLINK:
        return port.peer is None or not fabric.ports[port.peer].node
    return port.role in (RAIL, UPLINK)


def _findings(made: Digest, scene: Scene, *, first: bool) -> None:
    """Add the findings of a scene; of the `first`, also those that were open before."""
    changes = list(scene.changes)
    if first:
        new = {finding.key for _, finding in changes}
        changes += [(Change.OPEN, each) for each in scene.findings if each.key not in new]
    for _, finding in changes:
        key = (finding.key, finding.since_ns)
        reported = made.findings.get(key)
        if reported is not None:
            reported.finding = finding
        elif len(made.findings) >= _MOST_FINDINGS:
            made.left_out.add(key)
        else:
            fabric = scene.snapshot.fabric
            subject = fabric.display_names([finding.subject])[0]
            made.findings[key] = ReportedFinding(finding, finding, subject, (), 0, (), 0)
    ended = [finding for change, finding in changes if change is Change.CLOSE]
    for finding in (*ended, *scene.findings):
        reported = made.findings.get((finding.key, finding.since_ns))
        if reported is not None:
            reported.finding = finding
            _keep_moment(reported, scene.snapshot)


def _is_shown_as_it_is(finding: Finding) -> bool:
    return finding.until_ns is None and shown_moment(finding) is finding


def _keep_moment(reported: ReportedFinding, snapshot: Snapshot) -> None:
    """Keep the moment that the page may show, with its bars, if it is another one: while a finding
    is shown as it is, its worst one, which may be shown once the seconds before it are forgotten.
    """
    finding, before = reported.finding, reported.kept
    moment = shown_moment(finding)
    if _is_shown_as_it_is(finding):
        moment = finding.worst or finding
        is_same = (moment.cause, moment.lost) == (before.cause, before.lost)
    else:
        is_same = moment.seen_ns == before.seen_ns
    if not reported.at_ns or not is_same:
        _keep(reported, moment, snapshot)


def _keep(reported: ReportedFinding, moment: Finding, snapshot: Snapshot) -> None:
    """Keep a moment of a finding, at a snapshot or before it, with its bars."""
    finding = reported.finding
    reported.kept, reported.at_ns = moment, moment.seen_ns or snapshot.time_ns
    ago_s = max(0, snapshot.time_ns - reported.at_ns) / 1e9
    reported.victims = tuple(each.text for each in affected_ports(finding, snapshot.fabric))
    all_of = full_port_ticks(finding, snapshot)
    reported.bars, reported.more = _bars(finding, snapshot, ago_s, all_of)
    reported.mean_s = None if all_of is None else all_of * snapshot.interval_s


def _bars(
    finding: Finding, snapshot: Snapshot, ago_s: float, all_of: int | None
) -> tuple[tuple[Bar, ...], int]:
    """Bars of the ECMP group of the first port, then of the finding's other ports, in the seconds
    up to `ago_s` before a snapshot; and how many ports have none."""
    fabric = snapshot.fabric
    rows = [row for row in finding.rows if fabric.ports[row].node]
    group = fabric.group_of(rows[0]) if rows else None
    own = sorted(group.rows, key=lambda row: fabric.ports[row].index) if group is not None else []
    shown = list(dict.fromkeys([*own, *rows]))
    one = len({fabric.ports[row].node for row in shown}) == 1
    shown, more = shown[:_MOST_BARS], max(0, len(shown) - _MOST_BARS)
    recent = RecentLoad(snapshot, shown, before_s=ago_s, all_of=all_of)
    rates = snapshot.line_rate_bps[shown]
    tx_bps, rx_bps = recent.mean("tx_bps"), recent.mean("rx_bps")
    with np.errstate(divide="ignore", invalid="ignore"):
        tx_util, rx_util = (
            np.where(bps <= MOST_OF_LINE_RATE * rates, bps / rates, np.nan)
            for bps in (tx_bps, rx_bps)
        )  # A port that became slower moments ago has sent more.
    bars = tuple(
        Bar(
            port=port.display_name,
            label=port.label or port.name if one else port.display_name,
            is_subject=row == rows[0],
            tx_bps=float(tx_bps[place]),
            rx_bps=float(rx_bps[place]),
            tx_util=float(tx_util[place]),
            rx_util=float(rx_util[place]),
            up=float(snapshot.up[row]),
        )
        for place, row in enumerate(shown)
        for port in [fabric.ports[row]]
    )
    return bars, more


def _events(made: Digest, scene: Scene) -> None:
    """Add the events of this tick, without findings, which have their own section."""
    for event in reversed(scene.events):
        if event.seq != scene.snapshot.seq:
            break
        if event.kind == "finding":
            continue
        if len(made.events) < _MOST_EVENTS:
            made.events.append(event)
        else:
            made.left_out_events += 1
