"""fabmon beside a real Slurm: three jobs of two users, a requeue, a cancel."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.slurm import USERS, SlurmCluster, slurm_cluster

ANNA, BEN = USERS


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as running:
        yield running


def squeue(cluster: SlurmCluster, program: str) -> str:
    """What a Python program prints of the jobs, in the environment of the cluster."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert not done.stderr, done.stderr
    return done.stdout


ASK = """
import asyncio
from fabmon.feeds.squeue import Squeue
async def ask():
    squeue = Squeue()
    lines = await squeue.ask()
    squeue._wants_json = True
    assert await squeue.ask() == lines
    for job in lines:
        print(job.number, job.name, job.user, job.partition, *job.nodes)
asyncio.run(ask())
"""

WATCH = """
import asyncio
from fabmon.feeds.squeue import Squeue
async def watch():
    async with Squeue(period_s=1) as squeue:
        while True:
            report = squeue.take()
            if report is not None:
                starts = [f"{job.id}@{job.start_ns}" for job in report.jobs]
                print(report.reason, *starts, flush=True)
            await asyncio.sleep(0.1)
asyncio.run(watch())
"""


def test_lines_and_json_of_three_jobs_of_two_users_say_the_same(cluster: SlurmCluster) -> None:
    first = cluster.submit(ANNA, "llama-70b", 2, "-wgpu[001-002]")
    second = cluster.submit(BEN, "vit|22b", 1, "-wgpu003")
    third = cluster.submit(
        BEN, "x\n1|1|root|train|RUNNING|N/A|gpu001|forged", 1, "-pdebug", "-wgpu004"
    )
    try:
        lines = squeue(cluster, ASK).splitlines()
    finally:
        cluster.run("scancel", first, second, third)

    assert lines[0] == f"{first} llama-70b {ANNA} train gpu001 gpu002"
    assert lines[1] == f"{second} vit|22b {BEN} train gpu003"
    assert lines[2].startswith(f"{third} x")
    assert lines[2].endswith(f"{BEN} debug gpu004")
    assert len(lines) == 3


def test_each_task_of_an_array_is_a_job_with_the_number_that_users_see(
    cluster: SlurmCluster,
) -> None:
    number = cluster.submit(ANNA, "sweep", 1, "--array=3-4")
    try:
        cluster.wait_for(lambda: len(cluster.run("squeue", "-h", "-t", "R").splitlines()) == 2)
        lines = squeue(cluster, ASK).splitlines()
    finally:
        cluster.run("scancel", number)

    assert sorted(line.split()[0] for line in lines) == [f"{number}_3", f"{number}_4"]


def test_requeue_and_cancel_are_seen(cluster: SlurmCluster) -> None:
    cancelled = cluster.submit(ANNA, "llama-70b", 2)
    requeued = cluster.submit(BEN, "vit-22b", 1)
    argv = [sys.executable, "-c", WATCH]
    with subprocess.Popen(
        argv, env=cluster.environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        try:
            first = watching.stdout.readline().split()
            assert [each.partition("@")[0] for each in first] == [cancelled, requeued]

            cluster.run("scancel", cancelled)
            cluster.run("scontrol", "requeue", requeued)
            # It may be asked between the two commands.
            while watching.stdout.readline().split():
                pass
            assert watching.poll() is None

            # Slurm starts it again after two minutes, or on request.
            cluster.run("scontrol", "update", f"jobid={requeued}", "starttime=now")
            (again,) = watching.stdout.readline().split()
            assert again.partition("@")[0] == requeued
            assert again != first[1]
        finally:
            watching.kill()
            cluster.run("scancel", cancelled, requeued)


def test_a_run_watches_the_nodes_of_a_job_and_names_it(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    number = cluster.submit(ANNA, "llama-70b", 2, "-wgpu[001-002]")
    other = cluster.submit(BEN, "vit-22b", 1, "-wgpu003")
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu[001-004] via=local\n")

    def nodes(*options: str) -> list[str]:
        argv = [sys.executable, "-m", "fabmon", *options, "--once", "--format", "json"]
        done = subprocess.run(
            argv, env=cluster.environment, capture_output=True, text=True, timeout=240
        )
        return [each["node"] for each in json.loads(done.stdout)["nodes"]]

    try:
        assert nodes("--hosts", str(hosts), "--job", number) == ["gpu001", "gpu002"]
        assert nodes("--hosts", str(hosts), "--user", BEN) == ["gpu003"]
        assert nodes("--hosts", str(hosts), "--partition", "train") == [
            "gpu001",
            "gpu002",
            "gpu003",
        ]
    finally:
        cluster.run("scancel", number, other)
