"""Answers of RAS: texts of several versions, JSON, and what follows from them."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from collectors.wire import Object
from fabmon.analysis.job.conclusions import conclusions
from fabmon.analysis.job.observation import Location, Observation
from fabmon.analysis.job.status_observations import RankPlaces, movement, status_observations
from fabmon.analysis.job.wire import Extent, PortLoad, Wire, WireState, wire_state
from fabmon.analysis.job_log.places import AllPlaces, FabricPlaces, Place
from fabmon.analysis.nccl_ras.job_status import (
    Communicator,
    CountGroup,
    JobStatus,
    Member,
    MissingProcess,
    Movement,
    RasError,
)
from fabmon.analysis.nccl_ras.text_status import parse_status
from fabmon.cli.main import cli
from fabmon.fabric.model import Host
from fabmon.history.history import History
from fabmon.report.job_report import RasRecord
from fabmon.report.output import json_schema
from fabmon.session.errors import UsageError
from tests.builders import hello, port, tick, up
from tests.goldens import check_golden
from tests.unit.job_log.nccl_logs import Log
from tests.unit.job_log.observed import of_kind, ranks_of
from tests.unit.ras import ras_texts
from tests.unit.ras.ras_server import missing, rank, status

GOLDENS = Path(__file__).parent / "goldens"
CAPTURES = Path(__file__).parents[4] / "shared" / "captures" / "nccl-ras"


def of_text(text: str) -> JobStatus:
    return parse_status(text.encode())


def observed(status: JobStatus) -> list[Observation]:
    places = RankPlaces(AllPlaces(()))
    return status_observations(status, Movement.UNKNOWN, places)


def late_in(status: JobStatus) -> list[Observation]:
    return [each for each in observed(status) if each.kind == "behind"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["ras", *map(str, arguments)])


def test_an_answer_that_was_cut_is_no_sound_one(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.txt", ras_texts.OK.encode())
    assert run(whole).exit_code == 0
    cut = saved(tmp_path / "cut.txt", ras_texts.OK.partition("Errors")[0].encode())
    done = run(cut)
    assert done.exit_code == 5
    assert "The answer has no end" in done.output


def reported(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--format", "json")
    assert done.exit_code in (0, 5), f"{done.output} {done.exception}"
    found: dict[str, Any] = json.loads(done.output)
    jsonschema.validate(found, json.loads(json_schema(RasRecord)))
    return found


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_job_without_a_difference() -> None:
    found = of_text(ras_texts.OK)
    assert (found.version, found.nodes, found.processes, found.gpus) == ("2.29.3", 4, 32, 32)
    assert (found.communicator_count, found.collection_s, found.is_complete) == (8, 2.05, True)
    assert not late_in(found)
    uneven = of_text(ras_texts.UNEVEN)
    assert (uneven.nodes, uneven.processes, uneven.gpus) == (4, 31, 31)


def test_a_process_that_does_not_answer() -> None:
    found = of_text(ras_texts.UNRESPONSIVE_2_24)
    (only,) = found.communicators[0].missing
    assert only.member == Member(21, "172.16.64.213", 3487984, 5)
    assert only.state == "unresponsive"
    assert found.timeouts == 2
    assert not found.missing[0].is_dead


def test_a_dead_process_with_two_gpus() -> None:
    found = of_text(ras_texts.DEAD_2_30)
    lacks = found.communicators[0].missing
    assert [(each.member.rank, each.member.gpu, each.state) for each in lacks] == [
        (21, 6, "dead"),
        (22, 7, "dead"),
    ]
    assert found.missing[0].gpus == (6, 7)


def test_ranks_that_are_late_in_the_text() -> None:
    (only,) = late_in(of_text(ras_texts.MISMATCH_2_24))
    assert (only.operation, only.launched, only.expected) == ("collective", 6649, 6650)
    assert only.at == (Location(ranks=(7,), host="172.16.64.210", pid=483079, gpus=(7,)),)
    worst, other = late_in(of_text(ras_texts.MISMATCH_2_26))
    assert (worst.operation, worst.at[0].ranks) == ("AllReduce", (3,))
    assert (worst.expected or 0) - (worst.launched or 0) == 9
    assert other.count == 30
    assert set(ranks_of(other)) == set(range(32)) - {12, 13}


def test_errors_and_states_of_ranks() -> None:
    (only,) = of_text(ras_texts.ERRORS_2_29).communicators
    assert [(each.state, each.size, len(each.members), each.is_error) for each in only.states] == [
        ("remote process exited or there was a network error", 2, 2, True),
        ("unhandled system error", 1, 1, True),
        ("RUNNING", 29, 0, False),
        ("NOCOMM", 2, 2, False),
        ("FINALIZE", 1, 1, False),
    ]


def test_json_has_all_ranks() -> None:
    found = parse_status(
        status(
            [
                rank(0, "10.0.0.1", 41),
                rank(1, "10.0.0.1", 40),
                rank(2, "10.0.0.2", 41, async_error=6),
                rank(3, "10.0.0.2", 41, init_state=7),
            ],
            [missing(4, "10.0.0.3", dead=True), missing(5, "10.0.0.3", dead=False)],
        )
    )
    (only,) = late_in(found)
    assert (only.operation, ranks_of(only)) == ("AllReduce", (1,))
    (communicator,) = found.communicators
    assert {each.state for each in communicator.states} == {
        "RUNNING",
        "INIT",
        "asynchronous error: remote error",
    }
    assert [each.state for each in communicator.missing] == ["dead", "unresponsive"]
    assert (found.nodes, found.processes) == (3, 6)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...",
        b'{"group": "LIFECYCLE", "event": "PEER_DEAD"}',
        b"{",
        b'{"communicators": 7}',
        b'{"communicators": [{"ranks": [{"rank": "x"}]}]}',
        b'{"communicators": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_status_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(RasError):
        parse_status(content)
    assert isinstance(run(saved(tmp_path / "no.txt", content)).exception, UsageError)


@pytest.mark.parametrize("seed", range(8))
def test_garbage_never_fails(seed: int) -> None:
    """Truncated, spliced, overwritten: read as far as it is understood, or refused."""
    random_ = random.Random(seed)
    bases = [*(text.encode() for text in ras_texts.ALL)]
    bases.append(status([rank(0, "a", 1), rank(1, "b", 2)], [missing(2, "c", dead=True)]))
    for _ in range(60):
        content = bytearray(random_.choice(bases))
        for _ in range(random_.randrange(1, 60)):
            at = random_.randrange(len(content))
            kind = random_.randrange(4)
            if kind == 0:
                content[at] = random_.randrange(256)
            elif kind == 1:
                del content[at : at + random_.randrange(40)]
            elif kind == 2:
                content[at:at] = b"9" * random_.randrange(40)
            else:
                content[at:at] = random_.choice(bases)[: random_.randrange(400)]
        try:
            found = parse_status(bytes(content))
        except RasError:
            continue
        late_in(found)
        movement(found, found)


def test_a_flood_of_lines_is_read_in_time() -> None:
    lines = ["#0-0 (27a079b828ff1a75) MISMATCH", "  99999 ranks have launched up to operation 5"]
    lines += [f"  Rank {n} -- GPU 0 managed by process {n} on node a" for n in range(100_000)]
    (only,) = of_text("\n".join(lines)).communicators
    assert len(only.counts[0].members) == 100_000


def test_samples_of_the_user_guide() -> None:
    if not CAPTURES.is_dir():
        pytest.skip("the captures are not beside this checkout")
    found: dict[str, JobStatus] = {}
    for path in CAPTURES.glob("*"):
        try:
            found[path.name] = parse_status(path.read_bytes())
        except RasError:
            continue
    refused = {path.name for path in CAPTURES.glob("sample-*")} - set(found)
    # Those of the monitor mode.
    assert refused == {"sample-08.txt", "sample-09.txt", "sample-10.json"}
    (late,) = late_in(found["sample-03.txt"])
    assert ranks_of(late) == (0, 2, 3, 4, 5, 7)
    assert found["sample-06.txt"].communicators[0].missing[0].state == "dead"
    assert found["sample-07.json"].communicators[0].missing[0].member.rank == 1


def test_whether_counts_move() -> None:
    def at(launched: int) -> JobStatus:
        return parse_status(status([rank(0, "a", launched), rank(1, "a", launched)]))

    assert movement(None, at(1)) is Movement.UNKNOWN
    assert movement(at(1), at(1)) is Movement.FROZEN
    assert movement(at(1), at(2)) is Movement.MOVING
    assert movement(of_text(ras_texts.OK), of_text(ras_texts.OK)) is Movement.UNKNOWN
    late = of_text(ras_texts.MISMATCH_2_24)
    assert movement(late, late) is Movement.FROZEN
    assert movement(late, of_text(ras_texts.MISMATCH_2_26)) is Movement.UNKNOWN


def load(
    util: float | None, *, paused: float = 0.0, pausing: float = 0.0, down_s: float = 0.0
) -> PortLoad:
    none = Extent(None, None)
    return PortLoad(
        port="gpu001/mlx5_3",
        name="gpu001 r3",
        down_s=down_s,
        tx_util=Extent(util, util),
        rx_util=Extent(util, util),
        paused=Extent(paused, paused),
        pausing=Extent(pausing, pausing),
        errors=none,
        drops=none,
    )


@pytest.mark.parametrize(
    ("loads", "state"),
    [
        ([load(0.001), load(0.002)], WireState.IDLE),
        ([load(0.001), load(0.3)], WireState.ACTIVE),
        ([load(0.3), load(0.95)], WireState.HOT),
        ([load(0.3, paused=0.2), load(0.95)], WireState.PAUSED),
        ([load(0.3, pausing=0.2)], WireState.PAUSED),
        ([load(0.3, paused=0.9), load(0.0, down_s=12.0)], WireState.DOWN),
        ([load(None)], WireState.UNKNOWN),
        ([], WireState.UNKNOWN),
    ],
)
def test_the_state_of_the_wire(loads: list[PortLoad], state: WireState) -> None:
    assert wire_state(loads)[0] is state


def test_what_has_no_sentence_is_counted() -> None:
    gone = tuple(MissingProcess(f"gpu{n:03}", n, (0,), is_dead=True) for n in range(7))
    seen = observed(JobStatus(missing=gone))
    found = list(conclusions(seen, None))
    assert found[0] == "Process 0 on gpu000 (GPU 0) is dead."
    assert found[4] == "And 3 more of this kind: --format json."


class OnePort(AllPlaces):
    """Where each GPU is nearest to one NIC."""

    def __init__(self) -> None:
        super().__init__(())

    def ports_of_gpu(self, host: str, gpu: int) -> list[Place]:
        return [Place("gpu001", "gpu001/mlx5_3", "gpu001 r3")]


def sentence(moved: Movement, wire: PortLoad | None, *, late_by: int = 0) -> str:
    counts = [CountGroup("AllReduce", 41, 7)]
    if late_by:
        counts.append(CountGroup("AllReduce", 41 - late_by, 1, (Member(7, "gpu001", 9, 3),)))
    communicator = Communicator(name="#0-0", hash="", counts=tuple(counts))
    status = JobStatus(communicators=(communicator,))
    given = None
    if wire is not None:
        given = Wire(clock="", state=wire_state([wire])[0], port_count=1, ports=[wire])
    return next(iter(conclusions(status_observations(status, moved, RankPlaces(OnePort())), given)))


@pytest.mark.parametrize(
    ("moved", "late_by", "wire", "text"),
    [
        (Movement.FROZEN, 0, load(0.0), "hangs outside the network"),
        (Movement.FROZEN, 0, load(0.9), "gpu001 r3 is hot at 90"),
        (Movement.FROZEN, 0, load(0.3, paused=0.6), "gpu001 r3 was paused 60"),
        (Movement.FROZEN, 0, load(0.3, pausing=0.6), "gpu001 r3 paused its peer 60"),
        (Movement.FROZEN, 0, load(0.0, down_s=9), "gpu001 r3 was down for 9"),
        (Movement.FROZEN, 0, load(0.3), "no link is full, paused or down"),
        (Movement.FROZEN, 0, None, "With a recording"),
        (Movement.MOVING, 0, load(0.9), "the job runs"),
        (Movement.UNKNOWN, 0, load(0.0), "if a second answer has the same counts, the job hangs"),
        (Movement.UNKNOWN, 0, load(0.9), "if a second answer has the same counts, that link"),
        (Movement.UNKNOWN, 0, None, "ask again later"),
        (Movement.FROZEN, 1, load(0.0), "the network is not the reason"),
        (Movement.FROZEN, 1, load(0.3, paused=0.6), "look at that link first"),
        (Movement.FROZEN, 1, None, "The others wait for it"),
        (Movement.MOVING, 1, load(0.0), "a small difference is usual"),
        (Movement.UNKNOWN, 1, load(0.9), "A running job shows such a difference too"),
        (Movement.UNKNOWN, 5, None, "The others wait for it"),
    ],
)
def test_counts_and_the_wire_in_one_sentence(
    moved: Movement, late_by: int, wire: PortLoad | None, text: str
) -> None:
    assert text in sentence(moved, wire, late_by=late_by)


def two_answers(tmp_path: Path, late: int | None = None) -> tuple[Path, Path]:
    """Eight nodes whose counts are frozen, at 20:00:55Z and 20:01:05Z, in UTC+2."""
    ranks = [rank(n, f"gpu{n // 8 + 1:03}", 40 if n == late else 41) for n in range(64)]
    first = saved(tmp_path / "first.json", status(ranks, time="2026-05-04 22:00:55"))
    return first, saved(tmp_path / "second.json", status(ranks, time="2026-05-04 22:01:05"))


def test_frozen_counts_and_a_paused_link_of_a_recording(tmp_path: Path, recording: Path) -> None:
    """gpu006 r3 is slow from 20:00:35Z on."""
    found = reported(*two_answers(tmp_path), "--recording", recording)
    assert found["conclusions"][0].startswith(
        "The counts are frozen and equal on all ranks, and gpu006 r3 paused its peer"
    )
    assert "The recording has a finding on it" in found["conclusions"][1]
    assert (found["wire"]["state"], found["wire"]["port_count"]) == ("paused", 64)
    assert "UTC+2 h: the only zone" in found["wire"]["clock"]
    given = reported(*two_answers(tmp_path), "--recording", recording, "--tz", "+2")
    assert given["wire"]["start"] == found["wire"]["start"]


def test_one_answer_given_twice_freezes_no_count(tmp_path: Path) -> None:
    first, _ = two_answers(tmp_path)
    assert "is given twice" in str(run(first, first).exception)
    assert "is given twice" in str(
        run(first, tmp_path / ".." / tmp_path.name / first.name).exception
    )


def test_a_text_whose_ranks_are_equal_asks_for_no_second_text(tmp_path: Path) -> None:
    """It has no counts: the advice to ask again led nowhere."""
    (said,) = conclusions(observed(JobStatus()), None)
    assert "ask again" not in said
    assert "ncclras -f json" in said


def test_the_node_nics_and_links_of_a_late_rank(tmp_path: Path, recording: Path) -> None:
    found = reported(*two_answers(tmp_path, late=10), "--recording", recording)
    (late,) = of_kind(found, "behind")
    (only,) = late["at"]
    assert (only["ranks"], only["host"], only["gpus"]) == ([10], "gpu002", [2])
    assert "gpu002/mlx5_0" in [each["port"] for each in only["ports"]]
    assert {each["leaf"] for each in only["ports"]} == {"leaf1"}
    assert found["result"] == "wrong"


def test_the_hca_of_a_rank_from_its_log(tmp_path: Path, recording: Path) -> None:
    log = Log("2.30.7", ("gpu006", "gpu002"))
    path = saved(tmp_path / "job.log", "\n".join(log.start()).encode())
    ranks = [rank(0, "gpu006", 41), rank(1, "gpu006", 41), rank(2, "gpu002", 40)]
    answer = saved(tmp_path / "a.json", status(ranks))
    found = reported(answer, "--log", path, "--recording", recording)
    (only,) = of_kind(found, "behind")[0]["at"]
    assert [each["port"] for each in only["ports"]] == ["gpu002/mlx5_0"]
    assert only["ports"][0]["leaf"] == "leaf1"
    assert found["conclusions"][0].startswith("Rank 2 (gpu002 r0 at leaf1 dn9) has launched")


def test_answers_whose_time_the_recording_does_not_have(tmp_path: Path, recording: Path) -> None:
    ranks = [rank(0, "gpu001", 1)]
    for time, why in (
        ("2025-01-01 00:00:00", "the time of the answer is not in the recording"),
        ("", "the answer has no time"),
    ):
        path = saved(tmp_path / "a.json", status(ranks, time=time))
        found = reported(path, "--recording", recording)
        assert found["wire"]["start"] is None
        assert why in found["wire"]["clock"]
    stranger = saved(tmp_path / "b.json", status([rank(0, "x1", 1)], time="2026-05-04 20:01:00"))
    wire = reported(stranger, "--recording", recording)["wire"]
    assert "are not in the recording" in wire["clock"]


def test_the_text(tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_answers(tmp_path, late=10)
    monkeypatch.chdir(tmp_path)
    done = run("first.json", "second.json", "--recording", recording)
    assert done.exit_code == 5
    check_golden(GOLDENS / "late.txt", done.output)
    saved(tmp_path / "dead.txt", ras_texts.DEAD_2_30.encode())
    check_golden(GOLDENS / "dead.txt", run("dead.txt").output)


def test_ranks_of_one_place_are_one_row(tmp_path: Path) -> None:
    """Where RAS names no host, 30 ranks that are behind were 16 rows and "14 others"."""
    text = run(saved(tmp_path / "a.txt", ras_texts.MISMATCH_2_26.encode())).output
    (row,) = (line for line in text.splitlines() if line.startswith("AllGather 640 of 641"))
    assert "  0-11, 14-31  " in row


def test_redacted_output_has_no_names(tmp_path: Path, recording: Path) -> None:
    answers = two_answers(tmp_path, late=10)
    dead = saved(tmp_path / "secret.txt", ras_texts.DEAD_2_30.encode())
    for arguments in ((*answers, "--recording", recording), (dead,)):
        for style in ("json", "table"):
            text = run(*arguments, "--redact", "--format", style).output
            for name in ("gpu002", "gpu006", "leaf1", "secret", "172.16.", str(tmp_path)):
                assert name not in text, (name, style)


def test_a_topology_and_a_hosts_file(tmp_path: Path) -> None:
    hosts = saved(tmp_path / "hosts.txt", b"gpu002 address=127.0.0.1 port=1\n")
    cables = saved(tmp_path / "cables.csv", b"gpu002,mlx5_0,leaf1,swp9\n")
    log = Log("2.30.7", ("gpu006", "gpu002"))
    lines = saved(tmp_path / "job.log", "\n".join(log.start()).encode())
    answer = saved(tmp_path / "a.json", status([rank(0, "x", 9), rank(2, "127.0.0.1", 1)]))
    found = reported(answer, "--hosts", hosts, "--topology", cables, "--log", lines)
    (only,) = of_kind(found, "behind")[0]["at"]
    (place,) = only["ports"]
    assert (only["host"], place["leaf"], place["leaf_port"]) == ("gpu002", "leaf1", "swp9")
    assert found["notes"] == ["1 of 1 nodes did not answer."]


def test_the_nics_nearest_to_a_gpu() -> None:
    affinity = {"mlx5_0": "PXB", "mlx5_1": "SYS"}
    hellos = {
        "gpu1": hello(
            port("mlx5_0", rdma="mlx5_0"),
            port("mlx5_1", rdma="mlx5_1"),
            Object("gpu0", "gpu", "gpu0", {"affinity": affinity}, ()),
        )
    }
    hosts = [Host(name=name) for name in hellos]
    snapshot = History(hosts).accept(tick(0, hellos=hellos, statuses=up(*hellos)))
    places = FabricPlaces(snapshot.fabric, hellos)
    assert len(places.ports_of_gpu("gpu1", 5)) == 2
    assert [each.port for each in places.ports_of_gpu("gpu1", 0)] == ["gpu1/mlx5_0"]
    assert places.ports_of_gpu("gpu9", 0) == []


def test_what_cannot_be_combined(tmp_path: Path, recording: Path) -> None:
    path = saved(tmp_path / "a.json", status([rank(0, "x", 9)]))
    for arguments in (
        (),
        (tmp_path / "none.json",),
        (path, "--recording", recording, "--screen"),
        (path, "--recording", recording, "--hosts", saved(tmp_path / "h.txt", b"gpu1\n")),
        (path, "--host", "gpu1", "--hosts", saved(tmp_path / "u.txt", b"gpu1 via=snmp\n")),
    ):
        assert isinstance(run(*arguments).exception, UsageError), arguments


@pytest.mark.parametrize(
    "content",
    [
        b'{"communicators":[' + b",".join([b"{}"] * 500_001) + b"]}",
        b'{"communicators":[' + b",".join([b"1"] * 4_000_001) + b"]}",
    ],
)
def test_an_answer_of_more_than_any_job_has_is_refused_before_it_is_decoded(content: bytes) -> None:
    """64 MiB of empty communicators took 6 GB."""
    tracemalloc.start()
    with pytest.raises(RasError, match="an answer of more than 500,000 objects"):
        parse_status(content)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_a_rank_of_thousands_of_operations_is_refused() -> None:
    counts = ",".join(f'"op{number}":1' for number in range(257))
    content = f'{{"communicators":[{{"ranks":[{{"rank":0,"collective_counts":{{{counts}}}}}]}}]}}'
    with pytest.raises(RasError, match="length <= 256"):
        parse_status(content.encode())
