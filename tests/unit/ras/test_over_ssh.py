"""RAS on localhost of a node, through a real SSH server."""

from __future__ import annotations

import asyncssh
import pytest

from fabmon.feeds.errors import LoginRefused, Unreachable
from fabmon.feeds.nccl_ras import connected_over_ssh, query_status
from tests.unit.feeds.ssh_servers import Bastion, Nodes, ssh_host
from tests.unit.ras.ras_server import RasServer, rank, status

ANSWER = status([rank(number, "gpu001", 41) for number in range(2000)])


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(tmp_path_factory.mktemp("ssh"))


async def ask(nodes: Nodes, ssh_port: int, ras_port: int) -> bytes:
    host = ssh_host("gpu001", ssh_port)
    async with connected_over_ssh(host, ras_port, str(nodes.config)) as (reader, writer):
        return await query_status(reader, writer, 5)


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
