"""Watching that is recorded: where to, and what of a scene is kept."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import msgspec

from fabmon import __version__
from fabmon.analysis.analyst import Analyst
from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Scene
from fabmon.cli.amounts import parse_seconds, size
from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.history.history import History
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.records import Note, SessionRecord
from fabmon.recording.writing.recorder import Recorder, RecorderStatus
from fabmon.recording.writing.segments import Rotation, Segments
from fabmon.session.config import RecordingConfig
from fabmon.session.errors import UsageError

_RING_FILES = 8
_RING = re.compile(r".+-\d+-\d+")


async def watch(
    ticks: AsyncIterator[Tick], history: History, analyst: Analyst, recorder: Recorder | None
) -> AsyncGenerator[Scene, None]:
    """The whole way through the house, and into a recording."""
    async for tick in ticks:
        scene = analyst.accept(history.accept(tick))
        if recorder is not None:
            recorder.accept(tick, scene.snapshot, finding_notes(scene))
        yield scene


def finding_notes(scene: Scene) -> list[Note]:
    """What was found at a tick, to be kept as it was told."""
    return [_note(scene, change, finding) for change, finding in scene.changes]


def recorder_for(
    path: Path,
    hosts: Sequence[Host],
    interval_s: float,
    title: str,
    rotation: Rotation | None = None,
    console: str | None = None,
) -> Recorder:
    """A recorder to a file, by this machine unless another name is to be kept.

    Raises UsageError, with the reason.
    """
    now_ns = time.time_ns()
    session = SessionRecord(
        started_ns=now_ns,
        run_ns=now_ns,
        interval_s=interval_s,
        hosts=tuple(msgspec.structs.replace(host, secret=None) for host in hosts),
        tool=f"fabmon {__version__}",
        recorder=socket.gethostname() if console is None else console,
        title=title,
    )
    try:
        return Recorder(Segments(path, rotation or Rotation()), session)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: {error.strerror or error}") from None
    except RecordingError as error:
        raise UsageError(f"{error}: choose another file to record to") from None


def made(recorder: Recorder | str) -> Recorder | None:
    """A recorder, where there is one."""
    return recorder if isinstance(recorder, Recorder) else None


def describe_status(status: RecorderStatus) -> str:
    """How it went, for a person."""
    lost = f", {status.lost_ticks} lost" if status.lost_ticks else ""
    trouble = f"; {status.trouble}" if status.trouble else ""
    size = f"{status.bytes / 1e6:.1f} MB" if status.bytes >= 1e6 else f"{status.bytes / 1e3:.0f} kB"
    return f"recorded {status.ticks} ticks{lost}, {size}: {status.path}{trouble}"


def rotation_of(rotate: str | None, keep: str | None) -> Rotation:
    """What --rotate and --keep say: each a time or a size. Raises UsageError."""
    every_s, every_bytes = _time_or_size("--rotate", rotate)
    keep_s, keep_bytes = _time_or_size("--keep", keep)
    if keep is not None and rotate is None:
        raise UsageError("--keep removes older files, and without --rotate there is only one")
    return Rotation(every_bytes=every_bytes, every_s=every_s, keep_bytes=keep_bytes, keep_s=keep_s)


def ring_recorder(
    config: RecordingConfig,
    hosts: Sequence[Host],
    interval_s: float,
    title: str,
    beside: str = "",
    console: str | None = None,
) -> Recorder | str:
    """The recorder that always runs beside the screen: bounded, in the runtime directory, or in a
    directory `beside` the others there.

    Why not, for a person, where it is turned off, or cannot be: watching goes on without. Raises
    UsageError for a size that is none.
    """
    room = 0 if config.ring in ("0", "off") else size(config.ring)
    if room is None:
        raise UsageError(f"recording.ring: {config.ring!r}: a size such as 128MB, or off")
    if not room:
        return "recording is turned off (recording.ring)"
    home = Path(config.directory).expanduser() if config.directory else runtime_directory()
    home = home / beside
    rotation = Rotation(every_bytes=room // _RING_FILES, keep_bytes=room)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            return f"not recording: {home} is another user's"
        _tidy(home)
        path = home / _name_of(os.getpid()) / "live.fabrec"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return recorder_for(path, hosts, interval_s, title, rotation, console)
    except OSError as error:
        return f"not recording: {error.filename or home}: {error.strerror or error}"
    except UsageError as error:
        return f"not recording: {error}"


def ring_directories(home: Path) -> list[Path]:
    """The directories of rings, the latest first."""
    found = [each for each in home.glob("*") if _RING.fullmatch(each.name) and each.is_dir()]
    return sorted(found, key=lambda each: each.stat().st_mtime, reverse=True)


def runtime_directory() -> Path:
    """`$XDG_RUNTIME_DIR/fabmon`; a directory of our own in the temporary one without it."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given:
        return Path(given) / "fabmon"
    return Path(tempfile.gettempdir()) / f"fabmon-{os.getuid()}"


def _tidy(home: Path) -> None:
    """Remove the rings of consoles that are gone, but for the last one: it may be wanted.

    Of other machines, which may have the same home, nothing is known.
    """
    here = [
        each
        for each in ring_directories(home)
        if each.name.rsplit("-", 2)[0] == socket.gethostname()
    ]
    gone = [each for each in here if each.name != _name_of(int(each.name.rsplit("-", 2)[1]))]
    for directory in gone[1:]:
        for file in directory.glob("*.fabrec"):
            file.unlink(missing_ok=True)
        if not any(directory.iterdir()):
            directory.rmdir()


def _name_of(pid: int) -> str:
    """Of the directory of a process's ring: a pid is used again, on another machine and later."""
    try:
        # In clock ticks since the machine started: the 20th field behind the command's name.
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        started = "0"
    return f"{socket.gethostname()}-{pid}-{started}"


def _time_or_size(option: str, text: str | None) -> tuple[float | None, int | None]:
    if text is None:
        return None, None
    time_s, room = parse_seconds(text), size(text)
    if not time_s and not room:
        raise UsageError(f"{option} {text}: a time such as 1h or 7d, or a size such as 1GB")
    if time_s and time_s < 1:
        raise UsageError(f"{option} {text}: no less than 1s")
    return time_s, room


def _note(scene: Scene, change: Change, finding: Finding) -> Note:
    snapshot = scene.snapshot
    return Note(
        kind="finding",
        time_ns=snapshot.time_ns,
        seq=snapshot.seq,
        text=finding.text,
        change=change.value,
        ports=tuple(snapshot.fabric.ports[row].id for row in finding.rows),
        finding=msgspec.to_builtins(finding),
    )
