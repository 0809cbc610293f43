"""The metrics of `fabmon watch --metrics`, and the alert rules on them, by promtool."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from fabmon.alerts.metrics_server import metrics_server, watch_metrics
from fabmon.analysis.iteration.results import IterationReport, JobIteration
from fabmon.analysis.scene import Scene
from fabmon.cli.main import cli
from fabmon.connection_limits import MAX_CONNECTIONS
from fabmon.fabric.openmetrics import OPENMETRICS, PROMETHEUS
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.session.errors import UsageError
from tests.builders import START_NS, LeafSpine, new_pipeline, tick
from tests.requirements import need_command
from tests.unit.alerts.test_alert_book import finding
from tests.unit.alerts.test_alertmanager import until
from tests.unit.feeds.prometheus_servers import Prometheus, Target, free_port

CONFIG = Path(__file__).parents[3] / "config"
RULES = CONFIG / "prometheus" / "fabmon.alerts.yml"
DASHBOARD = CONFIG / "grafana" / "fabmon.json"


@pytest.fixture
def scene() -> Scene:
    """Two findings, a job; one node is lost."""
    fabric = LeafSpine(uplinks=2, hosts=2)
    pipeline = new_pipeline(fabric.hosts)
    for _ in range(4):
        pipeline.accept(fabric.step())
    lost = NodeStatus("spine2", NodeState.LOST, START_NS, "connection reset", "ended")
    made = pipeline.accept(tick(6, statuses=[lost]))
    worse = msgspec.structs.replace(finding("b", severity="critical"), lost=0.4)
    report = IterationReport(3.0, jobs=(job(),))
    return Scene(made.snapshot, (finding("a"), worse), (), (), report)


def job() -> JobIteration:
    return JobIteration(
        hosts=("gpu001", "gpu002"),
        hosts_sure=True,
        step_s=6.2,
        error_s=0.1,
        resolved=True,
        strength=1.0,
        iterations=9,
        comm_low=0.4,
        comm_high=0.5,
        rail_bytes=(None,),
        line_rate_bps=None,
        line_share=None,
        best_step_s=None,
    )


def values(page: str) -> dict[str, float]:
    return {
        name: float(value)
        for name, _, value in (
            line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")
        )
    }


def test_a_step_time_that_may_be_that_of_several_steps_is_absent(scene: Scene) -> None:
    unsure = msgspec.structs.replace(job(), resolved=False)
    report = IterationReport(3.0, jobs=(unsure,))
    page = watch_metrics(replace(scene, iteration_report=report), 1.5, OPENMETRICS)
    assert "fabmon_watch_job_step_seconds{" not in page
    assert 'fabmon_watch_job_hosts{job_host="gpu001"} 2' in page


def test_the_page_has_what_the_scene_has(scene: Scene) -> None:
    found = values(watch_metrics(scene, 1.5, OPENMETRICS))
    assert found['fabmon_watch_findings{cause="incast",severity="warning"}'] == 1
    assert found['fabmon_watch_findings{cause="incast",severity="critical"}'] == 1
    assert found['fabmon_watch_findings{cause="ecmp_collision",severity="warning"}'] == 0
    assert found['fabmon_watch_lost_bandwidth_ratio{cause="incast"}'] == 0.4
    assert found['fabmon_watch_nodes{state="lost"}'] == 1
    assert found["fabmon_watch_cpu_seconds_total"] == 1.5
    snapshot = scene.snapshot
    states = [snapshot.state(port.row) for node in snapshot.fabric.nodes for port in node.ports]
    assert states
    for state in ("up", "down", "stale", "unknown"):
        assert found[f'fabmon_watch_links{{state="{state}"}}'] == states.count(state)


def test_promtool_accepts_the_page_and_the_rules(scene: Scene) -> None:
    need_command("promtool", "prometheus")
    page = watch_metrics(scene, 1.5, PROMETHEUS)
    for command, text in ((["check", "metrics"], page), (["check", "rules", str(RULES)], "")):
        done = subprocess.run(
            ["promtool", *command], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
    # The rules use metrics that exist.
    used = set(re.findall(r"fabmon_watch_\w+", RULES.read_text()))
    assert used <= {name.partition("{")[0] for name in values(page)}


async def test_it_is_served_as_openmetrics(scene: Scene) -> None:
    port, accepted = free_port(), "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"

    def fetch() -> tuple[str, str]:
        headers = {"Accept": accepted}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=240) as reply:
            return reply.headers["Content-Type"], reply.read().decode()

    async with metrics_server("127.0.0.1", port) as publish:
        kind, page = await asyncio.to_thread(fetch)
        assert kind == OPENMETRICS
        assert page.endswith("# EOF\n")
        assert "fabmon_watch_nodes" not in page
        publish(scene)
        page = (await asyncio.to_thread(fetch))[1]
        assert "fabmon_watch_nodes" in page
        # An independent parser reads it.
        assert list(text_string_to_metric_families(page))  # type: ignore[no-untyped-call]
        accepted = "application/openmetrics-text;q=0.2,text/plain"
        kind, page = await asyncio.to_thread(fetch)
        assert kind == PROMETHEUS
        assert "# EOF" not in page


@pytest.mark.parametrize(
    ("name", "status"),
    [("127.0.0.1", 200), ("localhost:9839", 200), ("[::1]", 200), ("evil.example", 421), ("", 421)],
)
async def test_a_page_in_a_browser_does_not_read_it_by_another_name(name: str, status: int) -> None:
    """Whose name server says that the page's host is this machine."""
    port = free_port()
    async with metrics_server("127.0.0.1", port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == str(status).encode()
        writer.close()


async def test_half_requests_do_not_keep_prometheus_out(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    async with metrics_server("127.0.0.1", port):
        halves = []
        for _ in range(MAX_CONNECTIONS + 20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost:")
            halves.append((reader, writer))
        reader, asking = await asyncio.open_connection("127.0.0.1", port)
        asking.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(60):
            assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
            # The oldest are closed for those that came later.
            assert [await each.read() for each, _ in halves[:20]] == [b""] * 20
        reader, wrong = await asyncio.open_connection("127.0.0.1", port)
        wrong.write(b"\xff\xfe no HTTP\r\n\r\n")
        async with asyncio.timeout(60):
            assert (await reader.readline()).startswith(b"HTTP/1.0 400")
        for each in (asking, wrong, *(writer for _, writer in halves)):
            each.close()
    assert not caplog.messages, "strangers do not fill the log"


async def test_a_real_prometheus_scrapes_it_and_its_rules_fire(
    scene: Scene, tmp_path: Path
) -> None:
    port = free_port()
    target: Target = ("watch", "pod7", port, {})
    # Rules wait for minutes, and this scene is of another day.
    rules = tmp_path / "rules.yml"
    text = re.sub(r"for: \w+", "for: 0s", RULES.read_text())
    rules.write_text(text.replace("name: fabmon-watch", "name: fabmon-watch\n    interval: 1s"))

    def firing(server: Prometheus) -> set[str]:
        with urllib.request.urlopen(f"{server.url}/api/v1/alerts", timeout=240) as reply:
            return {each["labels"]["alertname"] for each in json.load(reply)["data"]["alerts"]}

    def run() -> set[str]:
        with Prometheus(tmp_path / "prometheus", [target], rules=rules) as server:
            server.until_scraped(1)
            until(lambda: len(firing(server)) >= 4)
            return firing(server)

    async with metrics_server("127.0.0.1", port) as publish:
        publish(scene)
        assert await asyncio.to_thread(run) == {
            "FabmonCriticalFinding",
            "FabmonLostBandwidth",
            "FabmonNodesLost",
            "FabmonSilent",
        }


def queries() -> dict[str, str]:
    """Title of each panel, and its query as Grafana sends it."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = {}
    for panel in panels:
        (target,) = panel["targets"]
        text = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
        assert "$" not in text
        found[panel["title"]] = text
    return found


async def test_every_panel_of_the_dashboard_has_data(scene: Scene, tmp_path: Path) -> None:
    port = free_port()

    def ask(server: Prometheus, query: str) -> list[object]:
        url = f"{server.url}/api/v1/query?query={urllib.parse.quote(query)}"
        with urllib.request.urlopen(url, timeout=240) as reply:
            result: list[object] = json.load(reply)["data"]["result"]
            return result

    def run() -> None:
        with Prometheus(tmp_path / "prometheus", [("watch", "pod7", port, {})]) as server:
            server.until_scraped(1)
            for title, query in queries().items():
                print(title)
                until(partial(ask, server, query))
            # The variable with the running fabmons.
            assert ask(server, "fabmon_watch_info")

    async with metrics_server("127.0.0.1", port) as publish:
        publish(scene)
        await asyncio.to_thread(run)


def test_an_address_that_cannot_be_used_is_named() -> None:
    result = CliRunner().invoke(cli, ["watch", "--metrics", "9839"], standalone_mode=False)
    assert "as in 127.0.0.1:9839" in str(result.exception)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(cli, ["watch", "--metrics", f":{port}"], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert f"--metrics 127.0.0.1:{port}: Address already in use" in str(result.exception)
