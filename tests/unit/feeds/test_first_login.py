"""The first login of a new user to a real sshd: each message says what to do, and it works."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabmon.cli.main import cli
from fabmon.fabric.model import Host
from fabmon.feeds.errors import HostKeyError, NodeError
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.ssh import SshTransport
from fabmon.session.errors import UsageError
from tests.unit.feeds.real_sshd import RealSshd, make_key, real_sshd

PASSPHRASE = "one two three"
PROXY = """#!/usr/bin/env python3
import os, socket, sys, threading
node = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def send():
    while data := os.read(0, 65536):
        node.sendall(data)
    node.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := node.recv(65536):
    os.write(1, data)
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    with real_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


class Account:
    """The home directory of a new user, and logins from it."""

    def __init__(self, home: Path, sshd: RealSshd) -> None:
        self.home = home
        self.ssh = home / ".ssh"
        self.sshd = sshd
        self.host = Host(name="gpu1", address="127.0.0.1", port=sshd.port)

    def config(self, text: str) -> None:
        self.ssh.mkdir(exist_ok=True)
        (self.ssh / "config").write_text(text)

    def key(self, name: str = "id_ed25519", passphrase: str = "", *, accepted: bool = True) -> Path:
        self.ssh.mkdir(exist_ok=True)
        make_key(self.ssh / name, passphrase)
        if accepted:
            self.accept(self.ssh / f"{name}.pub")
        return self.ssh / name

    def accept(self, public: Path) -> None:
        """What the owner of the node does."""
        with self.sshd.authorized_keys.open("a") as file:
            file.write(public.read_text())

    def trust(self) -> None:
        self.ssh.mkdir(exist_ok=True)
        self.shell(f"ssh-keyscan -p {self.sshd.port} 127.0.0.1 >> ~/.ssh/known_hosts")

    def shell(self, line: str, **env: str) -> None:
        """Run a line of advice in the user's shell."""
        subprocess.run(
            ["bash", "-c", line],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, **env},
        )

    async def login(self, config: Path | None = None, host: Host | None = None) -> None:
        """Log in and end the probe at once. Raises NodeError."""
        transport = SshTransport(
            ProbeSettings(root="/nonexistent"), str(config) if config else None
        )
        try:
            session = await transport.open(host or self.host)
            await session.close()
        finally:
            await transport.close()

    async def refusal(self) -> str:
        with pytest.raises(NodeError) as caught:
            await self.login()
        return str(caught.value)


@pytest.fixture
def account(tmp_path: Path, sshd: RealSshd, monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    sshd.authorized_keys.write_text("")
    return Account(tmp_path, sshd)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent that holds no keys."""
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    while not path.exists():
        assert process.poll() is None
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield
    process.terminate()
    process.wait(10)


def children() -> str:
    """The processes that this one has started."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


@pytest.fixture
async def proxies_end() -> AsyncIterator[None]:
    """Wait for every ProxyCommand: asyncssh does not wait for one that it ends."""
    before = children()
    yield
    while children() != before:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def add_to_agent(account: Account, line: str) -> None:
    """Run an ssh-add of the advice, and answer its question for the passphrase."""
    ask = account.home / "askpass"
    ask.write_text(f"#!/bin/sh\necho '{PASSPHRASE}'\n")
    ask.chmod(0o700)
    account.shell(line, SSH_ASKPASS=str(ask), SSH_ASKPASS_REQUIRE="force")


async def test_without_a_folder_for_host_keys_the_advice_makes_it(account: Account) -> None:
    key = account.key()
    account.config("")
    key.rename(account.home / "key")
    for file in account.ssh.iterdir():
        file.unlink()
    account.ssh.rmdir()
    with pytest.raises(HostKeyError) as caught:
        await account.login()
    account.shell(str(caught.value).partition("then: ")[2])
    account.config(f"IdentityFile {account.home}/key\n")
    await account.login()


@pytest.mark.parametrize("nowhere", ["/dev/null", "none"])
async def test_where_ssh_config_keeps_no_host_keys_those_of_the_usual_file_are_trusted(
    account: Account, nowhere: str
) -> None:
    account.key()
    account.config(f"Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile {nowhere}\n")
    message = await account.refusal()
    assert "ssh_config keeps none; fabmon always checks" in message
    account.shell(message.partition("then: ")[2])
    await account.login()


async def test_a_changed_host_key_is_forgotten_and_accepted(account: Account) -> None:
    account.key()
    make_key(account.home / "other")
    other = " ".join((account.home / "other.pub").read_text().split()[:2])
    (account.ssh / "known_hosts").write_text(f"[127.0.0.1]:{account.sshd.port} {other}\n")
    message = await account.refusal()
    forget, _, accept = message.partition("If that is expected: ")[2].partition("; ")
    file = account.ssh / "known_hosts"
    # ssh-keygen takes the home directory from the password file, not from the environment.
    account.shell(forget.replace("ssh-keygen ", f"ssh-keygen -f {file} "))
    account.shell(accept)
    await account.login()


@pytest.mark.usefixtures("proxies_end")
@pytest.mark.parametrize("way", ["HostKeyAlias node-one", "ProxyCommand {proxy} %p"])
async def test_a_host_key_that_keyscan_cannot_get_is_accepted_by_ssh(
    account: Account, tmp_path: Path, way: str
) -> None:
    key = account.key()
    proxy, file = tmp_path / "proxy", tmp_path / "site_config"
    proxy.write_text(PROXY)
    proxy.chmod(0o700)
    file.write_text(
        f"Host gpu1\n  HostName 127.0.0.1\n  {way.format(proxy=proxy)}\n  IdentityFile {key}\n"
        f"  UserKnownHostsFile {tmp_path}/known_hosts\n"
    )
    host = Host(name="gpu1", port=account.sshd.port)
    with pytest.raises(HostKeyError) as caught:
        await account.login(file, host)
    account.shell(str(caught.value).partition("then: ")[2])
    await account.login(file, host)


async def test_no_key_at_all(account: Account) -> None:
    account.trust()
    message = await account.refusal()
    assert "there is no key here to log in with: make one with ssh-keygen" in message
    make = message.partition("make one with ")[2].partition(",")[0]
    account.shell(f"{make} -N ''")
    added = message.partition("and add ")[2].partition(" to authorized_keys")[0]
    account.accept(account.home / added.removeprefix("~/"))
    await account.login()


async def test_a_key_that_the_node_does_not_know(account: Account) -> None:
    key = account.key(accepted=False)
    account.trust()
    message = await account.refusal()
    assert "it accepts none of our keys (~/.ssh/id_ed25519): add ~/.ssh/id_ed25519.pub" in message
    account.accept(Path(f"{key}.pub"))
    await account.login()


async def test_a_key_with_a_passphrase_and_an_agent_without_it(
    account: Account, agent: None
) -> None:
    account.key(passphrase=PASSPHRASE)
    account.trust()
    message = await account.refusal()
    assert "~/.ssh/id_ed25519 has a passphrase, and no agent holds it: ssh-add" in message
    add_to_agent(account, message.partition("holds it: ")[2])
    await account.login()


async def test_a_key_with_a_passphrase_and_no_agent(account: Account) -> None:
    account.key(passphrase=PASSPHRASE)
    account.trust()
    assert 'holds it: eval "$(ssh-agent)"; ssh-add ~/.ssh/id_ed25519' in await account.refusal()


async def test_an_agent_signs_for_a_key_with_a_passphrase_that_ssh_config_names(
    account: Account, agent: None
) -> None:
    key = account.key("work", PASSPHRASE)
    account.key("other", accepted=False)
    key.with_suffix(".pub").unlink()
    account.trust()
    add_to_agent(account, "ssh-add ~/.ssh/work ~/.ssh/other")
    account.config("IdentityFile ~/.ssh/work\nIdentitiesOnly yes\n")
    await account.login()
    account.config("IdentityFile ~/.ssh/other\nIdentitiesOnly yes\n")
    assert "none of our keys (~/.ssh/other, 1 key of the agent)" in await account.refusal()


@pytest.mark.parametrize("only", ["yes", "no"])
async def test_a_public_key_as_identity_file_selects_a_key_of_the_agent(
    account: Account, agent: None, only: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = account.key("work", PASSPHRASE)
    account.trust()
    account.config(f"IdentityFile ~/.ssh/work.pub\nIdentitiesOnly {only}\n")
    message = await account.refusal()
    assert "~/.ssh/work.pub is a public key, and no agent holds its key" in message
    add_to_agent(account, message.rpartition("holds its key: ")[2])
    caplog.clear()
    key.unlink()
    await account.login()
    assert caplog.messages == []


@pytest.mark.parametrize("option", ["CertificateFile", "IdentityFile", "Include"])
@pytest.mark.timeout(60)
async def test_what_ssh_config_names_and_is_no_file_is_not_read(
    account: Account, option: str
) -> None:
    """A certificate was: a pipe without end, of /dev/zero 2.7 GB in 10 s."""
    account.key("work")
    account.trust()
    account.config(f"{option} {account.ssh}/pipe\nIdentityFile ~/.ssh/work\n")
    os.mkfifo(account.ssh / "pipe")
    await account.login()


async def test_a_file_that_includes_itself_is_said(account: Account) -> None:
    """As `internal error in fabmon: RecursionError`."""
    account.trust()
    account.config(f"Include {account.ssh}/config\n")
    assert "Include leads back to itself" in await account.refusal()


async def test_an_identity_file_that_does_not_exist_is_skipped_and_said_once(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    account.key("work")
    account.trust()
    (account.ssh / "putty").write_text("PuTTY-User-Key-File-3: ssh-ed25519\n")
    account.config(
        "IdentityFile ~/.ssh/gone\nIdentityFile ~/.ssh/putty\nIdentityFile ~/.ssh/work\n"
        "CertificateFile ~/.ssh/no-cert.pub\n"
    )
    transport = SshTransport(ProbeSettings(root="/nonexistent"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            session = await transport.open(account.host)
            await session.close()
    await transport.close()
    gone, putty = caplog.messages
    assert "skipped: ~/.ssh/gone does not exist" in gone
    assert "skipped: ~/.ssh/putty is no private key" in putty


async def test_only_identity_files_that_do_not_exist(account: Account) -> None:
    account.key()
    account.trust()
    account.config("IdentityFile ~/.ssh/gone\n")
    message = await account.refusal()
    assert "no key to offer: ~/.ssh/gone does not exist: name a key file that exists" in message
    account.config("IdentityFile ~/.ssh/id_ed25519\n")
    await account.login()


async def test_a_usual_key_file_that_is_no_key_loses_no_node(account: Account) -> None:
    account.key()
    account.trust()
    (account.ssh / "id_rsa").write_text("not a key\n")
    await account.login()


async def test_identity_file_none_offers_no_key(account: Account) -> None:
    account.key()
    account.trust()
    account.config("IdentityFile none\n")
    assert "there is no key here to log in with" in await account.refusal()


async def test_an_agent_that_does_not_answer_loses_no_node(account: Account) -> None:
    account.key()
    account.trust()
    account.config("IdentityAgent ~/.ssh/no-agent.sock\n")
    await account.login()
    account.config("IdentityAgent none\n")
    await account.login()


def test_forty_nodes_with_unknown_host_keys_are_one_line_with_one_command(
    account: Account, tmp_path: Path
) -> None:
    account.key()
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"gpu[01-40] address=127.0.1.[1-40] port={account.sshd.port}\n")
    command = [sys.executable, "-m", "fabmon", "--hosts", str(hosts), "--once", "--duration", "8s"]
    before = subprocess.run(command, capture_output=True, text=True)
    failed, _ = before.stdout.splitlines()
    assert failed.startswith("x gpu[01-40] (40 nodes) failed: host key unknown: ssh-ed25519")
    account.shell(failed.partition("then: ")[2])
    after = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
    states = {node["state"] for node in json.loads(after.stdout)["nodes"]}
    assert "failed" not in states, after.stdout


def test_an_ssh_config_that_does_not_exist_is_an_error(account: Account) -> None:
    found = CliRunner().invoke(cli, ["doctor", "--host", "gpu1", "--ssh-config", "TYPO"])
    assert isinstance(found.exception, UsageError)
    assert str(found.exception) == "--ssh-config TYPO: no such file"


async def test_an_agent_with_more_keys_than_the_node_permits(account: Account, agent: None) -> None:
    for number in range(8):
        account.key(f"work{number}", accepted=number == 7)
    account.shell("ssh-add ~/.ssh/work?")
    account.trust()
    message = await account.refusal()
    assert "Too many authentication failures" in message
    assert "(8 keys of the agent)" in message
    file, only = message.partition("in ssh_config: ")[2].split(" and ")
    account.config(f"{file.replace('FILE', '~/.ssh/work7.pub')}\n{only}\n")
    await account.login()


@pytest.mark.usefixtures("proxies_end")
async def test_a_proxy_command_that_is_not_installed_or_fails(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.key()
    account.trust()
    account.config("ProxyCommand site-proxy %p\n")
    message = await account.refusal()
    assert "ProxyCommand site-proxy: no such file or directory on this machine: install" in message
    proxy = tmp_path / "site-proxy"
    proxy.write_text("#!/bin/sh\n")
    proxy.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert "ProxyCommand site-proxy ended before SSH began: run it" in await account.refusal()
    proxy.write_text(PROXY)
    await account.login()
