"""The fluctuation view: variability of bandwidth by job, rail, pair of switches and link."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from enum import StrEnum
from typing import ClassVar, NamedTuple

from textual.binding import BindingType
from textual.worker import Worker

from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.fluctuation.study import recent_traffic
from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.fabric.wording import rounded_percent
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.scenes.recording_contents import PastError
from fabmon.tui import keys
from fabmon.tui.bindings import bindings
from fabmon.tui.line import Line, Span, SubjectTarget
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.line_screens import DetailedScreen
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.pages import fluctuation
from fabmon.tui.text.pages.fluctuation_details import details
from fabmon.tui.widgets.lines import LineView, Painted

_EVERY_S = 10.0
"""Live, the study is repeated this often."""
_TALL = 34
"""From this height on the selected subject has a band over time ..."""
_BAND = 6
"""... of so many rows."""
_LEAST_GROWTH = 0.1
"""The study of a growing recording is repeated when it has grown by this share."""


class StudyRange(StrEnum):
    """The range of time that is studied, as the title shows it."""

    MARKED = "marked range"
    WHOLE = "whole recording"
    LAST = "last minutes"


_LIVE_ORDER = (StudyRange.MARKED, StudyRange.LAST, StudyRange.WHOLE)
"""Live, the last minutes are the default, unless a range is marked."""


class StudyRequest(NamedTuple):
    """What is studied: the range, its ends in ns, and the filter."""

    range: StudyRange
    from_ns: int
    until_ns: int
    filter: str

    def differs(self, other: StudyRequest) -> bool:
        """Whether a new study is needed: another range or filter, or enough new data."""
        if (self.range, self.from_ns, self.filter) != (other.range, other.from_ns, other.filter):
            return True
        grown_ns = abs(self.until_ns - other.until_ns)
        if self.range is StudyRange.MARKED:
            return grown_ns > 0
        least_ns = _EVERY_S * SECOND_NS
        if self.range is StudyRange.WHOLE:
            least_ns = max(least_ns, _LEAST_GROWTH * (other.until_ns - other.from_ns))
        return grown_ns >= least_ns


class FluctuationScreen(DetailedScreen):
    """Studies bandwidth in a thread; until a study is done, the last one is shown with its range.

    Live, it studies the last minutes every ten seconds; of a recording all of it, or the marked
    range.
    """

    VIEW = "fluctuation"
    DETAILS = "hours"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(keys.FLUCTUATION)]

    def __init__(self, screen_state: ScreenState, past: RecordedPast | None = None) -> None:
        """Nothing has been studied. `past` reads the recording, None without one."""
        super().__init__(screen_state)
        self._past = past
        self._selected_range: StudyRange | None = None
        self._done: tuple[StudyRequest, Fluctuation] | None = None
        self._request: StudyRequest | None = None
        self._worker: Worker[None] | None = None
        self._progress = 0.0
        self._error = ""
        self._wanted_subject: SubjectTarget | None = None

    def go_to(self, target: SubjectTarget) -> None:
        """Put the cursor on a job or a rail, once it is on the page."""
        self._wanted_subject = target
        self.paint()

    def lines(self, ctx: DrawContext) -> list[Line]:
        """The last study; starts another one if it is due."""
        self._study(ctx.scene)
        if self._error:
            return self.message(f"the recording cannot be read: {self._error}")
        if self._done is None:
            return self.message(self._studying())
        return fluctuation.page(ctx, self._done[1])

    def title_parts(self) -> list[list[Span]]:
        """The path, the range and length of the study, what it lists, and the one in progress."""
        parts, tone = super().title_parts(), self.palette
        if self._done is None:
            return parts
        request, found = self._done
        parts += [[(text, tone.text)] for text in (request.range, *fluctuation.over(found))]
        parts.append([("bandwidth by job, rail, pair and link", tone.text)])
        if self._request is not None and self._request.range != request.range:
            parts.insert(1, [(self._studying(), tone.accent)])
        return parts

    async def action_range(self) -> None:
        """Select the next range."""
        state = self.screen_state
        if state.scene is None:
            return
        if self._past is not None and state.live is not None:
            with suppress(PastError):  # Only the last minutes are available then.
                state.cursor.recorded = await self._past.look()
        ranges = self._ranges()
        self._selected_range = ranges[(ranges.index(self._range(ranges)) + 1) % len(ranges)]
        self.paint()

    def _studying(self) -> str:
        """The study in progress and how far it is."""
        if self._request is None or self._request.range is StudyRange.LAST:
            return f"computing: {StudyRange.LAST}"
        return f"computing: {self._request.range}, {rounded_percent(self._progress)}"

    def _ranges(self) -> list[StudyRange]:
        """The ranges that can be studied, the default first."""
        state, ranges = self.screen_state, [StudyRange.LAST]
        marked, recorded = state.cursor.range_ns, state.cursor.recorded
        if self._past is not None and recorded is not None and recorded.start_ns:
            ranges.insert(0, StudyRange.WHOLE)
        if self._past is not None and marked is not None and marked[0] < marked[1]:
            ranges.insert(0, StudyRange.MARKED)
        return ranges if state.live is None else sorted(ranges, key=_LIVE_ORDER.index)

    def _range(self, ranges: list[StudyRange]) -> StudyRange:
        return self._selected_range if self._selected_range in ranges else ranges[0]

    def _wanted(self, scene: Scene) -> StudyRequest:
        state = self.screen_state
        cursor, filter_ = state.cursor, state.choices.filter
        wanted = self._range(self._ranges())
        if wanted is StudyRange.MARKED and cursor.range_ns is not None:
            return StudyRequest(wanted, *cursor.range_ns, filter_)
        if wanted is StudyRange.WHOLE and cursor.recorded is not None:
            live, until_ns = state.live, cursor.recorded.until_ns
            until_ns = until_ns if live is None else live.snapshot.time_ns
            return StudyRequest(wanted, cursor.recorded.start_ns, until_ns, filter_)
        return StudyRequest(StudyRange.LAST, 0, scene.snapshot.time_ns, filter_)

    def _study(self, scene: Scene) -> None:
        """Start a study if the last one is not of what is wanted, or is outdated."""
        wanted, last = self._wanted(scene), self._request
        if last is not None:
            is_same = wanted[:2] == last[:2] and wanted.filter == last.filter
            is_running = self._worker is not None and not self._worker.is_finished
            if not wanted.differs(last) or (is_same and is_running):
                return
        self._request, self._progress = wanted, 0.0
        study = self._study_last if wanted.range is StudyRange.LAST else self._study_recorded
        self._worker = self.run_worker(
            study(scene, wanted), group="fluctuation", exclusive=True, exit_on_error=False
        )

    async def _study_last(self, scene: Scene, request: StudyRequest) -> None:
        matched = self.screen_state.matched(scene)
        rows = None if matched is None else set(matched.ports.nonzero()[0].tolist())
        copy = recent_traffic(scene.snapshot, rows)
        cancelled = threading.Event()

        def go_on(_: float) -> None:
            if cancelled.is_set():
                raise InterruptedError

        try:
            found = await asyncio.to_thread(copy.studied, go_on)
        finally:
            # The thread would go on, and the program would not end before it.
            cancelled.set()
        self._show(request, found)

    async def _study_recorded(self, scene: Scene, request: StudyRequest) -> None:
        matched, fabric = self.screen_state.matched(scene), scene.snapshot.fabric
        ports = None
        if matched is not None:
            ports = {port.id for port in fabric.ports if matched.ports[port.row]}
        assert self._past is not None
        try:
            found = await self._past.study(
                request.from_ns, request.until_ns, ports, self._on_progress
            )
        except PastError as error:
            self._error = str(error)
            self.paint()
        else:
            self._show(request, found)

    def _show(self, request: StudyRequest, found: Fluctuation) -> None:
        self._done, self._error = (request, found), ""
        self.paint()

    def _on_progress(self, share: float) -> None:
        """Store the progress (0 to 1); draw it when its percentage changes."""
        before, self._progress = self._progress, share
        if round(share * 100) != round(before * 100):
            self.paint()

    def draw_details(self, ctx: DrawContext) -> None:
        """Draw the selected line over time and by hour."""
        view, lines = self.query_one("#hours", Painted), self.query_one("#lines", LineView)
        if self._wanted_subject is not None and self._done is not None:
            lines.select(self._wanted_subject)
            self._wanted_subject = None
        subject, selected = None, lines.selected
        if self._done is not None and selected is not None:
            targets = fluctuation.targets(ctx.scene, self._done[1])
            subject = next((each for each, target in targets if target == selected), None)
        view.display = subject is not None
        if subject is not None and self._done is not None:
            name = fluctuation.name_of(subject, fluctuation.names(ctx.scene))
            rows = _BAND if self.size.height >= _TALL else 0
            shown = details(ctx, subject, name, self._done[1], rows)
            view.styles.height = len(shown)
            self.put("#hours", shown)
