"""The cause pause_deadlock: see docs/findings.md."""

from __future__ import annotations

from fabmon.analysis.finding import CRITICAL, Cause, Trait

CAUSE = Cause(
    name="pause_deadlock",
    title="Pause deadlock",
    severity=CRITICAL,
    picture="pause_cycle",
    traits=(
        Trait.MAKES_QUEUES,
        Trait.MAKES_PAUSE,
    ),
)
