"""What fabmon of another commit finds in the same runs: `--beside COMMIT`."""

from __future__ import annotations

import pickle
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

IN_USE = "fabmon"
"""The name of this tree."""

_ROOT = Path(__file__).parents[2]
_PRODUCT = ("fabmon", "collectors", "config")


def add_options(ask: ArgumentParser) -> None:
    """The options of a command that scores two commits."""
    ask.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="COMMIT",
        help="also what fabmon of this commit finds in the same runs; may be given more than once",
    )
    ask.add_argument("--pickle", type=Path, metavar="FILE", help="only write the scores to FILE")


def scores_at(commit: str, module: str, words: Sequence[str]) -> Any:
    """What `python -m MODULE WORDS --pickle FILE` writes, with the product of `commit` and the
    simulator, the scenes and the judges of this tree.

    Raises SystemExit for a commit that this repository does not have, or whose product has not the
    modules that this tree's tests call.
    """
    with exported(commit) as root:
        written = root / "scores.pickle"
        command = [sys.executable, "-m", module, *words, "--pickle", str(written)]
        if subprocess.run(command, cwd=root, check=False, stdout=subprocess.DEVNULL).returncode:
            raise SystemExit(f"--beside {commit}: these tests cannot run its product")
        return pickle.loads(written.read_bytes())


@contextmanager
def exported(commit: str) -> Iterator[Path]:
    """A directory with the product of `commit`, and the tests of this tree."""
    packed = subprocess.run(
        ["git", "archive", commit, *_PRODUCT], cwd=_ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        raise SystemExit(f"--beside {commit}: {packed.stderr.decode().strip()}")
    with TemporaryDirectory(prefix="fabmon-beside-") as name:
        subprocess.run(["tar", "x", "-C", name], input=packed.stdout, check=True)
        (Path(name) / "tests").symlink_to(_ROOT / "tests")
        yield Path(name)
