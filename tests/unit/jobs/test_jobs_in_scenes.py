"""Jobs in what is shown: iterations, findings, the filter, what a person asks of each job."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.affected_jobs import AffectedJobs, link_of
from fabmon.analysis.audit import audit
from fabmon.analysis.audit.survey import NOTE, Survey
from fabmon.analysis.job_summary import Placement, job_summaries, placement_text
from fabmon.analysis.scene import Scene
from fabmon.fabric.filter import index, match, parse
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.jobs.collectives import Collective, CollectiveReport
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import Tick
from fabmon.feeds.demo.scenario import Fault
from fabmon.feeds.demo.scenario import Job as DemoJob
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from tests.unit.jobs.worlds import scene_of_jobs

BIG, SMALL = "job 8801 llama-70b (anna)", "job 8802 vit-22b (ben)"


@cache
def healthy() -> Scene:
    return scene_of_jobs(70)


def test_iterations_are_named_as_the_scheduler_names_the_job_on_their_hosts() -> None:
    names = {each.name for each in healthy().iteration_report.jobs}

    assert BIG in names


def test_a_finding_at_a_host_names_the_jobs_on_it() -> None:
    table = healthy().snapshot.jobs
    host = table.nodes_of(table.jobs[0])[0]

    scene = scene_of_jobs(70, Fault(kind="slow_receiver", at=5, where=f"{host}/r1"))

    (finding,) = [each for each in scene.findings if each.cause == "slow_receiver"]
    assert finding.jobs == (BIG,)


def test_a_finding_between_switches_names_jobs_with_hosts_on_both_sides() -> None:
    scene = scene_of_jobs(60, Fault(kind="degraded_link", at=5, where="leaf1/up2"))

    found = [each for each in scene.findings if each.subject.startswith("leaf1/")]
    assert found
    assert all(BIG in each.jobs and SMALL not in each.jobs for each in found)


def test_a_collision_names_the_hosts_of_the_job_at_both_ends_of_its_link() -> None:
    """A NIC has queue pairs to the next and to the previous rank of the ring."""
    scene = scene_of_jobs(60, Fault(kind="ecmp_collision", at=5, where="leaf1/up2"), routing="hash")

    found = next(each for each in scene.findings if each.cause == "ecmp_collision")
    said = {each.name: each.value for each in found.evidence}
    assert said["job 8801 sends from"] == "gpu001, gpu002"
    assert said["job 8801 sends to"] == "some of gpu005, gpu006"


def test_where_no_sender_is_known_to_be_slowed_the_hosts_are_some_of_those_on_both_sides() -> None:
    scene = scene_of_jobs(60, Fault(kind="degraded_link", at=5, where="leaf1/up2"))

    found = next(each for each in scene.findings if each.subject.startswith("leaf1/"))
    assert not found.victims
    said = {each.name: each.value for each in found.evidence}
    assert said["job 8801 on this side"] == "some of gpu001, gpu002"
    assert said["job 8801 on the far side"] == "some of gpu005, gpu006"


def test_errors_are_of_the_traffic_that_arrives_at_the_port_which_counts_them() -> None:
    """Damage at an uplink of a leaf is of what its spine sends to the hosts below."""
    scene = scene_of_jobs(60, Fault(kind="error_burst", at=5, where="leaf1/up2"))

    found = next(each for each in scene.findings if each.cause == "error_burst")
    assert found.text.startswith("leaf1 up2 receives damaged data from spine")
    said = {each.name: each.value for each in found.evidence}
    assert said["job 8801 sends from"] == "some of gpu005, gpu006"
    assert said["job 8801 sends to"] == "some of gpu001, gpu002"
    link = link_of(scene.snapshot.fabric, found)
    assert link is not None
    assert link.directions == ("rx",)
    assert [scene.snapshot.fabric.ports[row].display_name for row in link.rows] == ["leaf1 up2"]


def test_queue_pairs_that_are_read_later_say_where_a_slowed_host_sends() -> None:
    job = DemoJob(name="llama-70b", hosts=8, payload_gb=40, compute_s=2.0)
    scene = scene_of_jobs(20, Fault(kind="degraded_link", at=5, where="leaf1/up2"), jobs=(job,))
    found = next(each for each in scene.findings if each.subject.startswith("leaf1/"))
    slowed = msgspec.structs.replace(
        found, cause="ecmp_collision", evidence=(), victims=("gpu001/mlx5_0",)
    )
    known = scene.snapshot.connections
    affected = AffectedJobs()
    said = []
    for connections in (Connections(scene.snapshot.fabric, {}), known):
        (each,) = affected.added([slowed], replace(scene.snapshot, connections=connections))
        said.append([evidence.value for evidence in each.evidence])
    assert said[0] == ["gpu001", "some of gpu005, gpu006, gpu007, gpu008"]
    assert said[1] == ["gpu001", "some of gpu005, gpu008"]


def test_the_filter_of_a_job_matches_its_hosts_their_ports_and_the_uplinks_it_needs() -> None:
    snapshot = healthy().snapshot
    known = index(snapshot.fabric)
    big, small = snapshot.jobs.jobs

    def names(text: str) -> set[str]:
        ports = match(parse(text), snapshot, known).ports
        return {snapshot.fabric.ports[row].display_name for row in ports.nonzero()[0].tolist()}

    every = names("job:8801")
    assert {f"{host} r0" for host in snapshot.jobs.nodes_of(big)} <= every
    assert {"leaf1 up1", "leaf2 up1"} <= every
    assert not any(name.startswith("spine") for name in every)
    local = names("job:8802")
    assert {f"{host} r7" for host in snapshot.jobs.nodes_of(small)} <= local
    assert not any(" up" in name for name in local)
    assert names("user:anna") == every == names("job:llama")
    assert names("partition:train") == every | local
    assert not names("job:880")


def test_the_summary_of_a_job_has_its_place_its_traffic_and_its_bus_bandwidth() -> None:
    big, small = job_summaries(healthy())

    assert set(big.placement.leaves) == {"leaf1", "leaf2"}
    assert (len(big.nodes), big.placement.least_leaves) == (4, 1)
    assert len(small.placement.leaves) == 1
    # 8 NICs of 400 Gb/s, of which a job's demand is 80 %: 320 GB/s.
    assert big.busbw_bps is not None
    assert 310e9 < big.busbw_bps / 8 < 330e9
    assert big.tx_bps is not None
    assert 0 < big.tx_bps < len(big.nodes) * big.busbw_bps
    # Its collectives are shorter than a tick: a lower bound.
    assert small.busbw_bps is not None
    assert 100e9 < small.busbw_bps / 8 < 320e9
    assert big.iteration is not None
    assert big.iteration.name == BIG
    assert not big.placement.meets


def test_placement_is_said_where_fewer_leaves_are_enough() -> None:
    big, small = job_summaries(healthy())

    assert placement_text(big.placement, {}) == "spans 2 leaves where 1 is enough"
    assert placement_text(small.placement, {}) == ""


def test_jobs_that_cross_the_same_leaf_are_named() -> None:
    met = Placement(("leaf1", "leaf2"), 2, {"8802": ("leaf1", "leaf2")})

    assert placement_text(met, {"8802": SMALL}) == (
        f"shares the uplinks of leaf1, leaf2 with {SMALL}"
    )


def test_doctor_says_which_jobs_span_more_leaves_than_they_must_and_whose_uplinks_they_share() -> (
    None
):
    apart = (
        DemoJob(name="llama-70b", hosts=4, payload_gb=40, compute_s=2.0),
        DemoJob(name="vit-22b", hosts=4, payload_gb=20, compute_s=1.0),
    )
    snapshot = scene_of_jobs(5, jobs=apart).snapshot

    found = [
        each for each in audit(Survey(snapshot, {}, {}, {}, {})) if each.check == "job_placement"
    ]

    assert [each.text for each in found] == [
        f"{BIG}: spans 2 leaves where 1 is enough; shares the uplinks of leaf1, leaf2 with {SMALL}",
        f"{SMALL}: spans 2 leaves where 1 is enough; shares the uplinks of leaf1, leaf2 with {BIG}",
    ]
    assert found[0].ports == snapshot.jobs.nodes_of(snapshot.jobs.jobs[0])
    assert found[0].severity == NOTE


def test_redaction_covers_jobs_users_partitions_and_nodes() -> None:
    job = Job(id="8801", name="secret-llm", user="anna", partition="pod7", nodes=("gpu001.pod7",))
    report = JobReport(source="squeue", read_ns=5, reason="squeue ended: ctl.pod7", jobs=(job,))
    redactor = Redactor()

    redacted = redactor.tick(Tick(0, 0, jobs=report, jobs_read_ns=5))
    found = redacted.jobs
    assert redacted.jobs_read_ns == 5

    assert found is not None
    text = msgspec.json.encode(found).decode()
    for name in ("8801", "secret", "anna", "pod7", "gpu001"):
        assert name not in text
    (hidden,) = found.jobs
    assert hidden.number == "1"
    assert hidden.user == "user-1"
    # The number is the same for its processes.
    assert redactor._fact("job", "8801") == "1"


MEASURED = Collective(
    job="8801",
    communicator="llama DP",
    operation="AllReduce",
    size="256 MiB",
    ranks=32,
    nodes=4,
    calls=64,
    time_s=0.002,
    busbw=30e9,
    lowest=29e9,
    lowest_host="gpu003.pod7",
    hosts=("gpu001.pod7", "gpu003.pod7"),
    latest_ns=1,
)


def test_what_nccl_measured_is_joined_to_its_job() -> None:
    scene = healthy()
    big, small = scene.snapshot.jobs.jobs
    unnamed = msgspec.structs.replace(
        MEASURED,
        job="",
        hosts=tuple(f"{node}.pod7" for node in scene.snapshot.jobs.nodes_of(small)),
    )
    elsewhere = msgspec.structs.replace(MEASURED, job="", hosts=("other",))
    report = CollectiveReport(collectives=(MEASURED, unnamed, elsewhere))
    with_report = replace(scene, snapshot=replace(scene.snapshot, collectives=report))

    found = {each.job.id: each.collectives for each in job_summaries(with_report)}

    assert found == {big.id: (MEASURED,), small.id: (unnamed,)}


def test_redaction_covers_collectives() -> None:
    odd = msgspec.structs.replace(MEASURED, operation="anna's llama")
    report = CollectiveReport(reason="/home/anna/pod7: no such file", collectives=(MEASURED, odd))
    found = Redactor().tick(Tick(0, 0, collectives=report)).collectives

    assert found is not None
    text = msgspec.json.encode(found).decode()
    for name in ("8801", "llama", "gpu00", "pod7", "anna"):
        assert name not in text
    assert found.collectives[0].busbw == 30e9
    assert [each.operation for each in found.collectives] == ["AllReduce", "operation"]


def test_collectives_are_recorded_and_known_in_the_middle_of_a_recording(tmp_path: Path) -> None:
    path, report = tmp_path / "jobs.fabrec", CollectiveReport(read_ns=5, collectives=(MEASURED,))
    writer = Writer.create(path, SessionRecord(started_ns=0, interval_s=1.0, hosts=()))
    for seq in range(1, 30):
        writer.write(Tick(seq, seq * 10**9, collectives=report if seq == 3 else None))
    writer.close()

    with Timeline([path]) as timeline:
        recorded = [each.collectives for each in timeline.ticks(0, 10**12) if each.collectives]
        primed = timeline.prime(20 * 10**9)

    assert recorded == [report]
    assert [tick.collectives for tick in primed if tick.collectives] == [report]


def test_jobs_are_recorded_and_known_in_the_middle_of_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "jobs.fabrec"
    job = Job(id="8801", name="llama-70b", user="anna", nodes=("gpu001",))
    report = JobReport(source="squeue", read_ns=5, jobs=(job,))
    session = SessionRecord(started_ns=0, interval_s=1.0, hosts=())
    writer = Writer.create(path, session)
    for seq in range(1, 30):
        jobs = report if seq == 3 else None
        again_ns = seq * 10**9 if seq in (3, 9) else 0
        writer.write(Tick(seq, seq * 10**9, jobs=jobs, jobs_read_ns=again_ns))
    writer.close()

    with Timeline([path]) as timeline:
        all_ticks = list(timeline.ticks(0, 10**12))
        primed = timeline.prime(20 * 10**9)

    assert [tick.seq for tick in all_ticks if tick.jobs is not None] == [3]
    assert all_ticks[2].jobs == report
    assert [tick.jobs_read_ns for tick in all_ticks if tick.jobs_read_ns] == [3 * 10**9, 9 * 10**9]
    assert [tick.jobs for tick in primed if tick.jobs is not None] == [report]


@pytest.mark.parametrize("unknown", ["jobs:1", "users:anna"])
def test_a_mistyped_field_names_the_right_one(unknown: str) -> None:
    with pytest.raises(ValueError, match=r"did you mean (job|user):"):
        parse(unknown)
