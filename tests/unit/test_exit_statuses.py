"""The same fault has the same exit status in every command."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fabmon.analysis import analyst
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import Condition
from fabmon.analysis.scene import Scene
from fabmon.cli import main as program
from fabmon.fabric.model import Host
from fabmon.recording.writing.writer import Writer
from fabmon.session.errors import NO_ROOM, Exit, OutputError, UsageError, cannot_write
from fabmon.session.printing import print_last, print_lines
from fabmon.session.recorder_setup import recorder_for
from tests.tui.recordings import Watching
from tests.unit.test_cli import fabmon_here


def run(
    arguments: str, stdout: str = os.devnull, file_bytes: int = resource.RLIM_INFINITY
) -> tuple[int, str]:
    """Exit status and standard error of fabmon, which has room for files of `file_bytes`."""
    room = (file_bytes, resource.RLIM_INFINITY)
    with Path(stdout).open("w") as sink:
        done = subprocess.run(
            [sys.executable, "-m", "fabmon", *arguments.split()],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, room),
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


READS_TICKS = (
    "replay --once FILE",
    "replay --format jsonl --speed max FILE",
    "replay --model-at +1s FILE",
    "cut FILE -o OUT",
    "export --format csv FILE -o OUT",
    "export --format openmetrics FILE -o OUT",
    "report FILE -o OUT",
    "query status FILE",
    "query findings FILE",
    "fluctuate FILE",
    "compare FILE FILE",
    "mcp FILE",
    "need --params 7e9 --dp 8 --recording FILE",
)
"""Commands that need the ticks of a recording; `info` and `verify` say what there is of it."""


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By what is wrong, recordings of which nothing can be read."""
    folder = tmp_path_factory.mktemp("unreadable")
    paths = {name: folder / name for name in ("missing", "directory", "empty", "text")}
    paths |= {name: folder / f"{name}.fabrec" for name in ("no tick", "damaged", "cut off")}
    paths["directory"].mkdir()
    paths["empty"].touch()
    paths["text"].write_text("hello")
    watching = Watching()
    Writer.create(paths["no tick"], watching.session).close()
    watching.record(paths["cut off"], 90)
    whole, head = paths["cut off"].read_bytes(), paths["no tick"].stat().st_size
    damaged = bytes(each ^ (0xFF * (n > head and n % 61 == 0)) for n, each in enumerate(whole))
    paths["damaged"].write_bytes(damaged)
    paths["cut off"].write_bytes(whole[:-200])
    return paths


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("missing", "no such file"),
        ("directory", "no recordings (*.fabrec) in this directory"),
        ("empty", "not a fabmon recording: the file is empty"),
        ("text", "not a fabmon recording"),
        ("no tick", "no tick is recorded"),
        ("damaged", "no tick can be read"),
    ],
)
def test_a_recording_that_cannot_be_read_is_said_with_status_2_by_every_command(
    fault: str, said: str, unreadable: dict[str, Path], tmp_path: Path
) -> None:
    for command in READS_TICKS:
        words = {"FILE": str(unreadable[fault]), "OUT": str(tmp_path / "out")}
        done = fabmon_here(*(words.get(each, each) for each in command.split()))
        assert done.returncode == Exit.USAGE, command
        assert f"fabmon: {unreadable[fault]}: {said}" in done.stderr, command
        assert "1970" not in done.stderr, command
        assert not (tmp_path / "out").exists(), command


def test_of_a_recording_that_is_cut_off_every_command_reads_what_there_is(
    unreadable: dict[str, Path], tmp_path: Path
) -> None:
    for command in READS_TICKS[:-2]:
        out = tmp_path / command.replace(" ", "-")
        words = {"FILE": str(unreadable["cut off"]), "OUT": str(out)}
        done = fabmon_here(*(words.get(each, each) for each in command.split()))
        assert done.returncode == Exit.OK, (command, done.stderr)
        assert "is cut off" in done.stderr, command


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("record -o {} --duration 2s", "not a file: a recording is also read, and extended"),
        ("ras {}", "neither the text nor the JSON of a RAS status"),
        ("agent --listen 127.0.0.1:0 --tls-cert {} --tls-key {}", "not a file"),
        ("--ssh-config {} --once", "not a file of at most 16 MiB"),
    ],
)
def test_a_pipe_where_a_file_is_expected_is_said_and_not_waited_for(
    command: str, text: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status, said = run(command.replace("{}", str(pipe)))
    assert (status, said.count("\n")) == (Exit.USAGE, 1)
    assert f"{pipe}: {text}" in said


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


@pytest.mark.parametrize("style", ["--format jsonl", "--once"])
def test_a_recording_that_has_no_room_is_no_success(style: str, tmp_path: Path) -> None:
    path = tmp_path / "x.fabrec"
    status, text = run(f"demo {style} --duration 4s --record {path}", file_bytes=40_000)
    assert " lost" in text
    assert f"{path}: File too large" in text
    assert status == Exit.FAILED


def test_no_memory_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What logs unexpected errors would have none either."""

    def command(**_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(program, "cli", command)
    assert program._run() == Exit.FAILED
    assert capsys.readouterr().err == "fabmon: out of memory\n"


def test_a_file_in_place_of_a_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not a directory"):
        recorder_for(tmp_path / "file" / "x.fabrec", [Host(name="a")], 1.0, "")


def test_a_link_in_place_of_a_recording_is_said(tmp_path: Path) -> None:
    """Whoever may write to the directory could have made it."""
    (tmp_path / "x.fabrec").symlink_to(tmp_path / "target")
    with pytest.raises(UsageError, match="a link: name the file itself"):
        recorder_for(tmp_path / "x.fabrec", [Host(name="a")], 1.0, "")
    assert not (tmp_path / "target").exists()


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


async def test_a_detector_that_fails_is_on_the_page_and_in_the_status_of_every_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its findings may be missing: nothing that was made of them is called a success."""

    def broken(inputs: DetectorInput) -> tuple[Condition, ...]:
        raise ZeroDivisionError(inputs.snapshot.seq)

    path, page = tmp_path / "a.fabrec", tmp_path / "a.html"
    Watching().record(path, 5)
    assert (
        fabmon_here("report", str(path), "-o", str(tmp_path / "sound.html")).returncode == Exit.OK
    )
    monkeypatch.setattr(analyst, "detectors", lambda *_: (broken,))
    assert fabmon_here("report", str(path), "-o", str(page)).returncode == Exit.FAILED
    lines = ("export", "--format", "jsonl", str(path), "-o", str(tmp_path / "a.jsonl"))
    assert fabmon_here(*lines).returncode == Exit.FAILED
    said = "A detector failed: findings may be missing (broken)."
    assert said in page.read_text()
    assert said not in (tmp_path / "sound.html").read_text()

    async def scenes() -> AsyncIterator[Scene]:
        yield Watching().next()

    assert await print_last(scenes(), "json") == Exit.FAILED
    assert await print_lines(scenes(), None) == Exit.FAILED
    assert capfd.readouterr().out


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("demo --once --speed nan", "nan' is not a number"),
        ("--once --interval nan", "nan' is not a number"),
        ("agent --interval nan", "nan' is not a number"),
        ("need --params 7e9 --dp 8 --mfu nan", "nan' is not a number"),
        ("--once --prometheus http://[", "http://[: Invalid IPv6 URL"),
    ],
)
def test_what_is_no_number_and_no_url_is_a_mistake_of_the_user(command: str, text: str) -> None:
    status, said = run(command)
    assert (status, "unexpected" in said) == (Exit.USAGE, False)
    assert text in said
