"""RAS on localhost of a node, through a real SSH server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh
import pytest
from click.testing import CliRunner

from fabmon.cli.main import cli
from fabmon.fabric.model import Host
from fabmon.feeds.errors import LoginRefused, Unreachable
from fabmon.feeds.nccl_ras import connected_over_ssh, mapped_over_ssh, query_status
from fabmon.session.nccl_version import mapped_versions
from fabmon.session.ras_run import RasOptions
from fabmon.session.session import Session
from tests.unit.feeds.ssh_servers import Bastion, Nodes, ssh_host
from tests.unit.ras.ras_server import RasServer, rank, status

ANSWER = status([rank(number, "gpu001", 41) for number in range(2000)])


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(tmp_path_factory.mktemp("ssh"))


async def ask(nodes: Nodes, ssh_port: int, ras_port: int) -> bytes:
    host = ssh_host("gpu001", ssh_port)
    async with connected_over_ssh(host, ras_port, str(nodes.config)) as (reader, writer):
        return await query_status(reader, writer, 60)


async def test_a_query_through_ssh(nodes: Nodes) -> None:
    port = await nodes.listen(server=Bastion)
    with RasServer(ANSWER) as server:
        assert await ask(nodes, port, server.port) == ANSWER
    assert server.connections == 1
    await nodes.close()


async def test_no_job_listens_on_the_node(nodes: Nodes) -> None:
    port = await nodes.listen(server=Bastion)
    with pytest.raises(Unreachable, match="on gpu001"):
        await ask(nodes, port, 1)
    await nodes.close()


async def test_a_node_that_forwards_nothing(nodes: Nodes) -> None:
    port = await nodes.listen(server=asyncssh.SSHServer)
    with RasServer(ANSWER) as server, pytest.raises(Unreachable, match="on gpu001"):
        await ask(nodes, port, server.port)
    assert server.connections == 0
    await nodes.close()


async def test_a_login_that_is_refused(nodes: Nodes) -> None:
    port = await nodes.listen(server=Bastion, welcome=False)
    with RasServer(ANSWER) as server, pytest.raises(LoginRefused):
        await ask(nodes, port, server.port)
    assert server.connections == 0
    await nodes.close()


@contextmanager
def process_with(library: Path) -> Iterator[None]:
    """A process that has mapped a library."""
    program = (
        "import mmap, sys; f = open(sys.argv[1], 'rb');"
        " m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield
        child.kill()


async def test_the_libraries_that_a_node_has_mapped(nodes: Nodes, tmp_path: Path) -> None:
    """By a real shell and a real /proc."""
    port = await nodes.listen(server=Bastion)
    named, plain = tmp_path / "libnccl.so.2.29.3", tmp_path / "wheel" / "libnccl.so.2"
    named.write_bytes(b"\0" * 5000)
    plain.parent.mkdir()
    plain.write_bytes(b"\0" * 70_000 + b"NCCL version 2.27.5+cuda12.9\0")
    with process_with(named), process_with(plain):
        found = await mapped_over_ssh(ssh_host("gpu001", port), str(nodes.config))
        here = mapped_versions()
    await nodes.close()
    assert found[str(named)] == ""
    assert found[str(plain)] == "NCCL version 2.27.5"
    assert str(here[str(named)]) == "2.29.3"
    assert str(here[str(plain)]) == "2.27.5"


@pytest.mark.parametrize(
    ("mapped", "is_asked"),
    [
        ({"/lib/libnccl.so.2.29.3": ""}, True),
        ({"/venv/libnccl.so.2": "NCCL version 2.30.4"}, True),
        ({"/venv/libnccl.so.2": "NCCL version 2.29.7"}, False),
        ({"/lib/libnccl.so.2.29.3": "", "/venv/libnccl.so.2": "NCCL version 2.27.5"}, False),
        ({"/venv/libnccl.so.2": ""}, False),
        ({"/lib/libnccl.so.2.29.3": "", "/venv/libnccl.so.2": ""}, False),
        ({}, False),
    ],
)
def test_what_a_node_has_mapped_decides(
    mapped: dict[str, str], is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def search(host: Host, ssh_config: str | None) -> dict[str, str]:
        return mapped

    asked: list[str] = []

    def ask_it(session: Session, options: RasOptions, host: Host, port: int) -> bytes:
        asked.append(host.name)
        return ANSWER

    monkeypatch.setattr("fabmon.session.ras_run.mapped_over_ssh", search)
    monkeypatch.setattr("fabmon.session.ras_run.send_query", ask_it)
    done = CliRunner().invoke(cli, ["ras", "--host", "gpu001"])
    assert asked == (["gpu001"] if is_asked else [])
    assert is_asked or "RAS was not asked" in str(done.exception)
