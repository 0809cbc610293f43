"""The panels of the overview: which are visible in a terminal of this size, and how large."""

from __future__ import annotations

from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.widget import Widget

from fabmon.tui.cells import Look, scale
from fabmon.tui.choices import SHARES
from fabmon.tui.metrics import heat_metric
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.widgets.heatgrid import HeatGrid
from fabmon.tui.widgets.lines import LineView, Painted, TimelineView

_NARROW = 112
"""Below this width the findings are below the heatmap."""
_TINY = (72, 20)
"""Below this width or height only header, findings and one line of the timeline are left."""
_MIDDLE = 30
"""From this height on the timeline has rows of links."""
_TALL = 40
"""From this height on the timeline has more lines."""
_VERY_TALL = 60
"""From this height on it has still more."""
_MOST_LENT = 12
"""Lines that another panel gets where the heatmap does not need them, at most."""


class OverviewPanels(ViewScreen):
    """The arrangement of heatmap, findings, training and timeline; a subclass draws them."""

    def __init__(self, screen_state: ScreenState) -> None:
        super().__init__(screen_state)
        self._is_focus_moved = False
        self._share = (0, False)
        self._height: int | None = None

    def body(self) -> ComposeResult:
        """The panels."""
        depth = self.screen_state.depth
        with Container(id="main"):
            with Vertical(id="left"):
                yield Painted(id="grid-title")
                with Horizontal(id="cells"):
                    look = Look(self.palette, scale(heat_metric("util"), depth, False))
                    yield HeatGrid(look, id="heat")
                    yield Painted(id="map")
                yield Painted(id="inspect")
            yield Painted(id="between")
            with Vertical(id="right"):
                yield Painted(id="findings-title")
                yield LineView(id="findings")
                yield Painted(id="training")
        yield TimelineView(id="time")

    def on_mount(self) -> None:
        """Arrange the panels for the size of the terminal."""
        self._arrange()

    def on_resize(self) -> None:
        """Arrange the panels for the new size."""
        self._arrange()
        super().on_resize()

    def _arrange(self) -> None:
        """Set the panels for the size, and focus one that is visible."""
        width, height = self.size
        self._set_height(None)
        is_tiny = width < _TINY[0] or height < _TINY[1]
        self.set_class(is_tiny, "-tiny")
        self.set_class(is_tiny or width < _NARROW, "-narrow")
        self.set_class(height >= _MIDDLE, "-middle")
        self.set_class(height >= _TALL, "-tall")
        self.set_class(height >= _VERY_TALL, "-very-tall")
        if is_tiny:
            self.remove_class("-max-grid")
        hidden = "#left" if is_tiny else "#right" if self.has_class("-max-grid") else ""
        focused = self.focused
        # With findings and a one-line timeline only, tab stays on the findings.
        self.query_one(TimelineView).can_focus = not is_tiny
        if (
            focused is None
            or not focused.can_focus
            or (hidden and focused in self.query(f"{hidden} *"))
        ):
            self._is_focus_moved = is_tiny
            self.query_one("#findings" if hidden == "#left" else "#heat").focus()
        elif self._is_focus_moved and not is_tiny:
            self._is_focus_moved = False
            self.query_one("#heat").focus()

    def lend(self, spare: int) -> None:
        """Give the `spare` lines of the heatmap to the timeline, or to the findings below it."""
        usual = self._usual_lines()
        self._set_height(usual + min(max(0, spare), _MOST_LENT) if usual else None)

    def _set_height(self, lines: int | None) -> None:
        """Give the panel that can get more these lines; None is what the style sheet says."""
        if lines != self._height:
            self._height = lines
            self._borrower.styles.height = lines
            self.call_after_refresh(self.paint)

    def lent_lines(self) -> int:
        """What a panel has beyond its usual height: it is the heatmap's, if it needs it."""
        usual = self._usual_lines()
        return max(0, self._borrower.outer_size.height - usual) if usual else 0

    @property
    def _borrower(self) -> Widget:
        return self.query_one("#right" if self.has_class("-narrow") else "#time")

    def _usual_lines(self) -> int:
        """The lines of that panel in the style sheet; 0 where it cannot get more."""
        styles, is_below = self._borrower.styles.base, self.has_class("-narrow")
        hidden = ("-tiny", "-max-grid", "-max-findings")
        has_own_size = is_below and bool(self.screen_state.choices.findings_share)
        if any(self.has_class(each) for each in hidden) or has_own_size or styles.height is None:
            return 0
        if not is_below:
            return int(styles.height.value)
        least = 0 if styles.min_height is None else int(styles.min_height.value)
        share = styles.height.value * self.query_one("#main").size.height / 100
        return max(least, round(share))

    def share_space(self) -> None:
        """Give the findings the share of the screen that the user chose."""
        is_fixed = any(self.has_class(each) for each in ("-tiny", "-max-grid", "-max-findings"))
        share = (
            0 if is_fixed else self.screen_state.choices.findings_share,
            self.has_class("-narrow"),
        )
        if share == self._share:
            return
        self._share = share
        self._set_height(None)
        percent, is_below = share
        right, size = self.query_one("#right").styles, f"{percent}%" if percent else None
        # None is what the style sheet says.
        right.width = right.max_width = right.height = None
        if is_below:
            right.height = size
        else:
            right.width, right.max_width = size, "100%" if size else None
        self.call_after_refresh(self.paint)

    def action_share(self, by: int) -> None:
        """Give the findings more of the screen (`by` > 0, in %) or less."""
        right, is_below = self.query_one("#right"), self.has_class("-narrow")
        part, whole = right.size.width, self.size.width
        if is_below:
            part, whole = right.size.height, self.size.height
        choices = self.screen_state.choices
        now = choices.findings_share or round(100 * part / max(1, whole))
        share = min(max(now + by, SHARES[0]), SHARES[-1])
        self.screen_state.choices = replace(choices, findings_share=share)
        self.paint()

    def maximise(self) -> None:
        """Maximise or restore the focused panel."""
        self._set_height(None)
        if self.has_class("-max-grid") or self.has_class("-max-findings"):
            self.remove_class("-max-grid", "-max-findings")
        elif self.focused is not None and self.focused.id == "findings":
            self.add_class("-max-findings")
        elif not self.has_class("-tiny"):
            self.add_class("-max-grid")
        self.call_after_refresh(self.paint)

    def restore_panel(self) -> bool:
        """Restore a maximised panel; returns whether there was one."""
        is_maximised = self.has_class("-max-grid") or self.has_class("-max-findings")
        if is_maximised:
            self.maximise()
        return is_maximised
