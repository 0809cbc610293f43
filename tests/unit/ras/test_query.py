"""`fabmon ras --host`: one query, only where it is safe, against a server of our own."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fabmon.analysis.nccl_ras.versions import library_version, parse_version, refusal
from fabmon.cli.main import cli
from fabmon.feeds import nccl_ras
from fabmon.session.errors import UsageError
from fabmon.session.nccl_version import mapped_versions
from tests.unit.ras.ras_server import RasServer, missing, rank, status

ROOT = Path(__file__).parents[3]
EQUAL = status([rank(number, "gpu001", 41) for number in range(4)])
ALLOWED = ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "STATUS"]


@pytest.fixture(autouse=True)
def _no_mapped_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that runs no job of NCCL."""
    monkeypatch.setattr("fabmon.session.ras_run.mapped_versions", dict)


def ask(server: RasServer, *arguments: object, version: str | None = "2.29.3") -> Result:
    given = [] if version is None else ["--nccl-version", version]
    options = ["ras", "--host", server.target, *given, *map(str, arguments)]
    return CliRunner().invoke(cli, options)


def answer(server: RasServer, *arguments: object) -> dict[str, Any]:
    done = ask(server, *arguments, "--format", "json")
    assert done.exit_code in (0, 5), f"{done.output} {done.exception}"
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_one_query_with_the_four_commands() -> None:
    with RasServer(EQUAL) as server:
        found = answer(server)
    assert server.received == ALLOWED
    assert server.connections == 1
    assert (found["nccl_version"], found["gpus"]) == ("2.29.3", 4)
    assert found["asked_at"] is not None


def test_a_server_that_knows_no_json_is_asked_for_the_text() -> None:
    text = b"NCCL version 2.29.3 compiled with CUDA 12.9\n\nErrors\n======\n\nWarnings\n========\n"
    with RasServer(text, {"SET FORMAT": b"ERROR: Unknown command SET FORMAT json\n"}) as server:
        found = answer(server)
    assert server.received == ALLOWED
    assert found["nccl_version"] == "2.29.3"


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.23.4", "has no RAS"),
        ("2.24.0", "1669"),
        ("2.26.5", "1718"),
        ("2.27.3", "1762"),
        ("2.27.7", "fixed in 2.29.2"),
        ("2.29.1", "fixed in 2.29.2"),
        ("2.29.7", "2346"),
        ("2.29.7+cuda12.9", "2346"),
        ("newest", "write it as in 2.29.3"),
        ("2.29", "write it as in 2.29.3"),
        ("2.29.70.1", "write it as in 2.29.3"),
        (None, "nothing says which one"),
    ],
)
def test_other_versions_are_refused_before_anything_is_sent(version: str | None, why: str) -> None:
    with RasServer(EQUAL) as server:
        done = ask(server, version=version)
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)
    assert server.connections == 0


@pytest.mark.parametrize("version", ["2.29.2", "2.29.3", "2.29.8", "2.30.4", "3.0.0"])
def test_versions_that_may_be_asked(version: str) -> None:
    parsed = parse_version(version)
    assert parsed is not None
    assert refusal(parsed) is None


def test_the_version_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("gpu001:1000:1000 [0] NCCL INFO NCCL version 2.29.3+cuda12.9\n")
    with RasServer(EQUAL) as server:
        assert ask(server, "--log", log, version=None).exit_code == 0
        log.write_text("gpu001:1000:1000 [0] NCCL INFO NCCL version 2.29.7+cuda12.9\n")
        refused = ask(server, "--log", log, version=None)
        contradiction = ask(server, "--log", log, version="2.29.3")
        log.write_text("NCCL INFO nothing of use\n")
        unknown = ask(server, "--log", log, version=None)
    assert server.connections == 1
    for done in (refused, contradiction):
        assert "the log has 2.29.7" in str(done.exception)
    assert "nothing says which one" in str(unknown.exception)


def test_the_version_of_a_mapped_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, name, content in (
        (100, "/opt/lib/libnccl.so.2.29.3", b""),
        (101, "/venv/nccl/lib/libnccl.so.2", b"\0" * 70000 + b"NCCL version 2.27.5+cuda12.9\0"),
        (102, "/other/libnccl.so.2", b"nothing"),
        (103, "/usr/lib/libc.so.6", b""),
    ):
        process = tmp_path / str(pid)
        inside = process / "root" / name[1:]
        inside.parent.mkdir(parents=True)
        inside.write_bytes(content)
        (process / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 131 {name}\n" * 3)
    (tmp_path / "self").mkdir()
    found = mapped_versions(tmp_path)
    assert {path: str(version) for path, version in found.items()} == {
        "/opt/lib/libnccl.so.2.29.3": "2.29.3",
        "/venv/nccl/lib/libnccl.so.2": "2.27.5",
        "/other/libnccl.so.2": "None",
    }
    with RasServer(EQUAL) as server:
        for known, is_asked in (
            ({"/opt/libnccl.so.2.29.3": parse_version("2.29.3")}, True),
            (found, False),
            ({"/other/libnccl.so.2": None}, False),
        ):
            monkeypatch.setattr("fabmon.session.ras_run.mapped_versions", lambda k=known: k)
            before = server.connections
            ask(server, version=None)
            assert (server.connections > before) is is_asked


def test_a_version_that_is_split_over_two_blocks() -> None:
    blocks = [b"\0" * 100 + b"NCCL version 2.2", b"9.3+cuda12.9\0"]
    assert str(library_version("libnccl.so.2", blocks)) == "2.29.3"


def test_the_answer_has_another_version_than_was_given() -> None:
    with RasServer(status([rank(0, "gpu001", 1)], version="2.27.3")) as server:
        found = answer(server)
    assert found["notes"][0].startswith("The job has NCCL 2.27.3, and not 2.29.3. Do not ask it")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (RasServer(EQUAL, {"CLIENT": b"SERVER PROTOCOL 3\n"}), "speaks protocol 3"),
        (RasServer(EQUAL, {"CLIENT": b"SSH-2.0-OpenSSH_9.2\n"}), "not NCCL's RAS"),
        (RasServer(EQUAL, {"CLIENT": b""}), "closed the connection at CLIENT PROTOCOL 2"),
        (RasServer(EQUAL, {"CLIENT": b"\xff\xfe\0\n"}), "not NCCL's RAS"),
        (RasServer(EQUAL, {"CLIENT": None}), "did not answer CLIENT PROTOCOL"),
        (RasServer(EQUAL, {"TIMEOUT": b"ERROR: Invalid timeout value 5\n"}), "refused the timeout"),
        (RasServer(EQUAL, {"SET": b"maybe\n"}), "answered SET FORMAT with maybe"),
        (RasServer(EQUAL, {"STATUS": None}), "did not finish its answer"),
        (RasServer(b"", {"STATUS": b""}), "without a status"),
        (RasServer(EQUAL[: len(EQUAL) // 2]), "cut off or damaged"),
        (RasServer(EQUAL, flood="CLIENT"), "more than a line"),
        (RasServer(EQUAL, flood="STATUS"), "more than 1 MiB"),
        (RasServer(EQUAL, keep_open=True), "did not finish its answer"),
        (RasServer(b"a page of something else\n"), "neither the text nor the JSON"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_answers_otherwise_is_reported_in_time(
    server: RasServer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "did not" in why:
        monkeypatch.setattr(nccl_ras, "_REPLY_S", 0.5)
        monkeypatch.setattr(nccl_ras, "_EXTRA_S", -9.0)
    monkeypatch.setattr(nccl_ras, "_MOST_STATUS", 1 << 20)
    with server:
        done = ask(server)
    assert done.exit_code == 3
    assert why in done.output
    assert server.connections == 1
    assert set(server.received) <= set(ALLOWED)


def test_a_slow_answer_in_single_bytes() -> None:
    with RasServer(EQUAL, trickle=True) as server:
        assert answer(server)["processes"] == 4


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = CliRunner().invoke(
        cli, ["ras", "--host", f"127.0.0.1:{port}", "--nccl-version", "2.29.3"]
    )
    assert done.exit_code == 3
    assert "connection refused" in done.output


@pytest.mark.parametrize("host", ["", ":28028", "gpu001:0", "gpu001:99999", "gpu001:http", "[::1"])
def test_a_host_that_is_none(host: str) -> None:
    done = CliRunner().invoke(cli, ["ras", f"--host={host}", "--nccl-version", "2.29.3"])
    assert isinstance(done.exception, UsageError) or done.exit_code == 3


def test_the_answer_is_saved_and_compared(tmp_path: Path) -> None:
    first = tmp_path / "first.json"
    with RasServer(EQUAL) as server:
        assert answer(server, "--save", first)["movement"] == "unknown"
        found = answer(server, first)
        assert (found["movement"], found["result"]) == ("frozen", "wrong")
        assert ask(server, first).exit_code == 5
        refused = ask(server, "--save", first)
    assert "exists already" in str(refused.exception)
    assert first.read_bytes() == EQUAL
    moved = status([rank(number, "gpu001", 42) for number in range(4)])
    with RasServer(moved) as server:
        assert answer(server, first)["movement"] == "moving"


def test_a_file_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(status([rank(0, "gpu001", 1)], [missing(1, "gpu002", dead=True)]))
    with RasServer(EQUAL) as server:
        done = CliRunner().invoke(cli, ["ras", str(path)])
        with_version = CliRunner().invoke(cli, ["ras", str(path), "--nccl-version", "2.29.3"])
    assert done.exit_code == 5
    assert "add --host" in str(with_version.exception)
    assert server.connections == 0


def test_nothing_is_asked_by_other_commands(tmp_path: Path) -> None:
    """What may connect is imported by one module, and other commands leave the port alone."""
    importers = {
        path.relative_to(ROOT).as_posix()
        for package in ("fabmon", "collectors")
        for path in (ROOT / package).rglob("*.py")
        if re.search(
            r"nccl_ras import .*(connected|query|\(|PORT)|feeds import nccl_ras", path.read_text()
        )
    }
    assert importers == {"fabmon/session/ras_run.py"}
    log = tmp_path / "job.log"
    log.write_text(
        "gpu001:1000:1000 [0] NCCL INFO NCCL version 2.29.3+cuda12.9\n"
        "gpu001:1000:1000 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>\n"
    )
    try:
        listener = socket.create_server(("127.0.0.1", nccl_ras.PORT))
    except OSError:
        pytest.skip("port 28028 is in use on this machine")
    program = Path(sys.executable).with_name("fabmon")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with listener:
        listener.setblocking(False)
        for arguments in (["--once"], ["explain", log], ["ras"], ["flows", "--duration", "2"]):
            subprocess.run([program, *arguments], capture_output=True, env=environment, timeout=240)
        with pytest.raises(BlockingIOError):
            listener.accept()
