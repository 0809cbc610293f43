"""The sets of detectors that are scored beside each other, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabmon.analysis.causes import Thresholds, detectors, detectors_by_model
from fabmon.analysis.evidence.detector_input import Detector

MakeDetectors = Callable[[Thresholds], Sequence[Detector]]
"""Makes a set of detectors, from the thresholds."""

RULES, MODEL = "rules", "model"

DETECTORS: dict[str, MakeDetectors] = {RULES: detectors, MODEL: detectors_by_model}
