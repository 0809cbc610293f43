"""`make score-packets`: the detectors on packet-level scenes.

python -m tests.packets --scenes DIR --only f_up,f_down --list --json score.json
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.packets.scene import load
from tests.packets.score import SceneScore, as_values, score
from tests.packets.table import faults, table
from tests.score import revisions
from tests.score.revisions import IN_USE

_SCENES = Path(__file__).parents[2] / "../shared/scenes"
_USAGE_ERROR = 2


def main(words: Sequence[str] | None = None) -> int:
    """Play and judge the scenes, print the table: returns the exit code."""
    ask = argparse.ArgumentParser(prog="python -m tests.packets")
    ask.add_argument(
        "--scenes",
        type=Path,
        default=_SCENES,
        help="the directory with the scenes (default: ../shared/scenes beside the repository)",
    )
    ask.add_argument("--only", metavar="NAME[,NAME]", help="only these scenes")
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--list", action="store_true", help="print every wrong and missed finding")
    ask.add_argument("--json", type=Path, metavar="FILE", help="also every figure, as JSON")
    revisions.add_options(ask)
    given = ask.parse_args(words)
    try:
        paths = _paths(given.scenes, given.only)
    except ValueError as error:
        print(error, file=sys.stderr)
        return _USAGE_ERROR
    began = time.monotonic()
    if given.workers > 1 and len(paths) > 1:
        with ProcessPoolExecutor(given.workers) as pool:
            scenes = list(pool.map(_score, paths))
    else:
        scenes = [_score(path) for path in paths]
    if given.pickle is not None:
        given.pickle.write_bytes(pickle.dumps(scenes))
        return 0
    same = ["--scenes", str(given.scenes.absolute()), "--only", ",".join(p.stem for p in paths)]
    scores = {IN_USE: scenes}
    scores |= {name: revisions.scores_at(name, "tests.packets", same) for name in given.beside}
    print(table(scores))
    print(f"{time.monotonic() - began:.0f} s")
    if given.list:
        print("\n".join(["", *faults(scores)]))
    if given.json is not None:
        values = {name: as_values(each) for name, each in scores.items()}
        given.json.write_text(json.dumps(values, indent=1))
    return 0


def _paths(directory: Path, only: str | None) -> list[Path]:
    """The files of the scenes. Raises ValueError where there are none."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such directory; --scenes selects another one")
    paths = {path.stem: path for path in sorted(directory.glob("*.npz"))}
    if not paths:
        raise ValueError(f"{directory}: no scenes (*.npz)")
    if only is None:
        return list(paths.values())
    names = only.split(",")
    unknown = [name for name in names if name not in paths]
    if unknown:
        raise ValueError(f"{directory}: no scene named {', '.join(unknown)}")
    return [paths[name] for name in names]


def _score(path: Path) -> SceneScore:
    return score(load(path))


if __name__ == "__main__":
    sys.exit(main())
