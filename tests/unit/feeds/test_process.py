"""exec and local: no shell is involved, process groups end, errors have exact reasons."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.feeds import probe_input
from fabmon.feeds.errors import Ended, LoginRefused, NodeError, Unreachable
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.process import ExecTransport, LocalTransport
from fabmon.feeds.transports.transport import ProbeSession
from tests.unit.feeds.wire_lines import (
    are,
    frame_line,
    frames_of,
    hello_line,
    wait_for_frames,
    watch,
)

INTERVAL_S = 0.2


def exec_host(name: str, command: str, address: str = "", python: str | None = None) -> Host:
    return Host(name=name, address=address, via="exec", command=command, python=python)


async def open_exec(host: Host) -> ProbeSession:
    return await ExecTransport(ProbeSettings()).open(host)


async def end_of(host: Host) -> NodeError:
    session = await open_exec(host)
    try:
        async with asyncio.timeout(240):
            while True:
                await session.readline()
    except NodeError as error:
        return error
    finally:
        await session.close()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so. What was killed takes a moment to end."""
    async with asyncio.timeout(240):
        while not holds():  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(0.02)


async def status_of(host: Host, state: NodeState = NodeState.FAILED) -> NodeStatus:
    async with LiveFeed([host], interval_s=INTERVAL_S) as feed:
        latest, _ = await watch(feed, are(state, host.name))
    return latest[host.name]


async def test_this_machine(empty_root: str) -> None:
    host = Host(name="here", via="local")
    async with LiveFeed([host], interval_s=INTERVAL_S, root=empty_root) as feed:
        _, ticks = await watch(feed, are(NodeState.UP, "here"))
        await wait_for_frames(feed, "here")
    assert frames_of(ticks, "here")[0] == 0


@pytest.mark.parametrize("command", ["{python}", "sh -c {probe}", "env {python} -E"])
async def test_commands_that_reach_a_node(command: str, empty_root: str) -> None:
    host = exec_host("gpu1", command, python=sys.executable)
    async with LiveFeed([host], interval_s=INTERVAL_S, root=empty_root) as feed:
        await watch(feed, are(NodeState.UP, "gpu1"))


async def test_no_shell_processes_a_command_or_its_values(tmp_path: Path) -> None:
    touched, seen = tmp_path / "touched", tmp_path / "seen"
    evil = f"$(touch {touched});touch {touched}|`touch {touched}`&&touch {touched}"
    record = tmp_path / "record"
    record.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\n"
        f"pathlib.Path({str(seen)!r}).write_text(repr(sys.argv[1:]))\n"
    )
    record.chmod(0o755)
    # The hosts file rejects such a name; this checks what would happen with one.
    template = f"{record} --on={{node}} {{node}} {shlex.quote(evil)}"
    await end_of(exec_host("gpu1", template, address=evil))
    assert not touched.exists()
    expected = [f"--on={evil}", evil, evil, "-c", probe_input.LOADER]
    assert seen.read_text() == repr(expected)


async def test_the_whole_group_is_killed_when_the_session_is_closed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        f"trap '' TERM; echo $$ >> {pids}; "
        f"(trap '' TERM; echo $$ >> {pids}; sleep 300 & echo $! >> {pids}; wait) & echo up; wait"
    )
    session = await open_exec(exec_host("gpu1", f"sh -c {shlex.quote(script)} {{probe}}"))
    await session.readline()
    await until(lambda: len(pids.read_text().split()) == 3)
    running = [int(line) for line in pids.read_text().split()]
    await asyncio.wait_for(session.close(), 240)
    await until(lambda: not any(_runs(pid) for pid in running))


def test_cancelling_close_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids, late = tmp_path / "pids", list[str]()
    script = f"trap '' TERM; echo $$ >> {pids}; echo up; sleep 300"

    async def cut_short() -> None:
        session = await open_exec(exec_host("gpu1", f"sh -c {shlex.quote(script)} {{probe}}"))
        await session.readline()
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()

    monkeypatch.setattr(sys, "unraisablehook", lambda event: late.append(str(event.exc_value)))
    asyncio.run(cut_short())
    gc.collect()
    assert late == []
    asyncio.run(until(lambda: not _runs(int(pids.read_text()))))


async def test_processes_that_a_command_leaves_behind_are_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! >> {pids}; exit 3"
    error = await end_of(exec_host("gpu1", f"sh -c {shlex.quote(script)} {{probe}}"))
    assert str(error) == "sh ended with status 3"
    await until(lambda: not _runs(int(pids.read_text())))


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("script", "cause", "reason"),
    [
        ("echo oops >&2; exit 4", "ended", "sh ended with status 4: oops"),
        ("kill -9 $$", "ended", "sh ended with signal 9"),
        (
            "echo 'Permission denied (publickey).' >&2; exit 255",
            "permission denied",
            "sh ended with status 255: Permission denied (publickey): is our public key in its"
            " authorized_keys, is user= right?",
        ),
        (
            "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255",
            "refused",
            "sh ended with status 255: ssh: connect to host x port 22: Connection refused: is sshd"
            " running, is the port right?",
        ),
        ("echo 'fabmon-no-python; False 3 6 8 at /x' >&2; exit 127", "no python", None),
        ("exec >&-; sleep 30", "ended", "closed its output without ending"),
        (
            "printf '\\033[31mred\\033[0m\\n' >&2; exit 1",
            "ended",
            "sh ended with status 1: ?[31mred?[0m",
        ),
    ],
)
async def test_reasons(script: str, cause: str, reason: str | None) -> None:
    error = await end_of(exec_host("gpu1", f"sh -c {shlex.quote(script)} {{probe}}"))
    assert error.cause == cause
    assert reason is None or str(error) == reason


@pytest.mark.parametrize("command", ["python3 -c {probe}", "cat {probe}", "nice {probe}"])
async def test_a_command_that_runs_no_shell_is_named_with_what_to_write(command: str) -> None:
    error = await end_of(exec_host("gpu1", command))
    assert error.cause == "command"
    assert re.fullmatch(
        r"\w+ ended with status \d+: the command ran no shell for {probe}: write sh -c {probe}",
        str(error),
    )


async def test_after_a_login_that_ssh_was_refused_the_next_one_is_with_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_root: str
) -> None:
    """fail2ban bans an address after 5 refused logins in 10 minutes, whichever ssh makes them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    logins, key = tmp_path / "logins", tmp_path / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    refused = "echo 'me@gpu1: Permission denied (publickey).' >&2; exit 255"
    script = f'echo >> {logins}; test -e {key} || {{ {refused}; }}; exec sh -c "$0"'
    host = exec_host("gpu1", f"sh -c {shlex.quote(script)} {{probe}}")
    async with LiveFeed([host], interval_s=INTERVAL_S) as feed:
        latest, _ = await watch(feed, are(NodeState.FAILED, "gpu1"))
        assert latest["gpu1"].reason.endswith(
            "; next login when a key or ssh_config here changes, by r, else within 30 min"
        )
        await asyncio.sleep(3)
        assert logins.read_text() == "\n"
        key.write_text("a key")
        await watch(feed, are(NodeState.UP, "gpu1"))
    assert logins.read_text() == "\n\n"


@pytest.mark.parametrize(
    "script",
    ["echo 'Permission denied (publickey).' >&2; exit 1", "echo 'Permission denied' >&2; exit 255"],
)
async def test_only_a_login_that_is_refused_waits_for_keys(script: str) -> None:
    error = await end_of(exec_host("gpu1", f"sh -c {shlex.quote(script)} {{probe}}"))
    assert isinstance(error, LoginRefused)
    assert error.until_changed is None


async def test_a_missing_command() -> None:
    with pytest.raises(Unreachable, match="no command 'no-such-command' on this machine"):
        await open_exec(exec_host("gpu1", "no-such-command {node}"))


async def test_a_command_whose_only_output_is_its_error() -> None:
    status = await status_of(exec_host("gpu1", "sh -c 'echo what is this; exit 1' {probe}"))
    assert status.reason == "sh ended with status 1; its output was: what is this"


async def test_a_node_that_floods_standard_error(empty_root: str) -> None:
    good = Host(name="good", via="local")
    bad = exec_host("bad", "sh -c 'yes >&2' {probe}")
    async with LiveFeed([good, bad], interval_s=INTERVAL_S, root=empty_root) as feed:
        good_is_up, bad_failed = are(NodeState.UP, "good"), are(NodeState.FAILED, "bad")
        latest, _ = await watch(feed, lambda seen: good_is_up(seen) and bad_failed(seen))
    assert latest["bad"].cause == "flood"


async def test_a_flood_is_paused_while_it_is_not_read() -> None:
    session = await open_exec(exec_host("gpu1", "sh -c 'yes [0123456789]' {probe}"))
    await asyncio.sleep(0.5)
    assert vars(session)["_lines"]._waiting_bytes < 2 * 1024 * 1024
    await session.close()


async def test_the_end_of_the_local_probe_has_its_reason() -> None:
    session = await LocalTransport(ProbeSettings(sources=("nothing",))).open(
        Host(name="here", via="local")
    )
    with pytest.raises(Ended, match=r"the probe ended with status 2: .*nothing"):
        await session.readline()
    await session.close()


async def test_the_event_loop_is_never_blocked(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(hello_line() + b"".join(frame_line(seq) for seq in range(5)))
    host = exec_host("gpu1", f"sh -c 'cat {lines}; sleep 30' {{probe}}")
    guard = BlockBuster()
    async with LiveFeed([host], interval_s=INTERVAL_S) as feed:
        guard.activate()
        try:
            await watch(feed, are(NodeState.UP, "gpu1"))
        finally:
            guard.deactivate()


def test_the_soft_limit_of_open_files_is_raised() -> None:
    program = (
        "import resource as r; from fabmon.feeds.live import raise_file_limit; "
        "r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1])); raise_file_limit(); "
        "soft, hard = r.getrlimit(r.RLIMIT_NOFILE); assert soft == min(hard, 1 << 20), (soft, hard)"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program]) == 0
