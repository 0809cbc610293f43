"""The sets of detectors that are scored beside each other, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from fabmon.analysis.causes import Thresholds, detectors
from fabmon.analysis.evidence.detector_input import Detector

MakeDetectors = Callable[[Thresholds], Sequence[Detector]]
"""Makes a set of detectors, from the thresholds."""

IN_USE = "fabmon"
"""The name of the detectors in use."""

JUDGED_BY = (
    "score other detectors beside those in use: what a function of the thresholds returns; may be"
    " given more than once"
)
"""The help of --judged-by MODULE:FUNCTION."""


def sets_of(others: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the sets to score: the one in use, and `others`. Raises ValueError for one that
    does not exist."""
    for name in others or ():
        detectors_of(name)
    return (IN_USE, *(others or ()))


def detectors_of(name: str) -> MakeDetectors:
    """What makes the detectors of a set: IN_USE, or `MODULE:FUNCTION`. Raises ValueError."""
    if name == IN_USE:
        return detectors
    module, _, function = name.partition(":")
    try:
        made: MakeDetectors = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--judged-by {name}: {error}; write MODULE:FUNCTION") from error
    return made
