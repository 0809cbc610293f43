"""The archive, the loader, and the search for a Python under any login shell."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fabmon.feeds import probe_input
from fabmon.feeds.probe_input import LOADER, ProbeSettings
from tests.requirements import need_command

SHELLS = ("sh", "dash", "bash", "ksh", "zsh", "tcsh", "fish", "busybox")
_USUAL = ("sh", "dash", "bash")


def run(arguments: list[str], data: bytes, path: str = os.defpath) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": path},
    )
    assert child.stdin is not None
    child.stdin.write(data)
    child.stdin.flush()
    return child


def first_words(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    _, errors = child.communicate(timeout=240)
    assert line, errors.decode()
    word: str = json.loads(line)[0]
    return word


def test_the_loader_can_be_single_quoted_in_any_shell() -> None:
    assert not re.search(r"['\\!\n]", LOADER)
    line = probe_input.shell_line("/opt/python/bin/python3")
    assert not re.search(r"[\\!\n]", line)
    assert line.count("'") == 6


def test_the_archive_is_the_same_bytes_for_the_same_code() -> None:
    first = probe_input.archive()
    probe_input.archive.cache_clear()
    assert probe_input.archive() == first
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert "collectors/__main__.py" in names
    assert all(name.endswith(".py") for name in names)


def test_the_archive_can_be_made_from_a_package_inside_a_zip(tmp_path: Path) -> None:
    packed = tmp_path / "packed.zip"
    packed.write_bytes(probe_input.archive())
    program = (
        f"import sys; sys.path.insert(0, {str(packed)!r}); import collectors; "
        "from fabmon.feeds import probe_input; assert 'packed.zip' in collectors.__file__; "
        "sys.stdout.buffer.write(probe_input.archive())"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert made.stdout == probe_input.archive()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_probe_starts_under_a_login_shell(shell: str, empty_root: str) -> None:
    need_command(shell, shell)
    arguments = [shell, "sh"] if shell == "busybox" else [shell]
    line = probe_input.shell_line(sys.executable)
    child = run([*arguments, "-c", line], probe_input.payload(ProbeSettings(root=empty_root)))
    assert first_words(child) == "hello"


def test_the_python_of_the_hosts_file_is_tried_first(tmp_path: Path, empty_root: str) -> None:
    mine = tmp_path / "my python"
    mine.write_text(f'#!/bin/sh\necho mine >&2\nexec {sys.executable} "$@"\n')
    mine.chmod(0o755)
    child = run(
        ["sh", "-c", probe_input.shell_line(str(mine))], probe_input.payload(ProbeSettings())
    )
    _, errors = child.communicate(timeout=240)
    assert b"mine" in errors


def test_a_python_of_the_hosts_file_that_is_not_there_is_reported(
    empty_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one runs the probe: the node is watched, and its page names the one that is not."""
    monkeypatch.setattr(probe_input, "PYTHON_CANDIDATES", sys.executable)
    for named, is_reported in (("/opt/none/python3", True), (sys.executable, False)):
        line = probe_input.shell_line(named)
        child = run(["sh", "-c", line], probe_input.payload(ProbeSettings(root=empty_root)))
        assert child.stdout is not None
        first, second = json.loads(child.stdout.readline()), json.loads(child.stdout.readline())
        child.kill()
        child.communicate()
        assert first[0] == "hello"
        assert (second[0] == "notice") == is_reported
        if is_reported:
            assert (second[1]["event"], second[1]["source"]) == ("lost", "python")
            assert second[1]["text"].startswith("/opt/none/python3 is not there, does not run or")


def test_pythons_that_are_too_old_are_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_input, "PYTHON_CANDIDATES", "python3 python3.4 python2")
    for name, version in (("python3", "False 3 5 3"), ("python3.4", "False 3 4 10")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python2").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python2").chmod(0o755)
    child = run(["/bin/sh", "-c", probe_input.shell_line()], b"", str(tmp_path))
    _, errors = child.communicate(timeout=240)
    assert child.returncode == 127
    error = probe_input.no_python("some noise\n" + errors.decode())
    assert str(error) == (
        f"no python3 >= 3.6 on the node: found 3.5.3 at {tmp_path}/python3, "
        f"3.4.10 at {tmp_path}/python3.4, {tmp_path}/python2 that does not run: "
        "set python= in the hosts file"
    )


def test_errors_of_another_kind_are_not_taken_for_a_missing_python() -> None:
    assert probe_input.no_python("sh: 1: exec: something: not found") is None


@pytest.mark.parametrize("python", ["it's", "a\\b", "a!b", "a\nb"])
def test_a_path_that_cannot_be_quoted_is_rejected(python: str) -> None:
    with pytest.raises(ValueError, match="not the path of an interpreter"):
        probe_input.shell_line(python)


def test_the_loader_leaves_what_follows_the_archive_in_the_pipe() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        zipped.writestr("collectors/__init__.py", "")
        zipped.writestr(
            "collectors/__main__.py",
            "import os, sys; os.write(1, os.read(0, 99)); print(sys.argv[1:])",
        )
    data = buffer.getvalue()
    child = run([sys.executable, "-c", LOADER], b"%d\n%srest" % (len(data), data))
    out, errors = child.communicate(timeout=240)
    assert out == b"rest['--control']\n", errors


def test_the_loader_ends_when_the_pipe_does() -> None:
    for data in (b"", b"12", b"1000\nonly a part"):
        child = run([sys.executable, "-c", LOADER], data)
        child.communicate(timeout=240)
        assert child.returncode != 0


def test_a_python_without_memfd_create_works(empty_root: str) -> None:
    program = "import os; del os.memfd_create; exec(__import__('sys').argv[1])"
    data = probe_input.payload(ProbeSettings(root=empty_root))
    assert first_words(run([sys.executable, "-c", program, LOADER], data)) == "hello"


def test_modules_in_the_current_directory_are_not_imported(
    tmp_path: Path, empty_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    data = probe_input.payload(ProbeSettings(root=empty_root))
    assert first_words(run([sys.executable, "-E", "-c", LOADER], data)) == "hello"
