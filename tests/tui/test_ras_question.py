"""`R` in the view of jobs: nothing is sent before the user agrees and the version is known."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path

import pytest

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Host
from fabmon.session.config import load
from fabmon.session.ras_run import RasOptions, send_query
from fabmon.session.screen_ras import screen_ras
from fabmon.session.session import Session
from fabmon.tui.run_facts import AskRas
from tests.tui.running import Running, running
from tests.unit.jobs.worlds import scene_of_jobs
from tests.unit.ras.ras_server import RasServer, rank, status

LATE = status([rank(0, "gpu001", 40), *(rank(n, "gpu002", 41) for n in range(1, 4))])
ALLOWED = ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "STATUS"]


@pytest.fixture(autouse=True)
def _no_mapped_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that runs no job of NCCL."""
    monkeypatch.setattr("fabmon.session.ras_run.mapped_versions", dict)


@cache
def jobs() -> Scene:
    return scene_of_jobs(20)


def asking(server: RasServer, via: str = "local", first: str = "") -> AskRas:
    """The nodes are this machine, the first is reached in another way."""
    ways = [first or via, *[via] * 7]
    hosts = [Host(name=f"gpu{n:03}", via=each) for n, each in enumerate(ways, 1)]
    nothing: list[Path] = []
    return screen_ras(Session(load(None)), hosts, lambda: nothing, server.port)


async def ask(run: Running, *typed: str) -> None:
    await run.send(jobs())
    await run.press("7", "R")
    await run.press(*typed)


async def test_the_risk_is_said_first_and_one_query_is_sent_after_the_version_is_typed() -> None:
    with RasServer(LATE) as server:
        async with running(ask_ras=asking(server)) as run:
            await ask(run)
            text = " ".join(run.text.split())
            assert "for the status of job 8801 llama-70b (anna)? One query is sent." in text
            assert "before 2.29.2 and with 2.29.7 a query can crash the job" in text
            assert server.connections == 0
            await run.press("escape")
            assert "R RAS" in run.lines[-1]
            await run.press("R")
            await run.press(*"2.29.3", "enter")
            await run.shows("job 8801 llama-70b (anna): NCCL's RAS", "AllReduce 40 of 41")
            assert server.received == ALLOWED
            assert server.connections == 1
            await run.shows("One query was sent, to gpu001.")
            await run.press("escape")
            assert "vit-22b" in run.text, "the table of jobs again"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "type yes, or the version of its NCCL"),
        ("y", "type yes, or the version of its NCCL"),
        ("2.27.3", "a query can crash a job with NCCL 2.27.3"),
        ("2.29.7", "a query can crash a job with NCCL 2.29.7"),
        ("2.19.0", "NCCL 2.19.0 has no RAS"),
    ],
)
async def test_without_a_yes_or_with_a_version_that_crashes_nothing_is_sent(
    typed: str, said: str
) -> None:
    with RasServer(LATE) as server:
        async with running(ask_ras=asking(server)) as run:
            await ask(run, *typed, "enter")
            await run.shows(said)
            await run.press("escape")
            assert run.view == "jobs"
        assert server.connections == 0


async def test_yes_without_a_version_that_the_node_knows_is_refused() -> None:
    with RasServer(LATE) as server:
        async with running(ask_ras=asking(server)) as run:
            await ask(run, *"yes", "enter")
            await run.shows("Nothing was sent.", "RAS was not asked", "says which one the job uses")
        assert server.connections == 0


async def test_leaving_the_question_sends_nothing() -> None:
    with RasServer(LATE) as server:
        async with running(ask_ras=asking(server)) as run:
            await ask(run, *"2.29.3", "escape")
            assert run.view == "jobs"
        assert server.connections == 0


async def test_a_node_that_is_not_reached_over_ssh_is_not_asked() -> None:
    with RasServer(LATE) as server:
        async with running(ask_ras=asking(server, via="agent")) as run:
            await ask(run, *"2.29.3", "enter")
            await run.shows("is read with via=agent")
        assert server.connections == 0


async def test_the_next_node_is_asked_where_nothing_listens_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first refuses the connection: nothing can have been sent to it."""

    def refusing(session: Session, options: RasOptions, host: Host, *where: int) -> bytes:
        if host.name == "gpu001":
            with socket.create_server(("127.0.0.1", 0)) as free:
                where = (free.getsockname()[1],)
        return send_query(session, options, host, *where)

    monkeypatch.setattr("fabmon.session.screen_ras.send_query", refusing)
    with RasServer(LATE) as server:
        async with running(ask_ras=asking(server)) as run:
            await ask(run)
            text = " ".join(run.text.split())
            assert "on gpu001 (if it accepts no connection: gpu005, gpu002, gpu006) for" in text
            await run.press(*"2.29.3", "enter")
            await run.shows("gpu001: connection refused", "One query was sent, to gpu005.")
            assert server.received == ALLOWED
            assert server.connections == 1


async def test_a_node_that_accepted_and_then_failed_is_the_only_one_that_is_asked() -> None:
    with RasServer(b"", {"TIMEOUT": b"ERROR\n"}) as server:
        async with running(ask_ras=asking(server)) as run:
            await ask(run, *"2.29.3", "enter")
            await run.shows("RAS refused the timeout")
        assert server.connections == 1


async def test_the_first_of_other_ways_leaves_the_question_to_the_next() -> None:
    with RasServer(LATE) as server:
        async with running(ask_ras=asking(server, first="http")) as run:
            await ask(run, *"2.29.3", "enter")
            await run.shows("gpu001: RAS was not asked: it is read with via=http")
            await run.shows("One query was sent, to gpu005.")
        assert server.connections == 1


async def test_an_answer_that_is_none_is_said() -> None:
    with RasServer(b"", {"CLIENT PROTOCOL": b"HTTP/1.1 400\n"}) as server:
        async with running(ask_ras=asking(server)) as run:
            await ask(run, *"2.29.3", "enter")
            await run.shows("this is not NCCL's RAS")


async def test_a_simulated_fabric_has_none() -> None:
    async with running(toasts=True) as run:
        await ask(run)
        await run.says("no RAS: these nodes are simulated, recorded or redacted")
