"""JSON of a recording, which somebody else may have made: its texts are as they may be shown."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from fabmon.fabric.messages import printable

T = TypeVar("T")

_MAY_BE_CONTROL = re.compile(r'\\[^"\\/]')


def decode(data: bytes, kind: type[T]) -> T:
    """What a JSON document holds; of its texts what is not printable becomes `?`.

    Raises msgspec.DecodeError, UnicodeDecodeError.
    """
    text = data.decode()
    # What fabmon writes has been cleaned before: looking at it whole is all that it costs.
    if text.isprintable() and not _MAY_BE_CONTROL.search(text):
        return msgspec.json.decode(text, type=kind)
    cleaned = msgspec.json.encode(_clean(msgspec.json.decode(text)))
    return msgspec.json.decode(cleaned, type=kind)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
