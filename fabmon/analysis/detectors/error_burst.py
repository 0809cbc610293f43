"""A port receives damaged data, without losing much of its line rate to it."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.link_health import CHECK_CABLE, LinkDamage
from fabmon.analysis.finding import WARNING, Cause, Condition, Trait

CAUSE = Cause(
    name="error_burst",
    title="Error burst",
    meaning="a port receives damaged data, without losing much of its line rate to it",
    severity=WARNING,
    picture="link_ends",
    advice=CHECK_CABLE,
    tables=("link_health",),
    traits=(Trait.OF_LINK, Trait.MAKES_QUEUES, Trait.HAS_SENDERS),
    family="link",
)


def error_bursts(inputs: DetectorInput, damage: LinkDamage) -> Iterator[Condition]:
    """One condition for each cable with a damaged port that `damage` finds."""
    return damage.conditions(inputs, CAUSE)
