"""Made-up tests that fail beside others: run again alone, once, and named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import run_again

ROOT = Path(run_again.__file__).parents[1]
FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", {names})
def test_fails_once(name):
    mark = Path(__file__).with_name(name)
    if not mark.exists():
        mark.touch()
        raise AssertionError
"""
PASSES = "def test_passes(): pass\n"


def run(directory: Path, *options: str, **modules: str) -> tuple[int, str]:
    """The exit status and the output of a run over modules of these names."""
    for name, text in modules.items():
        (directory / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "tests.run_again", str(directory / "names")]
    done = subprocess.run(
        # Else the root is what the checkout and the directory have in common, if that is not /.
        [*command, "-q", "-p", "xdist.plugin", f"--rootdir={directory}", *options, str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [("-n", "2", "--dist", "worksteal"), ()])
def test_what_fails_once_is_named_and_passes(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, said = run(tmp_path, *options, a=FAILS_ONCE.format(names=["one", "two"]), b=PASSES)
    assert status == 0
    assert "2 passed, 1 deselected" in said
    names = (tmp_path / "names").read_text()
    assert said.endswith(names)
    assert names == (
        "\npassed only when run again alone:\n"
        "  test_a.py::test_fails_once[one]\n  test_a.py::test_fails_once[two]\n"
    )


def test_where_nothing_fails_nothing_is_run_again(tmp_path: Path) -> None:
    status, said = run(tmp_path, a=PASSES)
    assert status == 0
    assert said.count(" passed in ") == 1
    assert "again" not in said


def test_what_always_fails_fails(tmp_path: Path) -> None:
    always = "def test_fails(): assert 0\n"
    status, said = run(tmp_path, a=FAILS_ONCE.format(names=["one"]), b=always)
    assert status == 1
    assert "1 failed, 1 passed" in said, "both were run again"
    assert "passed only" not in said


def test_what_is_skipped_alone_has_not_passed(tmp_path: Path) -> None:
    skips = FAILS_ONCE.format(names=["one"]) + "    pytest.skip('alone')\n"
    assert run(tmp_path, a=skips)[0] == 1


def test_a_fixture_that_fails_once_is_a_failure_of_its_test(tmp_path: Path) -> None:
    text = FAILS_ONCE.replace("def test_", "def ").format(names=["one"])
    text += "\n@pytest.fixture\ndef torn():\n    yield\n    fails_once('one')\n"
    status, said = run(tmp_path, a=text + "\ndef test_torn(torn): pass\n")
    assert status == 0
    assert "\n  test_a.py::test_torn\n" in said


@pytest.mark.parametrize(
    ("options", "modules"),
    [
        ((), {"a": "import nothing_of_this_name\n", "b": FAILS_ONCE.format(names=["one"])}),
        (("-n", "2"), {"a": "import nothing_of_this_name\n", "b": PASSES}),
        (
            ("--continue-on-collection-errors",),
            {"a": "import nothing_of_this_name\n", "b": FAILS_ONCE.format(names=["one"])},
        ),
        (("-x",), {"a": FAILS_ONCE.format(names=["one"]), "b": PASSES}),
        (("-k", "nothing"), {"a": PASSES}),
        ((), {"a": FAILS_ONCE.format(names=[str(name) for name in range(run_again.MOST + 1)])}),
    ],
    ids=["collection", "collection in workers", "collection went on", "stopped", "none", "many"],
)
def test_these_fail_at_once(
    tmp_path: Path, options: tuple[str, ...], modules: dict[str, str]
) -> None:
    status, said = run(tmp_path, *options, **modules)
    assert status
    assert "again" not in said
