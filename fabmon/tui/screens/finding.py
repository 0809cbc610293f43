"""One finding."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.tui import keys
from fabmon.tui.line import Line
from fabmon.tui.past import Past
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.screens.waterfall import WaterfallScreen
from fabmon.tui.stage import Stage
from fabmon.tui.target import PortTarget
from fabmon.tui.text import finding, words
from fabmon.tui.widgets.lineview import LineView


class FindingScreen(LineScreen):
    """Why it is one, and what to do."""

    VIEW = "finding"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.FINDING)]

    def __init__(self, stage: Stage, shown: Finding, past: Past | None = None) -> None:
        """Of a finding, kept for it may close while it is read; `past` is what is recorded."""
        super().__init__(stage)
        self._past = past
        self._finding = shown
        self._drawn = False

    @property
    def finding(self) -> Finding:
        """As it is now, or was at last."""
        return self._finding

    def crumb(self) -> str:
        """Its cause and subject."""
        scene, found = self.stage.scene, self._finding
        named = words.subject(found, scene.moment.fabric) if scene is not None else found.subject
        return f"{words.cause(found)} {named.partition(' → ')[0]}"

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Its page, as it is now or was at last."""
        now = next((f for f in scene.findings if f.key == self._finding.key), None)
        self._finding = now or self._finding
        return finding.page(self.stage, scene, self._finding, now is not None, width, height)

    async def action_waterfall(self) -> None:
        """Its links over time."""
        await self.app.push_screen(WaterfallScreen(self.stage, self._finding, self._past))

    def draw(self, scene: Scene) -> None:
        """Draw it; the first time, at the guilty port."""
        super().draw(scene)
        if not self._drawn and self._finding.rows:
            self.query_one(LineView).select(PortTarget(self._finding.rows[0]))
        self._drawn = True
