"""Wheels that several tests of packages use: made once, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import installed_wheels


@pytest.fixture(scope="package")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fabmon's wheel."""
    return installed_wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="package")
def wheels(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """fabmon's wheel and those of all that it needs on this machine."""
    return [wheel, *installed_wheels.dependencies(tmp_path_factory.mktemp("wheels"))]
