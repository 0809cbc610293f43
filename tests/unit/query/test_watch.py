"""Questions to a running watch, over a socket that only its own user can use."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from fabmon.error_log import log_path
from fabmon.fabric.time_wording import utc
from fabmon.query import watch_socket
from fabmon.query.answering import answer
from fabmon.query.answers import Answer, FindingsAnswer, HistoryAnswer, LinksAnswer, StatusAnswer
from fabmon.query.questions import (
    FindingsQuestion,
    HistoryQuestion,
    JobQuestion,
    LinksQuestion,
    QueryError,
    Question,
    StatusQuestion,
)
from fabmon.query.sources import WatchSource
from fabmon.query.watch_socket import (
    NoWatch,
    answering_socket,
    ask_watch,
    default_path,
    socket_directories,
    sockets_in,
    the_watch,
)
from tests.requirements import heeding_signals
from tests.tui.recordings import SECOND_NS, Watching
from tests.unit.alerts.test_alertmanager import until
from tests.unit.test_cli import fabmon


def running_watches() -> list[Path]:
    return [path for each in socket_directories() for path in sockets_in(each)]


@pytest.fixture(scope="module")
def source() -> WatchSource:
    """A watch of 70 s: a collision opened and closed."""
    watching, made = Watching(), WatchSource("pod7")
    for _ in range(70):
        made.take(watching.next())
    return made


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's runtime directory."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@asynccontextmanager
async def answering(source: WatchSource, path: Path) -> AsyncIterator[Path]:
    async def ask(question: Question) -> Answer:
        return await answer(source, question)

    async with answering_socket(path, ask):
        yield path


async def test_it_answers_of_now_and_of_what_it_has_in_memory(
    source: WatchSource, runtime: Path
) -> None:
    async with answering(source, default_path()) as path:
        status = await ask_watch(path, StatusQuestion())
        assert isinstance(status, StatusAnswer)
        assert (status.source, status.nodes_up, status.findings) == ("watch of pod7", 10, 1)
        findings = await ask_watch(path, FindingsQuestion())
        assert isinstance(findings, FindingsAnswer)
        assert findings.findings[0].until is not None, "it has closed"
        links = await ask_watch(path, LinksQuestion(ports=("leaf1/*",), limit=2))
        assert isinstance(links, LinksAnswer)
        assert (len(links.links), links.left_out > 0) == (2, True)
        curve = await ask_watch(path, HistoryQuestion(port="leaf1 up3", points=7))
        assert isinstance(curve, HistoryAnswer)
        highest = curve.metrics["tx_bps"].highest
        assert len(highest) <= 7
        full = [place for place, value in enumerate(highest) if value and value > 0.95 * 400e9]
        assert full
        assert max(full) < len(highest) - 1, "the collision is over"
        with pytest.raises(QueryError, match="or ask a recording"):
            await ask_watch(path, LinksQuestion(at="-30s"))
        with pytest.raises(QueryError, match="no job '99'"):
            await ask_watch(path, JobQuestion(job="99"))


async def test_a_range_of_a_watch_ends_with_one_of_its_ticks(source: WatchSource) -> None:
    _, last_ns = await source.range_ns()
    for to in ("14:07:40", "14:07:40.5"):
        found = await answer(source, FindingsQuestion(to=to))
        assert isinstance(found, FindingsAnswer)
        assert found.to == utc(last_ns - 9 * SECOND_NS)
        assert {each.time for each in found.findings} == {found.to}


async def test_of_a_time_before_what_it_has_in_memory_it_has_no_history(
    source: WatchSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.query.sources.RING_TICKS", 20)
    port = HistoryQuestion(port="leaf1 up3")
    found = await answer(source, msgspec.structs.replace(port, from_="-40s"))
    assert isinstance(found, HistoryAnswer)
    assert "the watch keeps rates of the last 20 s" in found.notes
    assert len(found.times) <= 20
    with pytest.raises(QueryError, match="the watch keeps rates of the last 20 s: ask for a part"):
        await answer(source, msgspec.structs.replace(port, from_="-60s", to="-40s"))


@pytest.mark.parametrize("seen_until_s", [30, 44])
async def test_findings_are_known_after_the_clock_was_set_back(seen_until_s: int) -> None:
    """While one is open; when its traffic has ended, but it has not closed; and when it has."""
    watching, made = Watching(), WatchSource("pod7")
    is_open = []
    for second in range(140):
        tick = watching.feed.step()
        times = (second >= seen_until_s) + (second >= 100)
        jumped_ns = -7200 * 10**9 * (second in (seen_until_s, 100))
        time_ns = tick.time_ns - times * 7200 * 10**9
        made.take(
            watching.judge(
                msgspec.structs.replace(tick, time_ns=time_ns, clock_jumped_ns=jumped_ns)
            )
        )
        found = await answer(made, FindingsQuestion())
        assert isinstance(found, FindingsAnswer)
        is_open.append([each.until is None for each in found.findings])
        begin_ns, end_ns = await made.range_ns()
        assert begin_ns <= end_ns
    assert is_open[seen_until_s - 1] == is_open[seen_until_s] == [True]
    assert is_open[99] == is_open[100] == is_open[-1] == [False]


async def test_it_is_the_users_alone(source: WatchSource, runtime: Path) -> None:
    async with answering(source, default_path()) as path:
        assert path.lstat().st_mode & 0o777 == 0o600
        assert path.parent.lstat().st_mode & 0o777 == 0o700
        path.chmod(0o666)
        with pytest.raises(NoWatch, match="others can write to it"):
            await ask_watch(path, StatusQuestion())
    assert not path.exists()


async def test_a_directory_of_somebody_else_is_refused(runtime: Path) -> None:
    elsewhere = runtime / "elsewhere"
    elsewhere.mkdir()
    (runtime / "fabmon").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="it is a link"):
        default_path()
    (runtime / "fabmon").unlink()
    (runtime / "fabmon").mkdir(mode=0o777)
    (runtime / "fabmon").chmod(0o777)
    with pytest.raises(PermissionError, match="others can write"):
        default_path()


async def test_a_watch_in_a_directory_of_somebody_else_is_not_found(
    source: WatchSource, runtime: Path
) -> None:
    """Root could be answered by whoever made /tmp/fabmon-0 first."""
    async with answering(source, default_path()):
        (runtime / "fabmon").chmod(0o777)
        with pytest.raises(NoWatch, match="others can write"):
            await the_watch()


async def test_two_watches_do_not_share_a_socket(source: WatchSource, runtime: Path) -> None:
    async with answering(source, default_path()) as path:
        with pytest.raises(OSError, match="in use"):
            async with answering(source, path):
                pass
        assert (await ask_watch(path, StatusQuestion())).source == "watch of pod7"
        kept = path.with_name("x")
        os.link(path, kept)
    kept.rename(path)
    async with answering(source, path):
        assert path.lstat().st_mode & 0o777 == 0o600, "it takes the place of a killed one's"
        assert (await ask_watch(path, StatusQuestion())).source == "watch of pod7"
    path.write_text("of the user")
    with pytest.raises(OSError, match="in use"):
        async with answering(source, path):
            pass
    assert path.read_text() == "of the user"


async def test_other_files_that_are_made_meanwhile_keep_their_modes(
    source: WatchSource, runtime: Path
) -> None:
    async def make_directory() -> None:
        (runtime / "other").mkdir()

    path = default_path()
    made = asyncio.create_task(make_directory())
    async with answering(source, path):
        await made
    assert (runtime / "other").stat().st_mode & 0o100


async def test_another_user_gets_no_answer(
    source: WatchSource, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.query.watch_socket._peer_uid", lambda connection: 65_534)
    async with answering(source, default_path()) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"question": "status"}\n')
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(NoWatch, match="another user listens"):
            await ask_watch(path, StatusQuestion())


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (b"\n", "no question"),
        (b"x" * 100_000 + b"\n", "longer than"),
        (b'{"question": "status", "path": "/etc/passwd"}\n', "unknown field"),
        (b'{"question": "write"}\n', "Invalid value"),
        (b'\xff\xfe{"question": "status"}\n', "no question"),
        (b'{"question": "findings", "job": "\xff"}\n', "no question"),
    ],
)
async def test_garbage_is_refused_and_the_watch_goes_on(
    source: WatchSource, runtime: Path, sent: bytes, complaint: str
) -> None:
    async with answering(source, default_path()) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        said = msgspec.json.decode(await reader.read())
        writer.close()
        assert said["answer"] == "error"
        assert complaint in said["text"]
        assert (await ask_watch(path, StatusQuestion())).source == "watch of pod7"


async def test_an_error_of_fabmon_itself_names_no_path_and_no_port(runtime: Path) -> None:
    async def ask(question: Question) -> Answer:
        raise KeyError("gpu017/mlx5_0")

    async with answering_socket(default_path(), ask):
        with pytest.raises(QueryError) as refused:
            await ask_watch(default_path(), StatusQuestion())
    assert str(refused.value) == "unexpected error: KeyError; fabmon's errors.log has the traceback"
    assert "gpu017/mlx5_0" in log_path().read_text(), "its user finds it there"


async def test_a_few_at_once_are_answered_and_more_are_refused(
    source: WatchSource, runtime: Path
) -> None:
    async with answering(source, default_path()) as path:
        silent = [await asyncio.open_unix_connection(path) for _ in range(8)]
        await asyncio.sleep(0.1)
        with pytest.raises(QueryError, match="too many questions at once"):
            await ask_watch(path, StatusQuestion())
        for _, writer in silent:
            writer.close()
        answer: Answer | None = None
        async with asyncio.timeout(240):
            while answer is None:
                with suppress(QueryError):
                    answer = await ask_watch(path, StatusQuestion())
        assert answer.source == "watch of pod7"


async def test_sockets_that_were_left_behind_are_passed_over(
    source: WatchSource, runtime: Path
) -> None:
    with pytest.raises(NoWatch, match="no `fabmon watch` of this user runs"):
        await the_watch()
    left = default_path().with_name("watch-1.sock")
    async with answering(source, left):
        kept = left.with_name("x")
        os.link(left, kept)
    kept.rename(left)
    async with answering(source, default_path()) as path:
        assert len(running_watches()) == 2
        assert await the_watch() == path
        async with answering(source, path.with_name("watch-2.sock")):
            with pytest.raises(NoWatch, match="several watches run: choose one with --socket"):
                await the_watch()


async def test_one_that_passes_on_home_and_path_alone_finds_it(
    source: WatchSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "run" / str(os.getuid())
    monkeypatch.setattr(watch_socket, "_RUNTIME", runtime.parent)
    monkeypatch.setattr(watch_socket, "_TEMPORARY", tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    async with answering(source, default_path()) as path:
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert await the_watch() == path
        planted = default_path().parent
        planted.chmod(0o777)
        assert await the_watch() == path, "what somebody else has in /tmp does not hide it"
    with pytest.raises(NoWatch, match=r"others can write to it: chmod go-w .*; no `fabmon watch`"):
        await the_watch()


def test_the_program_asks_the_running_watch(tmp_path: Path, runtime: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("here via=local\n")
    watch = subprocess.Popen(
        heeding_signals([sys.executable, "-m", "fabmon", "watch", "--hosts", str(hosts)]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: watch.poll() is not None or bool(running_watches()), 60)

        def answers() -> bool:
            done = fabmon("query", "status")
            return done.returncode == 0 and json.loads(done.stdout)["nodes_up"] == 1

        until(answers, 60)
        done = fabmon("query", "status")
        assert json.loads(done.stdout)["source"] == "watch of hosts"
    finally:
        watch.send_signal(signal.SIGTERM)
        _, errors = watch.communicate(timeout=240)
    assert watch.returncode == 0, errors
    assert running_watches() == []
    asked = fabmon("query", "status")
    assert asked.returncode == 2
    assert "name a recording" in asked.stderr


async def test_connections_without_questions_are_bounded(source: WatchSource) -> None:
    async with answering(source, default_path()) as path:
        silent = [await asyncio.open_unix_connection(path) for _ in range(65)]
        async with asyncio.timeout(60):
            assert await silent[0][0].read() == b"", "the oldest is closed for the last"
        for _, writer in silent:
            writer.close()
