"""The state of the screen: the scenes of now and of the cursor, the selection, the choices.

Screens read it, actions of the app change it. It does not depend on Textual. What is drawn from it
are frozen contexts (fabmon/tui/text/draw_context.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.filter import Index, Matched, index, match
from fabmon.fabric.model import Fabric
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import RING_TICKS, Floats, Snapshot
from fabmon.fabric.time_window import Span, TimeWindow
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.scenes.findings_at_the_time import findings_closed_before, note_events
from fabmon.scenes.recording_access import RecordingAccess
from fabmon.scenes.recording_contents import Curve
from fabmon.tui.choices import Choices
from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import Key
from fabmon.tui.metrics import HeatMetric, heat_metric
from fabmon.tui.palette import Depth, Palette, Theme, palette
from fabmon.tui.run_facts import RunFacts, Tips
from fabmon.tui.text.draw_context import (
    DrawContext,
    HeaderContext,
    Selection,
    TimeContext,
    TimelineContext,
    selection_of,
)
from fabmon.tui.text.fabric_total import FabricTotal, fabric_total, sending_rows
from fabmon.tui.text.finding_groups import MOST_CLOSED, FindingGroup, finding_groups, matching
from fabmon.tui.time.cursor import USUAL_S, TimeCursor

_MOST_KEPT_CLOSED = 50
"""Closed findings that are kept: some of them may be open again."""

T = TypeVar("T")


@dataclass(slots=True)
class _Memo(Generic[T]):
    """The last result of a computation, kept while its inputs are the same objects."""

    _inputs: tuple[object, ...] = ()
    _result: list[T] = field(default_factory=list)

    def get(self, compute: Callable[[], T], *inputs: object) -> T:
        """The result for these inputs, computed if they are others than the last ones."""
        same = len(inputs) == len(self._inputs)
        if not same or any(a is not b for a, b in zip(inputs, self._inputs, strict=True)):
            self._inputs, self._result = inputs, [compute()]
        return self._result[0]


@dataclass(slots=True)
class ScreenState:
    """The scene on the screen, and everything else that is needed to draw it.

    `live` is the newest scene, None in a replay. `shown` is the scene at the cursor, None while the
    screen follows the newest. `recording` is the access to its recording. `silent_s` is the time
    without a tick, `delay_s` the age of the newest scene, 0 while that is normal, `data_age_s` that
    of its samples, 0 where ticks are short. `ended`: no scene will follow; `reads`: the first scene
    is being read from a recording. `captions` are tips. `follows_first`: the first finding is
    selected, until the user moves. `unfolded` are the keys of the groups of findings that are
    listed. `terminal_theme` fits the terminal's background. `message` is what the last line says in
    the place of its first keys; empty while it says nothing.
    """

    run: RunFacts
    depth: Depth
    choices: Choices = field(default_factory=Choices)
    live: Scene | None = None
    shown: Scene | None = None
    cursor: TimeCursor = field(default_factory=TimeCursor)
    recording: RecordingAccess = field(default_factory=RecordingAccess)
    is_frozen_now: bool = False
    silent_s: float = 0.0
    delay_s: float = 0.0
    data_age_s: float = 0.0
    ended: bool = False
    reads: bool = False
    captions: Tips = field(default_factory=Tips)
    follows_first: bool = True
    _selected_key: str = ""
    unfolded: frozenset[str] = frozenset()
    terminal_theme: Theme = Theme.DARK
    message: str = ""
    keys: tuple[Key, ...] = KEYS
    _line_rate_bps: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    _closed: dict[str, Finding] = field(default_factory=dict)
    _groups: _Memo[tuple[FindingGroup, ...]] = field(default_factory=_Memo)
    _by_key: _Memo[dict[str, Finding]] = field(default_factory=_Memo)
    _selection: _Memo[Selection] = field(default_factory=_Memo)
    _recorded_events: _Memo[tuple[Event, ...]] = field(default_factory=_Memo)
    _events: _Memo[tuple[Event, ...]] = field(default_factory=_Memo)
    _total: _Memo[FabricTotal | None] = field(default_factory=_Memo)
    _sending: _Memo[NDArray[np.intp]] = field(default_factory=_Memo)
    _cables: _Memo[int] = field(default_factory=_Memo)
    _index: _Memo[Index] = field(default_factory=_Memo)
    _matched: _Memo[Matched] = field(default_factory=_Memo)
    _seen: _Memo[Snapshot] = field(default_factory=_Memo)

    @property
    def scene(self) -> Scene | None:
        """The scene on the screen."""
        return self.shown or self.live

    @property
    def paused(self) -> bool:
        """Whether the screen does not move, or shows the past of a live feed."""
        return self.shown is not None and (self.live is not None or not self.cursor.playing)

    @property
    def freeze_word(self) -> str:
        """What the key that freezes does now, as the footer names it."""
        if self.shown is None:
            return "freeze"
        if self.cursor.playing:
            return "pause"
        return "resume" if self.is_frozen_now else "play"

    @property
    def lag_s(self) -> float:
        """How far the scene on the screen is behind the newest."""
        if self.shown is None or self.live is None:
            return 0.0
        return (self.live.snapshot.time_ns - self.shown.snapshot.time_ns) / SECOND_NS

    @property
    def refused_actions(self) -> frozenset[str]:
        """The actions that this screen always refuses: no footer and no command offers them."""
        bookmark = {"bookmark"} if self.recording.bookmark_problem else set()
        return self.run.impossible | bookmark

    @property
    def theme(self) -> Theme:
        """The theme that the user chose, else that of the terminal."""
        return self.choices.theme or self.terminal_theme

    @property
    def palette(self) -> Palette:
        """The current colours."""
        return palette(self.depth, self.choices.ramp, self.theme)

    @property
    def metric(self) -> HeatMetric:
        """The current metric."""
        return heat_metric(self.choices.metric)

    def take(self, scene: Scene) -> None:
        """A new scene arrived."""
        self.live = scene
        self.silent_s = 0.0
        if self.shown is None:  # The timeline stays as it is while the user looks at the past.
            self.cursor.live_s = _known_s(scene.snapshot)
        self._learn(scene)

    def show(self, scene: Scene) -> None:
        """Show a scene of the past."""
        self.shown = scene
        self.is_frozen_now = False
        self._learn(scene)

    def follow(self) -> None:
        """Follow the newest scene."""
        self.shown = None
        self.is_frozen_now = self.cursor.playing = self.cursor.at_end = False
        self.cursor.is_settled = True

    def freeze(self) -> None:
        """Stop at the newest scene."""
        self.shown = self.live
        self.is_frozen_now = self.shown is not None

    def _learn(self, scene: Scene) -> None:
        """Keep the findings that closed, and the line rates that are known."""
        for change, finding in scene.changes:
            known = self._closed.get(finding.key)
            is_later = known is None or (known.until_ns or 0) < (finding.until_ns or 0)
            if change is Change.CLOSE and is_later:
                self._closed.pop(finding.key, None)
                self._closed[finding.key] = finding
                if len(self._closed) > _MOST_KEPT_CLOSED:
                    del self._closed[next(iter(self._closed))]
        rates = scene.snapshot.line_rate_bps
        before = grown(self._line_rate_bps, len(rates), np.nan)
        # A recording that this run extends may have ports that are not watched any more.
        now = grown(rates, len(before), np.nan)
        self._line_rate_bps = np.where(np.isnan(now), before, now)

    @property
    def selected_key(self) -> str:
        """The key of the selected finding or group of findings, empty for none."""
        if not self.follows_first:
            return self._selected_key
        groups = () if self.scene is None else self.groups(self.scene)
        return groups[0].key if groups else ""

    def select(self, key: str) -> None:
        """Select the finding with this key in every view; empty: none."""
        self._selected_key, self.follows_first = key, False

    def select_first(self) -> None:
        """Select the first finding, whichever it is, until the user moves."""
        self._selected_key, self.follows_first = "", True

    def user_moved(self) -> None:
        """Let go of the first finding; one that the user selected stays selected."""
        if self.follows_first:
            self.select("")

    def fold(self, key: str, unfold: bool | None = None) -> None:
        """List the findings of a group, or no longer; without `unfold`, the other of the two."""
        is_unfolded = key in self.unfolded if unfold is None else not unfold
        self.unfolded = self.unfolded - {key} if is_unfolded else self.unfolded | {key}

    def groups(self, scene: Scene) -> tuple[FindingGroup, ...]:
        """The findings of a scene that match the filter, as lines of a list."""
        matched, fabric = self.matched(scene), scene.snapshot.fabric
        return self._groups.get(
            lambda: finding_groups(
                matching(scene.findings, matched), fabric, scene.iteration_report.jobs
            ),
            scene,
            matched,
        )

    def group(self, key: str, scene: Scene) -> FindingGroup | None:
        """The group of several findings with this key; None if there is none in a scene."""
        groups = (each for each in self.groups(scene) if not each.is_single)
        return next((each for each in groups if each.key == key), None)

    def selection(self, scene: Scene) -> Selection | None:
        """The selected finding or group while it is open; None otherwise."""
        key, fabric = self.selected_key, scene.snapshot.fabric
        if not key:
            return None
        by_key = self._by_key.get(lambda: {each.key: each for each in scene.findings}, scene)
        if key in by_key:
            found: tuple[Finding, ...] = (by_key[key],)
        elif (group := self.group(key, scene)) is not None:
            found = group.findings
        else:
            return None
        if self.follows_first:
            # What nobody has chosen is marked in the list only: marks would cover the picture.
            return Selection(found[0], np.empty(0, np.intp), frozenset())
        return self._selection.get(lambda: selection_of(found, fabric), *found, fabric)

    def cables(self, fabric: Fabric) -> int:
        """The number of watched cables; two watched ends are one cable."""
        return self._cables.get(fabric.watched_cables, fabric)

    @property
    def window(self) -> TimeWindow:
        """The window of all values: this tick while those before it are read from a recording."""
        is_reading = self.shown is not None and not self.cursor.is_settled
        return TimeWindow.TICK if is_reading else self.choices.window

    def span(self, scene: Scene) -> Span:
        """The window of all values that are shown of a scene."""
        return scene.span(self.window)

    def seen(self, scene: Scene) -> Snapshot:
        """The snapshot of a scene over the window of the screen."""
        window = self.window
        return self._seen.get(lambda: scene.seen(window), scene, window)

    def total(self, scene: Scene) -> FabricTotal | None:
        """The traffic of the whole fabric."""
        fabric, window = scene.snapshot.fabric, self.window
        sending = self._sending.get(lambda: sending_rows(fabric), fabric)
        return self._total.get(
            lambda: fabric_total(scene.snapshot, sending, self.span(scene)), scene, window
        )

    def timeline_window(self) -> tuple[int, int] | None:
        """(from, until) in ns: the range of the timeline; None before the first scene."""
        if self.scene is None:
            return None
        now_ns = None if self.live is None else self.live.snapshot.time_ns
        return self.cursor.window(self.scene.snapshot.time_ns, now_ns)

    def curve(self) -> Curve | None:
        """The busiest link over the timeline: of the last minutes, else what was read last."""
        window = self.timeline_window()
        if window is None or self.live is None or window[1] != self.live.snapshot.time_ns:
            return self.cursor.curve
        interval_ns = int(max(self.live.snapshot.interval_s, 0.001) * SECOND_NS)
        ticks = max((window[1] - window[0]) // interval_ns, 1)
        if ticks > RING_TICKS:
            return self.cursor.curve
        from_ns = window[1] - ticks * interval_ns
        return Curve(from_ns, window[1], self.live.snapshot.worst(ticks))

    def events(self) -> tuple[Event, ...]:
        """All known events by time, each once.

        Where the wall clock was set back, those of the analysis moved with it, and those that were
        recorded before did not: live, the time of an event is the moved one, in a recording that at
        which it is found there.
        """
        recorded = self.cursor.recorded
        notes = () if recorded is None else recorded.notes
        noted = self._recorded_events.get(lambda: note_events(notes), recorded)

        def gather() -> tuple[Event, ...]:
            scenes = [scene for scene in (self.shown, self.live) if scene is not None]
            found = {(each.seq, each.text): each for scene in scenes for each in scene.events}
            # Ticks of another run may have the same numbers.
            now_ns = max((scene.snapshot.time_ns for scene in scenes), default=0)
            runs_ns = () if recorded is None else recorded.runs_ns
            began_ns = max((each for each in runs_ns if each <= now_ns), default=0)
            own = [each for each in noted if each.time_ns >= began_ns]
            twice = found.keys() & {(each.seq, each.text) for each in own}
            if self.live is None:
                found = {key: each for key, each in found.items() if key not in twice}
                twice = set()
            kept = (e for e in noted if e.time_ns < began_ns or (e.seq, e.text) not in twice)
            once = {(each.time_ns, each.text): each for each in (*kept, *found.values())}
            return tuple(once[key] for key in sorted(once))

        return self._events.get(gather, self.live, self.shown, recorded)

    def closed(self, scene: Scene) -> list[Finding]:
        """The last findings that closed before a scene and are not open in it, latest first; with a
        filter more of them, since it leaves some."""
        now_ns, recorded = scene.snapshot.time_ns, self.cursor.recorded
        most = _MOST_KEPT_CLOSED if self.choices.terms else MOST_CLOSED
        notes = () if recorded is None else recorded.notes
        noted = findings_closed_before(notes, scene.snapshot, most)
        every = [*noted, *self._closed.values()]
        ended = {each.key: each for each in every if (each.until_ns or now_ns) <= now_ns}
        for finding in scene.findings:
            ended.pop(finding.key, None)
        latest = sorted(ended.values(), key=lambda each: -(each.until_ns or 0))
        return latest[:most]

    def time_context(self) -> TimeContext:
        """Where in time the screen is."""
        return TimeContext(
            cursor=replace(self.cursor),
            live=self.live,
            shown=self.shown,
            is_frozen_now=self.is_frozen_now,
            is_paused=self.paused,
            lag_s=self.lag_s,
            silent_s=self.silent_s,
            delay_s=self.delay_s,
            data_age_s=self.data_age_s,
            ended=self.ended,
            reads=self.reads,
        )

    def header_context(self, width: int) -> HeaderContext:
        """What the header is drawn from, with or without a scene."""
        return HeaderContext(
            run=self.run,
            time=self.time_context(),
            recorder=self.recording.status,
            lost_bytes=self.recording.lost_bytes,
            choices=self.choices,
            window="" if self.scene is None else self.span(self.scene).text,
            cables=0 if self.scene is None else self.cables(self.scene.snapshot.fabric),
            total=None if self.scene is None else self.total(self.scene),
            palette=self.palette,
            width=width,
            keys=self.keys,
        )

    def timeline_context(
        self, width: int, height: int, is_focused: bool = False
    ) -> TimelineContext | None:
        """What the timeline is drawn from; None before the first scene."""
        window, scene = self.timeline_window(), self.scene
        if window is None or scene is None:
            return None
        selected = self.selection(scene)
        return TimelineContext(
            time=self.time_context(),
            scene=scene,
            window=window,
            curve=self.curve(),
            events=self.events(),
            selected=None if selected is None else selected.finding,
            palette=self.palette,
            width=width,
            height=height,
            is_focused=is_focused,
        )

    def draw_context(self, scene: Scene, width: int, height: int = 0) -> DrawContext:
        """What a page of a scene is drawn from."""
        return DrawContext(
            scene=scene,
            snapshot=self.seen(scene),
            window=self.span(scene),
            palette=self.palette,
            width=width,
            height=height,
            choices=self.choices,
            metric=self.metric,
            matched=self.matched(scene),
            groups=self.groups(scene),
            unfolded=self.unfolded,
            selection=self.selection(scene),
            selected_key=self.selected_key,
            line_rate_bps=self._line_rate_bps[: len(scene.snapshot.line_rate_bps)],
            events=self.events(),
            closed=tuple(self.closed(scene)),
            run=self.run,
            time=self.time_context(),
            keys=self.keys,
        )

    def matched(self, scene: Scene) -> Matched | None:
        """The ports and nodes of a scene that match the filter; None without a filter.

        `util>80` is compared with what is shown: values over the window of the screen.
        """
        terms, seen = self.choices.terms, self.seen(scene)
        if not terms:
            return None
        known = self._index.get(lambda: index(seen.fabric), seen.fabric)
        return self._matched.get(lambda: match(terms, seen, known), seen, terms)


def _known_s(snapshot: Snapshot) -> float:
    """The time since the first tick in memory at which the load of a link was known."""
    ticks = min(RING_TICKS, ceil(USUAL_S / max(snapshot.interval_s, 1e-3)))
    known = np.flatnonzero(np.isfinite(snapshot.worst(ticks)))
    return float(ticks - known[0]) * snapshot.interval_s if len(known) else 0.0
