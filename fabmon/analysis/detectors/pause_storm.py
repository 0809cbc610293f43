"""The cause pause_storm: see docs/findings.md."""

from __future__ import annotations

from fabmon.analysis.finding import CRITICAL, Cause, Trait

CAUSE = Cause(
    name="pause_storm",
    title="Pause storm",
    severity=CRITICAL,
    picture="pause_tree",
    traits=(
        Trait.OF_HOST_PORT,
        Trait.LAST_HOP,
        Trait.MAKES_QUEUES,
        Trait.MAKES_PAUSE,
        Trait.HAS_SENDERS,
    ),
)
