"""The text of a refusal: which group or account may read the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from collectors.hostfs import readable_by
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(readable_by(sys.argv[1]))
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")


@pytest.fixture
def open_directory(tmp_path: Path) -> Path:
    """A directory that every account may enter, like /sys."""
    for place in (tmp_path, *tmp_path.parents):
        if place.owner() == "root" and place != Path("/"):
            place.chmod(place.stat().st_mode | 0o055)
    return tmp_path


def asked_by_nobody(path: Path) -> str:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_file_for_a_group_names_the_group(open_directory: Path) -> None:
    file = open_directory / "redis.sock"
    file.write_text("")
    os.chown(file, 0, 4)
    file.chmod(0o640)
    assert asked_by_nobody(file) == f"{file} is for group adm: join it (mode 0640)"


def test_a_file_for_one_account_names_the_account(open_directory: Path) -> None:
    file = open_directory / "umad0"
    file.write_text("")
    file.chmod(0o600)
    assert asked_by_nobody(file) == f"{file} is for root alone (mode 0600)"


def test_a_directory_on_the_way_is_named_instead(open_directory: Path) -> None:
    directory = open_directory / "closed"
    directory.mkdir(mode=0o700)
    (directory / "file").write_text("")
    assert asked_by_nobody(directory / "file") == f"{directory} is for root alone (mode 0700)"


def test_a_readable_file_gives_no_text(open_directory: Path) -> None:
    file = open_directory / "open"
    file.write_text("")
    assert asked_by_nobody(file) == ""
