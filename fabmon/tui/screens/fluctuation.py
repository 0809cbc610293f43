"""How steady bandwidth is: the last minutes, by job, rail, pair and link."""

from __future__ import annotations

from functools import partial

from textual.worker import Worker, WorkerState

from fabmon.analysis.fluctuation.recent import recent
from fabmon.analysis.fluctuation.records import Fluctuation
from fabmon.analysis.scene import Scene
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Palette
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.stage import Stage
from fabmon.tui.text import fluctuation

_EVERY_S = 10.0
_WORK = "fluctuation"


class FluctuationScreen(LineScreen):
    """Looks again every ten seconds, in a thread of its own; until then the last look is shown."""

    VIEW = "fluctuation"

    def __init__(self, stage: Stage) -> None:
        """Of a stage; nothing has been looked at."""
        super().__init__(stage)
        self._found: Fluctuation | None = None
        self._asked: tuple[int, str] | None = None
        self._work: Worker[Fluctuation] | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """What was found last."""
        self._look(scene)
        if self._found is None:
            return self.gone("looking at the last minutes")
        return fluctuation.page(self.stage, scene, self._found, width)

    def title_parts(self, palette: Palette) -> list[list[Span]]:
        """Over which time it is."""
        said = "looking" if self._found is None else fluctuation.over(self._found)
        return [*super().title_parts(palette), [(said, palette.text)]]

    def _look(self, scene: Scene) -> None:
        """Look at the last minutes of a scene, if it is time to."""
        if self._work is not None:
            return
        now, said = scene.moment.time_ns, self.stage.choices.filter
        if self._asked is not None:
            since_s = abs(now - self._asked[0]) / 1e9
            if said == self._asked[1] and since_s < _EVERY_S:
                return
        self._asked = (now, said)
        matched = self.stage.matched(scene)
        wanted = None if matched is None else set(matched.ports.nonzero()[0].tolist())
        copy = recent(scene.moment, wanted)
        self._work = self.run_worker(partial(copy.studied), name=_WORK, thread=True)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show what was found."""
        if event.worker is not self._work or not event.worker.is_finished:
            return
        if event.state is WorkerState.SUCCESS:
            self._found = event.worker.result
        self._work = None
        self.paint()
