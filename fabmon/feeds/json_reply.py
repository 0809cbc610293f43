"""JSON of a server, decoded in bounded memory."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from fabmon.feeds.errors import Misbehaved
from fabmon.malformed_json import MALFORMED

_MOST_VALUES = 2_000_000
"""Values of a reply: 16,384 ports have less than a million. Each takes up to 100 bytes: 64 MiB of
them would take gigabytes."""

_Reply = TypeVar("_Reply")


def decode_reply(body: bytes, kind: type[_Reply], what: str) -> _Reply:
    """A reply in JSON. `what` is the name of the format in errors. Raises Misbehaved."""
    if sum(map(body.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise Misbehaved(f"{what}: more than {_MOST_VALUES:,} values")
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise Misbehaved(f"{what}: {error}") from None
