"""Findings of a simulated fabric at a real Alertmanager, which notifies a receiver of ours."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.alerts.alertmanager import Alertmanager, Posts, posts
from tests.unit.alerts.played_fabric import play

SCENARIO = """
title = "Two NICs hashed onto one uplink."
seed = 1
[topology]
kind = "leaf-spine"
hosts = 16
rails = 2
routing = "spray"
[[job]]
name = "train"
compute_s = 1.0
payload_gb = 60.0
demand = 0.7
[[fault]]
kind = "ecmp_collision"
at = 10.0
for = {seconds}
where = "leaf1/up3"
"""


@pytest.fixture
def hook() -> Iterator[Posts]:
    with posts() as kept:
        yield kept


@pytest.fixture
def alertmanager(tmp_path: Path, hook: Posts) -> Iterator[Alertmanager]:
    with Alertmanager(tmp_path / "am", hook.url) as server:
        yield server


def files(
    tmp_path: Path, server: Alertmanager, seconds: float, resend_s: float
) -> tuple[Path, Path]:
    config, scenario = tmp_path / "fabmon.toml", tmp_path / "scenario.toml"
    config.write_text(
        "[alerts]\nkeep_open_s = 0\n"
        f'link = "http://fabmon.example/findings"\nresend_s = {resend_s}\n'
        f'[alerts.receivers.main]\ntype = "alertmanager"\nurl = "{server.url}"\n'
    )
    scenario.write_text(SCENARIO.format(seconds=seconds))
    return config, scenario


def until(reached: Callable[[], object], seconds: float = 60) -> None:
    end_s = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end_s, "not reached in time"
        time.sleep(0.1)


def states(hook: Posts) -> list[str]:
    return [each["status"] for each in hook.objects()]


async def test_a_collision_arrives_and_resolves(
    tmp_path: Path, alertmanager: Alertmanager, hook: Posts
) -> None:
    config, scenario = files(tmp_path, alertmanager, seconds=25, resend_s=60)
    await play(config, scenario, speed=10, seconds=75)
    await asyncio.to_thread(until, lambda: len(hook.bodies) >= 2)
    assert states(hook) == ["firing", "resolved"]
    alert = hook.objects()[0]["alerts"][0]
    assert alert["labels"] == {
        "alertname": "fabmon_ecmp_collision",
        "cluster": "lab",
        "finding": "ecmp_collision:leaf1/swp19",
        "node": "leaf1",
        "port": "swp19",
        "severity": "critical",
    }
    assert alert["generatorURL"] == (
        "http://fabmon.example/findings#ecmp_collision%3Aleaf1%2Fswp19"
    )
    said = alert["annotations"]
    assert said["cause"] == "ecmp_collision"
    assert said["summary"] == "ECMP collision: leaf1/swp19"
    assert said["description"]
    assert said["advice"]


def test_killed_and_restarted_on_both_sides_nobody_is_notified_twice(
    tmp_path: Path, alertmanager: Alertmanager, hook: Posts
) -> None:
    config, scenario = files(tmp_path, alertmanager, seconds=1000, resend_s=4)
    command = [sys.executable, "-m", "tests.unit.alerts.played_fabric"]

    def watch(seconds: float, speed: float = 10) -> subprocess.Popen[bytes]:
        arguments = [str(config), str(scenario), str(speed), str(seconds)]
        return subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL)

    first = watch(900)
    try:
        until(lambda: states(hook) == ["firing"])
        (before,) = alertmanager.alerts()
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()

    config, scenario = files(tmp_path, alertmanager, seconds=200, resend_s=4)
    second = watch(1000)
    try:
        until(
            lambda: any(each["updatedAt"] > before["updatedAt"] for each in alertmanager.alerts())
        )
        (after,) = alertmanager.alerts()
        assert after["fingerprint"] == before["fingerprint"]
        alertmanager.stop()
        alertmanager.start()
        until(lambda: len(alertmanager.alerts()) == 1)
        until(lambda: states(hook) == ["firing", "resolved"])
    finally:
        second.kill()
        second.wait()


def test_a_dead_receiver_is_logged_once_and_gets_what_is_open_later(
    tmp_path: Path, alertmanager: Alertmanager, hook: Posts
) -> None:
    config, scenario = files(tmp_path, alertmanager, seconds=1000, resend_s=60)
    alertmanager.stop()
    command = [sys.executable, "-m", "tests.unit.alerts.played_fabric"]
    log = tmp_path / "log"
    with log.open("wb") as stream:
        watch = subprocess.Popen(
            [*command, str(config), str(scenario), "10", "900"],
            stdout=subprocess.DEVNULL,
            stderr=stream,
        )
    try:
        until(lambda: "main" in log.read_text())
        time.sleep(4)
        alertmanager.start()
        until(lambda: states(hook) == ["firing"])
        until(lambda: "sent again" in log.read_text())
    finally:
        watch.kill()
        watch.wait()
    assert log.read_text().splitlines() == [
        "fabmon: alerts to main are not sent: Connection refused; retrying",
        "fabmon: alerts to main are sent again",
    ]
