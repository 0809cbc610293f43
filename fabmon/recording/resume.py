"""Goes on with a file that was recorded before: another session in it."""

from __future__ import annotations

from pathlib import Path

from fabmon.recording.frames import Kind
from fabmon.recording.index import Entry
from fabmon.recording.reader import Recording
from fabmon.recording.records import SessionRecord
from fabmon.recording.rows import Rows
from fabmon.recording.store import Piece, Store
from fabmon.recording.writer import Writer

_KEPT = (Kind.NOTE, Kind.MINUTE, Kind.TOPOLOGY)


def resume(path: Path, session: SessionRecord) -> Writer:
    """A writer that appends a session. What a killed writer left provisional is settled first.

    A file of no bytes is as good as a new one. Raises NotARecording, TooNew, InUse or OSError; the
    file is then as it was.
    """
    store = Store(path, is_new=False)
    try:
        if path.stat().st_size:
            return _resumed(store, session)
        writer = Writer(store, session)
        writer.begin(session)
    except BaseException:
        store.close()
        raise
    return writer


def _resumed(store: Store, session: SessionRecord) -> Writer:
    path = store.path
    with Recording(path) as before:
        settled = before.settled_to
        entries = before.entries()
        index_at = max((e.at for e in entries if e.header.kind == Kind.INDEX), default=0)
        # By their place in the file: the clock may have been set back since.
        state = before.settled_state()
        tail = before.unsettled()
        kept = [_again(before, entry) for entry in entries if _is_kept(entry, settled)]
        session_before = before.sessions[-1]
    rows = Rows()
    rows.seat(state.hellos)
    store.go_on(settled, index_at)
    writer = Writer(store, session_before, state, rows)
    writer.take_over(tail, kept)
    writer.begin(session)
    return writer


def _is_kept(entry: Entry, settled: int) -> bool:
    return entry.at >= settled and entry.header.kind in _KEPT


def _again(before: Recording, entry: Entry) -> Piece:
    head = entry.header
    return Piece(Kind(head.kind), before.payload(entry), head.time_ns, head.until_ns, head.part)
