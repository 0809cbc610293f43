"""Asks NCCL's RAS for the screen: one query, after the user has agreed to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import utc
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.reading.timeline import Timeline
from fabmon.report.ras_records import RasRecord
from fabmon.report.ras_report import ras_record
from fabmon.report.ras_table import ras_table
from fabmon.session.errors import UsageError
from fabmon.session.nccl_version import allowed_version
from fabmon.session.ras_run import (
    Look,
    RasOptions,
    RasUnreachable,
    mapped_libraries,
    parsed_answer,
    send_query,
    version_notes,
)
from fabmon.session.session import Session
from fabmon.tui.widgets.ras_question import AskRas, RasNotAsked


def screen_ras(
    session: Session,
    hosts: Sequence[Host],
    recordings: Callable[[], Sequence[Path]],
    port: int | None = None,
) -> AskRas:
    """What asks RAS on the first of a job's nodes; `recordings` are the files that the screen is
    recorded to, which show the wire at that time (none: only the answer is shown). `port` is where
    RAS listens, None for its usual one."""
    known = {host.name: host for host in hosts}

    def ask(nodes: Sequence[str], version: str) -> list[str]:
        host = known.get(nodes[0], Host(name=nodes[0]))
        try:
            record = _asked(session.detached(), host, port, version, recordings())
        except (UsageError, RasUnreachable, RecordingError, OSError) as error:
            raise RasNotAsked(str(error)) from None
        return ras_table(record).splitlines()

    return ask


def _asked(
    session: Session, host: Host, port: int | None, version_text: str, recordings: Sequence[Path]
) -> RasRecord:
    """One query, if the version allows it. Raises UsageError, RasUnreachable, RecordingError."""
    if host.via not in ("ssh", "local"):
        raise UsageError(
            f"RAS was not asked: {host.name} is read with via={host.via}, and RAS listens on"
            " localhost of the node: run fabmon ras --host localhost there"
        )
    options = RasOptions(host=host.name, nccl_version=version_text or None)
    mapped = mapped_libraries(session, options, None, host)
    version = allowed_version(options.nccl_version, None, mapped)
    where = (host,) if port is None else (host, port)
    status = parsed_answer(send_query(session, options, *where), host.name)
    asked_ns, notes = time.time_ns(), version_notes(version, status)
    look = Look(session, options, status, None, asked_ns, notes)
    if recordings:
        with Timeline(recordings) as timeline:
            names, wire, _ = look.recorded(timeline)
    else:
        (names, _), wire = look.live([]), None
    return ras_record(
        status, None, host.name, names, asked_at=utc(asked_ns), wire=wire, notes=notes
    )
