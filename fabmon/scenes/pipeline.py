"""From a tick to its scene, and into the recording."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.causes import sentence
from fabmon.analysis.earlier_findings import EarlierFinding
from fabmon.analysis.finding import Change, Finding, to_stored
from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import clock_text
from fabmon.history.history import History
from fabmon.recording.format.records import PARTLY_ANALYSED, Note
from fabmon.recording.writing.recorder import Recorder
from fabmon.scenes.tick_costs import Part, TickCosts

_LOG = logging.getLogger("fabmon.scenes")
_MOST_PASSED_OVER = 10
_ROOM_TO_SPARE = 1.4
_SAID_FOR_S = 60.0


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

    `analysis_time` limits the analysis; without it every tick is analysed.
    """

    def __init__(
        self,
        history: History,
        analyst: Analyst,
        recorder: Recorder | None = None,
        analysis_time: AnalysisTime | None = None,
    ) -> None:
        self.history = history
        self._analyst = analyst
        self._recorder = recorder
        self._analysis_time = analysis_time or AnalysisTime(math.inf)
        self._passed_over_ns = 0
        self.costs = TickCosts()

    def take_up(self, kept: Iterable[EarlierFinding]) -> None:
        """Findings that an earlier run left open: before the first tick, or once they are known."""
        self._analyst.take_up(kept)

    def accept(self, tick: Tick) -> Scene:
        """Process a tick: returns its scene."""
        snapshot = self.history.accept(tick)
        self.costs.end(Part.HISTORY)
        with self._analysis_time.analysing() as is_analysed:
            accept = self._analyst.accept if is_analysed else self._analyst.pass_over
            scene = accept(snapshot)
        if not is_analysed:
            self._passed_over_ns = snapshot.time_ns
        if self._recorder is not None:
            notes = finding_notes(scene, self._passed_over_ns)
            if tick.clock_jumped_ns:
                text = clock_text(tick.clock_jumped_ns)
                notes.append(Note(kind="bookmark", time_ns=tick.time_ns, seq=tick.seq, text=text))
            self._recorder.accept(tick, scene.snapshot, notes)
        self.costs.end(Part.ANALYSIS)
        return scene


def finding_notes(scene: Scene, passed_over_ns: int = 0) -> list[Note]:
    """The changes of findings at a tick, as notes of a recording. `passed_over_ns` is the time of
    the last tick that was not analysed, 0 if all were."""
    return [_note(scene, change, finding, passed_over_ns) for change, finding in scene.changes]


def _note(scene: Scene, change: Change, finding: Finding, passed_over_ns: int) -> Note:
    snapshot = scene.snapshot
    is_partial = passed_over_ns >= finding.since_ns
    return Note(
        kind="finding",
        time_ns=snapshot.time_ns,
        seq=snapshot.seq,
        text=sentence(finding),
        change=change.value,
        ports=tuple(snapshot.fabric.ports[row].id for row in finding.rows),
        finding=to_stored(finding) | ({PARTLY_ANALYSED: True} if is_partial else {}),
    )
