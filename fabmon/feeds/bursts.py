"""What the console asks a probe for when a person wants to see faster than the frames."""

from __future__ import annotations

import json

import msgspec

PROBED = ("ssh", "exec", "local")
"""`via` of the nodes whose probe belongs to this console and listens to it."""


class BurstAsk(msgspec.Struct, frozen=True):
    """`ports` of one node, `hz` samples a second, for `seconds`; `id` comes back with the answer.

    The probe takes at most 16 ports, 100 Hz and 60 s.
    """

    id: int
    ports: tuple[str, ...]
    seconds: float
    hz: float

    def line(self) -> bytes:
        """The request as the probe reads it."""
        return json.dumps({"burst": msgspec.to_builtins(self)}).encode() + b"\n"
