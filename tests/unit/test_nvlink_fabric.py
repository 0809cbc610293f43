"""GPUs that have not joined their NVLink fabric as the others of their node have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from collectors.wire import Object
from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Host
from tests.builders import SECOND_NS, frame, hello, new_pipeline, tick, up

HEALTHY = 0x1AA
METRICS = (
    *("gpu_fabric_state", "gpu_fabric_status", "gpu_fabric_clique", "gpu_fabric_health"),
    "nvlink_speed_bps",
)
SPEED = 900 * 10**9

Gpu = tuple[int, int, int, int, int]
"""State, status, clique, health, speed of the active links."""

GOOD: Gpu = (3, 0, 32766, HEALTHY, SPEED)


def found(
    gpus: Sequence[Gpu], seconds: int = 5, clusters: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """The severity and the text of each finding after some seconds."""
    return [(each.severity, each.text) for each in findings(gpus, seconds, clusters)]


def findings(
    gpus: Sequence[Gpu], seconds: int = 5, clusters: Sequence[str] = ()
) -> tuple[Finding, ...]:
    return scene_of_gpus(gpus, seconds, clusters).findings


def scene_of_gpus(
    gpus: Sequence[Gpu], seconds: int = 5, clusters: Sequence[str] = (), back_s: int = 0
) -> Scene:
    """The scene of a node with these GPUs after some seconds; the clock is set back meanwhile."""
    objects = []
    for number in range(len(gpus)):
        facts = {"gpu_name": "B200"}
        if clusters:
            facts["fabric_cluster"] = clusters[number]
        objects.append(Object(f"gpu{number}", "gpu", f"gpu{number}", facts, METRICS))
    pipeline = new_pipeline([Host(name="gpu001")])
    values = [value for gpu in gpus for value in gpu]
    for second in range(seconds):
        hellos = {"gpu001": hello(*objects)} if not second else {}
        made = tick(second, {"gpu001": frame(second, *values)}, hellos, up("gpu001"))
        time_ns = made.time_ns - back_s * SECOND_NS * (second > seconds / 2)
        scene = pipeline.accept(msgspec.structs.replace(made, time_ns=time_ns))
    return scene


def test_a_whole_fabric_is_silent() -> None:
    assert found([GOOD] * 8) == []


@pytest.mark.parametrize("state", [0, 1])
def test_an_idle_imex_is_silent(state: int) -> None:
    """No NVSwitch, no domain: nothing was started, with links or without."""
    assert found([(state, 0, 0, 0, SPEED)] * 4) == []
    assert found([(state, 0, 0, 0, 0)] * 4) == []


def test_a_status_other_than_success_is_found_while_links_are_active() -> None:
    failed = (3, 999, 0, 0, SPEED)
    assert found([GOOD] * 7 + [failed]) == [
        (
            "critical",
            "gpu001 g7: joining the NVLink fabric failed with NVML's error 999; its links are "
            "active",
        )
    ]
    assert found([GOOD] * 7 + [(*failed[:4], 0)]) == [], "no link, no fabric"


def test_a_gpu_that_did_not_begin_while_others_have_joined_is_found() -> None:
    waiting = [GOOD] * 3 + [(1, 0, 0, 0, SPEED)]
    assert found(waiting, seconds=50) == [], "GPUs join one after another"
    ((severity, text),) = found(waiting, seconds=70)
    assert severity == "critical"
    assert "has not joined the NVLink fabric, as 3 others of its node" in text


def test_a_gpu_in_another_cluster_is_found() -> None:
    (finding,) = findings([GOOD] * 4, clusters=["aa", "aa", "bb", "aa"])
    assert finding.subject == "gpu001/gpu2"
    assert "another NVLink cluster than 3 of 4 GPUs of its node" in finding.text
    assert found([GOOD] * 4, clusters=["aa", "aa", "", "aa"]) == [], "its cluster is not known yet"
    assert found([GOOD] * 4, clusters=["aa", "aa", "bb", "bb"]) == [], "two halves: no usual one"


def test_partitions_that_were_made_on_purpose_are_silent() -> None:
    """All have joined, are healthy, and are in one cluster."""
    other = (3, 0, 1, HEALTHY, SPEED)
    assert found([GOOD] * 6 + [other] * 2, clusters=["aa"] * 8) == []
    assert found([GOOD] * 7 + [other]) == []


def test_a_gpu_that_joins_for_a_minute_is_found_and_not_before() -> None:
    joining = (2, 0, 0, 0, SPEED)
    assert found([joining] * 2, seconds=50) == []
    assert len(found([joining] * 2, seconds=70)) == 2
    assert len(scene_of_gpus([joining] * 2, seconds=70, back_s=7200).findings) == 2


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (0x1A9, "its bandwidth is degraded"),
        (0x19A, "its routes are unhealthy"),
        (0x5AA, "it has too few NVLinks"),
        (0x4A9, "its bandwidth is degraded, it belongs to no partition"),
    ],
)
def test_what_the_health_mask_says_is_a_warning(mask: int, text: str) -> None:
    assert found([GOOD, (3, 0, 32766, mask, SPEED)]) == [
        ("warning", f"gpu001 g1: in the NVLink fabric {text}; its links are active")
    ]
