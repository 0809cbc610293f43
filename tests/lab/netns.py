"""Network namespaces: making them, being inside them, and ending what runs in them.

Python 3.11 has no ``os.setns``, so it is called through ctypes; a namespace belongs to a thread,
so work inside one is done on a thread of its own. A socket stays in the namespace it was made in,
whichever thread uses it afterwards.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NETNS_DIR = Path("/run/netns")
"""Where ``ip netns`` keeps a name for each namespace."""

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """The lab could not do something; the message says what and what the tool answered."""


def batch(tool: str, lines: Iterable[str], ns: str | None = None) -> str:
    """Run `lines` as one ``ip`` or ``tc`` batch, inside `ns` if given; returns its stdout.

    One process for many commands is what keeps building a lab within seconds.
    """
    commands = list(lines)
    where = ["-n", ns] if ns else []
    done = subprocess.run(
        [tool, *where, "-batch", "-"],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
    )
    if done.returncode:
        # tc and ip name the line that failed as "Command failed -:N".
        number = done.stderr.rpartition("-:")[2].strip()
        line = commands[int(number) - 1] if number.isdigit() else "?"
        raise LabError(f"{tool} in {ns or 'the root namespace'}: {done.stderr.strip()}: {line}")
    return done.stdout


def argv_in(ns: str, argv: Sequence[str]) -> list[str]:
    """`argv` prefixed so that it runs inside `ns`, with a /sys that shows its interfaces."""
    return ["ip", "netns", "exec", ns, *argv]


def call_in(ns: str, work: Callable[[], T]) -> T:
    """Run `work` on a thread that is inside `ns` and return what it returns."""

    def enter() -> T:
        with (NETNS_DIR / ns).open("rb") as handle:
            if _libc.setns(handle.fileno(), _CLONE_NEWNET):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), ns)
        return work()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(enter).result()


def make_socket(ns: str, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """A socket that lives in `ns`."""
    return call_in(ns, lambda: socket.socket(family, kind, protocol))


def write_sysctls(ns: str, values: dict[str, str]) -> None:
    """Set sysctls (``net/ipv4/...`` -> value) of `ns`."""

    def write() -> None:
        for name, value in values.items():
            Path("/proc/sys", name).write_text(value)

    call_in(ns, write)


def read_counters(ns: str) -> dict[str, dict[str, int]]:
    """What the kernel has counted on each interface of `ns` since it was made.

    Keys are ``rx_bytes rx_packets rx_dropped tx_bytes tx_packets tx_dropped``; bytes include the
    14-byte Ethernet header. Drops of the qdisc are not among ``tx_dropped``.
    """
    # /proc/net is that of the process; only thread-self follows the thread's namespace.
    text = call_in(ns, lambda: Path("/proc/thread-self/net/dev").read_text())
    counters = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        v = [int(word) for word in rest.split()]
        counters[name.strip()] = {
            "rx_bytes": v[0],
            "rx_packets": v[1],
            "rx_dropped": v[3],
            "tx_bytes": v[8],
            "tx_packets": v[9],
            "tx_dropped": v[11],
        }
    return counters


def pids_in(names: Iterable[str]) -> list[int]:
    """Every process whose main thread is inside one of the namespaces `names`."""
    inodes = {(NETNS_DIR / name).stat().st_ino for name in names if (NETNS_DIR / name).exists()}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inode = (process / "ns/net").stat().st_ino
        except OSError:  # It ended meanwhile, or is a zombie.
            continue
        if inode in inodes:
            found.append(int(process.name))
    return found


def kill_in(names: Sequence[str], timeout_s: float = 5.0) -> None:
    """Kill every process inside the namespaces `names`, those they start meanwhile too."""
    deadline = time.monotonic() + timeout_s
    while pids := pids_in(names):
        if time.monotonic() > deadline:
            raise LabError(f"processes {pids} do not end")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def delete(names: Iterable[str]) -> None:
    """Delete the namespaces `names`, those that exist."""
    present = [name for name in names if (NETNS_DIR / name).exists()]
    if present:
        batch("ip", [f"netns delete {name}" for name in present])


def listed(prefix: str) -> list[str]:
    """The namespaces whose name starts with `prefix`."""
    return sorted(path.name for path in NETNS_DIR.glob(f"{prefix}*"))
