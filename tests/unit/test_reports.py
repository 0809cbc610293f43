"""What is printed: tables and JSON, as goldens, and against their committed schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.report.json_records import schema
from fabmon.report.scene_report import JsonLines, report_json, table
from tests.builders import START_NS, LeafSpine, new_pipeline, tick
from tests.goldens import check_golden

GOLDENS = Path(__file__).parent / "goldens"
SCHEMA = Path(__file__).parents[2] / "docs" / "jsonl.schema.json"


@pytest.fixture
def scenes() -> list[Scene]:
    """A collision on a small fabric; one node fails, one is lost."""
    fabric = LeafSpine(uplinks=2, hosts=2)
    fabric.sent |= {
        "leaf1/up1": 99e6,
        "leaf1/up2": 20e6,
        "gpu001/eth0": 61.5e6,
        "gpu002/eth0": 57.5e6,
    }
    pipeline = new_pipeline(fabric.hosts)
    made = [pipeline.accept(fabric.step()) for _ in range(6)]
    trouble = [
        NodeStatus("spine2", NodeState.LOST, START_NS, "connection reset", "ended"),
        NodeStatus("gpu002", NodeState.FAILED, START_NS, "permission denied", "login refused"),
    ]
    made.append(pipeline.accept(tick(6, statuses=trouble)))
    return made


def test_the_schema_that_is_committed_is_that_of_the_code() -> None:
    check_golden(SCHEMA, schema().decode())


def test_every_line_fits_the_schema(scenes: list[Scene]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    lines = JsonLines()
    said = [json.loads(line) for scene in scenes for line in lines.lines(scene)]
    for record in [*said, json.loads(report_json(scenes[-1]))]:
        validator.validate(record)
    assert {record["type"] for record in said} == {"tick", "node", "finding"}


def test_jsonl_tells_nodes_and_findings_when_they_change_and_ticks_always(
    scenes: list[Scene],
) -> None:
    lines = JsonLines()
    types = [[json.loads(line)["type"] for line in lines.lines(scene)] for scene in scenes]
    assert types[0] == ["node"] * 5 + ["tick"]
    assert types[1] == ["tick"]
    assert types[3] == ["tick"]
    assert types[4] == ["finding", "tick"]
    assert types[6] == ["node", "node", "finding", "tick"]
    assert sum(kinds.count("finding") for kinds in types) == 2


def test_a_tick_as_json(scenes: list[Scene]) -> None:
    *_, line = JsonLines().lines(scenes[5])
    check_golden(GOLDENS / "tick.json", json.dumps(json.loads(line), indent=1) + "\n")


def test_absent_is_null_and_not_zero(scenes: list[Scene]) -> None:
    *_, line = JsonLines().lines(scenes[0])
    links = json.loads(line)["links"]
    assert {link["tx_bps"] for link in links} == {None}
    assert all("netdev_tx_bytes" not in link["rates"] for link in links)


def test_the_table(scenes: list[Scene]) -> None:
    check_golden(GOLDENS / "table.txt", table(scenes[-1]) + "\n")
