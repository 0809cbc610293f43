"""`fabmon flows`: the object, the table, and the command itself."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from fabmon.fabric.wire.messages import Notice
from fabmon.report.flows import (
    FlowsRecord,
    flows_record,
    flows_table,
)
from fabmon.report.output import as_json, json_schema
from tests.connections import reported_pairs, ring
from tests.goldens import check_golden
from tests.tui.scenes import World
from tests.unit.test_cli import fabmon

GOLDENS = Path(__file__).parent / "goldens"
SCHEMA = Path(__file__).parents[2] / "docs" / "flows.schema.json"
HOSTS = tuple(f"gpu{n:03d}" for n in range(1, 9))
WHY = "no rdma command on this node: it comes with iproute2"


def record() -> FlowsRecord:
    """A ring of eight hosts, one without queue pairs, and a connection to an unknown host."""
    wires = ring(HOSTS).end("gpu001/mlx5_0", 5, 6)
    notices = (("gpu004", Notice("lost", "qps", reason="unsupported", text=WHY)),)
    world = World(queue_pairs=reported_pairs(wires, HOSTS, "gpu004"), notices=notices)
    return flows_record(world.scene(70).snapshot)


def test_the_object_follows_its_schema() -> None:
    check_golden(SCHEMA, json_schema(FlowsRecord).decode())
    said = json.loads(as_json(record()))
    jsonschema.validate(said, json.loads(json_schema(FlowsRecord)))
    assert said["silent"] == [{"node": "gpu004", "reason": WHY}]
    unknown = next(each for each in said["flows"] if each["lqpn"] == 5)
    assert (unknown["peer"], unknown["peer_leaf"], unknown["candidates"]) == (None, None, 0)


def test_the_table_has_leaves_then_every_queue_pair() -> None:
    text = flows_table(record())
    check_golden(GOLDENS / "flows.txt", text)
    assert f"x gpu004: {WHY}" in text


def test_hosts_that_do_not_tell_for_one_reason_are_one_line() -> None:
    notice = Notice("lost", "qps", reason="unsupported", text=WHY)
    notices = tuple((name, notice) for name in HOSTS)
    world = World(queue_pairs=reported_pairs(ring(HOSTS), HOSTS, *HOSTS), notices=notices)
    text = flows_table(flows_record(world.scene(70).snapshot))
    assert f"x gpu[001-008] (8 hosts): {WHY}\n" in text
    assert text.count(WHY) == 1


def test_this_machine_is_asked_and_who_does_not_tell_is_named() -> None:
    done = fabmon("flows", "--format", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    jsonschema.validate(said, json.loads(json_schema(FlowsRecord)))
    assert said["hosts"] == said["reporting"] + len(said["silent"]) == 1
