"""What the command line said of watching."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fabmon.analysis.iteration.results import JobHints


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line said; None where it said nothing."""

    hosts: Path | None = None
    nodesets: tuple[str, ...] = ()
    prometheus: str | None = None
    matches: tuple[str, ...] = ()
    token_file: Path | None = None
    style: str | None = None
    once: bool = False
    duration_s: float | None = None
    interval_s: float | None = None
    config: Path | None = None
    topologies: tuple[Path, ...] = ()
    ssh_config: Path | None = None
    color: str | None = None
    picture: Path | None = None
    record: Path | None = None
    redact: bool = False
    hints: JobHints | None = None
