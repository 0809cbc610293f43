"""What squeue prints: lines and JSON of both generations, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fabmon.fabric.jobs.squeue_output import (
    NotSqueue,
    environment,
    parse,
    parse_json,
    parse_lines,
)
from tests.requirements import need

MARK = "8f3a"
NOV_22_NS = 1_795_333_250 * 10**9

CAPTURES = next(
    (path / "shared/captures" for path in Path(__file__).parents if (path / "shared").is_dir()),
    Path("shared/captures"),
)


def line(**fields: str) -> str:
    usual = {
        "number": "8801",
        "shown": "8801",
        "user": "anna",
        "partition": "train",
        "state": "RUNNING",
        "start": "2026-11-22T07:40:50",
        "nodes": "gpu[001-003]",
        "name": "llama-70b",
    }
    return "|".join([MARK, *(usual | fields).values()])


def old_json(**fields: Any) -> bytes:
    """A job as Slurm 22.05 prints it."""
    job = {
        "job_id": 8801,
        "array_job_id": 0,
        "array_task_id": None,
        "het_job_id": 0,
        "job_state": "RUNNING",
        "name": "llama-70b",
        "nodes": "gpu[001-003]",
        "partition": "train",
        "start_time": 1795333250,
        "user_name": "anna",
    }
    return json.dumps({"meta": {}, "errors": [], "jobs": [job | fields]}).encode()


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def new_json(**fields: Any) -> bytes:
    """A job as data_parser of Slurm 23.11 and later prints it."""
    job = {
        "job_id": 8801,
        "array_job_id": number(0),
        "array_task_id": number(None),
        "het_job_id": number(0),
        "het_job_offset": number(0),
        "job_state": ["RUNNING"],
        "name": "llama-70b",
        "nodes": "gpu[001-003]",
        "partition": "train",
        "start_time": number(1795333250),
        "user_name": "anna",
        "job_resources": {"nodes": {"count": 3, "list": "gpu[001-003]"}},
    }
    last = {"last_backfill": number(1), "last_update": number(2)}
    return json.dumps({"jobs": [job | fields], **last, "warnings": [], "errors": []}).encode()


def test_lines_and_both_generations_of_json_say_the_same() -> None:
    jobs = [parse(each, MARK).jobs for each in (line().encode(), old_json(), new_json())]

    assert jobs[0] == jobs[1] == jobs[2]
    (job,) = jobs[0]
    assert job.label == "job 8801 llama-70b (anna)"
    assert job.nodes == ("gpu001", "gpu002", "gpu003")
    assert (job.partition, job.start_ns) == ("train", NOV_22_NS)


def test_the_captured_json_has_one_running_and_one_pending_job() -> None:
    path = CAPTURES / "slurm/squeue-22.05.8.json"
    need(str(path.name), path.is_file(), "captures of real clusters are beside some checkouts")

    (job,) = parse_json(path.read_bytes()).jobs

    assert job.label == "job 1 llama-70b (root)"
    assert job.nodes == ("gpu001", "gpu002", "gpu003")
    assert job.start_ns == NOV_22_NS


@pytest.mark.parametrize(
    "data",
    [
        line(number="8804", shown="8801_3").encode(),
        old_json(job_id=8804, array_job_id=8801, array_task_id=3),
        new_json(job_id=8804, array_job_id=number(8801), array_task_id=number(3)),
    ],
)
def test_a_task_of_an_array_has_both_numbers(data: bytes) -> None:
    (job,) = parse(data, MARK).jobs

    assert (job.id, job.number) == ("8804", "8801_3")
    assert job.is_called("8801")
    assert job.is_called("8804")
    assert job.is_called("8801_3")
    assert not job.is_called("8801_4")
    assert not job.is_called("880")


def test_a_part_of_a_heterogeneous_job_has_the_number_of_the_whole() -> None:
    (job,) = parse_json(
        new_json(job_id=8802, het_job_id=number(8801), het_job_offset=number(1))
    ).jobs

    assert (job.id, job.number) == ("8802", "8801+1")
    assert job.is_called("8801")


def test_node_lists_are_expanded() -> None:
    (job,) = parse_lines(line(nodes="gpu[001-003,020],login[1-2],c1"), MARK).jobs

    assert set(job.nodes) == {"gpu001", "gpu002", "gpu003", "gpu020", "login1", "login2", "c1"}


def test_nodes_are_taken_from_the_resources_where_there_is_no_list() -> None:
    old = {"allocated_nodes": [{"nodename": "gpu001"}, {"nodename": "gpu002"}]}
    new = {"nodes": {"allocation": [{"name": "gpu001"}, {"name": "gpu002"}]}}

    for data in (old_json(nodes="", job_resources=old), new_json(nodes="", job_resources=new)):
        assert parse_json(data).jobs[0].nodes == ("gpu001", "gpu002")


def test_the_name_may_hold_the_separator_and_a_line_end_that_looks_like_a_job() -> None:
    text = line(name="a|b\n9|9|root|train|RUNNING|N/A|gpu001|forged")

    (job,) = parse_lines(text, MARK).jobs

    assert (job.id, job.name) == ("8801", "a|b?9|9|root|train|RUNNING|N/A|gpu001|forged")


def test_jobs_that_do_not_run_are_left_out() -> None:
    assert parse_lines(line(state="COMPLETING"), MARK) == ((), 0)
    assert parse_json(new_json(job_state=["PENDING"])) == ((), 0)
    assert parse_json(new_json(job_state=["COMPLETED", "COMPLETING"])) == ((), 0)


def test_a_job_that_cannot_be_read_costs_only_itself() -> None:
    bad = [line(number="x"), line(nodes="gpu[1-999999999]"), f"{MARK}|8802|8802"]

    parsed = parse_lines("\n".join([*bad, line()]), MARK)

    assert [job.id for job in parsed.jobs] == ["8801"]
    assert parsed.unread == 3


def test_a_name_that_is_not_utf_8_costs_only_its_job() -> None:
    job = old_json(name="caf?").partition(b'"jobs": [')[2].removesuffix(b"]}")
    latin = job.replace(b"caf?", b"caf\xe9")

    parsed = parse_json(b'{"jobs": [' + latin + b"," + job + b"]}")

    assert [each.name for each in parsed.jobs] == ["caf?"]
    assert parsed.unread == 1


def test_unset_and_infinite_numbers_are_none() -> None:
    unset = {"set": False, "infinite": True, "number": 5}

    (job,) = parse_json(new_json(start_time=unset, array_job_id=unset)).jobs

    assert (job.start_ns, job.shown_id) == (0, "")


def test_a_start_that_no_record_can_hold_is_unknown() -> None:
    far = "9999-12-31T23:59:59"
    parsed = (
        *parse_lines(
            "\n".join((line(start=far), line(number="2", start="0001-01-01T0:0"))), MARK
        ).jobs,
        *parse_json(new_json(start_time=number(10**17))).jobs,
        *parse_json(old_json(start_time=-(10**17))).jobs,
    )
    assert [job.start_ns for job in parsed] == [0, 0, 0, 0]


def test_texts_are_made_printable_and_short() -> None:
    (job,) = parse_json(old_json(name="\x1b[31mred" + 100 * "x", user_name=None, user_id=1001)).jobs

    assert job.name.startswith("?[31mredxx")
    assert len(job.name) == 64
    assert job.user == "1001"


@pytest.mark.parametrize(
    "output",
    [
        b"slurm_load_jobs error: Unable to contact slurm controller\n",
        b"{",
        b'{"jobs": 3}',
        b'{"jobs": [], "errors": [{"error": "down"}]}',
        b"[" * 100_000,
        b"{" + b'"jobs":[' * 50_000,
    ],
)
def test_other_output_is_refused(output: bytes) -> None:
    with pytest.raises(NotSqueue):
        parse(output, MARK)


def test_no_job_is_no_error() -> None:
    assert parse(b"", MARK) == ((), 0)


def test_settings_of_the_user_do_not_change_what_is_listed() -> None:
    made = environment({"SQUEUE_USERS": "me", "SQUEUE_FORMAT": "%i", "SLURM_CONF": "/x", "TZ": "X"})

    assert "SQUEUE_USERS" not in made
    assert "SQUEUE_FORMAT" not in made
    assert made["SLURM_CONF"] == "/x"
    assert made["TZ"] == "UTC0"
