from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.recordings import Watching


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 s with a collision on leaf1 up3 from 20 to 45 s; one job, 8801."""
    path = tmp_path_factory.mktemp("query") / "incident.fabrec"
    Watching().record(path, 100)
    return path
