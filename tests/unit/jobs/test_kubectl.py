"""Pods of Kubernetes: what a `kubectl` prints, beside Slurm's jobs and the cgroups of processes."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import Tick
from fabmon.feeds.kubectl import Kubectl, jobs_of_pods
from tests.requirements import need_command
from tests.unit.jobs.kubernetes_api import kubernetes_api, pod
from tests.unit.jobs.worlds import pairs_of_pod

UIDS = [f"3f2a91c{number}-0b1c-4d2e-8f3a-5b6c7d8e9f00" for number in range(4)]
PODS = f"""\
{UIDS[0]}|research|llama-worker-0|gpu001|2026-05-04T20:01:00Z|8||llama-70b|||||
{UIDS[1]}|research|llama-worker-1|gpu002|2026-05-04T20:01:05Z|8||llama-70b|||||
{UIDS[2]}|default|notebook|gpu003|2026-05-04T21:00:00Z|1|||||||
{UIDS[3]}|kube-system|node-exporter-x|gpu001|2026-05-01T00:00:00Z||||||||
"""
LLAMA = Job(
    scheduler="kubernetes",
    id="research/llama-70b",
    partition="research",
    nodes=("gpu001", "gpu002"),
    pods=(UIDS[0], UIDS[1]),
    start_ns=1_777_924_860 * 10**9,
)


def fake_kubectl(directory: Path, script: str) -> str:
    path = directory / "kubectl"
    path.write_text(f'#!/bin/sh\necho "$@" >> {directory}/asked\n{script}\n')
    path.chmod(0o755)
    return str(path)


def test_pods_with_the_label_of_a_job_are_one_job_and_those_without_gpus_are_none() -> None:
    llama, notebook = sorted(jobs_of_pods(PODS), key=lambda job: -len(job.nodes))
    assert llama == LLAMA
    assert llama.label == "job research/llama-70b"
    assert (notebook.id, notebook.nodes) == ("default/notebook", ("gpu003",))


async def test_a_real_kubectl_prints_the_lines_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_command("kubectl", "kubernetes-client")
    monkeypatch.setenv("HOME", str(tmp_path))  # Its cache.
    label = {"training.kubeflow.org/job-name": "llama-70b"}
    pods = [
        pod(UIDS[0], "research", "llama-worker-0", "gpu001", 8, **label),
        pod(UIDS[1], "research", "llama-worker-1", "gpu002", 8, **label),
        pod(UIDS[2], "default", "notebook", "gpu003", 1),
        pod(UIDS[3], "kube-system", "node-exporter-x", "gpu001"),
    ]
    with kubernetes_api(pods) as address:
        notebook, llama = await Kubectl(f"kubectl --server={address}").ask()

    assert llama == LLAMA
    assert notebook.id == "default/notebook"


@given(st.lists(st.sampled_from([*"|\n\x1bé", UIDS[0], "gpu", PODS, PODS[:90]])))
def test_other_text_is_no_job_or_a_printable_one(parts: list[str]) -> None:
    for job in jobs_of_pods("".join(parts)):
        assert job.id.isprintable()
        assert job.nodes


async def test_pods_beyond_the_limit_are_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = tmp_path / "kubectl"
    pod = "%08x-0000-0000-0000-000000000000|n|p|a||8|||||||"
    lines = f"print('{pod}' % number)"
    command.write_text(f"#!{sys.executable}\nfor number in range(20_003):\n    {lines}\n")
    command.chmod(0o700)
    kubectl = Kubectl(str(command))
    (job,) = await kubectl.ask()
    await kubectl.ask()
    assert len(job.pods) == 20_000
    assert caplog.text.count("more than 20000 pods: 3 are left out") == 1


def test_a_time_that_no_record_can_hold_is_unknown() -> None:
    """Go prints no time as the year 1, and the times of a recording are 64-bit."""
    (job,) = jobs_of_pods(PODS.splitlines()[2].replace("2026-05-04", "0001-01-01"))
    assert job.start_ns == 0
    assert msgspec.msgpack.encode(job)
    (job,) = jobs_of_pods(PODS.splitlines()[2].replace("2026-05-04", "9999-05-04"))
    assert job.start_ns == 0
    one, other = PODS.splitlines()[:2]
    (job,) = jobs_of_pods(f"{one}\n{other.replace('2026-05-04T20:01:05Z', '')}")
    assert job.start_ns == LLAMA.start_ns, "as far as it is known"


def test_processes_in_a_pod_belong_to_its_job_or_are_known_by_its_uid() -> None:
    hosts = ["gpu001", "gpu002", "gpu003"]
    processes = {"gpu001": pairs_of_pod(UIDS[0]), "gpu003": pairs_of_pod(UIDS[2])}

    named = JobTable(JobReport(source="kubectl", read_ns=1, jobs=(LLAMA,)), hosts, processes)
    alone = JobTable(None, hosts, processes)

    assert [job.label for job in named.jobs] == ["job pod 3f2a91c2", "job research/llama-70b"]
    assert named.nodes_of(LLAMA) == ("gpu001", "gpu002")
    assert [job.label for job in alone.jobs] == ["job pod 3f2a91c0", "job pod 3f2a91c2"]


def test_redaction_covers_namespaces_names_and_pods() -> None:
    redactor = Redactor()
    report = JobReport(source="kubectl", read_ns=1, jobs=(LLAMA,))
    found = redactor.tick(Tick(0, 0, jobs=report)).jobs
    assert found is not None
    text = msgspec.json.encode(found).decode()
    for name in ("research", "llama", "gpu00", "3f2a91c"):
        assert name not in text
    assert found.jobs[0].pods[0] == redactor._fact("pod", UIDS[0])


async def _ticks(*reports: JobReport | None) -> AsyncIterator[Tick]:
    for seq, report in enumerate(reports):
        yield Tick(seq, seq, jobs=report)
        await asyncio.sleep(0.02)


async def test_pods_are_added_to_what_slurm_reports(tmp_path: Path) -> None:
    slurm = JobReport(source="squeue", read_ns=5, jobs=(Job(id="8801", nodes=("gpu009",)),))
    (tmp_path / "pods").write_text(PODS)
    command = fake_kubectl(tmp_path, f"cat {tmp_path}/pods")
    async with Kubectl(command) as kubectl, asyncio.timeout(240):
        ticks = [t async for t in kubectl.with_pods(_ticks(slurm, *[None] * 200, slurm))]
    new = [tick.jobs for tick in ticks if tick.jobs is not None]
    assert [len(each.jobs) for each in new] == [1, 3, 3]
    assert new[1].source == "squeue and kubectl"
    assert (tmp_path / "asked").read_text().startswith("get pods --all-namespaces")


async def test_without_slurm_the_pods_are_all_there_is(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text(PODS)
    none = JobReport(source="squeue", reason="squeue is not on the PATH of this machine")
    async with Kubectl(fake_kubectl(tmp_path, f"cat {tmp_path}/pods")) as kubectl:
        ticks = [t async for t in kubectl.with_pods(_ticks(none, *[None] * 200))]
    report = ticks[-1].jobs or next(t.jobs for t in reversed(ticks) if t.jobs is not None)
    assert (report.source, report.reason, len(report.jobs)) == ("kubectl", "", 2)


async def test_pods_that_cannot_be_read_any_more_stay_with_their_time_and_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pods").write_text(PODS)
    slurm = JobReport(source="squeue", read_ns=5, jobs=(Job(id="8801", nodes=("gpu009",)),))
    fails = "[ $n -gt 1 ] && [ $n -lt 4 ] && exit 7"
    script = f"n=$(grep -c 'get pods' {tmp_path}/asked); {fails}; cat {tmp_path}/pods"
    reports = []
    with caplog.at_level(logging.WARNING, "fabmon.feeds"):
        async with Kubectl(fake_kubectl(tmp_path, script), period_s=0.3) as kubectl:
            async for tick in kubectl.with_pods(_ticks(slurm, *[None] * 2000)):
                reports += [] if tick.jobs is None else [tick.jobs]
                if len(reports) == 4:
                    break
    assert [len(each.jobs) for each in reports] == [1, 3, 3, 3]
    assert [bool(each.notes) for each in reports] == [False, False, True, False]
    (note,) = reports[2].notes
    assert re.fullmatch(r"pods as of \d\d:\d\d:\d\dZ: kubectl ended with status 7", note)
    assert [each.message for each in caplog.records if "pods" in each.message] == [
        "pods are not known: kubectl ended with status 7",
        "pods are known again",
    ]


async def test_without_slurm_their_reason_is_that_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text(PODS)
    script = f"[ $(grep -c 'get pods' {tmp_path}/asked) -gt 1 ] && exit 7; cat {tmp_path}/pods"
    async with Kubectl(fake_kubectl(tmp_path, script), period_s=0.2) as kubectl:
        async for tick in kubectl.with_pods(_ticks(*[None] * 2000)):
            if tick.jobs is not None and tick.jobs.reason:
                break
    assert tick.jobs is not None
    assert (tick.jobs.reason, len(tick.jobs.jobs)) == ("kubectl ended with status 7", 2)
    assert tick.jobs.read_ns > 0


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 60", "kubectl has not answered for 0.2 s"),
        ("echo secret-host refused >&2; exit 1", "kubectl ended with status 1"),
        ("cat /dev/zero", "kubectl printed more than"),
        ("echo '<html>secret-host'", "kubectl printed no pods that can be read"),
    ],
)
async def test_a_kubectl_that_hangs_fails_or_floods_costs_a_line(
    tmp_path: Path, script: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    command = fake_kubectl(tmp_path, script)
    timeout_s = 0.2 if script.startswith("sleep") else 20
    with caplog.at_level(logging.WARNING, "fabmon.feeds"):
        async with Kubectl(command, period_s=0.05, timeout_s=timeout_s), asyncio.timeout(240):
            while len(_asked(tmp_path)) < 3:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
    ours = [each for each in caplog.records if each.name.startswith("fabmon")]
    assert [said in record.message for record in ours] == [True]
    assert "secret-host" not in caplog.text


def _asked(directory: Path) -> list[str]:
    path = directory / "asked"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("is_configured", [False, True])
async def test_the_usual_kubectl_is_asked_only_where_it_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_configured: bool
) -> None:
    fake_kubectl(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if is_configured:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube/config").write_text("apiVersion: v1")
    async with Kubectl() as kubectl:
        async for _ in kubectl.with_pods(_ticks(*[None] * 100)):
            pass
    assert bool(_asked(tmp_path)) == is_configured


async def test_a_machine_without_kubectl_asks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with Kubectl("/no/such/kubectl") as kubectl:
        ticks = [tick async for tick in kubectl.with_pods(_ticks(None, None))]
    assert [tick.jobs for tick in ticks] == [None, None]
    assert not caplog.records
