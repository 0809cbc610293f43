"""Fixtures of the feeds' tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.feeds.ssh_servers import Nodes


@pytest.fixture
def empty_root(tmp_path: Path) -> str:
    """A root directory for probes without any devices."""
    root = tmp_path / "root"
    root.mkdir()
    return str(root)


@pytest.fixture
async def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nodes]:
    """A factory of SSH servers, isolated from the SSH setup of the user who runs the tests."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    directory = tmp_path / "ssh"
    directory.mkdir()
    made = Nodes(directory)
    yield made
    await made.close()
