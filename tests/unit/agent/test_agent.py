"""A real agent: asked by curl-like readers, by Prometheus, and by fabmon itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fabmon.fabric.wire.messages import Frame, Hello, Message, Notice, Packed, decode
from fabmon.fabric.wire.unpacking import Unpacker
from tests.fixtures.hosts import HOSTS
from tests.goldens import check_golden
from tests.requirements import need_command
from tests.unit.agent.agent_process import FABMON, agent, eventually
from tests.unit.agent.certificates import pair
from tests.unit.feeds.prometheus_servers import free_port
from tests.unit.test_cli import fabmon, fabmon_here, lines_until, ticks

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A GPU host's /sys and /proc."""
    HOSTS["roce"](tmp_path / "root")
    return str(tmp_path / "root")


def refused(*arguments: str) -> str:
    """What `fabmon agent` says when it does not start."""
    done = fabmon_here("agent", *arguments)
    assert done.returncode == 2, done.stderr
    return done.stderr


def messages_of(stream: Any, count: int) -> list[Message]:
    """The next messages of a stream that are no notices."""
    found: list[Message] = []
    while len(found) < count:
        message = decode(stream.readline())
        if not isinstance(message, Notice):
            found.append(message)
    return found


def test_help() -> None:
    done = fabmon("agent", "--help")
    assert done.returncode == 0
    check_golden(GOLDENS / "help.txt", done.stdout)


def test_a_stream_is_one_hello_then_frames(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root, "--interval", "0.2") as running:
        with running.open_stream() as reply:
            assert reply.headers["Content-Type"] == "application/x-ndjson"
            hello, *others = messages_of(reply, 5)
        assert isinstance(hello, Hello)
        seqs = [frame.seq for frame in others if isinstance(frame, Frame)]
        assert seqs == list(range(seqs[0], seqs[0] + 4))
        with running.open_stream("?encoding=shorthand,delta-deflate") as reply:
            hello, *packed = messages_of(reply, 3)
        assert isinstance(hello, Hello)
        assert hello.encoding == "delta-deflate"
        unpacker = Unpacker(hello.widths())
        frames = [unpacker.frame(each) for each in packed if isinstance(each, Packed)]
        assert frames[1].seq == frames[0].seq + 1
        # A late reader gets every source at once, also those that are read every tenth tick.
        widths = [None if block is None else len(block) for block in frames[0].blocks]
        assert widths == [
            None if not any(o.metrics for o in block.objects) else block.width()
            for block in hello.blocks
        ]


def test_the_token_is_required_and_nothing_can_be_changed(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root) as running:
        eventually(lambda: running.ask("/healthz", token="").status == 200)
        for path in ("/metrics", "/stream", "/", "/nowhere"):
            for wrong in ("", "wrong", running.token[:-1], running.token + "x"):
                reply = running.ask(path, token=wrong)
                assert reply.status == 401, path
                assert reply.headers["WWW-Authenticate"].startswith("Bearer")
        assert running.ask("/metrics", Authorization=f"Basic {running.token}").status == 401
        assert running.ask("/metrics", Authorization=f"bearer  {running.token} ").status == 200
        assert running.ask("/nowhere").status == 404
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            for path in ("/metrics", "/stream", "/healthz"):
                assert running.ask(path, method=method).status == 405, (method, path)


def test_what_is_not_http_is_refused_and_does_not_fill_the_log(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root) as running:
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"A" * 100_000,
        ):
            with socket.create_connection(("127.0.0.1", running.port), timeout=240) as stranger:
                # It may hang up before all of it is sent.
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(garbage)
                assert b" 400 Bad Request" in stranger.recv(100), garbage[:40]
        assert running.stop() == (0, "")


def test_metrics_come_in_the_form_that_was_asked_for(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root) as running:
        # It answers from the hello on; values come with the first frame.
        eventually(lambda: "fabmon_ib_state{" in running.ask("/metrics").text)
        plain = running.ask("/metrics")
        assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'fabmon_ib_state{port="mlx5_0",kind="ethernet",source="ib"} 4\n' in plain.text
        rich = running.ask("/metrics", Accept="application/openmetrics-text;version=1.0.0")
        assert rich.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0")
        assert rich.text.endswith("# EOF\n")


def test_health_is_lost_with_the_frames_and_comes_back_with_them(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root, "--interval", "0.2") as running:
        eventually(lambda: running.health()["status"] == "ok")
        probe = running.probe()
        os.kill(probe, signal.SIGSTOP)
        eventually(lambda: running.ask("/healthz", token="").status == 503)
        health = running.health()
        assert health["status"] == "no frames"
        assert health["frame_age_s"] > 0.6
        late = 'fabmon_source_up{source="ib",reason="late"} 0'
        eventually(lambda: late in running.ask("/metrics").text)
        with running.open_stream() as stream:
            assert isinstance(decode(stream.readline()), Hello)
            os.kill(probe, signal.SIGKILL)
            # A reader gets a notice, then the frames of the next probe.
            eventually(lambda: running.ask("/healthz", token="").status == 200)
            heard: list[Any] = []
            while not any(isinstance(each, Notice) for each in heard):
                heard.append(decode(stream.readline()))
            assert heard[-1].source == "probe"
            assert "signal 9" in heard[-1].text
            while not isinstance(heard[-1], Hello):
                heard.append(decode(stream.readline()))
        _, said = running.stop()
        assert "the probe ended with signal 9" in said
        assert "the probe reads again" in said


def test_an_agent_that_is_stopped_says_so_and_leaves_nothing(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root) as running:
        eventually(lambda: running.ask("/healthz", token="").status == 200)
        probe = running.probe()
        with running.open_stream() as stream:
            assert isinstance(decode(stream.readline()), Hello)
            assert running.stop() == (0, "")
            last = [decode(line) for line in stream.readlines()][-1]
        assert isinstance(last, Notice)
        assert (last.source, last.text) == ("agent", "the agent is stopping")
        assert not Path(f"/proc/{probe}").exists()


def test_prometheus_scrapes_it(tmp_path: Path, root: str) -> None:
    need_command("prometheus", "prometheus")
    port = free_port()
    with agent(tmp_path, "--root", root) as running:
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "scrape_configs:\n"
            "  - job_name: fabmon\n"
            "    scrape_interval: 1s\n"
            f"    authorization: {{credentials_file: {running.token_file}}}\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{running.port}']}}]\n"
        )
        prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def asked(query: str) -> list[Any]:
            try:
                url = f"http://127.0.0.1:{port}/api/v1/query?query={query}"
                with urllib.request.urlopen(url, timeout=240) as reply:
                    found: list[Any] = json.load(reply)["data"]["result"]
                    return found
            except OSError:
                return []

        try:
            eventually(lambda: len(asked("fabmon_ib_rate_bytes_per_second")) == 8)
            rate = asked("fabmon_ib_rate_bytes_per_second")[0]
            assert float(rate["value"][1]) * 8 == 400e9
            assert asked("up")[0]["value"][1] == "1"
        finally:
            prometheus.terminate()
            prometheus.wait(10)


def test_fabmon_reads_it(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root) as running:
        host = f"gpu001 address=127.0.0.1 via=http port={running.port} secret={running.token_file}"
        records, errors = lines_until(
            lambda found: any(
                link["tx_bps"] is not None for tick in ticks(found) for link in tick["links"]
            ),
            "--host",
            host,
        )
    assert errors == ""
    links = records[-1]["links"]
    assert {link["node"] for link in links} == {"gpu001"}
    assert [link["port"] for link in links] == [f"mlx5_{index}" for index in range(8)]
    assert links[0]["speed_bps"] == 400e9
    assert links[0]["tx_bps"] is not None


def test_fabmon_finds_the_token_of_its_own_users_agent(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    token_file = tmp_path / "state" / "fabmon" / "agent.token"
    token_file.parent.mkdir(parents=True)
    with agent(token_file.parent, "--root", root) as running:
        done = fabmon("--host", f"localhost via=http port={running.port}", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1/1 nodes up" in done.stdout


def test_over_tls(tmp_path: Path, root: str) -> None:
    ours = pair(tmp_path)
    options = ("--tls-cert", str(ours.certificate), "--tls-key", str(ours.key))
    with agent(tmp_path, "--root", root, "--listen", "0.0.0.0:0", *options) as running:
        assert running.url.startswith("https://")
        host = f"gpu001 address=127.0.0.1 via=http port={running.port} secret={running.token_file}"
        for tls in (str(ours.certificate), "insecure"):
            done = fabmon("--host", f"{host} tls={tls}", "--once")
            assert done.returncode == 0, done.stdout + done.stderr
        done = fabmon("--host", f"{host} tls=yes", "--once")
        assert done.returncode == 3
        assert "not trusted: self-signed certificate; tls=FILE names" in done.stdout
        context = ssl.create_default_context(cafile=str(ours.certificate))
        running.url = f"https://127.0.0.1:{running.port}"
        eventually(lambda: running.ask("/healthz", tls=context).status == 200)


def test_the_token_is_made_once_and_is_for_its_owner_alone(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root) as running:
        first = running.token
        assert len(first) >= 40
        assert stat.S_IMODE(running.token_file.stat().st_mode) == 0o600
    with agent(tmp_path, "--root", root) as running:
        assert running.token == first
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".token")] == []


def test_the_first_start_makes_the_users_directory_for_the_token(tmp_path: Path, root: str) -> None:
    state = tmp_path / "state"
    process = subprocess.Popen(
        [FABMON, "agent", "--listen", "127.0.0.1:0", "--root", root],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(state)},
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    process.terminate()
    process.communicate(timeout=240)
    assert said.endswith(f", token in {state}/fabmon/agent.token\n")
    assert stat.S_IMODE((state / "fabmon").stat().st_mode) == 0o700


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o644)
    said = refused("--token-file", str(token))
    assert said == f"fabmon: {token}: others can read it: chmod 600 {token}\n"


def test_beyond_this_machine_it_takes_tls_or_a_plain_word(tmp_path: Path, root: str) -> None:
    said = refused("--listen", "0.0.0.0:0")
    assert "give --tls-cert and --tls-key (or --insecure" in said
    with agent(tmp_path, "--root", root, "--listen", "0.0.0.0:0", "--insecure") as running:
        assert running.url.startswith("http://0.0.0.0:")


def test_a_port_that_is_taken_is_named(tmp_path: Path, root: str) -> None:
    with agent(tmp_path, "--root", root) as running:
        place = f"127.0.0.1:{running.port}"
        said = refused("--listen", place, "--token-file", str(running.token_file))
    assert said == (
        f"fabmon: {place} is in use (by another agent?): choose another with --listen ADDR:PORT\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "9838"], "--listen '9838': write ADDR:PORT"),
        (["--listen", "::1:9838"], "as in 127.0.0.1:9838 or [::1]:9838"),
        (["--listen", "127.0.0.1:99999"], "write ADDR:PORT"),
        (["--listen", "192.0.2.1:0", "--insecure"], "is not an address of this machine"),
        (["--tls-cert", "/nowhere.pem"], "--tls-key is missing"),
        (["--tls-cert", "/nowhere.pem", "--tls-key", "/x"], "/nowhere.pem: no such file"),
        (["--tls-cert", __file__, "--tls-key", __file__], "not a certificate and its key in PEM"),
        (
            ["--tls-cert", "/proc/self/mem", "--tls-key", "/proc/self/mem"],
            "/proc/self/mem, /proc/self/mem: Input/output error",
        ),
        (["--token-file", "/proc/nowhere/token"], "no such file"),
    ],
)
def test_a_mistake_is_named_before_anything_listens(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    given = [] if "--token-file" in arguments else ["--token-file", str(tmp_path / "token")]
    assert complaint in refused(*arguments, *given)


def test_a_source_that_there_is_not_ends_the_agent(tmp_path: Path) -> None:
    options = ("--token-file", str(tmp_path / "token"), "--listen", "127.0.0.1:0")
    done = fabmon("agent", *options, "--sources", "netdev,crystal_ball")
    assert done.returncode == 1
    assert "this machine cannot be read: " in done.stderr
    assert "no source 'crystal_ball': there are netdev" in done.stderr
