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
    rule=(
        "A port received link_health.burst_per_s damaged packets, symbols or blocks in one of the"
        " last three seconds, or link_health.errors_per_s in link_health.lasting_ticks of ten, or"
        " one of its error counters has just reached its maximum. It is no degraded link. More than"
        " 32 such ports are one finding: cables do not fail together."
    ),
    inputs="Error counters of the receiving port",
    not_observable="How fast a saturated counter grows",
    picture="link_ends",
    advice=CHECK_CABLE,
    tables=("link_health",),
    traits=(Trait.OF_LINK, Trait.MAKES_QUEUES, Trait.HAS_SENDERS),
    family="link",
)


def error_bursts(inputs: DetectorInput, damage: LinkDamage) -> Iterator[Condition]:
    """One condition for each cable with a damaged port that `damage` finds."""
    return damage.conditions(inputs, CAUSE)
