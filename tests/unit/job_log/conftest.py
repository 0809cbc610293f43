"""A recording for the logs of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.recording.builders import demo_recording

START_S = 1777924800
"""2026-05-04 20:00:00Z."""


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 s from 20:00:00Z: gpu006 r3 is slow from 20:00:35 on."""
    path = tmp_path_factory.mktemp("recorded") / "run.fabrec"
    return demo_recording(path, 90, start_ns=START_S * 10**9, faults_at_s=(10, 35, 57))
