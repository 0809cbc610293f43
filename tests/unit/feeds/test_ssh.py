"""Nodes over real SSH: each failure has its exact reason and affects one node only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import asyncssh
import pytest
from blockbuster import BlockBuster

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.feeds import probe_input, token_bucket
from fabmon.feeds.errors import LoginRefused, Misbehaved, Unreachable
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.ssh import SshTransport
from fabmon.feeds.transports.ssh_login import SshTimeouts
from fabmon.feeds.transports.transport import Transport
from tests.unit.feeds.ssh_servers import Bastion, Handler, Nodes, Process, ssh_host
from tests.unit.feeds.wire_lines import (
    are,
    frame_line,
    frames_of,
    hello_line,
    wait_for_frames,
    watch,
)

INTERVAL_S = 0.2


class AtShortInterval:
    """The SSH transport at a short interval."""

    def __init__(self, nodes: Nodes, root: str) -> None:
        settings = ProbeSettings(interval_s=INTERVAL_S, root=root)
        self._ssh = SshTransport(settings, str(nodes.config))

    def of(self, host: Host) -> Transport:
        return self._ssh

    async def close(self) -> None:
        await self._ssh.close()


@asynccontextmanager
async def live(nodes: Nodes, root: str, *hosts: Host) -> AsyncIterator[LiveFeed]:
    transports = AtShortInterval(nodes, root)
    async with LiveFeed(hosts, interval_s=INTERVAL_S, transports=transports) as feed:
        yield feed


async def beside_a_good_one(
    nodes: Nodes, root: str, port: int, state: NodeState = NodeState.FAILED, **more: str
) -> tuple[NodeStatus, list[Tick]]:
    """The final status of a node; checks that another node still sends frames."""
    good = ssh_host("good", await nodes.listen())
    bad = Host(name="bad", address="127.0.0.1", port=port, python=more.get("python"))
    async with live(nodes, root, good, bad) as feed:
        latest, ticks = await watch(feed, are(state, "bad"))
        await wait_for_frames(feed, "good")
    return latest["bad"], ticks


def speaks(*lines: bytes, pause_s: float = 0.0, then_s: float = 30.0) -> Handler:
    """A login whose command prints these lines, and then nothing."""

    async def handle(process: Process) -> None:
        try:
            for line in lines:
                process.stdout.write(line)
                await process.stdout.drain()
                await asyncio.sleep(pause_s)
            await asyncio.sleep(then_s)
        except (asyncssh.Error, BrokenPipeError):
            return
        process.exit(0)

    return handle


async def test_a_node_is_up_by_way_of_its_states(nodes: Nodes, empty_root: str) -> None:
    host = ssh_host("gpu1", await nodes.listen())
    async with live(nodes, empty_root, host) as feed:
        latest, ticks = await watch(feed, are(NodeState.UP, "gpu1"))
    assert frames_of(ticks, "gpu1")[0] == 0
    states = [status.state for tick in ticks for status in tick.statuses]
    assert states == ["queued", "connecting", "starting", "up"]
    assert latest["gpu1"].reason == ""


@pytest.mark.parametrize(
    ("config", "cipher"),
    [
        ("", "-gcm@openssh.com"),
        ("Host *\n  Ciphers aes192-ctr,aes256-ctr\n", "aes192-ctr"),
        ("Host *\n  Ciphers -aes*\n", "chacha20-poly1305@openssh.com"),
    ],
)
async def test_the_cipher_is_a_fast_one_unless_ssh_config_names_others(
    nodes: Nodes, empty_root: str, config: str, cipher: str
) -> None:
    used: list[str] = []

    async def handle(process: Process) -> None:
        used.append(process.get_extra_info("recv_cipher"))
        await speaks(hello_line())(process)

    nodes.write_config(config)
    async with live(nodes, empty_root, ssh_host("a", await nodes.listen(handle))) as feed:
        await watch(feed, lambda latest: bool(used))
    assert used[0].endswith(cipher)


async def test_nothing_of_the_probe_is_left_when_the_feed_closes(
    nodes: Nodes, empty_root: str
) -> None:
    ended = asyncio.Event()

    async def node(process: Process) -> None:
        await process.stdin.read()
        ended.set()
        process.exit(0)

    port = await nodes.listen(node)
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        await watch(feed, are(NodeState.STARTING, "gpu1"))
    await asyncio.wait_for(ended.wait(), 240)


async def test_an_unknown_host_key_is_rejected_with_the_command_that_accepts_it(
    nodes: Nodes, empty_root: str
) -> None:
    port = await nodes.listen(known=False)
    status, _ = await beside_a_good_one(nodes, empty_root, port)
    assert status.cause == "host key"
    assert nodes.host_key.get_fingerprint() in status.reason
    assert f"ssh-keyscan -p {port} 127.0.0.1 >> {nodes.known_hosts}" in status.reason


async def test_an_accepted_host_key_works_at_the_next_attempt(
    nodes: Nodes, empty_root: str
) -> None:
    port = await nodes.listen(known=False)
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        await watch(feed, are(NodeState.FAILED, "gpu1"))
        nodes.trust(port, nodes.host_key)
        await watch(feed, are(NodeState.UP, "gpu1"))


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256"])
async def test_a_changed_host_key_is_rejected_with_the_command_that_accepts_it(
    nodes: Nodes, empty_root: str, kind: str
) -> None:
    port = await nodes.listen(known=False)
    nodes.trust(port, asyncssh.generate_private_key(kind))
    status, _ = await beside_a_good_one(nodes, empty_root, port)
    assert status.cause == "host key changed"
    assert f"ssh-keygen -f {nodes.known_hosts} -R '[127.0.0.1]:{port}'" in status.reason


async def test_host_keys_are_checked_even_when_ssh_config_says_not_to(
    nodes: Nodes, empty_root: str
) -> None:
    nodes.config.write_text(
        f"Host *\n UserKnownHostsFile none\n IdentityFile {nodes.directory}/key\n"
    )
    port = await nodes.listen()
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        latest, _ = await watch(feed, are(NodeState.FAILED, "gpu1"))
    assert latest["gpu1"].cause == "host key"


async def test_a_refused_key(nodes: Nodes, empty_root: str) -> None:
    port = await nodes.listen(welcome=False)
    status, _ = await beside_a_good_one(nodes, empty_root, port)
    assert status.cause == "permission denied"
    assert status.reason == (
        "permission denied (publickey) for user tester: it accepts none of our keys"
        f" ({nodes.directory}/key): add {nodes.directory}/key.pub to authorized_keys of tester"
        " there, or is user= wrong?; next login when a key or ssh_config here changes, by r, else"
        " within 30 min"
    )


async def test_after_a_refused_key_the_next_login_is_with_another_key(
    nodes: Nodes, empty_root: str
) -> None:
    class Counting(asyncssh.SSHServer):
        logins = 0

        def begin_auth(self, username: str) -> bool:
            type(self).logins += 1
            return True

    accepted = nodes.directory / "key"
    accepted.rename(nodes.directory / "later")
    (nodes.directory / "key.pub").unlink()
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(accepted)
    port = await nodes.listen(server=Counting)
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        await watch(feed, are(NodeState.FAILED, "gpu1"))
        await asyncio.sleep(3)
        assert Counting.logins == 1
        (nodes.directory / "later").rename(accepted)
        await watch(feed, are(NodeState.UP, "gpu1"))
    assert Counting.logins == 2


async def test_nodes_behind_a_jump_host_that_refuses_the_login_try_it_once(
    nodes: Nodes, empty_root: str
) -> None:
    class Refusing(asyncssh.SSHServer):
        logins = 0

        def begin_auth(self, username: str) -> bool:
            type(self).logins += 1
            return True

    jump = await nodes.listen(welcome=False, server=Refusing)
    nodes.write_config(f"Host 127.0.0.2\n  ProxyJump 127.0.0.1:{jump}\n")
    first, second = (Host(name=name, address="127.0.0.2", port=9) for name in ("gpu1", "gpu2"))
    dialer = SshTransport(ProbeSettings(root=empty_root), str(nodes.config))
    try:
        with pytest.raises(LoginRefused, match="jump host"):
            await dialer.open(first)
        await asyncio.sleep(6)
        with pytest.raises(LoginRefused, match="jump host"):
            await dialer.open(second)
    finally:
        await dialer.close()
    assert Refusing.logins == 1


async def test_a_second_factor_gets_the_hint_to_use_openssh(nodes: Nodes, empty_root: str) -> None:
    class Asks(asyncssh.SSHServer):
        def kbdint_auth_supported(self) -> bool:
            return True

    port = await nodes.listen(server=Asks, public_key_auth=False)
    status, _ = await beside_a_good_one(nodes, empty_root, port)
    assert status.cause == "permission denied"
    assert "via=exec command=openssh" in status.reason


async def test_a_server_that_accepts_tcp_and_stays_silent(nodes: Nodes, empty_root: str) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    port = await nodes.listen_tcp(mute)
    timeouts = SshTimeouts(silence_s=1.0)
    dialer = SshTransport(ProbeSettings(root=empty_root), str(nodes.config), timeouts)
    with pytest.raises(Unreachable) as caught:
        await dialer.open(ssh_host("gpu1", port))
    await dialer.close()
    assert caught.value.cause == "timeout"
    assert str(caught.value) == (
        f"127.0.0.1:{port}: TCP connected, then silence for 1 s (is it an SSH server?)"
    )


async def test_a_server_that_closes_the_connection(nodes: Nodes, empty_root: str) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    status, _ = await beside_a_good_one(nodes, empty_root, await nodes.listen_tcp(hang_up))
    assert status.cause == "closed"
    assert "closed the connection" in status.reason


async def test_a_port_without_a_server(nodes: Nodes, empty_root: str) -> None:
    status, _ = await beside_a_good_one(nodes, empty_root, 1)
    assert (status.cause, status.reason) == (
        "refused",
        "connection refused by 127.0.0.1:1: is sshd running, is the port right?",
    )


async def test_a_name_without_an_address(nodes: Nodes, empty_root: str) -> None:
    async with live(nodes, empty_root, Host(name="nowhere.invalid")) as feed:
        latest, _ = await watch(feed, are(NodeState.FAILED, "nowhere.invalid"))
    assert latest["nowhere.invalid"].cause in ("unknown name", "timeout")
    assert "nowhere.invalid" in latest["nowhere.invalid"].reason
    if latest["nowhere.invalid"].cause == "unknown name":
        assert latest["nowhere.invalid"].reason.endswith("or set address= in the hosts file")


async def test_a_node_without_python(
    nodes: Nodes, empty_root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(probe_input, "PYTHON_CANDIDATES", "python3-that-is-not-there")
    old = tmp_path / "python3.6"
    old.write_text("#!/bin/sh\necho False 3 5 3\n")
    old.chmod(0o755)
    port = await nodes.listen()
    host = Host(name="gpu1", address="127.0.0.1", port=port, python=str(old))
    none = ssh_host("gpu2", port)
    async with live(nodes, empty_root, host, none) as feed:
        latest, _ = await watch(feed, are(NodeState.FAILED, "gpu1", "gpu2"))
    assert latest["gpu1"].cause == "no python"
    assert latest["gpu1"].reason == (
        f"no python3 >= 3.6 on the node: found 3.5.3 at {old}: set python= in the hosts file"
    )
    assert "found none" in latest["gpu2"].reason


async def test_an_account_that_may_not_log_in(nodes: Nodes, empty_root: str) -> None:
    async def nologin(process: Process) -> None:
        process.stdout.write(b"This account is currently not available.\r\n")
        process.exit(1)

    status, _ = await beside_a_good_one(nodes, empty_root, await nodes.listen(nologin))
    assert "status 1" in status.reason
    assert "This account is currently not available." in status.reason


async def test_greetings_before_the_hello_are_tolerated(nodes: Nodes, empty_root: str) -> None:
    motd = b"Welcome to \x1b[31mgpu1\x1b[0m\r\n" * 100 + b"no newline: "
    frames = [frame_line(seq) for seq in range(40)]
    port = await nodes.listen(speaks(motd + hello_line(), *frames, pause_s=INTERVAL_S))
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        await watch(feed, are(NodeState.UP, "gpu1"))


async def test_output_without_end_that_is_not_the_wire(nodes: Nodes, empty_root: str) -> None:
    async def flood(process: Process) -> None:
        try:
            while True:
                process.stdout.write(b"\x1b]0;owned\x07 garbage \xff\xfe\n" * 1000)
                await process.stdout.drain()
        except (asyncssh.Error, BrokenPipeError):
            return

    status, _ = await beside_a_good_one(nodes, empty_root, await nodes.listen(flood))
    assert status.cause == "garbage"
    assert "64 KiB that are not the wire" in status.reason
    assert status.reason.isprintable()


async def test_packets_without_end_that_ssh_ignores_before_the_login(
    nodes: Nodes, empty_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_bucket, "CPU_BURST_S", 0.5)
    ignored = b"\x00\x00\x00\x0c\x06\x02" + bytes(10)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-flood\r\n")
        with suppress(OSError):
            while True:
                writer.write(ignored * 4000)
                await writer.drain()

    host = ssh_host("gpu1", await nodes.listen_tcp(flood))
    dialer = SshTransport(ProbeSettings(root=empty_root), str(nodes.config))
    with pytest.raises(Misbehaved) as caught:
        await dialer.open(host)
    with pytest.raises(Misbehaved, match="not asked for"):
        await dialer.open(host)
    await dialer.close()
    assert str(caught.value) == "costs the console more than 0.1 s of CPU time a second"


async def test_packets_without_end_that_ssh_ignores_after_the_login(
    nodes: Nodes, empty_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_bucket, "CPU_BURST_S", 0.5)

    async def flood(process: Process) -> None:
        connection = process.channel.get_connection()
        while not process.channel.is_closing():
            for _ in range(500):
                connection.send_debug("")
            await asyncio.sleep(0.001)

    status, _ = await beside_a_good_one(nodes, empty_root, await nodes.listen(flood))
    assert status.cause == "cpu"
    assert status.reason.startswith("costs the console more than 0.1 s of CPU time a second")


async def test_output_without_newlines(nodes: Nodes, empty_root: str) -> None:
    async def flood(process: Process) -> None:
        try:
            while True:
                process.stdout.write(b"x" * 32768)
                await process.stdout.drain()
        except (asyncssh.Error, BrokenPipeError):
            return

    status, _ = await beside_a_good_one(nodes, empty_root, await nodes.listen(flood))
    assert status.cause == "garbage"
    assert "line of more than" in status.reason


async def test_frames_that_do_not_fit_the_hello(nodes: Nodes, empty_root: str) -> None:
    wrong = [frame_line(seq, (1, 2, 3)) for seq in range(10)]
    port = await nodes.listen(speaks(hello_line(), *wrong, pause_s=0.05))
    status, ticks = await beside_a_good_one(nodes, empty_root, port)
    assert status.cause == "garbage"
    assert status.reason == "netdev: a block of 4 values, announced 3"
    assert frames_of(ticks, "bad") == []


async def test_a_flood_of_valid_frames(nodes: Nodes, empty_root: str) -> None:
    frames = b"".join(frame_line(seq) for seq in range(1000))
    port = await nodes.listen(speaks(hello_line(), *[frames] * 50))
    status, _ = await beside_a_good_one(nodes, empty_root, port, NodeState.LOST)
    assert status.cause == "flood"
    assert "frames a second" in status.reason


async def test_escape_sequences_in_a_hello_are_made_harmless(nodes: Nodes, empty_root: str) -> None:
    line = hello_line(hostname="\x1b]0;owned\x07\x9b31mgpu\u202e1\n")
    frames = [frame_line(seq) for seq in range(40)]
    port = await nodes.listen(speaks(line, *frames, pause_s=INTERVAL_S))
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        _, ticks = await watch(feed, are(NodeState.UP, "gpu1"))
    hostnames = [hello.hostname for tick in ticks for _, hello in tick.hellos]
    assert hostnames == ["?]0;owned??31mgpu?1?"]


async def test_a_node_recovers_after_a_reboot(nodes: Nodes, empty_root: str) -> None:
    def boot(boot_id: str) -> Handler:
        frames = [frame_line(seq) for seq in range(200)]
        return speaks(hello_line(boot_id=boot_id), *frames, pause_s=INTERVAL_S)

    port = await nodes.listen(boot("boot-1"))
    good = ssh_host("good", await nodes.listen())
    async with live(nodes, empty_root, ssh_host("gpu1", port), good) as feed:
        await watch(feed, are(NodeState.UP, "gpu1", "good"))
        await nodes.stop(port)
        latest, _ = await watch(feed, are(NodeState.LOST, "gpu1"))
        assert latest["gpu1"].reason
        await nodes.listen(boot("boot-2"), port=port, known=False)
        _, ticks = await watch(feed, are(NodeState.UP, "gpu1"))
        await wait_for_frames(feed, "good")
    boots = [hello.boot_id for tick in ticks for node, hello in tick.hellos if node == "gpu1"]
    assert boots == ["boot-2"]


async def test_a_jump_host_is_used_once_for_many_nodes(nodes: Nodes, empty_root: str) -> None:
    class Jump(Bastion):
        pass

    jump = await nodes.listen(server=Jump)
    ports = [await nodes.listen() for _ in range(5)]
    nodes.write_config(f"Host gpu*\n  HostName 127.0.0.1\n  ProxyJump 127.0.0.1:{jump}\n")
    hosts = [Host(name=f"gpu{index}", port=port) for index, port in enumerate(ports)]
    async with live(nodes, empty_root, *hosts) as feed:
        await watch(feed, are(NodeState.UP, *(host.name for host in hosts)))
    assert (Jump.logins, Jump.forwards) == (1, 5)


async def test_a_failing_jump_host_is_named(nodes: Nodes, empty_root: str) -> None:
    nodes.write_config("Host gpu*\n  ProxyJump 127.0.0.1:1\n")
    async with live(nodes, empty_root, Host(name="gpu1"), Host(name="gpu2")) as feed:
        latest, _ = await watch(feed, are(NodeState.FAILED, "gpu1", "gpu2"))
    for name in ("gpu1", "gpu2"):
        assert latest[name].reason == (
            "jump host 127.0.0.1:1: connection refused by 127.0.0.1:1: is sshd running, is the"
            " port right?"
        )


async def test_a_node_that_its_jump_host_cannot_reach(nodes: Nodes, empty_root: str) -> None:
    class Jump(Bastion):
        pass

    jump = await nodes.listen(server=Jump)
    nodes.write_config(f"Host gpu1\n  HostName 127.0.0.1\n  ProxyJump 127.0.0.1:{jump}\n")
    async with live(nodes, empty_root, Host(name="gpu1", port=1)) as feed:
        latest, _ = await watch(feed, are(NodeState.FAILED, "gpu1"))
    assert latest["gpu1"].reason.startswith(f"127.0.0.1:{jump} cannot reach 127.0.0.1:1")


async def test_the_ssh_agent_and_the_environment_are_not_forwarded(
    nodes: Nodes, empty_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forwarded: list[object] = []

    async def node(process: Process) -> None:
        forwarded.extend([process.channel.get_agent_path(), dict(process.env), process.term_type])
        await speaks(hello_line(), frame_line(0))(process)

    monkeypatch.setenv("SSH_AUTH_SOCK", str(nodes.directory / "agent"))
    nodes.write_config("Host *\n  ForwardAgent yes\n  SendEnv *\n  RequestTTY yes\n")
    port = await nodes.listen(node)
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        await watch(feed, are(NodeState.UP, "gpu1"))
    assert forwarded == [None, {}, None]


@contextmanager
def no_blocking_calls() -> Iterator[None]:
    """A blocking call inside the event loop raises."""
    guard = BlockBuster()
    guard.activate()
    try:
        yield
    finally:
        guard.deactivate()


async def test_the_event_loop_is_never_blocked(nodes: Nodes, empty_root: str) -> None:
    frames = [frame_line(seq) for seq in range(40)]
    port = await nodes.listen(speaks(hello_line(), *frames, pause_s=INTERVAL_S))
    async with live(nodes, empty_root, ssh_host("gpu1", port)) as feed:
        with no_blocking_calls():
            await watch(feed, are(NodeState.UP, "gpu1"))
