"""A Debian in a directory, made from the package registry, to install packages into."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import requirements

INCLUDED = (
    "python3",
    "python3-venv",
    "openssh-server",
    "openssh-client",
    "man-db",
    "bash-completion",
    "zsh",
    "fish",
)
_INSIDE = """
set -e
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount -t devpts devpts "$1/dev/pts" -o newinstance,ptmxmode=0666 2>/dev/null || true
exec chroot "$1" /bin/bash -euc "$2"
"""


def codename() -> str:
    """The release of Debian that this machine has: its Python is that of the package."""
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return found.get("VERSION_CODENAME", "bookworm")


def make(root: Path, *included: str) -> None:
    """A Debian with these packages, in the directory `root`."""
    requirements.need_root()
    requirements.need_command("mmdebstrap", "mmdebstrap")
    packages = ",".join(included)
    argv = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", codename()]
    subprocess.run([*argv, str(root)], check=True, capture_output=True)


def run(root: Path, script: str) -> str:
    """What a script of bash prints in there. Its processes end with it.

    It has the network of this machine, and the locale C.UTF-8. Raises AssertionError with what it
    printed if it fails.
    """
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _INSIDE, "-"]
    return checked([*argv, str(root), script])


def checked(argv: list[str]) -> str:
    """What a command prints that gets the environment of a login there. Raises AssertionError with
    what it printed if it fails."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    environment |= {"DEBIAN_FRONTEND": "noninteractive", "TERM": "xterm-256color"}
    environment |= {name: os.environ[name] for name in ("http_proxy",) if name in os.environ}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
