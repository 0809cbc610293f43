"""Creates recorders: to a file that the user names, or to the ring of the screen.

A ring is a directory `HOST-PID-START` of rotating files of bounded size, in the runtime directory;
rings of the demo are in its subdirectory `demo`.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fabmon import __version__
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import byte_count, file_error, plural
from fabmon.limited_thread import START_S, call_within
from fabmon.private_files import check_private, make_directory
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.time_parsing import parse_amount, parse_seconds
from fabmon.recording.writing.recorder import CLOCK_TROUBLE, Recorder, RecorderStatus, can_record
from fabmon.recording.writing.segments import Rotation, Segments
from fabmon.session.config import RecordingConfig
from fabmon.session.errors import OutputError, UsageError, cannot_write

DEMO_MARK = "SIMULATED"
"""Begins the title of a recording of the demo."""

_DEMO_DIRECTORY = "demo"
_RING_FILES = 8
_ELSEWHERE = "set recording.directory to a directory of your own"
_RING = re.compile(r".+-\d+-\d+")
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}  # fmt: skip


def parse_size(text: str) -> int | None:
    """`64MB`, `1GB` or `512KiB` in bytes; None for anything else."""
    amount = parse_amount(text, _BYTES)
    return None if amount is None else int(amount)


def recorder_for(
    path: Path,
    hosts: Sequence[Host],
    interval_s: float,
    title: str,
    rotation: Rotation | None = None,
    console: str | None = None,
) -> Recorder:
    """A recorder to a file. `console` is the name of the recording machine (None: this one).

    Raises UsageError with the reason, also where the directory does not exist: its name may be
    mistyped, and where its file system does not answer. Raises OutputError where the disk is full.
    """
    try:
        return call_within(
            START_S, _recorder_for, path, hosts, interval_s, title, rotation, console
        )
    except OSError as error:
        raise cannot_write(path, error) from None


def _recorder_for(
    path: Path,
    hosts: Sequence[Host],
    interval_s: float,
    title: str,
    rotation: Rotation | None,
    console: str | None,
) -> Recorder:
    if not path.parent.is_dir():
        if path.parent.exists():
            raise UsageError(f"{path}: {path.parent} is not a directory")
        make = f"make it first: mkdir -p {shlex.quote(str(path.parent))}"
        raise UsageError(f"{path.parent}: no such directory; {make}")
    now_ns = time.time_ns()
    if not can_record(now_ns):
        raise UsageError(f"{path}: {CLOCK_TROUBLE}")
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
    except RecordingError as error:
        raise UsageError(f"{error}: choose another file to record to") from None


def describe_status(status: RecorderStatus) -> str:
    """What was recorded, in one line."""
    lost = f", {status.lost_ticks} lost" if status.lost_ticks else ""
    trouble = f"; {status.trouble}" if status.trouble else ""
    removed = f"; removed {plural(status.removed, 'older file')}" if status.removed else ""
    size = byte_count(status.bytes)
    path = printable(str(status.path))
    where = path if status.files == 1 else f"{status.files} files, the last {path}"
    recorded = f"recorded {plural(status.ticks, 'tick')}{lost}, {size}: {where}"
    return f"{recorded}{removed}{trouble}"


def rotation_of(rotate: str | None, keep: str | None) -> Rotation:
    """The rotation that --rotate and --keep describe, each a time or a size. Raises UsageError."""
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
    console: str | None = None,
) -> Recorder | str:
    """The recorder that always runs while a screen is shown, bounded in size.

    Returns the reason if recording is turned off or impossible: the screen then runs without.
    Raises UsageError for a size that cannot be parsed.
    """
    max_bytes = 0 if config.ring in ("0", "off") else parse_size(config.ring)
    if max_bytes is None:
        raise UsageError(f"recording.ring: {config.ring!r}: write a size such as 128MB, or off")
    if not max_bytes:
        return "recording is turned off (recording.ring)"
    home = ring_home(config)
    if title.startswith(DEMO_MARK):
        home /= _DEMO_DIRECTORY
    rotation = Rotation(every_bytes=max_bytes // _RING_FILES, keep_bytes=max_bytes)
    path = home / _ring_name(os.getpid()) / "live.fabrec"

    def begin() -> Recorder:
        base = ring_home(config)
        for each in (base, home, path.parent):
            make_directory(each)
            check_private(each, base)
        _remove_old_rings(home)
        return recorder_for(path, hosts, interval_s, title, rotation, console)

    try:
        return call_within(START_S, begin)
    except PermissionError as error:
        return f"not recording: {_refusal(error)}"
    except OSError as error:
        return f"not recording: {error.filename or home}: {file_error(error)}"
    except (UsageError, OutputError) as error:
        return f"not recording: {error}"


def last_ring(config: RecordingConfig) -> Path | None:
    """The ring of the screen that was shown last, of a demo only if there is no other; None if
    there is none.

    Raises UsageError if another user could have put it there.
    """
    home = ring_home(config)
    try:
        for each in (home, home / _DEMO_DIRECTORY):
            if each.is_symlink() or each.exists():
                check_private(each, home)
        rings = ring_directories(home) or ring_directories(home / _DEMO_DIRECTORY)
        last = next(iter(rings), None)
        if last is not None:
            check_private(last, home)
    except PermissionError as error:
        raise UsageError(_refusal(error)) from None
    return last


def ring_directories(home: Path) -> list[Path]:
    """The rings in a directory, the latest first."""
    found = [each for each in home.glob("*") if _RING.fullmatch(each.name) and each.is_dir()]
    return sorted(found, key=_changed_s, reverse=True)


def ring_home(config: RecordingConfig) -> Path:
    """The directory of rings: as configured, else `$XDG_RUNTIME_DIR/fabmon`, else in /tmp."""
    if config.directory:
        return Path(config.directory).expanduser().resolve()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "fabmon"
    return Path(tempfile.gettempdir()) / f"fabmon-{os.getuid()}"


def _refusal(error: OSError) -> str:
    return f"{error.filename}: {file_error(error)}; or {_ELSEWHERE}"


def _changed_s(directory: Path) -> float:
    """When a ring was written to last; the directory itself changes with each new file only."""
    times = [0.0]
    for each in (directory, *directory.glob("*.fabrec")):
        with suppress(OSError):  # The ring of a running screen drops its oldest.
            times.append(each.stat().st_mtime)
    return max(times)


def _remove_old_rings(home: Path) -> None:
    """Remove the rings of consoles of this machine that have ended, except the latest: the one
    written to last and, as the clock may have been set meanwhile, the one begun last since boot.

    Rings of other machines, which may share the directory, are left alone.
    """
    here = [
        each
        for each in ring_directories(home)
        if each.name.rsplit("-", 2)[0] == socket.gethostname()
    ]
    gone = [each for each in here if each.name != _ring_name(int(each.name.rsplit("-", 2)[1]))]
    begun_last = max(gone, key=lambda each: int(each.name.rsplit("-", 1)[1]), default=None)
    for directory in gone[1:]:
        if directory != begun_last:
            for file in directory.glob("*.fabrec"):
                with suppress(OSError):
                    file.unlink()
            with suppress(OSError):  # Something else is in it.
                directory.rmdir()


def _ring_name(pid: int) -> str:
    """Name of the ring of a process; with its start, because process ids are reused."""
    try:
        # Clock ticks since boot: the 20th field after the command's name.
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        started = "0"
    return f"{socket.gethostname()}-{pid}-{started}"


def _time_or_size(option: str, text: str | None) -> tuple[float | None, int | None]:
    if text is None:
        return None, None
    time_s, size_bytes = parse_seconds(text), parse_size(text)
    if not time_s and not size_bytes:
        raise UsageError(f"{option} {text}: write a time such as 1h or 7d, or a size such as 1GB")
    if time_s and time_s < 1:
        raise UsageError(f"{option} {text}: write at least 1s")
    return time_s, size_bytes
