"""How the screen saves what is not drawn: tables of links, and parts of what was recorded."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from fabmon.fabric.filter import Mask
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Snapshot

if TYPE_CHECKING:
    from fabmon.history.history import History
    from fabmon.recording.reading.timeline import Timeline
    from fabmon.tui.saving import SaveFunctions


def saves(
    files: Callable[[], Sequence[Path]],
    history: Callable[[Timeline], History],
    redactor: Redactor | None = None,
) -> SaveFunctions:
    """From what is recorded in some files, none where nothing is; `history` makes what it goes
    through, without names where there is a `redactor`.
    """
    from fabmon.tui.saving import SaveError, SaveFunctions

    def cut(path: Path, from_ns: int, until_ns: int, is_wanted: Callable[[], bool]) -> None:
        from fabmon.recording.format.errors import RecordingError
        from fabmon.recording.reading.timeline import Timeline
        from fabmon.recording.writing.cut import copy_range

        named = files()
        if not named:
            raise SaveError("nothing is recorded: there is nothing to cut out")
        try:
            with Timeline(named) as timeline:
                begin = max(from_ns, timeline.start_ns)
                moment_of = history(timeline).accept
                with closing(
                    copy_range(timeline, path, begin, until_ns, moment_of, redactor)
                ) as copied:
                    # What is not finished when it is closed leaves no file.
                    for _ in copied:
                        if not is_wanted():
                            break
        except RecordingError as error:
            raise SaveError(str(error)) from None

    return SaveFunctions(table, cut)


def table(snapshot: Snapshot, wanted: Mask | None) -> bytes:
    """The links of a moment as CSV, as `fabmon export` has them."""
    from fabmon.report.rates import CsvRates

    text = io.BytesIO()
    CsvRates(text).accept(snapshot, wanted)
    return text.getvalue()
