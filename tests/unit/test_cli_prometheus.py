"""`fabmon --prometheus` as a person runs it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.unit.feeds.prometheus_servers import PASSWORD, VictoriaMetrics, free_port
from tests.unit.feeds.test_prometheus_errors import FakePrometheus, failure, served

SCRAPE_S = 10


def fabmon(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from fabmon.cli.main import main; sys.argv[0] = 'fabmon'; main()"
    program = [sys.executable, "-c", code, *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=240)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[VictoriaMetrics]:
    with VictoriaMetrics(tmp_path / "server") as server:
        yield server


def write_scrapes(server: VictoriaMetrics, nodes: int) -> list[int]:
    """Scrapes of some agents, each of one port at 80 Gb/s of 400; returns their times, in
    milliseconds since 1970.

    The third is a second old: fabmon asks for what there was half a second ago. Those of the next
    three minutes are there too, for a machine on which it takes long to ask.
    """
    first_s = time.time() - 1 - 2 * SCRAPE_S
    times_ms = [round((first_s + step * SCRAPE_S) * 1000) for step in range(20)]
    lines: list[str] = []
    for node in range(nodes):
        target = f'instance="gpu{node + 1:03}:9838",job="fabmon",source="ib"'
        port = f'{{{target},port="mlx5_0",kind="infiniband"}}'
        for step, stamp in enumerate(times_ms):
            sent = step * SCRAPE_S * 10_000_000_000
            lines += [
                f"fabmon_source_age_seconds{{{target}}} 0 {stamp}",
                f"fabmon_ib_tx_bytes_total{port} {sent} {stamp}",
                f"fabmon_ib_rate_bytes_per_second{port} 50000000000 {stamp}",
                f"fabmon_ib_state{port} 4 {stamp}",
            ]
    server.store(lines)
    return times_ms


def test_one_report_has_rates_at_once(server: VictoriaMetrics) -> None:
    write_scrapes(server, 3)
    done = fabmon("--prometheus", server.url, "--once", "--match", '{instance!~"gpu003.*"}')
    assert done.returncode == 0, done.stderr
    assert "2/2 nodes up" in done.stdout
    assert "rates of the last 10 s" in done.stdout
    assert done.stdout.count("80.0 Gb/s") == 2
    assert done.stderr == ""


def test_doctor_names_the_metrics_of_the_server_that_are_not_read(server: VictoriaMetrics) -> None:
    times_ms = write_scrapes(server, 2)
    target = 'instance="gpu001:9400",gpu="0",UUID="GPU-0"'
    server.store(
        f"{name}{{{target}}} {value} {stamp}"
        for stamp in times_ms
        for name, value in (
            ("DCGM_FI_PROF_NVLINK_TX_BYTES", 1000),
            ("DCGM_FI_DEV_NVLINK_BRAND_NEW", 5),
        )
    )
    done = fabmon("doctor", "--prometheus", server.url)
    assert done.returncode in (0, 5), done.stderr
    assert "dcgm_exporter" in done.stdout
    assert "DCGM_FI_DEV_NVLINK_BRAND_NEW" in done.stdout
    assert "gpu002" in done.stdout


def test_lines_are_of_now_not_of_the_past(server: VictoriaMetrics) -> None:
    write_scrapes(server, 1)
    start_s = time.time()
    done = fabmon("--prometheus", server.url, "--format", "jsonl", "--duration", "1")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ticks = [line for line in lines if line["type"] == "tick"]
    assert ticks
    assert ticks[0]["interval_s"] == 10
    times = [datetime.fromisoformat(line["time"]).timestamp() for line in ticks]
    assert all(each >= start_s - 1 for each in times)


def test_a_hosts_file_says_which_nodes_and_what_they_are(
    server: VictoriaMetrics, tmp_path: Path
) -> None:
    write_scrapes(server, 3)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu002 speed=100G\ngpu007\n")
    done = fabmon("--prometheus", server.url, "--once", "--hosts", str(hosts))
    assert done.returncode == 4, done.stderr
    assert "1/2 nodes up" in done.stdout
    assert "80.0 %" in done.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert "x gpu007 failed" in done.stdout
    assert "gpu001" not in done.stdout


def test_a_password_is_read_from_the_file_that_the_configuration_names(tmp_path: Path) -> None:
    with VictoriaMetrics(tmp_path / "server", secret=True) as server:
        done = fabmon("--prometheus", server.url, "--once")
        assert done.returncode == 3
        assert "access denied (401" in done.stderr
        secret = tmp_path / "password"
        secret.write_text(f"fabmon:{PASSWORD}\n")
        secret.chmod(0o600)
        config = tmp_path / "fabmon.toml"
        config.write_text(f"[prometheus]\npassword_file = '{secret}'\n")
        done = fabmon("--prometheus", server.url, "--once", "--config", str(config))
        assert "access denied" not in done.stderr


def test_a_server_that_does_not_answer_gives_status_3() -> None:
    done = fabmon("--prometheus", f"http://127.0.0.1:{free_port()}", "--once")
    assert done.returncode == 3
    assert "connection refused" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_past_that_fails_is_reported_as_other_warnings_are() -> None:
    fake = FakePrometheus()
    fake.fails = lambda query: failure(503, "timeout") if "timestamp(" in query else None
    async with served(fake) as url:
        done = await asyncio.to_thread(fabmon, "--prometheus", url, "--once")
    assert "fabmon: no history: " in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--match", '{a="b"}'], "need --prometheus URL"),
        (["--prometheus", "prometheus:9090"], "as in http://prometheus:9090"),
        (["--prometheus", "http://ops:secret@p:9090"], "password_file under [prometheus]"),
        (["--prometheus", "http://p:9090", "--match", "up"], "--match 'up': write matchers"),
        (
            ["--prometheus", "http://p", "--prometheus-token-file", "/nowhere"],
            "/nowhere: no such",
        ),
    ],
)
def test_a_mistake_is_named_on_stderr_with_status_2(arguments: list[str], complaint: str) -> None:
    done = fabmon(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "secret" not in done.stderr
    assert done.stdout == ""


def test_a_server_without_anything_that_fabmon_knows_says_so(server: VictoriaMetrics) -> None:
    server.store([f'up{{instance="gpu001:9100"}} 1 {round(time.time() * 1000)}'])
    done = fabmon("--prometheus", server.url, "--once", "--match", '{cluster="a"}')
    assert done.returncode == 3
    assert 'has no metrics that fabmon knows, matching {cluster="a"}; ' in done.stderr
    assert "nodes are found by the label 'instance'" in done.stderr


def test_https_to_a_server_without_tls_says_to_write_http(server: VictoriaMetrics) -> None:
    done = fabmon("--prometheus", server.url.replace("http:", "https:"), "--once")
    assert done.returncode == 3
    assert "the server has no TLS: write http://" in done.stderr


def test_a_file_that_is_not_there_is_called_by_its_key(tmp_path: Path) -> None:
    config = tmp_path / "fabmon.toml"
    config.write_text("[prometheus]\nca_file = '/nowhere.pem'\n")
    done = fabmon("--prometheus", "https://p", "--config", str(config), "--once")
    assert "/nowhere.pem: No such file or directory; ca_file is a file with certificates" in (
        done.stderr
    )
