"""`fabmon explain --redact`: names in what other programs wrote, which nothing else knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabmon.analysis.job_log.failure_fields import _MOST_TEXT
from fabmon.cli.main import cli
from fabmon.fabric.name_forms import NAME_FORMS
from fabmon.fabric.redaction import Redactor

LINE = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 25000ms for"


def redacted(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "job.log"
    path.write_text("".join(f"[rank3]: {LINE} {line}\n" for line in lines))
    done = CliRunner().invoke(cli, ["explain", "--redact", str(path)], catch_exceptions=False)
    made = CliRunner().invoke(cli, ["explain", "--redact", "--format", "json", str(path)])
    json.loads(made.output)
    return " ".join((done.output + made.output).split())


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("recv from alice@node17", "recv from user-1@device-1"),
        ("recv of /home/alice/secret/ckpt.pt", "recv of path-1"),
        ("recv of s3://secret-bucket/run-1", "recv of s3://device-1"),
        ("recv with WANDB_API_KEY=secret0123, done", "WANDB_API_KEY=value-1, done"),
        ("recv with MASTER_ADDR=node17", "MASTER_ADDR=device-1"),
        ("recv from tcp://node17.example.com:29500", "from tcp://device-1:29500"),
        ("recv from node17.site.example.com", "recv from device-1"),
        ("recv from node17.uni-secret.de", "recv from device-1"),
        ("recv on --nodelist=node[001-016]", "--nodelist=nodes-1"),
        ("recv on node[001-016,020]", "recv on nodes-1"),
        ("recv as arn:aws:iam::998877665544:role/secret", "recv as id-1"),
        ("recv as 998877665544", "recv as 000000000001"),
        ("recv with AKIASECRETSECRET1234", "recv with id-1"),
        ("recv node17,10.9.8.7 ssh-ed25519 AAAASECRET+/=", "recv device-1,198.18.0.1 key-1"),
        ("recv from fe80::77:66%bond-secret", "recv from fe80::1%zone-1"),
    ],
)
def test_a_name_is_found_by_its_form(tmp_path: Path, written: str, kept: str) -> None:
    said = redacted(tmp_path, written)
    for name in ("alice", "node17", "node[", "secret", "SECRET", "example", "99887", "10.9", "77"):
        assert name not in said, name
    assert kept in said


def test_a_name_is_the_same_wherever_it_is(tmp_path: Path) -> None:
    """Also before the line in whose form it was found."""
    said = redacted(
        tmp_path, "recv from node17", "send to alice@node17.example.com", "send to alice"
    )
    assert "recv from device-1" in said
    assert "send to user-1@device-1" in said
    assert "send to user-1" in said


def test_hosts_that_only_sentences_name_are_replaced(tmp_path: Path) -> None:
    """Those that were connected to again and again, that have no address, and of nccl-tests."""
    client = "[W socket.cpp:663] [c10d] The client socket"
    path = tmp_path / "job.log"
    path.write_text(
        f"{client} has failed to connect to [acme-a1]:29500 (errno: 111 - Connection refused).\n"
        f"{client} cannot be initialized to connect to [acme-b2]:29500"
        " (errno: -2 - Name or service not known).\n"
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
        + "# Using devices\n"
        + "#  Rank  0 Group  0 Pid 1 on acme-c3 device  0 [0x1b] NVIDIA H100\n" * 2
        + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0\n"
    )
    plain = CliRunner().invoke(cli, ["explain", str(path)]).output
    shown = CliRunner().invoke(cli, ["explain", "--redact", str(path)]).output
    for host in ("acme-a1", "acme-b2"):
        assert host in plain
    assert "acme" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "net_ib.cc:1234 of libnccl.so.2.21 and train.py",
        "set NCCL_IB_TIMEOUT=22, NCCL_DEBUG=INFO and NCCL_ALGO=Ring",
        "ranks[3] of recv[0] on mlx5_0:1, NCCL version 2.21.5+cuda12.4",
        "libfabric.so.1, e.g. torch.distributed, i.e. 1.5 s at 3.6 GHz",
    ],
)
def test_what_is_no_name_stays(text: str) -> None:
    assert Redactor().foreign(text) == text


def test_what_is_looked_for_is_said(tmp_path: Path) -> None:
    said = redacted(tmp_path, "recv")
    for form in NAME_FORMS:
        assert form.what in said
    assert "Other words of the log may be names too: read this before you send it." in said


def test_a_text_that_is_cut_has_no_part_of_a_name(tmp_path: Path) -> None:
    for length in range(_MOST_TEXT - 100, _MOST_TEXT - 40):
        said = redacted(tmp_path, f"recv {'x' * length} node17.example.com and more")
        assert "node17" not in said


@pytest.mark.parametrize("host", ["explain", "ok", "wrong", "completion"])
def test_a_host_may_be_called_as_a_word_of_the_report(tmp_path: Path, host: str) -> None:
    path = tmp_path / "job.log"
    path.write_text(f"{host}:1:2 [0] x.cc:28 NCCL WARN Call to stat failed : None\n")
    arguments = ["explain", "--redact", "--format", "json", str(path)]
    found = json.loads(CliRunner().invoke(cli, arguments, catch_exceptions=False).output)
    assert found["type"] == "explain"
    assert found["result"] in ("ok", "wrong", "not_understood")
    assert [each["host"] for each in found["hosts"]] == ["device-1"]
