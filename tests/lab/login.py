"""The unprivileged user that fabmon logs in as.

One user serves every lab on the machine. It is made when the first lab starts and removed when the
last one ends, unless somebody else had made it.
"""

from __future__ import annotations

import pwd
import shutil
import subprocess
from pathlib import Path

from tests.lab.netns import LabError

USER = "fabmonlab"


def ensure(state_dir: Path) -> None:
    """Make the user if there is none, with an empty home under `state_dir`."""
    home = state_dir / "home"
    try:
        pwd.getpwnam(USER)
    except KeyError:
        (state_dir / "user-made").touch()
        # A password of "*" can never be typed, yet is not a locked account ("!"), which sshd
        # refuses even with a key when PAM is off.
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--password", "*"]
        _run([*command, "--home-dir", str(home), "--shell", "/bin/sh", USER])
    home.mkdir(mode=0o755, exist_ok=True)
    entry = pwd.getpwnam(USER)
    shutil.chown(home, entry.pw_uid, entry.pw_gid)


def remove(state_dir: Path) -> None:
    """Remove the user if a lab made it."""
    marker = state_dir / "user-made"
    if marker.exists():
        _run(["userdel", USER])
        marker.unlink()


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{argv[0]}: {done.stderr.strip()}")
