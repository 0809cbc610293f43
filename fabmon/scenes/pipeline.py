"""From a tick to its scene, and into the recording."""

from __future__ import annotations

import math

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.causes import sentence
from fabmon.analysis.finding import Change, Finding, to_stored
from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import clock_text
from fabmon.history.history import History
from fabmon.recording.format.records import Note
from fabmon.recording.writing.recorder import Recorder
from fabmon.scenes.analysis_time import AnalysisTime


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
