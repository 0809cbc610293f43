"""The types of thresholds: numbers with their unit and range.

Each detector declares the table of config/thresholds.toml that it reads, with these types;
fabmon/analysis/causes.py puts the tables together.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Seconds = Annotated[float, Meta(ge=0, le=86_400, description="0 to 86400 seconds")]
Share = Annotated[float, Meta(ge=0, le=1, description="0 to 1, a share")]
Ticks = Annotated[int, Meta(ge=1, le=1000, description="1 to 1000 ticks")]
