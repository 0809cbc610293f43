"""Sampled flows in `fabmon flows`: as JSON, as a table, and by the command from real datagrams."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fabmon.fabric.flows.sampled import SampledFlow, relative_error_percent
from fabmon.report.flows import FlowsRecord, flows_record, flows_table
from fabmon.report.output import as_json, json_schema
from tests.fixtures import sflow
from tests.goldens import check_golden
from tests.unit.test_sampled_flows import ROCE, TCP, UPLINK, samples, snapshot_of

GOLDENS = Path(__file__).parent / "goldens"
RATE, FRAME_BYTES = 1000, 1000
COUNT_A_SECOND = 20
"""Samples of the flow."""

STRANGER = samples(SampledFlow(5, "rx", TCP, 9, 9 * 10**9), agent="10.77.0.1")


def test_the_flows_have_their_link_their_error_and_what_they_are_estimated_from() -> None:
    record = flows_record(snapshot_of(UPLINK, STRANGER), receives_sflow=True)
    said = json.loads(as_json(record))
    jsonschema.validate(said, json.loads(json_schema(FlowsRecord)))
    by_place = {(each["agent"], each["if_index"]): each for each in said["sampled"]}
    uplink, stranger = by_place["10.0.0.1", 17], by_place["10.77.0.1", 5]
    known = {key: uplink[key] for key in ("agent", "node", "port", "peer", "direction", "lost")}
    assert known == {
        "agent": "10.0.0.1",
        "node": "leaf1",
        "port": "leaf1/up1",
        "peer": "spine1/dn1",
        "direction": "tx",
        "lost": 0.0,
    }
    assert (uplink["sampling_rate"], uplink["seconds"]) == (2048, 10)
    largest, smaller = uplink["flows"]
    assert (largest["src"], largest["src_name"], largest["dst_name"]) == (
        ROCE.src,
        "gpu001 r0",
        None,
    )
    assert (largest["bps"], largest["bytes"], largest["qp"]) == (80e9, 10**11, 0x1A2B)
    assert (largest["samples"], largest["error_percent"]) == (900, 6.5)
    assert (smaller["qp"], smaller["error_percent"]) == (None, 98.0)
    assert uplink["others"] == {
        "bps": 4e9,
        "bytes": 5 * 10**9,
        "samples": 40,
        "error_percent": 31.0,
    }
    unknown = {key: stranger[key] for key in ("node", "port", "peer", "if_index")}
    assert unknown == {"node": None, "port": None, "peer": None, "if_index": 5}


def test_the_table_has_the_largest_flows_first() -> None:
    text = flows_table(flows_record(snapshot_of(UPLINK, STRANGER), receives_sflow=True))
    check_golden(GOLDENS / "flows-sampled.txt", text)
    assert "sFlow of 10.77.0.1: no watched node has this address" in text


def test_without_sflow_nothing_is_said_of_it_and_without_samples_what_to_do() -> None:
    without = flows_record(snapshot_of())
    assert without.sampled is None
    assert "sFlow" not in flows_table(without)
    silent = flows_record(snapshot_of(), receives_sflow=True)
    assert silent.sampled == []
    assert "no sampled packet arrived" in flows_table(silent)


def send_until_done(process: subprocess.Popen[str], port: int) -> float:
    """Send a flow's samples and its ports' counters each second; the bit/s that they stand for."""
    header = sflow.raw_header(sflow.roce(ROCE.src, ROCE.dst, ROCE.sport, ROCE.qp), FRAME_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for number in range(1, 90):
            counters = [
                sflow.counter_sample(sflow.if_counters(index, number, 5), sflow.port_name(name))
                for index, name in ((17, "Ethernet17"), (3, "Ethernet3"))
            ]
            flows = [sflow.flow_sample(header, rate=RATE)] * COUNT_A_SECOND
            data = sflow.datagram(*counters, *flows, sequence=number, uptime_ms=1000 * number)
            udp.sendto(data, ("127.0.0.1", port))
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                continue
            break
    return COUNT_A_SECOND * RATE * FRAME_BYTES * 8.0


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def test_the_command_shows_what_a_switch_samples_while_it_listens(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"leaf1 via=sflow address={sflow.AGENT}\n")
    port = free_port()
    program = [str(Path(sys.executable).with_name("fabmon")), "flows", "--hosts", str(hosts)]
    # It does not wait for the end.
    options = ["--sflow", f"127.0.0.1:{port}", "--format", "json", "--duration", "3600"]
    with subprocess.Popen(
        [*program, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        sent_bps = send_until_done(process, port)
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    said: dict[str, Any] = json.loads(out)
    found = {(each["port"], each["direction"]): each for each in said["sampled"]}
    assert sorted(found) == [("leaf1/Ethernet17", "rx"), ("leaf1/Ethernet3", "tx")]
    received = found["leaf1/Ethernet17", "rx"]
    assert received["sampling_rate"] == RATE
    (flow,) = received["flows"]
    assert (flow["src"], flow["dst"], flow["sport"], flow["qp"]) == (
        *(ROCE.src, ROCE.dst, ROCE.sport),
        ROCE.qp,
    )
    assert flow["samples"] % COUNT_A_SECOND == 0
    assert flow["bytes"] == pytest.approx(flow["samples"] * RATE * FRAME_BYTES, rel=0.01)
    assert flow["bps"] == pytest.approx(flow["bytes"] * 8 / received["seconds"], rel=0.01)
    # Loose: where the machine is busy, a second is longer.
    assert 0.4 * sent_bps < flow["bps"] < 1.2 * sent_bps
    assert flow["error_percent"] == round(relative_error_percent(flow["samples"]), 1)
