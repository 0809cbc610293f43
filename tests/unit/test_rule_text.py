"""Rules on the screen have numbers, not keys of a configuration file."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.causes import CAUSES
from fabmon.analysis.detectors import slow_receiver
from fabmon.analysis.finding import Cause
from fabmon.analysis.rule_text import rule_text
from fabmon.session.config import load

THRESHOLDS = load(Path("/dev/null")).thresholds


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_no_rule_has_a_key_left(cause: Cause) -> None:
    assert not re.search(r"[a-z]\.[a-z]", rule_text(cause, THRESHOLDS))


def test_shares_are_in_percent_and_counts_are_numbers() -> None:
    text = rule_text(slow_receiver.CAUSE, THRESHOLDS)
    assert text.startswith(
        "A host pauses its switch for more than 15 % of 3 of 5 seconds, and for 3 times the median"
        " of the busy ports or 50 %, while it receives less than 85 % of line rate."
    )


def test_the_numbers_are_those_in_use() -> None:
    model = msgspec.structs.replace(THRESHOLDS.model, waiting=0.3, rise=2.5)
    text = rule_text(slow_receiver.CAUSE, msgspec.structs.replace(THRESHOLDS, model=model))
    assert "more than 30 % of 3 of 5 seconds, and for 2.5 times the median" in text
