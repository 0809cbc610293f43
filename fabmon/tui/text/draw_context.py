"""What a page is drawn from: frozen objects, made from the screen's state for each drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis import causes
from fabmon.analysis.affected_ports import affected_ports
from fabmon.analysis.finding import Finding, Trait, holds, shown_moment
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.filter import Matched
from fabmon.fabric.measures import measure
from fabmon.fabric.model import GPU, NVLINK, Fabric
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_window import Span
from fabmon.fabric.wording import Unit, rate
from fabmon.recording.writing.recorder import RecorderStatus
from fabmon.scenes.recording_contents import Curve
from fabmon.tui.cells import ABSENT, MUTED, READING, SELECTED, Codes, Scale, encode
from fabmon.tui.choices import Choices
from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import Key, shown_key
from fabmon.tui.line import Line, line, paragraph, wrap
from fabmon.tui.metrics import HeatMetric
from fabmon.tui.palette import Palette
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.text.fabric_total import FabricTotal
from fabmon.tui.text.finding_groups import FindingGroup
from fabmon.tui.time.cursor import TimeCursor

_GONE_CAUSES = causes.causes_with(Trait.GONE)


@dataclass(frozen=True, slots=True)
class Selection:
    """A selected finding: `rows` are both ends of its links, `nodes` its subjects and victims, with
    the hosts behind these. Both are empty where nothing is marked.
    """

    finding: Finding
    rows: NDArray[np.intp]
    nodes: frozenset[str]


def selection_of(findings: Sequence[Finding], fabric: Fabric) -> Selection:
    """The ports and nodes of a finding, or of a group of them, in a fabric."""
    ports = fabric.ports
    rows = {row for finding in findings for row in finding.rows}
    own = [row for row in rows if 0 <= row < len(ports) and ports[row].node]
    peers = [peer for row in own if (peer := ports[row].peer) is not None and peer < len(ports)]
    known = {node.name for node in fabric.nodes}
    named = {
        name.partition("/")[0].partition(" ")[0]
        for finding in findings
        for name in (finding.subject, *shown_moment(finding).victims)
    }
    named |= {each.node for finding in findings for each in affected_ports(finding, fabric)}
    nodes = {ports[row].node for row in own} | (named & known)
    return Selection(findings[0], np.unique(np.array([*own, *peers], np.intp)), frozenset(nodes))


@dataclass(frozen=True)
class TimeContext:
    """Where in time the screen is, and whether it moves.

    `live` is the newest scene of a feed that still runs, None in a replay; `shown` is the scene at
    the cursor, None while the screen follows the feed. `lag_s` is how far `shown` is behind `live`.
    `silent_s` is how long no tick has arrived, `delay_s` how old the newest scene is, 0 where that
    is not worth reporting. `ended`: no tick will follow; `reads`: the first scene is being read
    from a recording. `cursor` is a copy.
    """

    cursor: TimeCursor
    live: Scene | None = None
    shown: Scene | None = None
    is_frozen_now: bool = False
    is_paused: bool = False
    lag_s: float = 0.0
    silent_s: float = 0.0
    delay_s: float = 0.0
    data_age_s: float = 0.0
    ended: bool = False
    reads: bool = False

    @property
    def scene(self) -> Scene | None:
        """The scene on the screen; None before the first one."""
        return self.shown or self.live

    @property
    def is_reading(self) -> bool:
        """Whether the minutes before the scene are being read: what it lacks is not absent."""
        return self.shown is not None and not self.cursor.is_settled


@dataclass(frozen=True)
class HeaderContext:
    """What the header is drawn from: where in time the screen is, the recorder's state (None:
    nothing is recorded), how much of a replayed recording is lost, the choices (`window` in words)
    and the keys of the user.
    """

    run: RunFacts
    time: TimeContext
    recorder: RecorderStatus | None
    lost_bytes: int
    choices: Choices
    window: str
    cables: int
    total: FabricTotal | None
    palette: Palette
    width: int
    keys: tuple[Key, ...] = KEYS


@dataclass(frozen=True)
class TimelineContext:
    """What the timeline is drawn from: its window (from, until) in ns, the busiest link over time
    (None where it is not known yet), the events and the selected open finding, in `width` columns
    and `height` lines.
    """

    time: TimeContext
    scene: Scene
    window: tuple[int, int]
    curve: Curve | None
    events: tuple[Event, ...]
    selected: Finding | None
    palette: Palette
    width: int
    height: int
    is_focused: bool


@dataclass(frozen=True)
class DrawContext:
    """A scene, the room for it, and the person's choices.

    `snapshot` is that of the scene over `window`, that of the screen: every value that is shown is
    from there. `width` and `height` are cells. `matched` is what the filter leaves, None
    without a filter. `groups` are the findings that match it, as lines of a list; `unfolded` are
    the keys of those whose findings are listed. `selection` is the selected finding, or the first
    one of the selected group, while it is open; `selected_key` is its key or that of the group.
    `line_rate_bps` is [ports]: the last known line rate of each. `events` are all known ones by
    time; `closed` the last findings that closed, the latest first. `keys` are those of the user.
    """

    scene: Scene
    snapshot: Snapshot
    window: Span
    palette: Palette
    width: int
    height: int
    choices: Choices
    metric: HeatMetric
    matched: Matched | None
    groups: tuple[FindingGroup, ...]
    unfolded: frozenset[str]
    selection: Selection | None
    selected_key: str
    line_rate_bps: Floats
    events: tuple[Event, ...]
    closed: tuple[Finding, ...]
    run: RunFacts
    time: TimeContext
    keys: tuple[Key, ...] = KEYS

    def key(self, name: str) -> str:
        """The key of the action with this name in fabmon.toml."""
        return shown_key(name, self.keys)

    @property
    def fabric(self) -> Fabric:
        """The fabric of the scene."""
        return self.scene.snapshot.fabric

    @cached_property
    def flagged_rows(self) -> set[int]:
        """Rows of the first port of each finding that holds, without ports that are down or
        stale."""
        return self._first_rows(True)

    @cached_property
    def faded_rows(self) -> set[int]:
        """Likewise of findings that are open, but no longer hold; without the flagged ones."""
        return self._first_rows(False) - self.flagged_rows

    @cached_property
    def flagged_ends(self) -> set[int]:
        """Rows of the flagged ports, and of the other ends of their cables: both are one link."""
        return self._with_ends(self.flagged_rows)

    @cached_property
    def faded_ends(self) -> set[int]:
        """Likewise of the faded ports; without the flagged ends."""
        return self._with_ends(self.faded_rows) - self.flagged_ends

    def _with_ends(self, rows: set[int]) -> set[int]:
        ports = self.fabric.ports
        ends = {ports[row].peer for row in rows}
        return rows | {end for end in ends if end is not None and end < len(ports)}

    def _first_rows(self, is_held: bool) -> set[int]:
        scene = self.scene
        found = [each for each in scene.findings if holds(each, scene.snapshot) is is_held]
        gone = scene.snapshot.stale | (scene.snapshot.up == 0)
        rows = {finding.rows[0] for finding in found if finding.rows}
        return {row for row in rows if row < len(gone) and not gone[row]}

    def sized(self, width: int, height: int | None = None) -> DrawContext:
        """The same, drawn in other room."""
        return replace(self, width=width, height=self.height if height is None else height)

    def titled(self, title: str, text: str) -> list[Line]:
        """A title with its text beside and below it; nothing for an empty text."""
        if not text:
            return []
        first, *rest = wrap(text, self.width - len(title) - 4)
        return [
            line((f" {title} ", self.palette.strong), (first, self.palette.text)),
            *paragraph(" ".join(rest), self.width, self.palette.text),
        ]

    def traffic(self, row: int, direction: str, unit: Unit | None = None) -> str:
        """A port's rate in one direction (tx or rx), in `unit` or else the chosen one."""
        bps = float(self.snapshot.column(f"{direction}_bps")[row])
        return rate(bps, float(self.snapshot.line_rate_bps[row]), unit or self.choices.unit)

    def heat_title(self, title: str) -> str:
        """The title of the metric; one that is not kept for more than a tick says so."""
        return title if measure(self.metric.name).is_kept else f"{title}, this tick"

    def codes(self, levels: Scale, metric: HeatMetric | None = None) -> Codes:
        """[ports]: the codes of the cells of the heatmap, of the chosen metric or of `metric`."""
        codes = encode(
            self.snapshot,
            metric or self.metric,
            levels,
            self.flagged_ends,
            self.line_rate_bps,
            broken_gpu_rows(self.scene),
            self.scene.doubtful_rows,
            self.faded_ends,
        )
        if self.time.is_reading:
            codes[codes == ABSENT] = READING
        if self.selection is not None:
            codes[self.selection.rows] |= SELECTED
        return codes

    def muted_codes(self, levels: Scale) -> Codes:
        """[ports]: the codes of the cells; ports that the filter does not match are muted."""
        codes = self.codes(levels)
        if self.matched is not None:
            codes[~self.matched.ports] |= MUTED
        return codes


def broken_gpu_rows(scene: Scene) -> set[int]:
    """Rows of the GPUs with a finding that links of theirs are down."""
    fabric, found = scene.snapshot.fabric, set()
    of_links: set[tuple[str, str]] = set()
    for finding in scene.findings:
        first = finding.rows[0] if finding.rows and finding.cause in _GONE_CAUSES else -1
        port = fabric.ports[first] if 0 <= first < len(fabric.ports) else None
        if port is not None and port.role == GPU:
            found.add(port.row)
        elif port is not None and port.role == NVLINK:
            of_links.add((port.node, port.name.partition("/")[0]))
    if of_links:
        found |= {each.row for each in fabric.ports if (each.node, each.name) in of_links}
    return found
