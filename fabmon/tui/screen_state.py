"""Lines that say what is on the screen, at their times: a tour, or remarks on a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.filter import Index, Matched, Term, index, match, parse
from fabmon.fabric.model import FABRIC, Fabric
from fabmon.fabric.snapshot import Floats, stale_ports
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.fabric.wording import Unit
from fabmon.recording.writing.recorder import RecorderStatus
from fabmon.tui.cells import CHOSEN, Codes, Scale, encode
from fabmon.tui.line import peer
from fabmon.tui.metrics import HeatMetric, heat, next_metric_name
from fabmon.tui.palette import RAMPS, Depth, Palette, palette
from fabmon.tui.selection import Selection, selection_of
from fabmon.tui.time.cursor import TimeCursor
from fabmon.tui.time.findings_at_the_time import findings_closed_before, note_events
from fabmon.tui.time.past_reader import Curve, RecordingContents


@dataclass(frozen=True, slots=True)
class Caption:
    """A text, from `at_s` after the first scene for `for_s` seconds."""

    at_s: float
    for_s: float
    text: str


@dataclass(slots=True)
class Captions:
    """Finds the caption of a scene's time; `skip` ends them all."""

    lines: Sequence[Caption] = ()
    skipped: bool = False
    _from_ns: int | None = field(default=None)

    def at(self, time_ns: int) -> str:
        """What to say at this time; empty for nothing. The first call is the beginning."""
        if self._from_ns is None:
            self._from_ns = time_ns
        seconds = (time_ns - self._from_ns) / SECOND_NS
        if self.skipped:
            return ""
        told = [each.text for each in self.lines if 0 <= seconds - each.at_s < each.for_s]
        return told[-1] if told else ""

    def skip(self) -> None:
        """Say no more."""
        self.skipped = True


# What is being shown and how: the scene of now, that of the cursor, and the person's choices.
#
# Screens read it, the app's actions change it. It knows nothing of Textual.


_MOST_CLOSED = 5
"""Findings that closed, of which a list can tell."""
_MOST_KEPT = 50
"""Findings that closed, of which some may be open again."""
_REMEMBERED = 900
"""Ticks of the busiest link that every scene can tell of."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the person has chosen."""

    unit: Unit = Unit.GBIT
    metric: str = "util"
    digits: bool = False
    ramp: str = RAMPS[0].name
    filter: str = ""
    terms: tuple[Term, ...] = ()


@dataclass(slots=True)
class ScreenState:
    """The scene on the screen, and what is needed to draw it.

    `live` is the last scene that came, None where what is shown is over; `shown` is that at the
    cursor, None while it follows what comes. `recording` says how the recorder does. `silent_s` is
    how long no scene has come, where that is worth saying; `ended` that none will; `reads` that the
    first is being read from a recording. `mark` is a word
    that must always be in sight; `captions` explain what is shown. `nothing` says why no node is
    there; it is empty where nobody knows. `chosen_key` is the key of the finding whose links are
    marked, empty for none.
    """

    title: str
    depth: Depth
    choices: Choices = field(default_factory=Choices)
    live: Scene | None = None
    shown: Scene | None = None
    cursor: TimeCursor = field(default_factory=TimeCursor)
    recording: Callable[[], RecorderStatus | None] = lambda: None
    is_frozen_now: bool = False
    silent_s: float = 0.0
    ended: bool = False
    reads: bool = False
    mark: str = ""
    captions: Captions = field(default_factory=Captions)
    nothing: Callable[[], str] = str
    selected_key: str = ""
    _chosen: tuple[Fabric, Selection] | None = None
    _line_rate_bps: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    _told: tuple[RecordingContents | None, tuple[Event, ...]] = (None, ())
    _closed: dict[str, Finding] = field(default_factory=dict)
    _cables: tuple[Fabric, int] | None = None
    _index: Index | None = None
    _matched: tuple[Scene, tuple[Term, ...], Matched] | None = None

    @property
    def scene(self) -> Scene | None:
        """The one to draw."""
        return self.shown or self.live

    @property
    def paused(self) -> bool:
        """Whether the screen stands still, or shows something else than now."""
        return self.shown is not None and (self.live is not None or not self.cursor.playing)

    @property
    def lag_s(self) -> float:
        """How far what is drawn is behind what came last."""
        if self.shown is None or self.live is None:
            return 0.0
        return (self.live.snapshot.time_ns - self.shown.snapshot.time_ns) / SECOND_NS

    @property
    def palette(self) -> Palette:
        """The colours in use."""
        return palette(self.depth, self.choices.ramp)

    @property
    def heat(self) -> HeatMetric:
        """The metric in use."""
        return heat(self.choices.metric)

    def take(self, scene: Scene) -> None:
        """The next scene has come."""
        self.live = scene
        self.silent_s = 0.0
        self._learn(scene)

    def show(self, scene: Scene) -> None:
        """Show a scene of the past, or the next one of it."""
        self.shown = scene
        self.is_frozen_now = False
        self._learn(scene)

    def follow(self) -> None:
        """Show what comes."""
        self.shown = None
        self.is_frozen_now = self.cursor.playing = self.cursor.at_end = False
        self.cursor.is_settled = True

    def _learn(self, scene: Scene) -> None:
        for change, finding in scene.changes:
            known = self._closed.get(finding.key)
            is_later = known is None or (known.until_ns or 0) < (finding.until_ns or 0)
            if change is Change.CLOSE and is_later:
                self._closed.pop(finding.key, None)
                self._closed[finding.key] = finding
                if len(self._closed) > _MOST_KEPT:
                    del self._closed[next(iter(self._closed))]
        rates = scene.snapshot.line_rate_bps
        new = len(rates) - len(self._line_rate_bps)
        before = np.pad(self._line_rate_bps, (0, max(0, new)), constant_values=np.nan)
        self._line_rate_bps = np.where(np.isnan(rates), before[: len(rates)], rates)

    def cells(self, scene: Scene, levels: Scale, of: HeatMetric | None = None) -> Codes:
        """[ports]: the codes of a scene's cells, in the metric `of`, or else in the one in use."""
        count = len(scene.snapshot.line_rate_bps)
        known = self._line_rate_bps[:count]
        codes = encode(scene.snapshot, of or self.heat, levels, hot_rows(scene), known)
        marked = self.chosen(scene)
        if marked is not None:
            codes[marked.rows] |= CHOSEN
        return codes

    def choose(self, key: str) -> None:
        """Mark the links of the finding with this key in every view; of none when it is empty."""
        self.selected_key = key

    def chosen(self, scene: Scene) -> Selection | None:
        """The chosen finding, as long as it is open; worked out anew when it or the fabric is."""
        key, fabric = self.selected_key, scene.snapshot.fabric
        found = next((each for each in scene.findings if key and each.key == key), None)
        if found is None:
            return None
        if (
            self._chosen is None
            or self._chosen[0] is not fabric
            or self._chosen[1].finding is not found
        ):
            self._chosen = (fabric, selection_of(found, fabric))
        return self._chosen[1]

    def cables(self, fabric: Fabric) -> int:
        """How many cables are watched: two watched ends are one. Counted once for each fabric."""
        if self._cables is None or self._cables[0] is not fabric:
            ports = [port for port in fabric.ports if port.role in FABRIC and port.node]
            ends = sum(peer(port, fabric) is None or port.row < (port.peer or 0) for port in ports)
            self._cables = (fabric, ends)
        return self._cables[1]

    def freeze(self) -> None:
        """Stop at the last scene."""
        self.shown = self.live
        self.is_frozen_now = self.shown is not None

    def strip_window(self) -> tuple[int, int] | None:
        """(from, until) in ns: what the strip of time shows."""
        if self.scene is None:
            return None
        now_ns = None if self.live is None else self.live.snapshot.time_ns
        return self.cursor.window(self.scene.snapshot.time_ns, now_ns)

    def curve(self) -> Curve | None:
        """What is known for the strip of time: the last minutes, or what was read of others."""
        window = self.strip_window()
        if window is None or self.live is None or window[1] != self.live.snapshot.time_ns:
            return self.cursor.curve
        interval_ns = int(max(self.live.snapshot.interval_s, 0.001) * SECOND_NS)
        ticks = (window[1] - window[0]) // interval_ns
        if ticks > _REMEMBERED:
            return self.cursor.curve
        ticks = max(ticks, 1)
        from_ns = window[1] - ticks * interval_ns
        return Curve(from_ns, window[1], self.live.snapshot.worst(ticks))

    def events(self) -> list[Event]:
        """All that is known to have happened, by time."""
        recorded = self.cursor.recorded
        if recorded is not None and self._told[0] is not recorded:
            self._told = (recorded, note_events(recorded.notes))
        scenes = [scene for scene in (self.live, self.shown) if scene is not None]
        every = [*self._told[1], *(event for scene in scenes for event in scene.events)]
        once = {(event.time_ns, event.text): event for event in every}
        return [once[key] for key in sorted(once)]

    def closed(self, scene: Scene) -> list[Finding]:
        """The last findings that closed before a scene and are not open again, the latest first."""
        now_ns, recorded = scene.snapshot.time_ns, self.cursor.recorded
        noted = (
            []
            if recorded is None
            else findings_closed_before(recorded.notes, scene.snapshot, _MOST_CLOSED)
        )
        every = [*noted, *self._closed.values()]
        ended = {each.key: each for each in every if (each.until_ns or now_ns) <= now_ns}
        standing = {each.key for each in scene.findings}
        left = [each for key, each in ended.items() if key not in standing]
        return sorted(left, key=lambda each: -(each.until_ns or 0))[:_MOST_CLOSED]

    def next_unit(self) -> None:
        """Gb/s, GB/s, %."""
        self.choices = replace(self.choices, unit=self.choices.unit.next())

    def next_metric(self) -> None:
        """The next metric of the cells."""
        snapshot = None if self.scene is None else self.scene.snapshot
        self.choices = replace(self.choices, metric=next_metric_name(self.choices.metric, snapshot))

    def next_ramp(self) -> None:
        """The next colours."""
        names = [ramp.name for ramp in RAMPS]
        ramp = names[(names.index(self.choices.ramp) + 1) % len(names)]
        self.choices = replace(self.choices, ramp=ramp)

    def toggle_digits(self) -> None:
        """Numbers in the cells, or none."""
        self.choices = replace(self.choices, digits=not self.choices.digits)

    def filter(self, text: str) -> None:
        """Show what the filter leaves. Raises FilterError, and changes nothing, if it is wrong."""
        self.choices = replace(self.choices, filter=text, terms=parse(text))

    def matched(self, scene: Scene) -> Matched | None:
        """What the filter leaves of a scene; None when there is no filter."""
        terms = self.choices.terms
        if not terms:
            return None
        if self._index is None or self._index.fabric is not scene.snapshot.fabric:
            self._index = index(scene.snapshot.fabric)
        if self._matched is None or self._matched[0] is not scene or self._matched[1] != terms:
            self._matched = (scene, terms, match(terms, scene.snapshot, self._index))
        return self._matched[2]


def hot_rows(scene: Scene) -> set[int]:
    """The hot ports: the guilty ones of open findings, as far as they are up and heard of."""
    rows = {finding.rows[0] for finding in scene.findings if finding.rows}
    gone = stale_ports(scene.snapshot) | (scene.snapshot.up == 0)
    return {row for row in rows if row < len(gone) and not gone[row]}
