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
    traits=(Trait.OF_LINK, Trait.DAMAGES_PACKETS, Trait.MAKES_QUEUES, Trait.HAS_SENDERS),
)


class ErrorBursts:
    """Judges every port by the damage that `damage` measures."""

    def __init__(self, damage: LinkDamage) -> None:
        self._damage = damage

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each cable."""
        yield from self._damage.conditions(inputs, CAUSE)
