"""fabmon on a real fabric: real ssh, real kernel counters, traffic that crosses real ECMP."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.lab import Lab
from tests.lab.watching import Watch, links
from tests.unit.alerts.test_alertmanager import until

NODES = 14
FABRIC_PORTS = 32
MANAGEMENT_PORTS = 14


@pytest.fixture
def watch(lab: Lab) -> Iterator[Watch]:
    with Watch(lab) as running:
        running.until_all_up()
        yield running


def test_every_node_and_port_is_seen_with_its_role_and_its_cable_order(
    lab: Lab, watch: Watch
) -> None:
    tick = watch.until_all_up()
    assert tick["nodes_total"] == NODES
    roles = [link["role"] for link in tick["links"]]
    assert len(roles) == FABRIC_PORTS + MANAGEMENT_PORTS
    assert roles.count("management") == MANAGEMENT_PORTS
    assert roles.count("rail") == 8
    assert roles.count("uplink") == 8
    nodes = list(dict.fromkeys(link["node"] for link in tick["links"]))
    assert nodes[:6] == ["leaf1", "gpu001", "gpu002", "gpu003", "gpu004", "leaf2"]
    assert {link["speed_bps"] for link in tick["links"]} == {lab.rate_mbps * 1e6}


def test_rates_agree_with_the_kernel_over_ten_seconds(lab: Lab, watch: Watch) -> None:
    """On every fabric port that carries traffic, in both directions. A busy machine delays senders,
    and the ten seconds of fabmon are not quite those of the counters."""
    lab.spread(0.4)
    lab.elephant("gpu005", "gpu002", "up2", 0.55 * lab.rate_mbps)
    time.sleep(2)
    nodes = sorted({link["node"] for link in watch.ticks()[-1]["links"]})
    ports = [
        (link["node"], link["port"])
        for link in watch.ticks()[-1]["links"]
        if link["role"] != "management"
    ]
    before = {end: lab.counters(*end) for end in ports}
    start_s, first = time.monotonic(), len(watch.ticks())
    time.sleep(10)
    after = {end: lab.counters(*end) for end in ports}
    passed_s = time.monotonic() - start_s
    time.sleep(1)
    ticks = watch.ticks()[first : first + 10]
    assert len(nodes) == NODES
    errors = []
    for node, port in ports:
        for direction in ("tx", "rx"):
            key = f"{direction}_bytes"
            truth = (after[node, port][key] - before[node, port][key]) * 8 / passed_s
            rates = [links(tick)[f"{node}/{port}"][f"{direction}_bps"] for tick in ticks]
            said = [rate for rate in rates if rate is not None]
            assert len(said) >= 5, rates
            shown = sum(said) / len(said)
            if truth > 1e6:
                errors.append(abs(shown / truth - 1))
                assert shown == pytest.approx(truth, rel=0.3), f"{node}/{port} {direction}"
            else:
                assert shown < 1e6
    assert len(errors) >= 5 * 6
    assert median(errors) < 0.1


def test_a_collision_is_flagged_rightly(lab: Lab, watch: Watch) -> None:
    """After how many ticks, is in tests/scenario/goldens."""
    lab.collide("leaf1", "up3")
    finding = watch.until(lambda line: line["type"] == "finding")
    assert (finding["change"], finding["cause"]) == ("open", "ecmp_collision")
    assert finding["subject"] == "leaf1/up3"
    # UDP does not slow down: what enters the leaf and is dropped there is not achieved.
    assert finding["lost"] == pytest.approx(0.36, abs=0.10)
    assert [f["subject"] for f in watch.findings()] == ["leaf1/up3"]


def test_a_collision_on_a_leaf_with_plain_multipath_routes_is_seen_too(
    lab: Lab, watch: Watch
) -> None:
    lab.collide("leaf2", "up1", 0.7)
    finding = watch.until(lambda line: line["type"] == "finding")
    assert (finding["cause"], finding["subject"]) == ("ecmp_collision", "leaf2/up1")


def test_a_link_that_goes_down_is_found_once_with_both_ends(lab: Lab, watch: Watch) -> None:
    lab.link_down("leaf1", "up2")
    try:
        finding = watch.until(lambda line: line["type"] == "finding")
        assert finding["cause"] == "link_down"
        assert set(finding["ports"]) == {"leaf1/up2", "spine2/swp1"}
        time.sleep(3)
        assert len(watch.findings()) == 1
    finally:
        lab.link_up("leaf1", "up2")
    watch.until(lambda line: line["type"] == "finding" and line["change"] == "close")


def processes_of(lab: Lab, node: str) -> list[str]:
    """Command lines of the login user's living processes in a node, but for sshd's own."""
    found = []
    for pid in lab.exec(node, ["ip", "netns", "pids", lab.ns(node)]).stdout.split():
        with contextlib.suppress(OSError):
            folder = Path("/proc", pid)
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            if folder.owner() == lab.user and command and not command.startswith("sshd:"):
                found.append(command)
    return found


def files_of(lab: Lab, node: str) -> set[str]:
    """Files in the user's home and the temporary folders that belong to the user."""
    find = (
        f"find ~{lab.user} /tmp /var/tmp /dev/shm -maxdepth 2 -user {lab.user} 2>/dev/null || true"
    )
    return set(lab.exec(node, ["sh", "-c", find]).stdout.split())


def test_a_console_that_is_killed_leaves_nothing_on_any_node(lab: Lab) -> None:
    everywhere = [*lab.layout.hosts, *lab.layout.leaves, *lab.layout.spines]
    files = files_of(lab, "gpu001")
    with Watch(lab) as running:
        running.until_all_up()
        assert any("python" in line for node in everywhere for line in processes_of(lab, node))
        assert files_of(lab, "gpu001") == files
        running.stop(signal.SIGKILL)
    # The lease of a probe ends 45 s after the console at the earliest.
    until(lambda: not any(processes_of(lab, node) for node in everywhere), 30)
    assert files_of(lab, "gpu001") == files


def test_a_console_that_is_interrupted_ends_its_probes_and_says_so_by_its_status(
    lab: Lab,
) -> None:
    with Watch(lab) as running:
        running.until_all_up()
        assert running.stop(signal.SIGINT) == 130
    until(lambda: not processes_of(lab, "leaf1"), 30)


def once(lab: Lab, *options: str) -> subprocess.CompletedProcess[str]:
    """`fabmon --once`, with patience for nodes on a busy machine."""
    program = "from fabmon.session import printing; printing._ONCE_S = 200.0"
    command = [sys.executable, "-c", f"{program}; from fabmon.cli.main import main; main()"]
    command += ["--hosts", str(lab.hosts_file), "--ssh-config", str(lab.ssh_config)]
    return subprocess.run(
        lab.console_argv([*command, "--once", *options]),
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_once_prints_a_table_of_the_fabric_and_leaves(lab: Lab) -> None:
    done = once(lab)
    assert done.returncode == 0, done.stderr
    assert "14/14 nodes up  46 ports" in done.stdout
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_once_as_json_is_one_object(lab: Lab) -> None:
    report = json.loads(once(lab, "--format", "json").stdout)
    assert report["type"] == "report"
    assert len(report["nodes"]) == NODES
