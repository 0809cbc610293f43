"""One line for findings that have just opened; many at once are one line too."""

from __future__ import annotations

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Scene
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.line import fit
from fabmon.tui.text import words

_APART_S = 3


class Toasts:
    """Gathers what opened, and lets a line through at most every few seconds of scene time."""

    def __init__(self) -> None:
        """Nothing has opened."""
        self._waiting: list[Finding] = []
        self._last_ns: int | None = None

    def accept(self, scene: Scene, width: int) -> str | None:
        """The line to show at this scene; None for none."""
        self._waiting += [finding for change, finding in scene.changes if change is Change.OPEN]
        if not self._waiting:
            return None
        now = scene.moment.time_ns
        if self._last_ns is not None and now - self._last_ns < _APART_S * SECOND_NS:
            return None
        self._last_ns = now
        told, self._waiting = self._waiting, []
        first = told[0]
        text = (
            f"{words.mark(first)} {words.cause(first)} {words.subject(first, scene.moment.fabric)}"
        )
        if len(told) > 1:
            text = f"{text} and {len(told) - 1} more findings"
        return fit(text, max(1, width)).rstrip()
