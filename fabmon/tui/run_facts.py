"""What is known of a run besides its options and its scenes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fabmon.fabric.time_wording import SECOND_NS
from fabmon.key_priority import KeyPriority

if TYPE_CHECKING:
    from fabmon.analysis.causes import Thresholds
    from fabmon.scenes.recording_access import RecordingAccess, ReplayStart
    from fabmon.tui.choices import Preferences


@dataclass(frozen=True, slots=True)
class Tip:
    """A tip that is shown from `at_s` after the first scene on, for `for_s` seconds."""

    at_s: float
    for_s: float
    text: str


@dataclass(slots=True)
class Tips:
    """The tips of a run by time."""

    lines: Sequence[Tip] = ()
    skipped: bool = False
    _from_ns: int | None = field(default=None)

    def at(self, time_ns: int) -> str:
        """The tip of a time; empty for none. Times count from that of the first call."""
        if self._from_ns is None:
            self._from_ns = time_ns
        seconds = (time_ns - self._from_ns) / SECOND_NS
        active = [each.text for each in self.lines if 0 <= seconds - each.at_s < each.for_s]
        return active[-1] if active and not self.skipped else ""

    def skip(self) -> None:
        """Show no more tips."""
        self.skipped = True


AskRetry = Callable[[], str]
"""Connects to lost nodes; returns what it does."""

AskBurst = Callable[[str, Sequence[str], float, float], str]
"""Requests fast samples: node, ports, seconds, Hz. Returns why that is refused, or nothing."""

AskRas = Callable[[Sequence[str], str], list[str]]
"""Sends one query to a job, on the first node that accepts a connection; the version of its
NCCL is empty where the libraries of its processes have to say it. Returns the status in words, with
the node. It takes seconds: not for an event loop. Raises RasNotAsked."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the session knows of a run and the screen shows or asks for.

    `color` is `auto`, `truecolor`, `256`, `16` or `none`. `mark` is a word that is always visible,
    as SIMULATED. `captions` are tips. `ask_burst` requests fast samples of ports, `ask_retry`
    connects to lost nodes, `ask_ras` asks NCCL's RAS; None where that is impossible. `nothing`
    returns why there are no nodes, empty if that is not known; `alerts_fail` whether alerts cannot
    be sent. `recording` is the recording of the scenes (None: there is none); with `start` the
    screen begins by playing it. `preferences` are the choices of the user to begin with (None: the
    defaults). `age_s` returns the age of what the feed reported at a time (None: not known).
    `on_open` is called with the name of a node of which a page is opened. `data_age_s` returns how
    old the samples of half of the nodes are (None: a tick has them at once). `nodes_options` are
    the options that name the nodes, for commands that texts show (None: no command reaches them).
    `watched` is the line that `fabmon watch` prints once it watches. `key_priority` is what lets
    the feed wait for keys (None: it need not). `thresholds` are those that findings are judged by
    (None: not known; rules then name them).
    """

    title: str
    color: str = "auto"
    mark: str = ""
    captions: Sequence[Tip] = ()
    ask_burst: AskBurst | None = None
    ask_retry: AskRetry | None = None
    ask_ras: AskRas | None = None
    nothing: Callable[[], str] = str
    alerts_fail: Callable[[], bool] = bool
    recording: RecordingAccess | None = None
    start: ReplayStart | None = None
    preferences: Preferences | None = None
    age_s: Callable[[int], float] | None = None
    on_open: Callable[[str], None] | None = None
    data_age_s: Callable[[], float] | None = None
    nodes_options: str | None = "--hosts FILE"
    watched: str = ""
    key_priority: KeyPriority | None = None
    thresholds: Thresholds | None = None

    @property
    def impossible(self) -> frozenset[str]:
        """The actions that these nodes cannot carry out: they are simulated or recorded."""
        asked = {"burst": self.ask_burst, "retry": self.ask_retry, "ras": self.ask_ras}
        return frozenset(action for action, ask in asked.items() if ask is None)
