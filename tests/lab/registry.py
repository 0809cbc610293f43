"""Which labs exist on this machine, who owns each, and how the leftovers of a crash are removed.

Every lab writes a record before it makes anything else: its id, the owner's pid and start time
(a pid alone may have been reused), and its directory. A record whose owner is gone is a leftover,
and the next lab to start removes it. All this happens under one lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.lab import login, netns

STATE_DIR = Path("/run/fabmon-lab")


@dataclass(frozen=True, slots=True)
class Record:
    """A lab on this machine. `started` is the owner's start, in clock ticks since boot."""

    lab_id: str
    pid: int
    started: int
    directory: str

    @property
    def path(self) -> Path:
        """Where the record is kept."""
        return STATE_DIR / f"{self.lab_id}.json"

    @property
    def prefix(self) -> str:
        """What the names of the lab's namespaces start with."""
        return f"{self.lab_id}-"


def start_time(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot; None if there is none (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name may hold spaces and parentheses: count fields from the last one.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def alive(record: Record) -> bool:
    """Whether the process that made the lab still runs."""
    return start_time(record.pid) == record.started


def records() -> list[Record]:
    """Every lab on this machine, leftovers too."""
    return [Record(**json.loads(path.read_text())) for path in sorted(STATE_DIR.glob("*.json"))]


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the machine-wide lock of all labs."""
    path = STATE_DIR / "lock"
    while True:
        STATE_DIR.mkdir(mode=0o755, exist_ok=True)
        try:
            handle = path.open("w")
        except FileNotFoundError:  # The last lab removed the directory just now.
            continue
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The last lab to leave removes the file: one that was waiting then holds a lock on nothing.
        if path.exists() and path.stat().st_ino == os.fstat(handle.fileno()).st_ino:
            break
        handle.close()
    try:
        yield
    finally:
        handle.close()


def claim() -> Record:
    """Remove leftovers, then register a new lab owned by this process and make its directory."""
    with _locked():
        for record in records():
            if not alive(record):
                _remove(record)
        directory = Path(tempfile.mkdtemp(prefix="fabmon-lab-"))
        directory.chmod(0o755)  # sshd reads authorized_keys here as the unprivileged user.
        pid = os.getpid()
        started = start_time(pid)
        assert started is not None
        record = Record(f"fl{secrets.token_hex(3)}", pid, started, str(directory))
        record.path.write_text(json.dumps(asdict(record)))
        login.ensure(STATE_DIR)
        return record


def release(record: Record) -> None:
    """Remove everything of a lab; the last one to leave also removes the login user."""
    with _locked():
        _remove(record)
        if not records():
            login.remove(STATE_DIR)
            shutil.rmtree(STATE_DIR)


def _remove(record: Record) -> None:
    """Remove processes, namespaces and files of `record`, the record itself last."""
    names = netns.listed(record.prefix)
    netns.kill_in(names)
    netns.delete(names)
    shutil.rmtree(record.directory, ignore_errors=True)
    record.path.unlink(missing_ok=True)
