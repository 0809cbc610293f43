"""A lab leaves nothing behind: not when it ends, not on a signal, not when it crashes."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import Lab, login, netns, registry
from tests.requirements import heeding_signals

PROJECT = Path(__file__).parents[2]
_ELSEWHERE = """
import pathlib, sys
from tests.lab import __main__, login, registry
registry.STATE_DIR, login.USER = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.exit(__main__.main(sys.argv[3:]))
"""

pytestmark = pytest.mark.usefixtures("lab_parts")


@contextmanager
def lab_elsewhere(
    *arguments: str,
) -> Iterator[tuple[subprocess.Popen[str], registry.Record]]:
    """``python -m tests.lab --print`` in a process of its own, from when it is built; registered
    where labs of this process are."""
    argv = [sys.executable, "-c", _ELSEWHERE, str(registry.STATE_DIR), login.USER]
    argv += ["--print", "--spines", "2", "--hosts", "2"]
    with subprocess.Popen(
        heeding_signals([*argv, *arguments]), cwd=PROJECT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            built = any(line.startswith("ctrl-c") for line in process.stdout)
            assert built, f"the lab ended with {process.wait()}"
            yield process, next(r for r in registry.records() if r.pid == process.pid)
        finally:
            process.terminate()


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Labs that other tests start meanwhile have no part in it."""
    monkeypatch.setattr(registry, "STATE_DIR", tmp_path / "state")
    monkeypatch.setattr(login, "USER", f"fabmonlab-{os.getpid()}")


def end(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    return process.wait(240)


def leftovers(record: registry.Record) -> list[str]:
    """Everything that still exists of a lab."""
    names = netns.listed(record.prefix)
    found = [*names, *(str(pid) for pid in netns.pids_in(names))]
    found += [str(path) for path in (record.path, Path(record.directory)) if path.exists()]
    # Processes whose namespace has lost its name would not be found by it.
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if record.directory in path.read_text():
                found.append(str(path))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_a_lab_cleanly(number: signal.Signals, status: int) -> None:
    with lab_elsewhere("--traffic", "collision") as (process, record):
        assert end(process, number) == status
    assert leftovers(record) == []


@pytest.mark.usefixtures("own_registry")
def test_the_next_lab_removes_what_a_killed_one_left() -> None:
    with lab_elsewhere("--traffic", "mixed") as (process, record):
        end(process, signal.SIGKILL)
    names = netns.listed(record.prefix)
    assert len(names) == 1 + 2 + 2 + 4
    assert netns.pids_in(names)
    assert Path(record.directory).exists()
    with Lab(spines=1, leaves=1, hosts_per_leaf=1):
        assert leftovers(record) == []


def test_a_living_lab_is_left_alone() -> None:
    with lab_elsewhere("--traffic", "none") as (process, record):
        with Lab(spines=1, leaves=1, hosts_per_leaf=1):
            pass
        assert len(netns.listed(record.prefix)) == 1 + 2 + 2 + 4
        assert login.USER in {entry.pw_name for entry in pwd.getpwall()}
        end(process, signal.SIGINT)
    assert leftovers(record) == []


def test_a_reused_pid_is_not_the_owner() -> None:
    started = registry.start_time(os.getpid())
    assert started is not None
    mine = registry.Record("fl000000", os.getpid(), started, "")
    other = registry.Record("fl000000", os.getpid(), started + 1, "")
    assert registry.alive(mine)
    assert not registry.alive(other)


@pytest.mark.usefixtures("own_registry")
def test_the_last_lab_removes_user_and_state() -> None:
    with Lab(spines=1, leaves=1, hosts_per_leaf=1) as lab:
        entry = pwd.getpwnam(login.USER)
        assert entry.pw_shell == "/bin/sh"
        assert list(Path(entry.pw_dir).iterdir()) == []
        directory, prefix = lab.directory, lab.prefix
        with Lab(spines=1, leaves=1, hosts_per_leaf=1):
            pass
        assert pwd.getpwnam(login.USER) == entry
    with pytest.raises(KeyError):
        pwd.getpwnam(login.USER)
    assert not registry.STATE_DIR.exists()
    assert not directory.exists()
    assert netns.listed(prefix) == []


def test_a_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed: list[registry.Record] = []
    claim = registry.claim

    def noted() -> registry.Record:
        claimed.append(claim())
        return claimed[-1]

    monkeypatch.setattr(registry, "claim", noted)
    monkeypatch.setattr("tests.lab.wiring.QUEUE_MS", "no number")
    with pytest.raises(netns.LabError, match="tbf"):
        Lab(spines=1, leaves=2, hosts_per_leaf=1).__enter__()
    assert leftovers(*claimed) == []


def test_the_command_runs_in_the_console_and_gives_the_status() -> None:
    argv = [sys.executable, "-m", "tests.lab", "--spines", "1", "--hosts", "1"]
    script = "ssh -F {ssh_config} gpu002 hostname; test -r {hosts} -a -r {known_hosts}; exit 7"
    done = subprocess.run(
        [*argv, "--traffic", "none", "--", "sh", "-c", script],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (7, "gpu002\n"), done.stderr
