"""Packet-level scenes: how they are read, played and judged, on one that is written by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fabmon.fabric.tick import Tick
from tests.packets.__main__ import main
from tests.packets.archive import ECMP_COLLISION, CongestedLink, SceneTruth, SharedLink, Wanted
from tests.packets.judge import Judgement, Verdict, judge
from tests.packets.leaf_spine import FULL_LINK, ONSET_S, SECONDS, meta, write
from tests.packets.play import play
from tests.packets.scene import PacketScene, load
from tests.packets.score import as_values, score, totals
from tests.score.play import Reported

HEALTHY: dict[str, Any] = {"healthy": True, "onset_s": None, "want": [], "congested": []}


@pytest.fixture
def collision(tmp_path: Path) -> PacketScene:
    return load(write(tmp_path / "collision.npz", meta()))


def scene(tmp_path: Path, **changes: Any) -> PacketScene:
    return load(write(tmp_path / "changed.npz", meta(**changes)))


def first_tick(scene: PacketScene) -> Tick:
    return next(scene.ticks())


def reported_metrics(scene: PacketScene, node: str) -> set[str]:
    hello = dict(first_tick(scene).hellos)[node]
    return {name for block in hello.blocks for item in block.objects for name in item.metrics}


def sources(scene: PacketScene, node: str) -> set[str]:
    return {block.source for block in dict(first_tick(scene).hellos)[node].blocks}


def test_a_collision_is_found_and_its_amounts_are_reported(collision: PacketScene) -> None:
    result = score(collision)
    assert (result.right, result.wrong, result.wanted) == (1, 0, 1)
    assert len(result.flag_times_s) == 1
    assert 0 < result.flag_times_s[0] < 12
    values = as_values([result])
    assert values["totals"]["precision"] == values["totals"]["recall"] == 1.0
    assert [each["right"] for each in values["calibration"]] == [True]
    assert [(each["port"], each["slowed_by"]) for each in values["losses"]] == [(FULL_LINK, 0.5)]
    json.dumps(values)


def test_a_healthy_scene_is_not_disturbed(tmp_path: Path) -> None:
    every = totals([score(scene(tmp_path, truth=HEALTHY))])
    assert (every.healthy, every.disturbed, every.wrong) == (1, 0, 0)
    assert every.precision is every.recall is every.flag_s is None


def test_counters_are_of_when_a_node_read_them(collision: PacketScene) -> None:
    ticks = list(collision.ticks())
    assert len(ticks) == SECONDS
    for node in collision.watched:
        frames = [dict(tick.frames)[node.name] for tick in ticks]
        before_ns = [t.time_ns - f.wall_ns for t, f in zip(ticks, frames, strict=True)]
        assert before_ns == pytest.approx([node.read_before_tick_s * 1e9] * SECONDS, abs=2)
        assert frames[1].mono_ns - frames[0].mono_ns == pytest.approx(1e9, abs=2)


def test_frames_have_the_layout_of_the_hello(collision: PacketScene) -> None:
    tick = first_tick(collision)
    frames = dict(tick.frames)
    for name, hello in tick.hellos:
        widths = [len(block) for block in frames[name].blocks if block is not None]
        assert len(frames[name].blocks) == len(hello.blocks)
        assert widths == hello.widths()[: len(widths)]


def test_nodes_that_are_not_watched_do_not_send(tmp_path: Path) -> None:
    about = meta()
    for node in about["nodes"]:
        node["watched"] = not node["name"].startswith("spine")
    without = scene(tmp_path, nodes=about["nodes"])
    names = {host.name for host in without.hosts()}
    assert "leaf01" in names
    assert not {"spine01", "spine02"} & names
    assert {name for name, _ in first_tick(without).frames} == names


def test_absent_counters_are_not_reported(tmp_path: Path, collision: PacketScene) -> None:
    marks = "phy_tx_ecn_marked"
    assert marks in reported_metrics(collision, "leaf01")
    plain = scene(tmp_path, absent={"switch": ["tx_ecn_marked", "pause_rx_us"]})
    left = reported_metrics(plain, "leaf01")
    assert marks not in left
    assert "pfc_rx_pause_us_prio3" not in left
    assert {"pfc_tx_pause_us_prio3", "netdev_tx_bytes"} <= left
    assert "pfc_rx_pause_us_prio3" in reported_metrics(plain, "node001")


def test_without_ecn_there_are_no_marks_and_cnps(tmp_path: Path, collision: PacketScene) -> None:
    congestion = {"rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled"}
    assert congestion <= reported_metrics(collision, "node001")
    paused = scene(tmp_path, congestion_control="PFC only, no ECN")
    assert not congestion & reported_metrics(paused, "node001")
    assert "phy_tx_ecn_marked" not in reported_metrics(paused, "leaf01")


def test_cabling_and_routes_are_reported_where_they_are_known(
    tmp_path: Path, collision: PacketScene
) -> None:
    assert {"lldp", "routes"} <= sources(collision, "leaf01")
    unknown = scene(tmp_path, cabling_known=False, routes=False)
    assert not {"lldp", "routes"} & sources(unknown, "leaf01")


def test_a_port_reports_its_speed_from_the_change_on(tmp_path: Path) -> None:
    changes = [{"from_s": ONSET_S, "port": FULL_LINK, "speed_bps": 25e9}]
    slow = scene(tmp_path, speed_changes=changes, truth=HEALTHY)
    assert [each.cause for each in play(slow)] == ["degraded_link"]


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut"])
def test_a_file_that_is_no_scene_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.npz: not a packet-level scene"):
        load(path)


def test_the_command_prints_a_row_per_scene_and_what_a_commit_finds_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "collision.npz", meta())
    figures = tmp_path / "figures.json"
    monkeypatch.setattr("tests.packets.score.play", lambda scene: [])
    words = ["--scenes", str(tmp_path), "--workers", "1", "--json", str(figures), "--list"]
    assert main([*words, "--beside", "HEAD"]) == 0
    printed = capsys.readouterr().out
    assert "two flows share an uplink" in printed
    assert re.search(r"^recall +0\.000 \(0 of 1\) +1\.000 \(1 of 1\)$", printed, re.MULTILINE)
    assert f"MISSED fabmon collision ecmp_collision {FULL_LINK}" in printed
    assert json.loads(figures.read_text())["HEAD"]["totals"]["found"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scenes", "missing"], "missing: no such directory"),
        (["--scenes", "."], "no scenes"),
        (["--scenes", ".", "--only", "a"], "no scenes"),
    ],
)
def test_scenes_that_do_not_exist_are_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_names_that_do_not_exist_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "collision.npz", meta())
    words = ["--scenes", str(tmp_path)]
    assert main([*words, "--only", "other"]) == 2
    said = capsys.readouterr().err
    assert "no scene named other" in said


def found(cause: str, subject: str, *ports: str, opened_s: float = 30.0) -> Reported:
    return Reported(
        opened_s, subject, causes=[cause], ports=list(ports), confidences=[0.9], losses=[0.5]
    )


def truth(**changes: Any) -> SceneTruth:
    link = CongestedLink(port="leaf01/swp9", group="leaf01 up", slowed_by=0.5)
    values: dict[str, Any] = {"healthy": False, "onset_s": 24.0, "congested": (link,)}
    return SceneTruth(**(values | changes))


def verdicts(judgement: Judgement) -> list[Verdict]:
    return [each.verdict for each in judgement.findings]


def test_what_is_wanted_is_right_and_everything_else_wrong() -> None:
    want = Wanted("incast", ("node008/mlx5_0",))
    judgement = judge(
        truth(want=(want,)),
        [
            found("incast", "node008/mlx5_0", "leaf01/swp8", opened_s=27),
            found("incast", "node007/mlx5_0", "leaf01/swp7"),
            found("slow_receiver", "node008/mlx5_0", "leaf01/swp8"),
        ],
    )
    assert verdicts(judgement) == [Verdict.RIGHT, Verdict.WRONG, Verdict.WRONG]
    assert [each.flagged_s for each in judgement.searched] == [3.0]


def test_a_collision_is_right_at_a_congested_link_and_wrong_at_a_shared_one() -> None:
    judgement = judge(
        truth(shared=(SharedLink("leaf02/swp9"),)),
        [
            found(ECMP_COLLISION, "leaf01/swp9", "leaf01/swp9"),
            found("polarization", "leaf01/uplinks", "leaf01/swp10", "leaf01/swp9"),
            found(ECMP_COLLISION, "leaf02/swp9", "leaf02/swp9", "leaf01/swp9"),
            found("incast", "leaf01/swp9", "leaf01/swp9"),
        ],
    )
    right, wrong = Verdict.RIGHT, Verdict.WRONG
    assert verdicts(judgement) == [right, right, wrong, wrong]
    assert [each.link is not None for each in judgement.findings[:2]] == [True, True]
    assert judgement.findings[2].reason == "shared link, which is not full"


def test_findings_before_the_fault_or_in_a_healthy_scene_are_wrong() -> None:
    want = Wanted(ECMP_COLLISION, ("leaf01/swp9",))
    early = found(ECMP_COLLISION, "leaf01/swp9", opened_s=23)
    judgement = judge(truth(want=(want,)), [early])
    assert verdicts(judgement) == [Verdict.WRONG]
    assert [each.flagged_s for each in judgement.searched] == [None]
    healthy = truth(healthy=True, onset_s=None)
    assert verdicts(judge(healthy, [early])) == [Verdict.WRONG]


def test_what_is_allowed_is_neither_right_nor_wrong() -> None:
    allowed = Wanted("degraded_link", ("leaf05/swp10", "spine02/swp5"))
    finding = found("degraded_link", "spine02/swp5", "spine02/swp5", "leaf05/swp10")
    judgement = judge(truth(allowed=(allowed,)), [finding])
    assert verdicts(judgement) == [Verdict.ALLOWED]
    assert judgement.count(Verdict.RIGHT) == judgement.count(Verdict.WRONG) == 0


def test_as_many_subjects_as_needed_must_be_found() -> None:
    leaves = tuple(f"leaf0{number}/uplinks" for number in range(1, 5))
    three = truth(want=(Wanted("oversubscription", leaves, 3),))
    findings = [
        found("oversubscription", leaf, "spine01/swp1", opened_s=28 + number)
        for number, leaf in enumerate(leaves[:3])
    ]
    assert [each.flagged_s for each in judge(three, findings).searched] == [6.0]
    twice = [*findings[:2], findings[0]]
    assert [each.flagged_s for each in judge(three, twice).searched] == [None]
    assert verdicts(judge(three, twice)) == [Verdict.RIGHT] * 3


def test_any_subject_will_do_where_hosts_alone_are_watched() -> None:
    want = Wanted("congested_path", ("*",))
    judgement = judge(truth(want=(want,)), [found("congested_path", "paths of rail r0")])
    assert verdicts(judgement) == [Verdict.RIGHT]
    assert [each.flagged_s for each in judgement.searched] == [6.0]
