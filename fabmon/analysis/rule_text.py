"""The rule of a cause in words, with the thresholds in use."""

from __future__ import annotations

import re

import msgspec

from fabmon.analysis.causes import Thresholds
from fabmon.analysis.finding import Cause
from fabmon.analysis.thresholds import Share
from fabmon.fabric.wording import rounded_percent, trimmed

_KEY = re.compile(rf"\b({'|'.join(Thresholds.__struct_fields__)})\.([a-z_]+)\b")
"""A key of config/thresholds.toml, as rules name it: `model.full_util`."""


def rule_text(cause: Cause, thresholds: Thresholds) -> str:
    """The rule with a number for each key, shares of one in percent."""

    def value(named: re.Match[str]) -> str:
        table = getattr(thresholds, named[1])
        types = {field.name: field.type for field in msgspec.structs.fields(table)}
        number = getattr(table, named[2])
        return rounded_percent(number) if types[named[2]] == Share else trimmed(number)

    return _KEY.sub(value, cause.rule)
