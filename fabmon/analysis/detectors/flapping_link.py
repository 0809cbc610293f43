"""The cause flapping_link: see docs/findings.md."""

from __future__ import annotations

from fabmon.analysis.finding import CRITICAL, Cause, Trait

CAUSE = Cause(
    name="flapping_link",
    title="Flapping link",
    severity=CRITICAL,
    picture="link_ends",
    tables=("link_health",),
    traits=(
        Trait.OF_LINK,
        Trait.DAMAGES_PACKETS,
        Trait.MAKES_QUEUES,
        Trait.STOPS_PAUSE_FRAMES,
        Trait.HAS_SENDERS,
    ),
)
