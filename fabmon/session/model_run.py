"""`fabmon replay --model-at`: what the bottleneck model believes at one tick of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import Condition
from fabmon.analysis.model.bottlenecks import BottleneckModel
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.recording.reading.timeline import Timeline
from fabmon.report.model_table import ModelTick, model_table, model_tick
from fabmon.scenes.lead_in import lead_in_ns
from fabmon.scenes.pipeline import Pipeline
from fabmon.session.errors import Exit
from fabmon.session.presentation import warn_of_simulation
from fabmon.session.printing import log_to_stderr, write_text
from fabmon.session.replay_run import (
    PlayedRange,
    check_ticks,
    is_simulated,
    last_screen,
    open_recordings,
    time_at,
)
from fabmon.session.session import Session


class ModelObserver:
    """A detector without conditions that keeps what the model believes at the last tick."""

    def __init__(self, t: ModelThresholds) -> None:
        self._model = BottleneckModel(t)
        self._inputs: DetectorInput | None = None

    def __call__(self, inputs: DetectorInput) -> tuple[Condition, ...]:
        """Let the model take a tick."""
        self._inputs = None
        self._model.candidates(inputs)
        self._inputs = inputs
        return ()

    def last(self) -> ModelTick | None:
        """The last tick; None without one, or if the model failed at it."""
        return None if self._inputs is None else model_tick(self._inputs, self._model)


def model_at(session: Session, timeline: Timeline, at_ns: int) -> ModelTick | None:
    """What the model believes at a time (ns), at the last tick up to it; None if it failed there.

    The session is that of the recording. The ticks of some minutes before are played.
    """
    observer = ModelObserver(session.settings.thresholds.model)
    analyst = Analyst(session.settings.thresholds, session.hints, (observer,))
    pipeline = Pipeline(session.recorded_history(timeline), analyst)
    played = PlayedRange(session, timeline, at_ns, at_ns, "playing")
    for _, tick in played.ticks(lead_in_ns(timeline)):
        pipeline.accept(tick)
    return observer.last()


def print_model(session: Session, files: Sequence[Path], at: str, redact: bool = False) -> Exit:
    """Print what the model believes at a time of recordings, as the user writes it; without files,
    of what the last screen recorded. Raises UsageError."""
    with open_recordings(files or (last_screen(session.settings.recording),)) as timeline:
        check_ticks(timeline)
        at_ns = time_at(timeline, "--model-at", at)
        if is_simulated(timeline):
            warn_of_simulation()
        log_to_stderr()
        tick = model_at(session.for_recording(timeline, redact), timeline, at_ns)
    if tick is None:
        return Exit.FAILED  # The analyst has logged why.
    write_text(model_table(tick))
    return Exit.OK
