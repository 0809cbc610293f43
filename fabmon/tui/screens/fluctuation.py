"""How steady bandwidth is, by job, rail, pair and link: the last minutes, or what is recorded."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.worker import Worker

from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.fluctuation.study import recent_traffic
from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.tui import keys
from fabmon.tui.line import Line, Span
from fabmon.tui.palette import Palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import LineScreen
from fabmon.tui.text.pages import fluctuation
from fabmon.tui.text.pages.fluctuation import hours
from fabmon.tui.time.past_reader import PastError, PastReader
from fabmon.tui.widgets.lines import Highlighted, LineView, Painted

_EVERY_S = 10.0
_GROWN = 0.1
"""A recording that has grown by this share of itself is looked at anew."""


class StudyRange(StrEnum):
    """What is looked at, in the words of the title."""

    MARKED = "marked"
    WHOLE = "whole recording"
    LAST = "last minutes"


_WHEN_LIVE = (StudyRange.MARKED, StudyRange.LAST, StudyRange.WHOLE)
"""While something comes, the last minutes are wanted first, unless a range was marked."""


class StudyRequest(NamedTuple):
    """What is looked at: between which times, with which filter."""

    range: StudyRange
    from_ns: int
    until_ns: int
    filter: str


class FluctuationScreen(LineScreen):
    """Looks off the event loop; until it has, what was found last is shown, and is said to be old.

    Of what goes on it takes the last minutes, every ten seconds; of a recording all of it, or what
    is marked.
    """

    VIEW = "fluctuation"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(keys.FLUCTUATION)]

    def __init__(self, screen_state: ScreenState, past: PastReader | None = None) -> None:
        """Of a stage, and of what is recorded of it; nothing has been looked at."""
        super().__init__(screen_state)
        self._past = past
        self._chosen: StudyRange | None = None
        self._found: tuple[StudyRequest, Fluctuation] | None = None
        self._asked: StudyRequest | None = None
        self._work: Worker[None] | None = None
        self._share = 0.0
        self._wrong = ""

    def body(self) -> ComposeResult:
        """The title, the lines, and the hours of the chosen one."""
        yield from super().body()
        yield Painted(id="hours")

    def draw(self, scene: Scene) -> None:
        """Draw the lines, then what is told of the chosen one."""
        super().draw(scene)
        self._draw_hours(scene)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """What was found last."""
        self._look(scene)
        if self._wrong:
            return self.gone(f"the recording cannot be read: {self._wrong}")
        if self._found is None:
            return self.gone(f"looking at the {self._looked()}")
        return fluctuation.page(self.screen_state, scene, self._found[1], width)

    def title_parts(self, palette: Palette) -> list[list[Span]]:
        """Over which time it is; that it is not that which was asked for."""
        parts = super().title_parts(palette)
        if self._found is None:
            return parts
        asked, found = self._found
        parts += [[(asked.range, palette.text)]]
        parts += [[(text, palette.text)] for text in fluctuation.over(found)]
        if self._asked is not None and self._asked[0] != asked.range:
            parts.insert(1, [(f"looking at the {self._looked()}", palette.hot)])
        return parts

    async def action_range(self) -> None:
        """The next of the ranges that there are."""
        if self.screen_state.scene is None:
            return
        if self._past is not None and self.screen_state.live is not None:
            with suppress(PastError):  # Then there is nothing but the last minutes.
                self.screen_state.cursor.recorded = await self._past.look()
        there = self._ranges()
        now = self._range(there)
        self._chosen = there[(there.index(now) + 1) % len(there)]
        self.paint()

    def on_highlighted(self, event: Highlighted) -> None:
        """Tell of what is chosen now."""
        scene = self.screen_state.scene
        if scene is not None:
            self._draw_hours(scene)

    # Looking.

    def _looked(self) -> str:
        """What is being looked at, and how far that is."""
        if self._asked is None:
            return StudyRange.LAST
        far = "" if self._asked.range is StudyRange.LAST else f", {self._share * 100:.0f} %"
        return f"{self._asked.range}{far}"

    def _ranges(self) -> list[StudyRange]:
        """Those that there are, the likeliest first."""
        cursor = self.screen_state.cursor
        found = []
        if self._past is not None:
            marked = cursor.range_ns
            if marked is not None and marked[0] < marked[1]:
                found.append(StudyRange.MARKED)
            if cursor.recorded is not None and cursor.recorded.start_ns:
                found.append(StudyRange.WHOLE)
        found.append(StudyRange.LAST)
        return found if self.screen_state.live is None else sorted(found, key=_WHEN_LIVE.index)

    def _range(self, there: list[StudyRange]) -> StudyRange:
        return self._chosen if self._chosen in there else there[0]

    def _wanted(self, scene: Scene) -> StudyRequest:
        cursor, said = self.screen_state.cursor, self.screen_state.choices.filter
        wanted = self._range(self._ranges())
        if wanted is StudyRange.MARKED and cursor.range_ns is not None:
            return StudyRequest(wanted, *cursor.range_ns, said)
        if wanted is StudyRange.WHOLE and cursor.recorded is not None:
            live, until_ns = self.screen_state.live, cursor.recorded.until_ns
            until_ns = until_ns if live is None else live.snapshot.time_ns
            return StudyRequest(wanted, cursor.recorded.start_ns, until_ns, said)
        return StudyRequest(StudyRange.LAST, 0, scene.snapshot.time_ns, said)

    def _look(self, scene: Scene) -> None:
        """Look at what is wanted, if it is not what was looked at, or has grown since."""
        wanted = self._wanted(scene)
        if self._asked is not None and not _is_new(wanted, self._asked):
            return
        if self._work is not None and self._asked is not None:
            is_same = wanted[:2] == self._asked[:2] and wanted.filter == self._asked.filter
            if is_same and not self._work.is_finished:
                return
        self._asked, self._share = wanted, 0.0
        doing = (
            self._last(scene, wanted)
            if wanted.range is StudyRange.LAST
            else self._read(scene, wanted)
        )
        self._work = self.run_worker(
            doing, group="fluctuation", exclusive=True, exit_on_error=False
        )

    async def _last(self, scene: Scene, asked: StudyRequest) -> None:
        matched = self.screen_state.matched(scene)
        ports = None if matched is None else set(matched.ports.nonzero()[0].tolist())
        copy = recent_traffic(scene.snapshot, ports)
        self._show(asked, await asyncio.to_thread(copy.studied))

    async def _read(self, scene: Scene, asked: StudyRequest) -> None:
        matched, fabric = self.screen_state.matched(scene), scene.snapshot.fabric
        ports = None
        if matched is not None:
            ports = {port.id for port in fabric.ports if matched.ports[port.row]}
        assert self._past is not None
        try:
            found = await self._past.study(asked.from_ns, asked.until_ns, ports, self._hear)
        except PastError as error:
            self._wrong = str(error)
            self.paint()
        else:
            self._show(asked, found)

    def _show(self, asked: StudyRequest, found: Fluctuation) -> None:
        self._found, self._wrong = (asked, found), ""
        self.paint()

    def _hear(self, share: float) -> None:
        """How far it is, drawn when it can be seen to have moved."""
        had, self._share = round(self._share * 100), share
        if round(share * 100) != had:
            self.paint()

    # The chosen line.

    def _draw_hours(self, scene: Scene) -> None:
        view, palette = self.query_one("#hours", Painted), self.screen_state.palette
        selected = self.query_one("#lines", LineView).selected
        found = None if self._found is None else self._found[1]
        subject = None
        if found is not None and selected is not None:
            targets = fluctuation.targets(scene, found)
            subject = next((each for each, target in targets if target == selected), None)
        view.display = subject is not None
        if subject is not None and found is not None:
            name = fluctuation.name_of(subject, fluctuation.names(scene))
            unit = self.screen_state.choices.unit
            width = self.size.width
            view.show(hours(subject, name, found.zone, unit, width, palette), palette.text)


def _is_new(wanted: StudyRequest, had: StudyRequest) -> bool:
    """Whether to look anew."""
    if (wanted.range, wanted.from_ns, wanted.filter) != (had.range, had.from_ns, had.filter):
        return True
    grown_ns = abs(wanted.until_ns - had.until_ns)
    if wanted.range is StudyRange.MARKED:
        return grown_ns > 0
    least_ns = _EVERY_S * SECOND_NS
    if wanted.range is StudyRange.WHOLE:
        least_ns = max(least_ns, _GROWN * (had.until_ns - had.from_ns))
    return grown_ns >= least_ns
