"""Cables that are not where the topology has them."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.audit.fault import MEND, Fault
from fabmon.analysis.audit.survey import Survey
from fabmon.analysis.miscabled import miscabled


def contradicted(survey: Survey) -> Iterator[Fault]:
    """One fault for each set of contradictions that hang together."""
    fabric = survey.moment.fabric
    for condition in miscabled(fabric):
        yield Fault(
            check="miscabled",
            severity=MEND,
            ports=tuple(fabric.ports[row].id for row in condition.rows),
            text=condition.text,
            advice=condition.advice,
        )
