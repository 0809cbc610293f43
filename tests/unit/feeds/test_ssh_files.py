"""Files of the user's home, where its file system hangs: a named pipe stands for one of it."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh
import pytest

from fabmon.fabric.model import Host
from fabmon.feeds.errors import Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports import ssh_dialer
from fabmon.feeds.transports.ssh import SshTransport
from fabmon.feeds.transports.ssh_known_hosts import _load_file
from fabmon.session.errors import UsageError
from fabmon.session.session import Session


async def test_an_ssh_config_that_cannot_be_read_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_dialer, "_CONFIGURATION_S", 0.2)
    config = tmp_path / "config"
    os.mkfifo(config)
    transport = SshTransport(ProbeSettings(), str(config))
    writer = -1
    try:
        for _ in range(5):
            with pytest.raises(Unreachable, match=r"were not read in 0\.2 s: is ~ available") as no:
                await transport.open(Host(name="gpu1", address="127.0.0.1", port=9))
            assert no.value.cause == "ssh config"
        # One thread waits, however often it was tried.
        writer = os.open(config, os.O_WRONLY | os.O_NONBLOCK)
    finally:
        await transport.close()
        os.close(writer)


def test_known_hosts_that_is_a_pipe_has_no_keys(tmp_path: Path) -> None:
    pipe = tmp_path / "known_hosts"
    os.mkfifo(pipe)
    entries = asyncssh.SSHKnownHosts()
    _load_file(entries, pipe)
    _load_file(entries, Path("/dev/zero"))
    assert not entries.match("gpu1", "", None)[0]


@pytest.mark.parametrize("kind", ["pipe", "large", "endless"])
def test_an_ssh_config_that_is_no_small_file_is_refused(tmp_path: Path, kind: str) -> None:
    config = tmp_path / "config"
    if kind == "pipe":
        os.mkfifo(config)
    elif kind == "endless":
        config.symlink_to("/dev/zero")
    else:
        config.touch()
        os.truncate(config, 1 << 40)
    settings = tmp_path / "fabmon.toml"
    settings.touch()
    Session.load(settings, (), Path(os.devnull))  # As in ssh: no configuration.
    with pytest.raises(UsageError, match="not a file of at most 16 MiB"):
        Session.load(settings, (), config)
