"""The cause error_burst: see docs/findings.md."""

from __future__ import annotations

from fabmon.analysis.finding import WARNING, Cause, Trait

CAUSE = Cause(
    name="error_burst",
    title="Error burst",
    severity=WARNING,
    picture="link_ends",
    tables=("link_health",),
    traits=(
        Trait.OF_LINK,
        Trait.DAMAGES_PACKETS,
        Trait.MAKES_QUEUES,
        Trait.HAS_SENDERS,
    ),
)
