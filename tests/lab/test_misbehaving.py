"""Nodes that misbehave over real ssh: each is one row with a true reason; the others tick on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.lab.patients import Ward, ward
from tests.lab.watching import Line, Watch
from tests.unit.alerts.test_alertmanager import until


@pytest.fixture
def patients(lab: Lab, tmp_path: Path) -> Iterator[Ward]:
    with ward(lab, tmp_path) as opened:
        yield opened


def watch(lab: Lab, patients: Ward) -> Watch:
    hosts, config = patients.files()
    return Watch(lab, "--ssh-config", str(config), hosts=hosts)


def row_of(watch: Watch, node: str, state: str) -> Line:
    return watch.until(
        lambda line: line["type"] == "node" and line["node"] == node and line["state"] == state
    )


def is_whole(tick: Line) -> bool:
    """Whether the nodes that behave are up, with values of now."""
    return tick["nodes_up"] == 14 and all(link["age_s"] < 2 for link in tick["links"])


def test_every_kind_of_misbehaviour_is_one_row_and_the_rest_keeps_ticking(
    lab: Lab, patients: Ward
) -> None:
    patients.silent("silent")
    patients.sshd("stranger", "AuthorizedKeysFile=none")
    patients.sshd("flood", "ForceCommand=yes garbage")
    patients.sshd("bare", without_python=True)
    with watch(lab, patients) as running:
        reasons = {
            name: (line["cause"], line["reason"])
            for name in ("silent", "stranger", "flood", "bare")
            for line in [row_of(running, name, "failed")]
        }
        seen = len(running.ticks())
        until(lambda: sum(map(is_whole, running.ticks()[seen:])) >= 4)
    assert "TCP connected, then silence" in reasons["silent"][1]
    assert "permission denied" in reasons["stranger"][1].lower()
    assert "no python3 >= 3.6" in reasons["bare"][1]
    assert reasons["flood"][0] in ("garbage", "flood")


def test_a_node_that_loses_power_is_lost_and_comes_back_by_itself(lab: Lab, patients: Ward) -> None:
    patients.sshd("phoenix")
    with watch(lab, patients) as running:
        row_of(running, "phoenix", "up")
        patients.kill("phoenix")
        lost = row_of(running, "phoenix", "lost")
        assert lost["reason"]
        finding = running.until(lambda line: line["type"] == "finding")
        assert (finding["cause"], finding["subject"]) == ("node_lost", "phoenix")
        time.sleep(2)
        patients.restart("phoenix")
        before = running.now_s()
        running.until(
            lambda line: (
                line["type"] == "node"
                and (line["node"], line["state"]) == ("phoenix", "up")
                and line["at_s"] > before
            ),
        )
