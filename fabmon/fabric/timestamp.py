"""The type of times that come from outside."""

from __future__ import annotations

from typing import Annotated

import msgspec

TimeNs = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Nanoseconds since 1970, UTC. Decoding refuses what no clock shows, and no calendar has."""
