from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.recording.builders import demo_recording


@pytest.fixture(scope="session")
def pod7(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """70 seconds of the tour that ended just now: a collision, a slow receiver, a lost node."""
    path = tmp_path_factory.mktemp("pod7") / "pod7.fabrec"
    return demo_recording(path, 70, faults_at_s=(10, 35, 57))
