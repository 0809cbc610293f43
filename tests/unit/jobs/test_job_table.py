"""Jobs on watched nodes: names with and without a domain, processes, hosts that are one job."""

from __future__ import annotations

import msgspec
import pytest

from fabmon.fabric.flows.queue_pairs import Process
from fabmon.fabric.jobs.job import Job, JobFilter, JobReport
from fabmon.fabric.jobs.job_table import JobTable
from tests.unit.jobs.worlds import pairs_of, pairs_of_many


def report(*jobs: Job) -> JobReport:
    return JobReport(source="squeue", read_ns=1, jobs=jobs)


LLAMA = Job(id="8801", name="llama-70b", user="anna", partition="train", nodes=("gpu001", "gpu002"))


def test_slurm_and_the_hosts_file_may_differ_in_the_domain() -> None:
    long = JobTable(report(LLAMA), ["gpu001.pod7.example", "gpu002.pod7.example"])
    short = JobTable(
        report(Job(id="1", nodes=("gpu001.pod7.example",))), ["gpu001", "gpu002", "leaf1"]
    )

    assert long.nodes_of(LLAMA) == ("gpu001.pod7.example", "gpu002.pod7.example")
    assert list(short.on_node) == ["gpu001"]


def test_a_short_name_that_two_nodes_share_is_none_of_them() -> None:
    table = JobTable(report(LLAMA), ["gpu001.east", "gpu001.west"])

    assert table.jobs == ()


def test_jobs_without_a_watched_node_are_left_out() -> None:
    assert JobTable(report(LLAMA), ["gpu009"]).jobs == ()


def test_processes_give_the_number_of_a_job_that_the_scheduler_does_not_report() -> None:
    processes = {"gpu001": pairs_of("8801"), "gpu003": pairs_of("8807"), "gpu004": pairs_of("8807")}

    table = JobTable(report(LLAMA), ["gpu001", "gpu002", "gpu003", "gpu004"], processes)

    assert [job.label for job in table.jobs] == ["job 8801 llama-70b (anna)", "job 8807"]
    assert table.nodes_of(LLAMA) == ("gpu001", "gpu002")
    assert table.nodes_of(table.jobs[1]) == ("gpu003", "gpu004")


def test_of_a_node_that_invents_jobs_some_are_taken_and_those_of_others_stay() -> None:
    processes = {"gpu003": pairs_of_many(4096), "gpu004": pairs_of("8807")}

    table = JobTable(report(LLAMA), ["gpu001", "gpu002", "gpu003", "gpu004"], processes)

    assert len(table.on_node["gpu003"]) == 512
    assert table.cut == {"gpu003": 4096}
    assert [job.id for job in table.jobs if "gpu003" not in job.nodes] == ["8801", "8807"]


def test_the_number_of_a_job_is_cut() -> None:
    assert Process("x", 1, "7a" * 200, "pod" * 99).job == "7a" * 32


def test_a_node_may_have_several_jobs() -> None:
    other = Job(id="8802", nodes=("gpu002", "gpu003"))

    table = JobTable(report(LLAMA, other), ["gpu001", "gpu002", "gpu003"])

    assert [job.id for job in table.on_node["gpu002"]] == ["8801", "8802"]


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        (["gpu001", "gpu002"], "8801"),
        (["gpu001"], "8801"),
        (["gpu001", "gpu002", "gpu003"], "8801"),
        (["gpu003", "gpu004", "gpu005"], None),
        (["gpu001", "gpu003", "gpu004"], None),
        ([], None),
    ],
)
def test_hosts_that_move_together_are_the_job_that_has_most_of_them(
    hosts: list[str], found: str | None
) -> None:
    table = JobTable(report(LLAMA), [f"gpu00{number}" for number in range(1, 6)])

    job = table.matching(hosts)

    assert (job.id if job is not None else None) == found


def test_a_job_that_moved_to_nodes_that_are_not_watched_is_known_as_long_as_it_runs() -> None:
    watched = ["gpu001", "gpu002"]
    elsewhere = msgspec.structs.replace(LLAMA, nodes=("gpu101", "gpu102"))
    foreign = Job(id="9001", name="other", nodes=("gpu103",))

    first = JobTable(report(LLAMA, foreign), watched)
    moved = JobTable(report(elsewhere, foreign), watched, before=first)
    still = JobTable(report(elsewhere, foreign), watched, before=moved)
    back = JobTable(report(LLAMA), watched, before=still)
    ended = JobTable(report(foreign), watched, before=still)

    assert [table.moved for table in (first, moved, still, back, ended)] == [
        (),
        (elsewhere,),
        (elsewhere,),
        (),
        (),
    ]
    assert moved.jobs == ()


def test_a_filter_selects_jobs_by_all_that_it_has() -> None:
    assert JobFilter(job="8801").matches(LLAMA)
    assert JobFilter(job="llama-70b", user="anna", partition="train").matches(LLAMA)
    assert not JobFilter(job="8801", user="ben").matches(LLAMA)
    assert not JobFilter(partition="debug").matches(LLAMA)
    assert not JobFilter(job="880").matches(LLAMA)
    assert not JobFilter()
    assert str(JobFilter(job="8801", user="anna")) == "job 8801, user anna"
