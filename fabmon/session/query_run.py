"""`fabmon query` and `fabmon mcp`: asks a recording, or a running watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import byte_count, needed_extra
from fabmon.query.answering import answer
from fabmon.query.answers import Answer
from fabmon.query.questions import QueryError, Question
from fabmon.query.sources import RecordedSource
from fabmon.query.watch_socket import Ask, NoWatch, ask_watch, the_watch
from fabmon.recording.reading.summary import NOT_CHECKED
from fabmon.recording.reading.timeline import Timeline
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.session.errors import UsageError
from fabmon.session.replay_run import check_ticks, compare_checksums, open_recordings
from fabmon.session.session import Session


@asynccontextmanager
async def asking(
    session: Session, files: Sequence[Path], socket: Path | None, redact: bool
) -> AsyncIterator[Ask]:
    """What answers questions: recordings, else the watch behind a socket, else the only one that
    runs. Raises UsageError, NoWatch."""
    if not files:
        if redact:
            raise UsageError("--redact: of a running watch, start it with --redact")
        path = socket or await the_watch()

        async def ask_it(question: Question) -> Answer:
            return await ask_watch(path, question)

        yield ask_it
        return
    if socket is not None:
        raise UsageError("name recordings or --socket, not both")
    with open_recordings(files) as timeline:
        check_ticks(timeline)
        compare_checksums(timeline)
        own = session.for_recording(timeline, redact)
        past = RecordedPast(timeline, own)
        names = ", ".join(printable(each.path.name) for each in timeline.files)
        name = "recording" if redact else names
        source, one_at_a_time = RecordedSource(name[:200], past), asyncio.Lock()

        async def ask_recording(question: Question) -> Answer:
            async with one_at_a_time:
                made = await answer(source, question)
            return msgspec.structs.replace(made, notes=made.notes + _damage(timeline))

        try:
            yield ask_recording
        finally:
            await past.close()


def _damage(timeline: Timeline) -> list[str]:
    """What is lost of recordings, and whether that is all."""
    lost = timeline.lost_bytes
    is_checked = all(each.is_checked for each in timeline.files)
    return [
        *([f"{byte_count(lost)} of the recording are lost: run fabmon verify"] if lost else []),
        *([] if is_checked else [NOT_CHECKED]),
    ]


async def query(
    session: Session, files: Sequence[Path], socket: Path | None, redact: bool, question: Question
) -> Answer:
    """The answer to one question. Raises UsageError."""
    try:
        async with asking(session, files, socket, redact) as ask:
            return await ask(question)
    except QueryError as error:
        raise UsageError(str(error)) from None


async def serve_mcp(
    session: Session, files: Sequence[Path], socket: Path | None, redact: bool
) -> None:
    """Serve the questions as an MCP server until standard input ends. Raises UsageError."""
    try:
        from fabmon.query.mcp_server import serve
    except ImportError as error:
        raise UsageError(f"fabmon mcp needs {needed_extra('mcp')}: {error}") from None
    try:
        async with asking(session, files, socket, redact) as ask:
            await serve(ask)
    except NoWatch as error:
        raise UsageError(str(error)) from None
