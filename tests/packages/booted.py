"""A Debian in a directory, started: systemd is its process 1, in namespaces of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests import requirements
from tests.packages import chroot

INCLUDED = ("python3", "adduser", "systemd-sysv", "dbus", "openssh-server", "openssh-client")
_BOOT = """
set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs sysfs sys -o ro
mount -t tmpfs tmpfs sys/fs/cgroup -o mode=755
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run -o mode=755
mount -t tmpfs tmpfs tmp
# Device files of its own: systemd and its getty change modes of what they find.
mount -t tmpfs tmpfs dev -o mode=755,dev
mkdir dev/pts dev/shm
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
mount -t tmpfs tmpfs dev/shm
for each in null:3 zero:5 full:7 random:8 urandom:9 console:3; do
    mknod -m 0666 "dev/${each%:*}" c 1 "${each#*:}"
done
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ip link set lo up
ln -sf /dev/null etc/systemd/system/console-getty.service
exec env -i container=fabmon-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    unshare --root=. /lib/systemd/systemd
"""

Run = Callable[[str], str]
T = TypeVar("T")


@contextmanager
def booted(debian: Path, changes: Path) -> Iterator[Run]:
    """Start a Debian that has INCLUDED; yields what runs a script in it, as chroot.run does.

    It has no network but its own loopback. What is written there goes into the directory `changes`,
    from which the next start goes on; `debian` stays as it is. Controllers of cgroups may be
    missing: limits of memory are then without effect.
    """
    requirements.need_root()
    requirements.need("overlayfs", "overlay" in Path("/proc/filesystems").read_text(), "its module")
    cgroup = _cgroups() / f"fabmon-test-{os.getpid()}"
    cgroup.mkdir()
    for name in ("upper", "work", "root"):
        (changes / name).mkdir(parents=True, exist_ok=True)
    namespaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net"]
    argv = ["unshare", *namespaces, "--fork", "bash", "-c", _BOOT, "-", str(debian), str(changes)]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: (cgroup / "cgroup.procs").write_text("0"),
    )
    try:
        init = until(lambda: _child(process))

        def run(script: str) -> str:
            enter = ["nsenter", "--target", str(init), "--all", "--root", "--wd"]
            return chroot.checked([*enter, "bash", "-euc", script])

        until(lambda: run("test -S /run/dbus/system_bus_socket"))
        run("systemctl is-system-running --wait || true")
        yield run
    finally:
        (cgroup / "cgroup.kill").write_text("1")
        process.wait()
        events = cgroup / "cgroup.events"
        until(lambda: _check("populated 0" in events.read_text()))
        for each in sorted(cgroup.rglob("*/"), reverse=True):
            each.rmdir()
        cgroup.rmdir()


def _cgroups() -> Path:
    """Where the second version of cgroups is mounted."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [Path(words[1]) for words in mounts if words[2] == "cgroup2"]
    requirements.need("cgroup2", bool(found), "mount -t cgroup2 none /sys/fs/cgroup/unified")
    return found[0]


def _child(process: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    return int(children[0])


def _check(is_true: bool) -> None:
    assert is_true


def until(check: Callable[[], T], limit_s: float = 60.0) -> T:
    """What a check returns as soon as it raises no AssertionError any more."""
    end_s = time.monotonic() + limit_s
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.3)
