"""What `pip install .` may install: releases compatible with the locked, tested ones."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"].values()
REQUIREMENTS = [Requirement(each) for each in sum(EXTRAS, PROJECT["dependencies"])]
# Its names are looked up at run time: a newer driver's module works with fabmon as well.
UNLIMITED = "nvidia-ml-py"


def locked(name: str) -> list[Version]:
    lock = (ROOT / "requirements.lock").read_text()
    found = re.findall(rf"(?m)^{re.escape(canonicalize_name(name))}==([^ ]+)", lock)
    return [Version(each) for each in found]


@pytest.mark.parametrize(
    "required",
    [each for each in REQUIREMENTS if each.name != UNLIMITED],
    ids=lambda each: each.name,
)
def test_a_dependency_is_limited_to_releases_compatible_with_the_tested_one(
    required: Requirement,
) -> None:
    newest = max(locked(required.name))
    breaking = f"0.{newest.minor + 1}" if newest.major == 0 else f"{newest.major + 1}"
    assert f"<{breaking}" in [str(each) for each in required.specifier]
    assert all(required.specifier.contains(each) for each in locked(required.name))
