"""`make new-source`, `new-cause` and `new-metric`, each in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skeletons.__main__ import KINDS, NotMade, make

ROOT = Path(__file__).parents[2]


def copied(to: Path) -> Path:
    """What a new test of one module needs of the tree."""
    large = shutil.ignore_patterns("__pycache__", "goldens", "corpus", "releases", "*.fabrec")
    for name in ("collectors", "fabmon", "config", "tests"):
        shutil.copytree(ROOT / name, to / name, ignore=large)
    shutil.copy(ROOT / "pyproject.toml", to)
    return to


@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_is_imported_and_its_test_passes(tmp_path: Path, kind: str) -> None:
    root = copied(tmp_path)
    made = make(kind, "made_up", root)
    (test,) = [path for path in made if path.name == "test_made_up.py"]

    def run(*command: object) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        arguments = [sys.executable, "-m", *(str(each) for each in command)]
        done = subprocess.run(arguments, cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    code = [path for path in made if path.suffix == ".py"]
    run("ruff", "check", "-q", "--fix", *code)
    run("ruff", "format", "-q", *code)
    run("pytest", "-q", "-p", "no:cacheprovider", test)
    with pytest.raises(NotMade, match="exists"):
        make(kind, "made_up", root)


def test_what_is_no_name_of_a_module_is_refused_and_nothing_written(tmp_path: Path) -> None:
    for kind, name in (("source", "Made-Up"), ("cause", ""), ("colour", "red")):
        with pytest.raises(NotMade, match="a name such as slow_receiver"):
            make(kind, name, tmp_path)
    assert not any(tmp_path.iterdir())
