"""What is being shown and how: the scenes, the frozen one, and the person's choices.

Screens read it, the app's actions change it. It knows nothing of Textual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import Index, Matched, Term, index, match, parse
from fabmon.fabric.model import FABRIC, Fabric
from fabmon.fabric.moment import Floats, stale_ports
from fabmon.tui.captions import Captions
from fabmon.tui.cells import CHOSEN, Codes, Scale, encode
from fabmon.tui.chosen import Chosen, chosen
from fabmon.tui.clock import SECOND_NS
from fabmon.tui.metrics import Heat, following, heat
from fabmon.tui.palette import RAMPS, Depth, Palette, palette
from fabmon.tui.target import peer
from fabmon.tui.units import Unit


@dataclass(frozen=True, slots=True)
class Choices:
    """What the person has chosen."""

    unit: Unit = Unit.GBIT
    metric: str = "util"
    digits: bool = False
    ramp: str = RAMPS[0].name
    filter: str = ""
    terms: tuple[Term, ...] = ()


@dataclass(slots=True)
class Stage:
    """The scene on the screen, and what is needed to draw it.

    `live` is the last scene that came, `frozen` the one that the person stopped at. `silent_s` is
    how long no scene has come, where that is worth saying; `ended` that none will. `mark` is a word
    that must always be in sight; `captions` explain what is shown. `nothing` says why no node is
    there; it is empty where nobody knows. `chosen_key` is the key of the finding whose links are
    marked, empty for none.
    """

    title: str
    depth: Depth
    choices: Choices = field(default_factory=Choices)
    live: Scene | None = None
    frozen: Scene | None = None
    silent_s: float = 0.0
    ended: bool = False
    mark: str = ""
    captions: Captions = field(default_factory=Captions)
    nothing: Callable[[], str] = str
    chosen_key: str = ""
    _chosen: tuple[Fabric, Chosen] | None = None
    _line_rate_bps: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    _cables: tuple[Fabric, int] | None = None
    _index: Index | None = None
    _matched: tuple[Scene, tuple[Term, ...], Matched] | None = None

    @property
    def scene(self) -> Scene | None:
        """The one to draw."""
        return self.frozen or self.live

    @property
    def paused(self) -> bool:
        """Whether the person has stopped the screen; scenes keep coming meanwhile."""
        return self.frozen is not None

    @property
    def lag_s(self) -> float:
        """How far what is drawn is behind what came last."""
        if self.frozen is None or self.live is None:
            return 0.0
        return (self.live.moment.time_ns - self.frozen.moment.time_ns) / SECOND_NS

    @property
    def palette(self) -> Palette:
        """The colours in use."""
        return palette(self.depth, self.choices.ramp)

    @property
    def heat(self) -> Heat:
        """The metric in use."""
        return heat(self.choices.metric)

    def take(self, scene: Scene) -> None:
        """The next scene has come."""
        self.live = scene
        self.silent_s = 0.0
        rates = scene.moment.line_rate_bps
        new = len(rates) - len(self._line_rate_bps)
        before = np.pad(self._line_rate_bps, (0, max(0, new)), constant_values=np.nan)
        self._line_rate_bps = np.where(np.isnan(rates), before[: len(rates)], rates)

    def cells(self, scene: Scene, levels: Scale, of: Heat | None = None) -> Codes:
        """[ports]: the codes of a scene's cells, in the metric `of`, or else in the one in use."""
        count = len(scene.moment.line_rate_bps)
        known = self._line_rate_bps[:count]
        codes = encode(scene.moment, of or self.heat, levels, lit(scene), known)
        marked = self.chosen(scene)
        if marked is not None:
            codes[marked.rows] |= CHOSEN
        return codes

    def choose(self, key: str) -> None:
        """Mark the links of the finding with this key in every view; of none when it is empty."""
        self.chosen_key = key

    def chosen(self, scene: Scene) -> Chosen | None:
        """The chosen finding, as long as it is open; worked out anew when it or the fabric is."""
        key, fabric = self.chosen_key, scene.moment.fabric
        found = next((each for each in scene.findings if key and each.key == key), None)
        if found is None:
            return None
        if (
            self._chosen is None
            or self._chosen[0] is not fabric
            or self._chosen[1].finding is not found
        ):
            self._chosen = (fabric, chosen(found, fabric))
        return self._chosen[1]

    def cables(self, fabric: Fabric) -> int:
        """How many cables are watched: two watched ends are one. Counted once for each fabric."""
        if self._cables is None or self._cables[0] is not fabric:
            ports = [port for port in fabric.ports if port.role in FABRIC and port.node]
            ends = sum(peer(port, fabric) is None or port.row < (port.peer or 0) for port in ports)
            self._cables = (fabric, ends)
        return self._cables[1]

    def freeze(self) -> None:
        """Stop at the scene that is drawn, or follow the last one again."""
        self.frozen = None if self.frozen is not None else self.live

    def next_unit(self) -> None:
        """Gb/s, GB/s, %."""
        self.choices = replace(self.choices, unit=self.choices.unit.next())

    def next_metric(self) -> None:
        """The next metric of the cells."""
        moment = None if self.live is None else self.live.moment
        self.choices = replace(self.choices, metric=following(self.choices.metric, moment))

    def next_ramp(self) -> None:
        """The next colours."""
        names = [ramp.name for ramp in RAMPS]
        ramp = names[(names.index(self.choices.ramp) + 1) % len(names)]
        self.choices = replace(self.choices, ramp=ramp)

    def toggle_digits(self) -> None:
        """Numbers in the cells, or none."""
        self.choices = replace(self.choices, digits=not self.choices.digits)

    def filter(self, text: str) -> None:
        """Show what the filter leaves. Raises FilterError, and changes nothing, if it is wrong."""
        self.choices = replace(self.choices, filter=text, terms=parse(text))

    def matched(self, scene: Scene) -> Matched | None:
        """What the filter leaves of a scene; None when there is no filter."""
        terms = self.choices.terms
        if not terms:
            return None
        if self._index is None or self._index.fabric is not scene.moment.fabric:
            self._index = index(scene.moment.fabric)
        if self._matched is None or self._matched[0] is not scene or self._matched[1] != terms:
            self._matched = (scene, terms, match(terms, scene.moment, self._index))
        return self._matched[2]


def lit(scene: Scene) -> set[int]:
    """The hot ports: the guilty ones of open findings, as far as they are up and heard of."""
    rows = {finding.rows[0] for finding in scene.findings if finding.rows}
    gone = stale_ports(scene.moment) | (scene.moment.up == 0)
    return {row for row in rows if row < len(gone) and not gone[row]}
