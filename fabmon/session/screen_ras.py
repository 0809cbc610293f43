"""Asks NCCL's RAS for the screen: one query, after the user has agreed to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fabmon.fabric.model import Host
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.reading.timeline import Timeline
from fabmon.report.job_report import RasRecord
from fabmon.report.job_table import job_table
from fabmon.session.errors import UsageError
from fabmon.session.nccl_version import allowed_version
from fabmon.session.ras_run import (
    Answer,
    RasNotConnected,
    RasOptions,
    RasUnreachable,
    live_report,
    mapped_libraries,
    parsed_answer,
    recorded_report,
    send_query,
    version_notes,
)
from fabmon.session.session import Session
from fabmon.tui.run_facts import AskRas
from fabmon.tui.widgets.prompts import MOST_TRIED, RasNotAsked


def screen_ras(
    session: Session,
    hosts: Sequence[Host],
    recordings: Callable[[], Sequence[Path]],
    port: int | None = None,
) -> AskRas:
    """What asks RAS on the first of a job's nodes that accepts a connection, and on no other: one
    query. `recordings` are the files that the screen is
    recorded to, which show the wire at that time (none: only the answer is shown). `port` is where
    RAS listens, None for its usual one."""
    known = {host.name: host for host in hosts}

    def ask(nodes: Sequence[str], version: str) -> list[str]:
        refused: dict[str, list[str]] = {}
        for name in nodes[:MOST_TRIED]:
            host = known.get(name, Host(name=name))
            try:
                record = _asked(session.detached(), host, port, version, recordings())
            except _NothingSent as error:
                refused.setdefault(str(error), []).append(name)
            except (UsageError, RasUnreachable, RecordingError, OSError) as error:
                raise RasNotAsked("\n".join([*_refusals(refused), str(error)])) from None
            else:
                asked = f"One query was sent, to {name}."
                return [*_refusals(refused), asked, "", *job_table(record).splitlines()]
        raise RasNotAsked("\n".join(["Nothing was sent.", *_refusals(refused)]))

    return ask


def _refusals(nodes_of: Mapping[str, Sequence[str]]) -> list[str]:
    """A line for each reason why nodes were not asked."""
    return [f"{', '.join(nodes)}: {reason}" for reason, nodes in nodes_of.items()]


class _NothingSent(Exception):
    """A node was not asked, and another one may be: nothing was sent."""


def _asked(
    session: Session, host: Host, port: int | None, version_text: str, recordings: Sequence[Path]
) -> RasRecord:
    """One query, if the version allows it. Raises _NothingSent, UsageError, RasUnreachable,
    RecordingError."""
    if host.via not in ("ssh", "local"):
        raise _NothingSent(
            f"RAS was not asked: it is read with via={host.via}, and RAS listens on localhost of"
            " the node: run fabmon ras --host localhost there"
        )
    options = RasOptions(host=host.name, nccl_version=version_text or None)
    try:
        mapped = mapped_libraries(session, options, None, host)
    except RasUnreachable as error:
        raise _NothingSent(str(error).removeprefix(f"{host.name}: ")) from None
    try:
        version = allowed_version(options.nccl_version, None, mapped)
    except UsageError as error:
        # Another node may have processes of the job that this account may read.
        raise (error if mapped or version_text else _NothingSent(str(error))) from None
    where = (host,) if port is None else (host, port)
    try:
        content = send_query(session, options, *where)
    except RasNotConnected as error:
        raise _NothingSent(str(error).removeprefix(f"RAS of {host.name}: ")) from None
    status = parsed_answer(content, host.name)
    asked_ns, notes = time.time_ns(), version_notes(version, status)
    answer = Answer(status, host.name, None, None, asked_ns, None, notes)
    if not recordings:
        return live_report(session, answer, (), 0.0)[0]
    with Timeline(recordings) as timeline:
        return recorded_report(session, answer, timeline)[0]
