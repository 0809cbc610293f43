"""Which nodes are watched: by jobs, inside a job, from a hostfile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fabmon.fabric.jobs.job import HOSTFILE, Job, JobFilter
from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor
from fabmon.session.config import load
from fabmon.session.errors import UsageError
from fabmon.session.node_selection import JobSources, Selection, select_nodes
from fabmon.session.session import Session
from fabmon.session.watched_feed import kept_by
from tests.fixtures.slurm import fake_squeue
from tests.unit.jobs.test_kubectl import PODS, fake_kubectl

TWO_JOBS = """
mark=${3#--format=}; mark=${mark%%|*}
echo "$mark|8801|8801|anna|train|RUNNING|2026-11-22T07:40:50|gpu[001-002]|llama-70b"
echo "$mark|8802|8802|ben|debug|RUNNING|2026-11-22T07:40:50|gpu003|vit-22b"
"""
NOBODY = JobFilter()


def selected(
    squeue: str,
    jobs: JobFilter = NOBODY,
    hosts: Path | None = None,
    environment: dict[str, str] | None = None,
    kubectl: str = "",
    on_nodes: Callable[[Sequence[Host]], tuple[Job, ...]] | None = None,
) -> Selection:
    sources = JobSources(squeue, kubectl, on_nodes)
    return select_nodes(hosts, (), jobs, sources, environment or {})


def names(selection: Selection) -> list[str]:
    return [host.name for host in selection.hosts]


def test_the_nodes_of_a_job_are_watched_without_a_hosts_file(tmp_path: Path) -> None:
    squeue = fake_squeue(tmp_path, TWO_JOBS)

    found = selected(squeue, JobFilter(job="8801"))

    assert names(found) == ["gpu001", "gpu002"]
    assert found.title == "job 8801"
    assert [job.name for job in found.jobs] == ["llama-70b"]
    assert names(selected(squeue, JobFilter(user="ben"))) == ["gpu003"]


def test_of_a_hosts_file_the_nodes_of_the_job_and_the_switches_remain(tmp_path: Path) -> None:
    hosts = tmp_path / "pod7.txt"
    hosts.write_text("gpu[001-016].pod7 user=ops\nleaf[1-2] role=switch\n")

    found = selected(fake_squeue(tmp_path, TWO_JOBS), JobFilter(job="8801"), hosts)

    assert names(found) == ["gpu001.pod7", "gpu002.pod7", "leaf1", "leaf2"]
    assert found.hosts[0].user == "ops"
    assert found.title == "pod7 job 8801"


@pytest.mark.parametrize(
    ("jobs", "script", "text"),
    [
        (JobFilter(job="9"), TWO_JOBS, "job 9: no such job runs .of 2 running jobs."),
        (JobFilter(user="x"), "true", "user x: no such job runs .no job runs."),
        (JobFilter(job="9"), "echo down >&2; exit 1", "squeue ended with status 1: down"),
    ],
)
def test_a_job_that_does_not_run_is_an_error_before_anything_is_connected_to(
    tmp_path: Path, jobs: JobFilter, script: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        selected(fake_squeue(tmp_path, script), jobs)


def test_a_job_on_none_of_the_named_nodes_is_an_error(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu009\nleaf1 role=switch\n")

    with pytest.raises(UsageError, match="none of these nodes"):
        selected(fake_squeue(tmp_path, TWO_JOBS), JobFilter(job="8801"), hosts)


def test_without_squeue_the_option_says_so() -> None:
    with pytest.raises(UsageError, match="no-squeue"):
        selected("no-squeue", JobFilter(job="8801"))


OWN = {"SLURM_JOB_ID": "8804", "SLURM_JOB_NODELIST": "gpu[007-008]", "SLURM_JOB_USER": "anna"}


@pytest.mark.parametrize("jobs", [JobFilter(job="8804"), JobFilter(user="anna")])
def test_without_squeue_the_own_job_is_known(jobs: JobFilter) -> None:
    assert names(selected("no-squeue", jobs, environment=OWN)) == ["gpu007", "gpu008"]
    with pytest.raises(UsageError, match=r"no-squeue .* \(of 1 running job known otherwise\)"):
        selected("no-squeue", JobFilter(job="9"), environment=OWN)


@pytest.mark.parametrize("name", ["research/llama-70b", "llama-70b"])
def test_jobs_of_kubernetes_are_found_without_squeue(tmp_path: Path, name: str) -> None:
    (tmp_path / "pods").write_text(PODS)
    kubectl = fake_kubectl(tmp_path, f"cat {tmp_path}/pods")

    found = selected("no-squeue", JobFilter(job=name), kubectl=kubectl)

    assert names(found) == ["gpu001", "gpu002"]
    assert [job.label for job in found.jobs] == ["job research/llama-70b"]


def test_kubectl_is_asked_only_for_what_squeue_does_not_know(tmp_path: Path) -> None:
    squeue = fake_squeue(tmp_path, TWO_JOBS)
    (tmp_path / "kubernetes").mkdir()
    kubectl = fake_kubectl(tmp_path / "kubernetes", "echo refused >&2; exit 1")
    assert names(selected(squeue, JobFilter(job="8802"), kubectl=kubectl)) == ["gpu003"]
    assert not (tmp_path / "kubernetes" / "asked").exists()
    with pytest.raises(UsageError, match=r"kubectl ended with status 1 \(of 2 running jobs known"):
        selected(squeue, JobFilter(job="llama"), kubectl=kubectl)


def test_without_squeue_the_processes_of_the_named_nodes_say_where_a_job_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu[001-004]\nleaf1 role=switch\n")
    asked: list[Sequence[Host]] = []

    def on_nodes(named: Sequence[Host]) -> tuple[Job, ...]:
        asked.append(named)
        return (Job(id="8801", nodes=("gpu002", "gpu003")), Job(id="8802", nodes=("gpu004",)))

    found = selected("no-squeue", JobFilter(job="8801"), hosts, on_nodes=on_nodes)

    assert names(found) == ["gpu002", "gpu003", "leaf1"]
    assert "looking for job 8801 among the processes of 5 nodes" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"job 9: no-squeue .* \(of 2 running jobs known"):
        selected("no-squeue", JobFilter(job="9"), hosts, on_nodes=on_nodes)
    with pytest.raises(UsageError, match=r"user ben: no-squeue"):
        selected("no-squeue", JobFilter(user="ben"), hosts, on_nodes=on_nodes)
    assert len(asked) == 2, "processes do not show their user"


def test_where_squeue_answers_no_node_is_asked(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu009\n")

    with pytest.raises(UsageError, match="no such job runs"):
        selected(fake_squeue(tmp_path, TWO_JOBS), JobFilter(job="9"), hosts, on_nodes=_fail)


def _fail(_: Sequence[Host]) -> tuple[Job, ...]:
    raise AssertionError("a node was asked")


def test_inside_a_job_its_nodes_are_watched() -> None:
    here = socket.gethostname().partition(".")[0]
    environment = {
        "SLURM_JOB_ID": "8804",
        "SLURM_JOB_NODELIST": f"gpu[001-003,020],{here}",
        "SLURM_ARRAY_JOB_ID": "8801",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_JOB_NAME": "llama-70b",
        "SLURM_JOB_USER": "anna",
        "SLURM_JOB_START_TIME": "1795333250",
    }

    found = selected("squeue", environment=environment)

    assert set(names(found)) == {"gpu001", "gpu002", "gpu003", "gpu020", here}
    assert {host.name: host.via for host in found.hosts}[here] == "local"
    (job,) = found.jobs
    assert job.label == "job 8801_3 llama-70b (anna)"
    assert job.start_ns == 1_795_333_250 * 10**9
    assert found.title == "job 8801_3"


def test_a_list_of_nodes_that_cannot_be_read_is_named_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"SLURM_JOB_ID": "8804", "SLURM_JOB_NODELIST": "gpu[007-"}

    found = selected(
        fake_squeue(tmp_path, TWO_JOBS), JobFilter(job="8802"), environment=environment
    )

    assert names(found) == ["gpu003"], "squeue knows the job"
    with pytest.raises(UsageError, match=r"job 8804 are not known: SLURM_JOB_NODELIST: "):
        selected("no-squeue", JobFilter(job="8804"), environment=environment)
    (host,) = selected("squeue", environment=environment).hosts
    assert host.via == "local"
    assert "SLURM_JOB_NODELIST" in capsys.readouterr().err


def test_named_nodes_come_before_those_of_the_own_job(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu009\n")
    environment = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "gpu001"}

    assert names(selected("squeue", hosts=hosts, environment=environment)) == ["gpu009"]


def test_without_a_job_this_machine_is_watched() -> None:
    (host,) = selected("squeue").hosts

    assert host.via == "local"


@pytest.mark.parametrize("line", ["{} slots=8", "{}:8", "{} slots=8 max_slots=8  # first"])
def test_a_hostfile_names_a_job(tmp_path: Path, line: str) -> None:
    hosts = tmp_path / "llama.hosts"
    hosts.write_text("# made by the launcher\n" + "\n".join(map(line.format, ("gpu001", "gpu002"))))

    (job,) = selected("squeue", hosts=hosts).jobs

    assert (job.scheduler, job.label) == (HOSTFILE, "job llama")
    assert job.nodes == ("gpu001", "gpu002")


def test_another_hosts_file_names_none(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu001 slots=8\ngpu002 user=ops\n")

    assert selected("squeue", hosts=hosts).jobs == ()


def test_two_hosts_files_of_one_name_do_not_share_what_is_kept_of_a_watch(tmp_path: Path) -> None:
    files = [tmp_path / pod / "hosts.txt" for pod in ("pod1", "pod2")]
    for file in files:
        file.parent.mkdir()
        file.write_text("gpu001\n")
    session = Session(load(Path("/dev/null")))

    selections = [selected("squeue", hosts=file) for file in files]

    assert {each.title for each in selections} == {"hosts"}
    kept = [session.kept_findings(each.known_from) for each in selections]
    assert kept[0]._file.path != kept[1]._file.path


def test_a_watch_without_names_takes_up_nothing_of_other_pseudonyms() -> None:
    """Alerts of `host-2` are kept while that is gpu003, and not once gpu001 was added before it."""

    def kept(*names: str) -> tuple[str, str]:
        hosts = [Host(name=each) for each in names]
        redactor = Redactor(hosts)
        return redactor.host(hosts[1]).name, kept_by("/hosts.txt", hosts, redactor)

    before, after = kept("gpu002", "gpu003"), kept("gpu001", "gpu002", "gpu003")
    assert before[0] == after[0] == "host-2", "of gpu003, then of gpu002"
    assert before[1] != after[1]
    assert kept("gpu002", "gpu003") == before
    assert kept_by("/hosts.txt", [Host(name="gpu002")], None) == "/hosts.txt"
