"""The same fault has the same exit status in every command."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fabmon.fabric.model import Host
from fabmon.session.errors import NO_ROOM, Exit, OutputError, UsageError, cannot_write
from fabmon.session.recorder_setup import recorder_for


def run(arguments: str, stdout: str = os.devnull) -> tuple[int, str]:
    """Exit status and standard error of fabmon."""
    with Path(stdout).open("w") as sink:
        done = subprocess.run(
            [sys.executable, "-m", "fabmon", *arguments.split()],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "command", ["--help", "--version", "completion fish", "need --params 7e9 --dp 8", "config"]
)
def test_a_full_disk_under_standard_output_is_one_line_and_status_1(command: str) -> None:
    assert run(command, "/dev/full") == (
        Exit.FAILED,
        "fabmon: standard output: No space left on device\n",
    )


@pytest.mark.parametrize(
    "command",
    [
        "record -o {}/x.fabrec --duration 2s",
        "--once --record {}/x.fabrec",
        "demo --picture {}/x.svg --duration 1s",
        "watch --duration 1s --page {}",
        "watch --duration 1s --socket {}/s",
        "config --init --config {}/fabmon.toml",
    ],
)
def test_a_mistyped_directory_is_named_and_not_made(command: str, tmp_path: Path) -> None:
    missing = tmp_path / "typo"
    status, text = run(command.format(missing))
    assert status == Exit.USAGE
    assert f"{missing}: no such directory; make it first: mkdir -p {missing}" in text
    assert not missing.exists()


def test_a_disk_without_room_is_no_mistake_of_the_user(tmp_path: Path) -> None:
    for number in (*NO_ROOM, errno.EACCES, errno.EROFS, errno.ENOTDIR):
        made = cannot_write(tmp_path / "x", OSError(number, os.strerror(number)))
        assert isinstance(made, OutputError if number in NO_ROOM else UsageError)


def test_a_file_in_place_of_a_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not a directory"):
        recorder_for(tmp_path / "file" / "x.fabrec", [Host(name="a")], 1.0, "")


def test_a_recording_of_no_node_ends_with_a_clear_status(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu1 address=127.0.0.1 port=1\n")
    status, text = run(f"record --hosts {hosts} -o {tmp_path}/x.fabrec --duration 4s")
    assert status == Exit.NO_NODE
    assert "no node answered: the recording holds the reasons, and no counters" in text


def test_a_demo_says_what_speed_it_reached_and_its_lines_do_not_repeat() -> None:
    status, text = run("demo --speed 500 --duration 6s --format jsonl")
    assert status == Exit.OK
    assert re.search(
        r"--speed 500: reached [\d.]+ simulated seconds a second, which is as fast as this", text
    )
    assert text.count("only one in") <= 1
