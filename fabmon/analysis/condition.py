"""What a detector sees at one tick, before the tracker gives it a life."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, get_args

import msgspec

from fabmon.analysis.evidence.detector_input import Sight

NOTE = "note"
WARNING = "warning"
CRITICAL = "critical"
SEVERITIES = (CRITICAL, WARNING, NOTE)
"""The gravest first."""


Cause = Literal[
    "degraded_link",
    "ecmp_collision",
    "error_burst",
    "flapping_link",
    "gpu_nic_numa",
    "host_pcie_limit",
    "incast",
    "link_down",
    "miscabled",
    "node_lost",
    "oversubscription",
    "pause_deadlock",
    "pause_storm",
    "pause_victim",
    "polarization",
    "saturated_counter",
    "slow_receiver",
    "straggler",
    "uneven_rails",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""Every cause that a finding can have; each has a paragraph in docs/findings.md."""


class Evidence(msgspec.Struct, frozen=True):
    """One number behind a finding, in its unit (`%`, `bps`, `links`, `s`, empty for a text)."""

    name: str
    value: float | str
    unit: str = ""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Something that holds now, of a subject, with its cause.

    `subject` is what it is about (`leaf1/up5`, `gpu003`); `rows` the ports to light, the guilty
    first; `victims` what suffers under it. `text` is one sentence, numbers first. `lost` is the
    share of bandwidth it costs, 0 to 1. `confidence` is 0 to 1. `unseen` says what was not visible.
    `unless` are causes that explain what this was inferred from: those of cables when they are
    near, the others wherever they are.
    """

    cause: Cause
    severity: str
    subject: str
    rows: tuple[int, ...]
    text: str
    evidence: tuple[Evidence, ...]
    advice: str
    confidence: float
    lost: float = 0.0
    victims: tuple[str, ...] = ()
    unseen: str = ""
    unless: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Identifies it while it lasts: the same cause of the same subject has the same key."""
        return f"{self.cause}:{self.subject}"


Detector = Callable[[Sight], Iterable[Condition]]
"""One kind of finding: the conditions that hold at a tick, persistence included. It is called once
for every tick, in order. What it needs of the past is in the sight; it may keep what the sight does
not tell (when a port was seen to turn, which counters were full before), or what only another
fabric changes."""
