"""`fabmon explain`: files of all kinds, where ports are, a recording of that time, redaction."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner, Result

from collectors.wire import Object
from fabmon.analysis.job_log.log_times import LogTime, clock_of, find_time
from fabmon.analysis.job_log.places import FabricPlaces, PlannedPlaces
from fabmon.cli.main import cli
from fabmon.fabric.model import Host
from fabmon.fabric.topology.plan import End, PlannedCable, Topology
from fabmon.history.history import History
from fabmon.report.job_report import ExplainRecord, RasRecord
from fabmon.report.output import json_schema
from fabmon.session.errors import UsageError
from fabmon.session.file_kinds import is_prose, other_kind
from fabmon.session.log_files import decompressed, read_files, whole_lines
from fabmon.session.played_part import PlayedPart
from tests.builders import hello, port, tick, up
from tests.goldens import check_golden
from tests.tui.worlds import COLLISION
from tests.unit.job_log.conftest import START_S
from tests.unit.job_log.nccl_logs import Log, notified, watchdog
from tests.unit.job_log.observed import failures, record_of
from tests.unit.recording.builders import write

DOCS = Path(__file__).parents[3] / "docs"
GOLDENS = Path(__file__).parent / "goldens"


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["explain", *map(str, arguments)], input=stdin)


def explained(*arguments: object, stdin: bytes | None = None) -> dict[str, Any]:
    done = run(*arguments, "--format", "json", stdin=stdin)
    assert done.exit_code in (0, 5, 6), f"{done.output} {done.exception}"
    found: dict[str, Any] = json.loads(done.output)
    jsonschema.validate(found, json.loads(json_schema(ExplainRecord)))
    return found


def failed_job(log: Log) -> bytes:
    """Rank 2 receives nothing from rank 1; the others follow."""
    lines = [*log.start(), log.completion(2, 1, 12), log.completion(0, 3, 5), log.closed(3, 0)]
    for rank in (0, 1, 3):
        lines += watchdog(rank, 77)
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_bytes(failed_job(Log("2.30.7")))
    return path


def test_both_reports_of_a_job_have_a_schema() -> None:
    check_golden(DOCS / "explain.schema.json", json_schema(ExplainRecord).decode())
    check_golden(DOCS / "ras.schema.json", json_schema(RasRecord).decode())


def test_a_log_alone_is_enough(job: Path) -> None:
    found = explained(job)
    assert (found["ranks"], found["versions"], found["nccl_lines"]) == (4, ["2.30.7"], 31)
    first = failures(found)[0]
    assert (first["code"], first["vendor_error"], first["is_consequence"]) == (12, 129, False)
    assert (first["near"]["host"], first["near"]["ranks"]) == ("gpu002", [2])
    assert (first["far"]["host"], first["far"]["ranks"]) == ("gpu001", [1])
    assert (first["near"]["hcas"], first["far"]["hcas"]) == (["mlx5_0"], ["mlx5_2"])
    assert "ports" not in first["at"][0]
    assert found["conclusions"][0].startswith(
        "rank 2 gpu002 mlx5_0 received nothing from rank 1 gpu001 mlx5_2: status 12"
    )
    assert [each["is_consequence"] for each in failures(found)] == [False, True, True]


def test_a_retry_that_was_exceeded_is_named_before_a_call_that_failed(tmp_path: Path) -> None:
    log = Log("2.21.5")
    call = "Call to ibv_modify_qp failed with error Connection timed out"
    lines = [
        *log.start(),
        f"{log.prefix(3, is_warning=True)}{call}",
        log.completion(2, 1, 12),
        log.completion(0, 3, 5),
    ]
    (tmp_path / "job.log").write_text("\n".join(lines))
    codes = [each.get("code") for each in failures(explained(tmp_path / "job.log"))]
    assert (codes[0], codes[-1], len(codes)) == (12, 5, 3)


def test_the_text(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.parent)
    check_golden(GOLDENS / "explain.txt", run("job.log").output)


def test_gzip_standard_input_and_files_of_single_ranks(job: Path, tmp_path: Path) -> None:
    content = job.read_bytes()
    plain = explained(job)
    packed = tmp_path / "job.log.gz"
    packed.write_bytes(gzip.compress(content))
    parts = []
    for rank in range(4):
        lines = [each for each in content.splitlines() if f":{2000 + rank} [".encode() in each]
        lines += [each for each in content.splitlines() if each.startswith(b"[rank%d]" % rank)]
        parts.append(tmp_path / f"rank{rank}.log")
        parts[-1].write_bytes(b"\n".join(lines))
    for found in (
        explained(packed),
        explained("-", stdin=content),
        explained("-", stdin=gzip.compress(content)),
        explained(*parts),
    ):
        assert found["conclusions"] == plain["conclusions"]
        assert found["hosts"] == plain["hosts"]


def test_two_gzip_files_in_one_and_a_truncated_one(job: Path, tmp_path: Path) -> None:
    content = job.read_bytes()
    half = content.index(b"\n", len(content) // 2) + 1
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(content[:half]) + gzip.compress(content[half:]))
    assert explained(path)["bytes"] >= len(content) - 4
    path.write_bytes(gzip.compress(content)[:-20])
    found = explained(path)
    assert "truncated" in found["notes"][0]
    assert found["nccl_lines"] > 0


def test_a_file_without_lines_of_nccl_says_so(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 2.3\n" * 100)
    done = subprocess.run(
        [Path(sys.executable).with_name("fabmon"), "explain", path], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"fabmon: {path}: no line of NCCL")
    assert isinstance(run(tmp_path / "none.log").exception, UsageError)
    assert isinstance(run(tmp_path).exception, UsageError)


def test_leaf_and_port_from_a_topology_file(job: Path, tmp_path: Path) -> None:
    cables = tmp_path / "cables.csv"
    cables.write_text("gpu002,mlx5_0,leaf1,swp9\ngpu001,mlx5_2,leaf2,swp3\n")
    first = failures(explained(job, "--topology", cables))[0]
    near, far = first["near"]["ports"][0], first["far"]["ports"][0]
    assert (near["leaf"], near["leaf_port"]) == ("leaf1", "swp9")
    assert (far["leaf"], far["leaf_port"]) == ("leaf2", "swp3")


def test_addresses_of_a_hosts_file_and_leaves_of_a_plan() -> None:
    cable = PlannedCable(End("n1", "p1", also=("mlx5_0",)), End("leaf1", "swp1"), "config", "")
    places = PlannedPlaces(
        Topology(cables=(cable,), groups={"n2": "leaf2"}), [Host(name="n1", address="10.0.0.1")]
    )
    assert places.host_of("10.0.0.1") == "n1"
    found = places.port("n1.example.org", "mlx5_0")
    assert found is not None
    assert (found.leaf, found.leaf_port) == ("leaf1", "swp1")
    other = places.port("n2", "mlx5_7")
    assert other is not None
    assert other.leaf == "leaf2"
    assert places.port("n3", "mlx5_0") is None
    assert places.port_of_gid("fe80::1") is None


def test_a_recording_shows_the_links_and_findings_of_that_time(
    tmp_path: Path, recording: Path
) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(failed_job(Log("2.30.7", ("gpu006", "gpu002"), "2026-05-04 22:00:55")))
    found = explained(path, "--recording", recording)
    first = failures(found)[0]
    (place,) = first["near"]["ports"]
    assert (place["port"], place["leaf"]) == ("gpu002/mlx5_0", "leaf1")
    assert first["time"].startswith("2026-05-04T20:00:55")
    seen = found["wire"]
    assert "UTC+2 h: the only zone" in seen["clock"]
    assert [each["subject"] for each in seen["findings"] if each["is_on_path"]] == ["gpu006/mlx5_3"]
    assert any("The recording has a finding on it" in each for each in found["conclusions"])
    ports = {each["port"]: each for each in seen["ports"]}
    assert {"gpu002/mlx5_0", "gpu006/mlx5_2"} <= set(ports)
    assert ports["gpu002/mlx5_0"]["tx_util"]["highest"] > 0.5
    given = explained(path, "--recording", recording, "--tz", "+2")
    assert "as given by --tz" in given["wire"]["clock"]
    berlin = explained(path, "--recording", recording, "--tz", "Europe/Berlin")
    assert berlin["wire"]["start"] == given["wire"]["start"]
    assert "WIRE  05-04 20:00" in run(path, "--recording", recording).output


def test_findings_that_closed_in_that_time_have_an_end(tmp_path: Path, recording: Path) -> None:
    """gpu006/mlx5_3 was slow until shortly before the failure; gpu014 was lost until after it."""
    path = tmp_path / "job.log"
    path.write_bytes(failed_job(Log("2.30.7", ("gpu006", "gpu002"), "2026-05-04 20:00:58")))
    seen = explained(path, "--recording", recording)["wire"]
    ended = {each["subject"]: each["until"] for each in seen["findings"]}
    assert ended == {
        "leaf1/swp37": "2026-05-04T20:00:34Z",
        "gpu006/mlx5_3": "2026-05-04T20:00:57Z",
        "gpu014": "2026-05-04T20:01:07Z",
    }
    text = run(path, "--recording", recording).output
    (line,) = [each for each in text.splitlines() if each.startswith("◉ ") and "gpu006" in each]
    assert line.count("20:00:38Z to 20:00:57Z") == line.count("20:00:38Z") == 1, "once"
    lasted = "1 min 28 s"
    assert f"PORTS  down: sum of {lasted}; the others: mean/highest tick of {lasted}\nPORT " in text


def test_a_finding_that_is_open_at_the_end_of_the_time_is_open_at_that_end(
    tmp_path: Path, recording: Path
) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(failed_job(Log("2.30.7", ("gpu006", "gpu002"), "2026-05-04 20:00:20")))
    text = run(path, "--recording", recording).output
    assert "20:00:38Z, open at 20:00:50Z: gpu006" in text


def test_a_collective_that_began_before_the_recording(tmp_path: Path, recording: Path) -> None:
    """As with PyTorch's usual timeouts: 30 minutes, and a ring that holds less."""
    lines = [*Log("2.30.7", ("gpu006", "gpu002")).start(), *watchdog(1, 77)]
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines).replace("19:55:27", "20:01:10") + "\n")
    seen = explained(path, "--recording", recording, "--tz", "0")["wire"]
    assert seen["start"].startswith("2026-05-04T20:00:00")
    assert seen["end"] >= "2026-05-04T20:01:10"
    assert seen["findings"]
    (sentence,) = seen["not_recorded"]
    assert sentence == (
        "ALLREDUCE 77 began 28 min 50 s before the recording: what the network did until"
        " 2026-05-04 20:00:00Z is not known."
    )
    text = run(path, "--recording", recording, "--tz", "0").output
    assert "began 28 min 50 s before the recording" in " ".join(text.split())
    path.write_text(path.read_text().replace("1800068", "5068"))
    seen = explained(path, "--recording", recording, "--tz", "0")["wire"]
    assert seen["not_recorded"] == [], "it began within it"


def test_the_links_of_a_rank_that_was_late_are_shown(tmp_path: Path, recording: Path) -> None:
    lines = [*Log("2.30.7", ("gpu001", "gpu006")).start(), *watchdog(1, 77), notified(2, 76, 1)]
    path = tmp_path / "job.log"
    path.write_text("\n".join(lines).replace("19:55:2", "20:00:5") + "\n")
    found = explained(path, "--recording", recording, "--tz", "0")
    assert found["conclusions"][0].startswith("Rank 2 (gpu006) had not enqueued ALLREDUCE 77")
    wire = found["wire"]
    assert {each["port"].partition("/")[0] for each in wire["ports"]} == {"gpu006"}
    assert [each["subject"] for each in wire["findings"] if each["is_on_path"]] == ["gpu006/mlx5_3"]


def test_times_that_are_not_in_the_recording(job: Path, tmp_path: Path, recording: Path) -> None:
    found = explained(job, "--recording", recording, "--tz", "0")
    assert found["wire"]["start"] is None
    assert "are not in the recording" in found["wire"]["clock"]
    path = tmp_path / "old.log"
    path.write_bytes(b"\n".join(failed_job(Log("2.8.4")).splitlines()[:-6]))
    found = explained(path, "--recording", recording)
    assert "the log has no times" in found["wire"]["clock"]
    assert failures(found)[0]["near"]["ports"][0]["leaf"] == "leaf1"


def test_redacted_output_has_no_names(tmp_path: Path, recording: Path) -> None:
    path = tmp_path / "secret-job.log"
    path.write_bytes(failed_job(Log("2.30.7", ("gpu006", "gpu002"), "2026-05-04 22:00:55")))
    for options in ((), ("--recording", recording)):
        for style in ("json", "table"):
            text = run(path, "--redact", *options, "--format", style).output
            for name in ("gpu006", "gpu002", "leaf1", "secret", "10.0.0.", "10.1.", str(tmp_path)):
                assert name not in text, (name, style)
            assert "rank 2" in text


def test_redacted_output_quotes_nothing_that_the_job_wrote(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    lines = (
        "[rank3]: RuntimeError: no samples of customer-42 for anna.smith",
        "[rank4]: OSError: /dev/shm/cache of anna.smith, customer-42: No space left on device",
        "gpu001:1:2 [0] x.cc:28 NCCL WARN Call to stat on customer-42 failed : anna.smith",
    )
    path.write_text("\n".join(lines) + "\n")
    for style in ("json", "table"):
        text = run(path, "--redact", "--format", style).output
        for said in ("anna", "smith", "customer", "samples", "cache"):
            assert said not in text, (said, style)
        for kept in ("RuntimeError", "no space left in /dev/shm", "1 line speaks of a failure"):
            assert kept in text, (kept, style)
        assert "df -h /dev/shm" in " ".join(text.split())


def two_hosts() -> FabricPlaces:
    """RoCE with an IPv4 and an IPv6 address on gpu1, InfiniBand on gpu2; leaf1 by LLDP."""
    address = {"dev": "eth0", "addresses": ["10.1.0.1/24", "fd00:1148::ff22/64"]}
    peer = {"node": "leaf1", "port": "swp7"}
    hellos = {
        "gpu1.example.org": hello(
            port("eth0", "94:6d:ae:00:00:01", rdma="mlx5_0", driver="mlx5_core", peer=peer),
            Object("addresses/eth0", "addresses", None, address, ()),
        ),
        "gpu2": hello(port("mlx5_0", rdma="mlx5_0", guid="946d:ae03:00aa:0001")),
    }
    hosts = [Host(name=name) for name in hellos]
    snapshot = History(hosts).accept(tick(0, hellos=hellos, statuses=up(*hellos)))
    return FabricPlaces(snapshot.fabric, hellos)


@pytest.mark.parametrize(
    ("gid", "port_id"),
    [
        ("::ffff:10.1.0.1", "gpu1.example.org/eth0"),
        ("fd00:1148::ff22", "gpu1.example.org/eth0"),
        ("fe80::966d:aeff:fe00:1", "gpu1.example.org/eth0"),
        ("fe80::946d:ae03:aa:1", "gpu2/mlx5_0"),
        ("::ffff:10.1.0.9", None),
        ("fe80::1", None),
        ("no GID", None),
    ],
)
def test_a_gid_is_found_by_address_mac_or_guid(gid: str, port_id: str | None) -> None:
    found = two_hosts().port_of_gid(gid)
    assert (None if found is None else found.port) == port_id


def test_an_hca_and_an_address_of_a_host_with_a_domain() -> None:
    places = two_hosts()
    found = places.port("gpu1", "mlx5_0")
    assert found is not None
    assert (found.leaf, found.leaf_port) == ("leaf1", "swp7")
    assert places.host_of("10.1.0.1") == "gpu1.example.org"
    assert places.port("gpu1", "mlx5_9") is None


def test_nodes_are_asked_for_their_ports(job: Path, tmp_path: Path, recording: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("thismachine via=local\ngpu002 address=127.0.0.1 port=1\n")
    found = explained(job, "--hosts", hosts)
    assert found["notes"] == ["1 of 2 nodes did not answer."]
    assert failures(found)[0]["near"]["ranks"] == [2]
    refused = run(job, "--hosts", hosts, "--recording", recording)
    assert "remove --hosts" in str(refused.exception)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("[2026-05-04 19:55:27] h:1:2 [1] ", "2026-05-04 19:55:27+00:00"),
        ("2026-05-04T19:55:27.5+02:00 h:1:2", "2026-05-04 17:55:27.500000+00:00"),
        ("[rank3]:[E603 17:48:01.005271823 Proc", "2000-06-03 17:48:01.005271+00:00"),
        ("[rank3]:[E1218 20:27:21.426415540", "2000-12-18 20:27:21.426415+00:00"),
        ("2026-13-45 99:99:99", None),
        ("E1399 20:27:21", None),
        ("h:1:2 [0] NCCL WARN", None),
    ],
)
def test_times_as_logs_write_them(text: str, time: str | None) -> None:
    found = find_time(text)
    assert (None if found is None else str(found.at)) == time


def test_a_clock_in_several_zones_says_that_it_is_not_sure() -> None:
    found = find_time("2026-05-04 20:00:30")
    assert found is not None
    day_ns = 86_400 * 10**9
    clock = clock_of([found], START_S * 10**9 - day_ns, START_S * 10**9 + day_ns, None)
    assert clock is not None
    assert clock.offset_s == 0
    assert "--tz says which" in clock.sure
    assert clock.is_guess
    given = clock_of([found], START_S * 10**9 - day_ns, START_S * 10**9 + day_ns, UTC)
    assert given is not None
    assert not given.is_guess
    zoned = find_time("2026-05-04T20:00:30Z")
    assert zoned is not None
    clock = clock_of([zoned], START_S * 10**9, START_S * 10**9 + day_ns, None)
    assert clock is not None
    assert clock.sure == "the log's times have a zone"
    assert not clock.is_guess
    leap = LogTime(found.at.replace(year=2000, month=2, day=29), False, False)
    assert clock_of([leap], START_S * 10**9, START_S * 10**9 + day_ns, None) is None


def test_a_guessed_zone_makes_no_time_in_utc(job: Path, tmp_path: Path) -> None:
    """With a recording of a day several zones would do: times stay as the log has them."""
    recording = tmp_path / "day.fabrec"
    begin = START_S - 12 * 3600
    write(
        recording,
        [msgspec.structs.replace(tick(n), time_ns=(begin + n * 3600) * 10**9) for n in range(25)],
    )
    found = explained(job, "--recording", recording)
    assert "--tz says which" in found["wire"]["clock"]
    assert "time" not in failures(found)[0]
    text = run(job, "--recording", recording).output
    assert not re.search(r"\d\d:\d\d:\d\dZ +(gpu|rank)", text)
    sure = explained(job, "--recording", recording, "--tz", "UTC")
    assert "time" in failures(sure)[0]


def test_advice_is_printed_once(job: Path) -> None:
    text = run(job).output
    for advice in re.findall(r"Check [^.]*\.", text):
        assert text.count(advice) == 1, advice


def blocks_of(content: bytes) -> list[bytes]:
    return list(whole_lines(decompressed(io.BytesIO(content), lambda _: None)))


def test_a_huge_line_costs_no_memory_and_no_line_after_it(job: Path) -> None:
    content = b"x" * (9 << 20) + b"\n" + job.read_bytes()
    blocks = blocks_of(content)
    assert max(map(len, blocks)) < 6 << 20
    assert job.read_bytes().strip() in b"\n".join(blocks)


@pytest.mark.parametrize("seed", range(6))
def test_garbage_never_fails(job: Path, tmp_path: Path, seed: int) -> None:
    """Truncated, spliced, overwritten: what is not understood is passed over."""
    random_ = random.Random(seed)
    base = b"".join(failed_job(Log(version)) for version in ("2.8.4", "2.18.5", "2.30.7"))
    for _ in range(12):
        content = bytearray(base)
        for _ in range(random_.randrange(1, 200)):
            at = random_.randrange(len(content))
            kind = random_.randrange(4)
            if kind == 0:
                content[at] = random_.randrange(256)
            elif kind == 1:
                del content[at : at + random_.randrange(40)]
            elif kind == 2:
                content[at:at] = b"9" * random_.randrange(400)
            else:
                content[at:at] = content[: random_.randrange(300)]
        path = tmp_path / "garbage.log"
        path.write_bytes(content)
        found = run(path)
        is_refused = isinstance(found.exception, UsageError)
        assert found.exit_code in (0, 5, 6) or is_refused, found.exception
        assert all(each.isprintable() for each in found.output.splitlines())


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 5000, bytes(range(256)) * 64, b"\x1f\x8b garbage"]
)
def test_what_is_no_log_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "no.log"
    path.write_bytes(content)
    assert isinstance(run(path).exception, UsageError)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"\x28\xb5\x2f\xfd", "zstd -dc FILE | fabmon explain -"),
        (b"\xfd7zXZ\0", "xz -dc FILE"),
        (b"BZh9", "bzip2 -dc FILE"),
        (b"PK\3\4", "unzip -p FILE"),
        (b"\x80\2}", "no dump of PyTorch"),
        (b"\x7fELF" + bytes(range(128, 256)), "a binary file"),
    ],
)
def test_a_file_that_is_no_text_is_refused_whatever_words_are_in_it(
    content: bytes, advice: str, job: Path, tmp_path: Path
) -> None:
    """Parts of what it holds are readable: as a log, no failure was found in it."""
    path = tmp_path / "rank_0"
    path.write_bytes(content + b"\nNCCL version 2.20.5\n")
    for logs in ((path,), (job, path)):
        error = run(*logs).exception
        assert isinstance(error, UsageError)
        assert str(error).startswith(f"{path}: no log, but ")
        assert advice in str(error)


IBNETDISCOVER = """#
# Topology file: generated on Mon Nov  2 10:00:00 2026
#
vendid=0x2c9
switchguid=0xb0cf0e0300c00000(b0cf0e0300c00000)
Switch	65 "S-b0cf0e0300c00000"		# "MF0;leaf1:MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]	"H-b8cef603001a2b3c"[1](b8cef603001a2b3c) 		# "gpu001 mlx5_0" lid 10 4xNDR
"""
IBLINKINFO = """CA: gpu001 mlx5_0:
      0xb8cef6 10 1[  ] ==( 4X 106.25 Gbps Active/  LinkUp)==>  3 1[  ] "MF0;leaf1:MQM9700/U1" ( )
"""
METRICS = '# HELP nccl_up The state of mlx5_0\nnccl_up{device="mlx5_0"} 1\n'
RAS_JSON = '{\n  "nccl_version": "2.29.1",\n  "communicators_count": 1,\n  "communicators": []\n}\n'
RAS_TEXT = "NCCL version 2.28.3 compiled with CUDA 12.9\n\nJob summary\n===========\n\n  Nodes\n"
OTHER_TEXTS = {
    "ibnetdiscover": (IBNETDISCOVER, "the output of ibnetdiscover", "--topology"),
    "iblinkinfo": (IBLINKINFO, "the output of iblinkinfo", "--topology"),
    "csv": ("node,port,node,port\ngpu001,mlx5_0,leaf1,swp1\n", "cables as CSV", "--topology"),
    "topology.conf": ("SwitchName=mlx5_leaf Nodes=gpu[001-4]\n", "topology.conf", "--topology"),
    "xml": ('<system version="1"><nic name="mlx5_0"/></system>', "XML", "--topology"),
    "toml": ('[topology]\ncables = ["gpu001 mlx5_0 = leaf1 swp1"]\n', "TOML", "--config"),
    "hosts": ("gpu[001-004] group=mlx5 # nccl\n", "a list of nodes", "--hosts"),
    "ras": (RAS_JSON, "NCCL's RAS", "fabmon ras FILE"),
    "ras text": (RAS_TEXT, "NCCL's RAS", "fabmon ras FILE"),
    "inspector": ('{"a":{"inspector_output_format_version":"v4"}}\n', "NCCL Inspector", "record"),
    "jsonl": ('{"type":"node","node":"gpu1","port":"mlx5_0"}\n' * 3, "an output of fabmon", "log"),
    "other": ('{"jobs": [{"name": "nccl", "exit_code": 0}]}', "JSON", "without lines of a log"),
    "metrics": (METRICS, "a page of metrics", "exporters"),
    "html": ("<!doctype html>\n<title>nccl mlx5_0</title>\n", "HTML", ""),
}  # fmt: skip
"""Texts that fabmon knows and that are no logs: what is said of each, and what reads it."""


@pytest.mark.parametrize("name", OTHER_TEXTS)
def test_a_text_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    """All have a mark of NCCL in a name: as logs they had no failure."""
    text, kind, advice = OTHER_TEXTS[name]
    path = tmp_path / "file"
    path.write_text(text)
    error = run(path).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"{path}: no log, but ")
    assert kind in str(error)
    assert advice in str(error)


README = """# The job of Monday

The logs are of the run that NCCL ended: rank 3 timed out in an all-reduce, and the others say
that its connection was closed. What failed first is not in them. See [the ticket](T-1.md).

## How it was started
```
torchrun --nproc-per-node 8 train.py
gpu001:71:93 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1 with status=12
```
"""
PLAIN_README = """These are logs of a job of 16 ranks on two hosts that failed at night. It is
PyTorch 2.6 with NCCL. What is known: a port of gpu002 was down for a minute, and NCCL reports an
error of it, after which the others timed out. The recording of that time is in the same directory.
"""


@pytest.mark.parametrize("text", [README, PLAIN_README], ids=["Markdown", "plain"])
def test_a_text_for_people_beside_logs_is_no_log(text: str, job: Path, tmp_path: Path) -> None:
    """Its sentences were taken for failures, of hosts named by whole sentences."""
    path, other = tmp_path / "README.acme", tmp_path / "ethtool.txt"
    path.write_text(text)
    error = run(path).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"{path}: no log, but a text for people")
    other.write_text("NIC statistics:\n     rx_packets: 12\n")
    alone, beside = explained(job), explained(job, path, other)
    assert failures(beside) == failures(alone)
    assert beside["not_understood"] == alone["not_understood"]
    assert beside["notes"] == [
        f"no log, but a text for people, and not read: {path}",
        f"no line of NCCL, PyTorch or a launcher: {other}",
    ]
    assert beside["sources"] == [str(job), str(other)]
    assert run(job, path).output.startswith("1 log, ")
    notes = explained(job, path, other, "--redact")["notes"]
    assert notes[0].endswith(": file 2")
    assert notes[1].endswith(": log 2")
    assert not any("README" in each or "ethtool" in each for each in notes)


@pytest.mark.parametrize("name", ["README", "readme.txt", "notes.md"])
def test_a_document_that_quotes_a_message_is_no_log(name: str, tmp_path: Path) -> None:
    """Of a message that was copied alone it is distinguished by its name."""
    path = tmp_path / name
    path.write_text(
        "A log as it was written to a file at night: it has all ranks of the job, and the wait that"
        " failed is in it. What is known of it is that rank 3 was late to it, where the others"
        " say that some NCCL operations have failed or timed out. It was read by nobody so far.\n"
    )
    error = run(path).exception
    assert isinstance(error, UsageError)
    assert "a text for people" in str(error)


def test_a_message_that_was_copied_alone_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "copied.txt"
    path.write_text(
        "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA"
        " kernels, subsequent GPU operations might run on corrupted/incomplete data. To avoid data"
        " inconsistency, we are taking the entire process down.\n"
    )
    assert len(failures(explained(path))) == 1


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "corpus").glob("*.log")), ids=lambda each: each.stem
)
def test_no_log_is_a_text_for_people(path: Path) -> None:
    """Nor is a single message of one, however long its sentences are."""
    text = path.read_bytes()
    assert not is_prose(text)
    for message in re.split(rb"\n(?=\S)", text):
        assert not is_prose(message), message


def test_every_record_of_fabmon_is_no_log() -> None:
    schemas = (
        path.read_text() for path in (Path(__file__).parents[3] / "docs").glob("*.schema.json")
    )
    records = [each for text in schemas for each in json.loads(text)["$defs"].values()]
    types = {
        name
        for each in records
        if "type" in each.get("required", ())
        for name in each["properties"]["type"].get("enum", ())
    }
    assert {"tick", "alert", "forwarded_trace"} <= types
    for name in types:
        kind = other_kind(json.dumps({"type": name, "text": "NCCL WARN"}).encode())
        assert kind.startswith("an output of fabmon"), name


def test_a_text_that_only_names_a_nic_has_no_failure_nor_success(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("gpu001 has mlx5_0 and mlx5_1\nbackend=nccl\n")
    error = run(path).exception
    assert isinstance(error, UsageError)
    assert "no line of NCCL" in str(error)


@pytest.mark.parametrize("key", ["log", "message", "MESSAGE", "textPayload"])
def test_a_log_in_json_is_a_log(key: str, tmp_path: Path) -> None:
    lines = failed_job(Log("2.23.4")).decode().splitlines()
    path = tmp_path / "job.json"
    path.write_text("\n".join(json.dumps({"stream": "stderr", key: line}) for line in lines))
    assert run(path).exit_code == 5


@pytest.mark.parametrize("name", ["ibnetdiscover", "iblinkinfo", "topology.conf"])
def test_a_job_that_prints_a_topology_first_is_a_log(name: str, job: Path) -> None:
    job.write_bytes(OTHER_TEXTS[name][0].encode() + job.read_bytes())
    assert run(job).exit_code == 5


def test_a_recording_in_place_of_a_log_is_refused(recording: Path) -> None:
    error = run(recording).exception
    assert isinstance(error, UsageError)
    assert "--recording" in str(error)


def test_a_log_with_a_hole_or_in_another_encoding_is_read(job: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"\0" * 5000 + job.read_bytes() + "größer\n".encode("latin-1") * 20)
    assert run(path).exit_code == 5


def lines_of(count: int) -> Sequence[str]:
    log = Log("2.23.4")
    return [log.completion(2, 1, 12).replace("54862", str(port)) for port in range(count)]


def test_lines_that_are_alike_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabmon.analysis.job_log.line_filter._MOST_ALIKE", 100)
    path = tmp_path / "many.log"
    path.write_text("\n".join([*Log("2.23.4").start(), *lines_of(500)]))
    log = read_files([path]).log
    assert log.not_parsed == 400
    (failure,) = log.failures.values()
    assert failure.count == 100


def test_a_gid_of_another_host_than_the_log_says_is_a_contradiction_that_is_said(
    tmp_path: Path,
) -> None:
    """As where a node was replaced, or another recording is looked at."""
    for host, is_said in (("gpu9", True), ("gpu1", False), ("gpu1.example.org", False)):
        log = Log("2.30.7", (host, "gpu2"))
        path = tmp_path / "job.log"
        path.write_text("\n".join([*log.start(), log.completion(0, 3, 12)]))
        job_log = read_files([path]).log
        said = record_of(job_log, two_hosts()).conclusions
        text = f"The log says {host}, but by GID ::ffff:10.1.0.1 it is gpu1.example.org r0"
        assert any(each.startswith(text) for each in said) is is_said


def test_a_detector_that_failed_is_said_beside_the_findings_of_a_recording() -> None:
    scene, played = COLLISION.scene(70), PlayedPart()
    played.accept(replace(scene, failed_detectors=("incast",)))
    time_ns = scene.snapshot.time_ns
    found = played.wire((time_ns, time_ns), "", (), set(), ["earlier"])
    assert found.not_recorded == [
        "earlier",
        "A detector failed: findings may be missing (incast).",
    ]
