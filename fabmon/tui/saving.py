"""The files that `x` saves: a picture of the screen, a table of ports, a part of the recording."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path

from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_wording import utc
from fabmon.private_files import write_new
from fabmon.report.rates import csv_of
from fabmon.scenes.recording_access import RecordingAccess, SaveError
from fabmon.tui.screen_state import ScreenState

PICTURE, TABLE, CUT = "picture", "table", "cut"

_FONTS = re.compile(r"@font-face \{[^{}]*\}")
_OF_A_CUT = re.compile(r"(-cut)?-\d{8}T\d{6}Z(-\d{6}Z)?(-\d+)?(\.fabrec)?$")
"""What the name of a cut that is replayed ends with: a cut of it has a time of its own."""
_MOST_TRIES = 100


def without_web_fonts(svg: str) -> str:
    """An SVG without references to fonts on the web: any monospaced font is good enough."""
    return _FONTS.sub("", svg)


async def save_file(
    what: str,
    screen_state: ScreenState,
    view: str,
    picture: Callable[[], str],
    recording: RecordingAccess,
) -> str:
    """Save `picture`, `table` or `cut` in the current directory; returns what to show of it.

    `picture` returns the SVG of the screen, `view` is the name of the view.
    """
    scene = screen_state.scene
    if scene is None:
        return "not saved: nothing has been received yet"
    snapshot = scene.snapshot
    try:
        if what == PICTURE:
            data = picture().encode()
            path = _unused(screen_state.run.title, view, _time(snapshot.time_ns), "svg")
            await asyncio.to_thread(write_new, path, data)
        elif what == TABLE:
            matched = screen_state.matched(scene)
            mask = matched.ports if matched is not None else None
            path = _unused(screen_state.run.title, "ports", _time(snapshot.time_ns), "csv")
            made = await asyncio.to_thread(csv_of, snapshot, mask)
            await asyncio.to_thread(write_new, path, made)
        else:
            begin_ns, end_ns = range_of(screen_state, snapshot)
            named_ns = begin_ns, end_ns
            if recording.reader is not None:
                # The timeline may begin before the recording, and end after it.
                known = await recording.reader.look()
                first_ns = min(max(begin_ns, known.start_ns), end_ns)
                named_ns = first_ns, max(first_ns, min(end_ns, known.until_ns))
            span = f"{_time(named_ns[0])}-{_time(named_ns[1])[9:]}"
            path = _unused(screen_state.run.title, "cut", span, "fabrec")
            await _cancellable(recording.cut, path, begin_ns, end_ns)
    except OSError as error:
        return f"not saved: {error.filename or Path.cwd()}: {error.strerror or error}"
    except SaveError as error:
        return f"not saved: {error}"
    return f"saved {path}"


def range_of(screen_state: ScreenState, snapshot: Snapshot) -> tuple[int, int]:
    """(from, until) in ns of a cut: the marked range, else the range of the timeline."""
    if screen_state.cursor.range_ns is not None:
        return screen_state.cursor.range_ns
    live = None if screen_state.live is None else screen_state.live.snapshot.time_ns
    return screen_state.cursor.window(snapshot.time_ns, live)


def _unused(title: str, what: str, when: str, suffix: str) -> Path:
    """`fabmon-pod7-overview-20261121T140640Z.svg`, with a number if such a file exists.

    Raises SaveError if there are too many.
    """
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", _OF_A_CUT.sub("", title)).strip("-.")[:40]
    stem = "-".join(part for part in ("fabmon", words, what, when) if part)
    for number in range(1, _MOST_TRIES):
        path = Path(f"{stem}{f'-{number}' if number > 1 else ''}.{suffix}")
        if not path.exists():
            return path
    raise SaveError(f"{stem}.{suffix}: there are {_MOST_TRIES - 1} of them already")


async def _cancellable(
    cut: Callable[[Path, int, int, Callable[[], bool]], None],
    path: Path,
    begin_ns: int,
    end_ns: int,
) -> None:
    """Cut in a thread, which stops soon after this is cancelled: quitting does not wait for it."""
    is_cancelled = threading.Event()
    try:
        await asyncio.to_thread(cut, path, begin_ns, end_ns, lambda: not is_cancelled.is_set())
    finally:
        is_cancelled.set()


def _time(time_ns: int) -> str:
    return f"{utc(time_ns):%Y%m%dT%H%M%SZ}"
